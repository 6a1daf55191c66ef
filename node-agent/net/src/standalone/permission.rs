//! What a process must be allowed to do.

use std::fs;

/// Capabilities by their bits (linux/capability.h), and what for: ports 67 and 547; links, addresses and rules; the raw
/// socket of advertisements; namespaces.
const NEEDED: [(u32, &str); 4] = [
    (10, "CAP_NET_BIND_SERVICE"),
    (12, "CAP_NET_ADMIN"),
    (13, "CAP_NET_RAW"),
    (21, "CAP_SYS_ADMIN"),
];

/// Capabilities that a network needs and the calling thread does not have. Empty for root.
pub fn missing_capabilities() -> Vec<&'static str> {
    missing_in(&fs::read_to_string("/proc/thread-self/status").unwrap_or_default())
}

/// Those that are missing in the text of /proc/PID/status.
fn missing_in(status: &str) -> Vec<&'static str> {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    let has = |bit: u32| effective.unwrap_or_default() & (1 << bit) != 0;
    NEEDED.into_iter().filter(|(bit, _)| !has(*bit)).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_misses_nothing_and_a_user_everything() {
        assert!(missing_in("Name:\tx\nCapEff:\t000001ffffffffff\n").is_empty());
        let all = ["CAP_NET_BIND_SERVICE", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_ADMIN"];
        assert_eq!(missing_in("CapEff:\t0000000000000000\n"), all);
        assert_eq!(missing_in(""), all);
    }

    #[test]
    fn container_without_sys_admin_is_told_so() {
        assert_eq!(missing_in("CapEff:\t0000000000003400\n"), ["CAP_SYS_ADMIN"]);
    }
}
