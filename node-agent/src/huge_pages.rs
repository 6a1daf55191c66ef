//! Huge pages for guest memory.
//!
//! Guest memory is shared memory, for which the kernel's default is to have none, also for those who ask. A guest that boots
//! on small pages takes several times the page faults. Where the node says "never", it is made to say "advise": only
//! VM processes, which ask for their guests' memory, are any different for it. Whatever else an administrator chose stays.

use std::fs;
use std::io;
use std::path::Path;

/// The kernel's setting.
pub const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Lets processes that ask for them have huge pages; whether that had to be changed.
pub fn allow(setting: &Path) -> io::Result<bool> {
    // The choice stands in brackets among all there are.
    let never = fs::read_to_string(setting)?.contains("[never]");
    if never {
        fs::write(setting, "advise")?;
    }
    Ok(never)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_never_is_changed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (before, after) in [
            ("always within_size advise [never] deny force\n", "advise"),
            (
                "always within_size [advise] never deny force\n",
                "always within_size [advise] never deny force\n",
            ),
            (
                "always within_size advise never [deny] force\n",
                "always within_size advise never [deny] force\n",
            ),
        ] {
            fs::write(file.path(), before).unwrap();
            assert_eq!(allow(file.path()).unwrap(), after == "advise");
            assert_eq!(fs::read_to_string(file.path()).unwrap(), after);
        }
    }
}
