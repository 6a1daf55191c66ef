//! `corten run`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corten_resources::defaults::{Identity, with_defaults};
use corten_resources::served::Scope;
use corten_resources::types::VirtualMachineInstance;

use super::report::{Outcome, Report};
use super::{start, unused};
use crate::failure::Failure;
use crate::job::{self, Job};
use crate::manifest::{Document, Examined, Selection, documents, examine};
use crate::oci::ImageStore;
use crate::options::{Assignment, Run};
use crate::phase;
use crate::place::{PlaceError, Runtime};
use crate::supervisor::{NetworkError, check_networks};

/// Boots the VM of some manifests.
pub(super) fn run(
    runtime: impl FnOnce() -> Result<Runtime, PlaceError>,
    options: &Run,
) -> Result<u8, Failure> {
    let begun = phase::now();
    let what = options.files.first().map_or(Path::new("-"), PathBuf::as_path);
    let mut report = Report::open(options.how.junit.as_deref(), what, begun)?;
    let outcome = runtime()
        .map_err(Into::into)
        .and_then(|runtime| run_reported(&runtime, options, begun, &mut report));
    report.finish(outcome)
}

fn run_reported(
    runtime: &Runtime,
    options: &Run,
    begun: u64,
    report: &mut Report,
) -> Result<Outcome, Failure> {
    let mut selection = Selection::of(documents::read_all(&options.files)?)?;
    for passed_over in &selection.passed_over {
        super::say(&format!("{passed_over} is passed over"));
    }
    if let Some(name) = &options.name {
        runtime.of(name)?;
        selection.machine.rename(name);
    }
    let mut vmi = accepted(&selection.machine)?;
    report.name.clone_from(&vmi.metadata.name);
    // Also of a name that comes from the manifest: it becomes a directory.
    runtime.of(&vmi.metadata.name)?;
    for warning in unused::warnings(options, &vmi) {
        super::say(&format!("warning: {warning}"));
    }
    complete(&mut vmi);
    let how = &options.how;
    let network = start::network(how)?;
    // What the command line does not say is missed before anything is made.
    check_networks(&vmi, &network).map_err(|error| match error {
        NetworkError::Field(finding) => Failure::Refused {
            title: selection.machine.title(),
            findings: vec![selection.machine.placed(finding)],
        },
        error => Failure::Said(error.to_string()),
    })?;
    let job = Job {
        version: job::VERSION,
        name: vmi.metadata.name.clone(),
        grace: u32::try_from(vmi.spec.grace_period().as_secs()).unwrap_or(u32::MAX),
        vmi,
        in_template: selection.machine.kind == documents::MACHINE,
        sources: selection.sources,
        volumes: assigned(&options.volumes)?,
        images: assigned(&options.images)?,
        image_dir: options.image_dir.as_deref().map(absolute).transpose()?,
        cache: absolute(&options.cache.clone().unwrap_or_else(ImageStore::default_cache))?,
        network,
        scratch: start::scratch(how)?,
        vmm: start::ready(how)?,
        seccomp_log: start::seccomp_log(how),
        exit_status: how.exit_status,
        guest_status: None,
        timeout: how.timeout,
        log: start::log(how)?,
        begun,
        restore: None,
    };
    start::start(runtime, &job, how, report)
}

/// What is to be run of a document. Its user is told what makes no difference.
fn accepted(document: &Document) -> Result<VirtualMachineInstance, Failure> {
    let Examined { mut findings, vmi } = examine(document);
    for warning in findings.extract_if(.., |finding| !finding.is_refusal()) {
        super::say(&format!("warning: {warning}"));
    }
    vmi.ok_or_else(|| Failure::Refused { title: document.title(), findings })
}

/// Decides what the object leaves open.
///
/// Addresses and UUID follow from this machine and the name: a guest finds itself the same when it is run again, and is not
/// taken for one of the same name on another machine.
fn complete(vmi: &mut VirtualMachineInstance) {
    let VirtualMachineInstance { metadata, spec, .. } = vmi;
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let namespace = format!("{}/{}", machine.trim(), metadata.namespace);
    let own = Identity { namespace: &namespace, name: &metadata.name, uid: &metadata.uid };
    metadata.uid = own.uuid();
    let identity =
        Identity { namespace: &metadata.namespace, name: &metadata.name, uid: &metadata.uid };
    with_defaults(spec, identity, Scope::Standalone);
}

fn assigned(given: &[Assignment]) -> Result<BTreeMap<String, PathBuf>, Failure> {
    given.iter().map(|given| Ok((given.name.clone(), absolute(&given.path)?))).collect()
}

/// The supervisor stands elsewhere.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|source| Failure::Read { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use corten_resources::types::Interface;
    use serde_json::json;

    use super::*;

    #[test]
    fn guest_is_the_same_when_it_is_run_again_and_has_an_interface() {
        let completed = |name: &str| {
            let object = json!({"metadata": {"name": name}, "spec": {"domain": {"devices": {}}}});
            let mut vmi: VirtualMachineInstance = serde_json::from_value(object).unwrap();
            complete(&mut vmi);
            vmi
        };
        let (one, again, other) = (completed("one"), completed("one"), completed("other"));
        assert_eq!(one.metadata.uid, again.metadata.uid);
        assert_ne!(one.metadata.uid, other.metadata.uid);
        let interfaces = |vmi: &VirtualMachineInstance| -> Vec<Interface> {
            vmi.spec.domain.devices.interfaces.clone()
        };
        assert!(interfaces(&one)[0].bridge.is_some(), "as in KubeVirt");
        assert_eq!(interfaces(&one), interfaces(&again));
        assert_ne!(interfaces(&one)[0].mac_address, interfaces(&other)[0].mac_address);
    }
}
