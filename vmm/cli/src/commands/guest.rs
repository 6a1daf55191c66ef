//! What `corten info` says of a guest by its agent.

use corten_link::{AgentReport, FreezeStatus, GuestInformation};

use super::list::{bytes, duration};

/// Lines of a name and a value. `now` is in seconds since the epoch.
pub(super) fn lines(report: &AgentReport, now: u64) -> Vec<(&'static str, String)> {
    let guest = &report.guest;
    let mut lines = vec![("guest agent", connection(report, now))];
    if let Some(system) = system(guest) {
        lines.push(("guest", system));
    }
    if !guest.host_name.is_empty() {
        lines.push(("host name", guest.host_name.clone()));
    }
    if guest.freeze == Some(FreezeStatus::Frozen) {
        lines.push(("file systems", "frozen".into()));
    }
    for disk in &guest.file_systems.disks {
        let used = match disk.total_bytes {
            0 => String::new(),
            total => format!(", {} of {} used", bytes(disk.used_bytes), bytes(total)),
        };
        let (place, kind, name) = (&disk.mount_point, &disk.file_system_type, &disk.disk_name);
        lines.push(("file system", format!("{place}: {kind} on {name}{used}")));
    }
    for interface in &guest.interfaces {
        let words = [interface.mac.clone(), interface.ip_addresses.join(", ")];
        let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
        lines.push(("interface", format!("{}: {}", interface.interface_name, words.join(" "))));
    }
    for user in &guest.users {
        let domain = if user.domain.is_empty() { "" } else { "@" };
        lines.push(("user", format!("{}{domain}{}", user.user_name, user.domain)));
    }
    lines
}

fn connection(report: &AgentReport, now: u64) -> String {
    let version = match report.guest.agent_version.as_str() {
        "" => String::new(),
        version => format!(", version {version}"),
    };
    match (report.connected, report.since, report.lost.as_str()) {
        (true, Some(since), _) => {
            format!("connected for {}{version}", duration(now.saturating_sub(since)))
        }
        (true, None, _) => format!("connected{version}"),
        (false, _, "") => "not connected".into(),
        (false, _, lost) => format!("not connected any more: {lost}"),
    }
}

fn system(guest: &GuestInformation) -> Option<String> {
    let os = &guest.os;
    let name = [&os.pretty_name, &os.name, &os.id].into_iter().find(|name| !name.is_empty());
    let kernel = (!os.kernel_release.is_empty()).then(|| format!("kernel {}", os.kernel_release));
    let words: Vec<String> = name.cloned().into_iter().chain(kernel).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(report: serde_json::Value) -> Vec<String> {
        let report: AgentReport = serde_json::from_value(report).unwrap();
        let lines = lines(&report, 1_000);
        lines.into_iter().map(|(name, value)| format!("{name}: {value}")).collect()
    }

    #[test]
    fn all_that_the_agent_told_is_shown() {
        let lines = shown(json!({
            "connected": true, "since": 880, "guest": {
                "guestAgentVersion": "10.0.3", "hostname": "greeter", "fsFreezeStatus": "frozen",
                "os": {"id": "debian", "prettyName": "Debian GNU/Linux 12 (bookworm)", "kernelRelease": "6.12.1"},
                "userList": [{"userName": "ada", "loginTime": 1.0}, {"userName": "bob", "domain": "corp", "loginTime": 1.0}],
                "fsInfo": {"disks": [
                    {"diskName": "vda1", "mountPoint": "/", "fileSystemType": "ext4", "usedBytes": 1 << 20, "totalBytes": 4 << 20},
                    {"diskName": "vdb", "mountPoint": "/x", "fileSystemType": "xfs", "usedBytes": 0, "totalBytes": 0},
                ]},
                "interfaces": [
                    {"interfaceName": "eth0", "mac": "02:00:00:00:00:01", "ipAddresses": ["10.0.2.2", "fd10:0:2::2"],
                     "infoSource": "guest-agent"},
                    {"interfaceName": "sit0", "infoSource": "guest-agent"},
                ],
            },
        }));
        let expected = [
            "guest agent: connected for 2 min, version 10.0.3",
            "guest: Debian GNU/Linux 12 (bookworm), kernel 6.12.1",
            "host name: greeter",
            "file systems: frozen",
            "file system: /: ext4 on vda1, 1 MiB of 4 MiB used",
            "file system: /x: xfs on vdb",
            "interface: eth0: 02:00:00:00:00:01 10.0.2.2, fd10:0:2::2",
            "interface: sit0: ",
            "user: ada",
            "user: bob@corp",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn agent_that_does_not_answer_is_told_with_the_reason() {
        assert_eq!(shown(json!({"connected": false})), ["guest agent: not connected"]);
        let lost = json!({"connected": false, "lost": "it closed its port"});
        assert_eq!(shown(lost), ["guest agent: not connected any more: it closed its port"]);
    }
}
