//! `corten explain`.

use corten_resources::served::help;

use crate::failure::Failure;

/// Says what Corten does with a field, or with those of an object.
pub(super) fn explain(path: &str) -> Result<u8, Failure> {
    let text = help(path.trim_end_matches('.')).ok_or_else(|| {
        Failure::Said(format!(
            "{path} is no field of a VirtualMachineInstance or VirtualMachine; paths begin with `spec.`"
        ))
    })?;
    super::print(&text)?;
    Ok(0)
}
