//! Devices by which the kernel moves a guest's packets itself.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use corten_link::{Role, RoleError};

/// Where the host has it.
pub const VHOST_NET: &str = "/dev/vhost-net";

/// One fresh device for each pair of queues of the interface that roles call `name`. All or none: without, the VM process moves
/// the packets.
pub fn vhost(device: &Path, name: &str, pairs: u16) -> Result<Vec<(Role, OwnedFd)>, RoleError> {
    let mut all = Vec::new();
    for pair in 0..pairs {
        let Ok(file) = File::options().read(true).write(true).open(device) else {
            return Ok(Vec::new());
        };
        all.push((Role::vhost(name, pair)?, file.into()));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_has_a_device_of_its_own_or_none_has() {
        let roles = |device: &str| -> Vec<String> {
            let all = vhost(Path::new(device), "net1", 2).unwrap();
            all.iter().map(|(role, _)| role.to_string()).collect()
        };
        assert_eq!(roles("/dev/null"), ["vhost/net1/0", "vhost/net1/1"]);
        assert!(roles("/nonexistent/vhost-net").is_empty());
    }
}
