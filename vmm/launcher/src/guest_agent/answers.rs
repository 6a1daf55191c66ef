//! From the agent's JSON to what is kept of it.
//!
//! Members that are not known are passed over, texts and lists are cut, entries of a list that make no sense are left out:
//! an agent may be newer than this, of another system, or not mean well. The limits together keep all that can be learned
//! below the size of one message of the link.

use std::net::IpAddr;

use serde_json::Value;

use super::protocol::Answer;
use corten_link::{
    AgentCommand, FileSystem, FileSystemDisk, FileSystems, FreezeStatus, GuestInterface, GuestUser,
    OperatingSystem,
};

/// qemu-ga 10 has 60 commands.
const COMMANDS: usize = 96;
/// As many as there are sessions on a busy jump host.
const USERS: usize = 32;
/// A guest has a few disks; more are mounts of containers.
const FILE_SYSTEMS: usize = 24;
/// A file system lies on more than one by LVM or RAID.
const DISKS: usize = 2;
/// KubeVirt shows ten that are not the VMI's own.
const INTERFACES: usize = 24;
const ADDRESSES: usize = 8;

/// Bytes of words that systems choose: kinds of file systems and buses.
const WORD: usize = 16;
/// Bytes of names that systems limit themselves: users, interfaces, disks, serial numbers, commands.
const NAME: usize = 48;
/// Bytes of what people write: versions, paths.
const TEXT: usize = 128;

/// The text `name` of an object: without control characters, at most `limit` bytes.
pub(super) fn text(object: &Value, name: &str, limit: usize) -> Option<String> {
    object.get(name)?.as_str().map(|text| cut(text, limit))
}

fn cut(text: &str, limit: usize) -> String {
    let mut kept = String::new();
    for character in text.chars().filter(|character| !character.is_control()) {
        if kept.len() + character.len_utf8() > limit {
            break;
        }
        kept.push(character);
    }
    kept
}

/// The first entries of a list that make sense.
fn list<T>(value: &Value, limit: usize, entry: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    Some(value.as_array()?.iter().filter_map(entry).take(limit).collect())
}

pub(super) fn info(value: &Value) -> Option<Answer> {
    let version = text(value, "version", NAME)?;
    let commands = list(value.get("supported_commands")?, COMMANDS, |entry| {
        let name = entry.get("name")?.as_str().filter(|name| is_command(name))?.to_owned();
        Some(AgentCommand { name, enabled: entry.get("enabled")?.as_bool()? })
    })?;
    Some(Answer::Info { version, commands })
}

/// Commands have names of letters, digits and dashes.
fn is_command(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=NAME).contains(&name.len()) && name.bytes().all(allowed)
}

pub(super) fn operating_system(value: &Value) -> Option<OperatingSystem> {
    value.as_object()?;
    let text = |name| text(value, name, TEXT).unwrap_or_default();
    Some(OperatingSystem {
        id: text("id"),
        name: text("name"),
        pretty_name: text("pretty-name"),
        version: text("version"),
        version_id: text("version-id"),
        kernel_release: text("kernel-release"),
        kernel_version: text("kernel-version"),
        machine: text("machine"),
    })
}

pub(super) fn host_name(value: &Value) -> Option<String> {
    // The longest name that DNS allows has 253 bytes.
    text(value, "host-name", 253)
}

pub(super) fn timezone(value: &Value) -> Option<String> {
    let offset = value.get("offset")?.as_i64()?;
    let zone = text(value, "zone", NAME).unwrap_or_default();
    Some(format!("{zone}, {offset}"))
}

pub(super) fn users(value: &Value) -> Option<Vec<GuestUser>> {
    list(value, USERS, |entry| {
        Some(GuestUser {
            user_name: text(entry, "user", NAME)?,
            domain: text(entry, "domain", NAME).unwrap_or_default(),
            login_time: entry.get("login-time").and_then(Value::as_f64).unwrap_or_default(),
        })
    })
}

pub(super) fn file_systems(value: &Value) -> Option<FileSystems> {
    let disks = list(value, FILE_SYSTEMS, |entry| {
        let number = |name| entry.get(name).and_then(Value::as_u64).unwrap_or_default();
        let disk = entry.get("disk").and_then(|disks| list(disks, DISKS, disk));
        Some(FileSystem {
            disk_name: text(entry, "name", NAME)?,
            mount_point: text(entry, "mountpoint", TEXT)?,
            file_system_type: text(entry, "type", WORD)?,
            used_bytes: number("used-bytes"),
            total_bytes: number("total-bytes"),
            disk: disk.unwrap_or_default(),
        })
    })?;
    Some(FileSystems { disks })
}

fn disk(entry: &Value) -> Option<FileSystemDisk> {
    let bus_type = text(entry, "bus-type", WORD)?;
    Some(FileSystemDisk { serial: text(entry, "serial", NAME).unwrap_or_default(), bus_type })
}

pub(super) fn interfaces(value: &Value) -> Option<Vec<GuestInterface>> {
    list(value, INTERFACES, |entry| {
        let interface_name = text(entry, "name", NAME).filter(|name| name != "lo")?;
        let mac = entry.get("hardware-address").and_then(Value::as_str).and_then(mac);
        let addresses = entry.get("ip-addresses").and_then(|list_of| {
            list(list_of, ADDRESSES, |entry| {
                entry.get("ip-address")?.as_str()?.parse::<IpAddr>().ok()
            })
        });
        let addresses = addresses.unwrap_or_default();
        let first = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
        Some(GuestInterface {
            interface_name,
            mac: mac.unwrap_or_default(),
            ip_address: first.map(ToString::to_string).unwrap_or_default(),
            ip_addresses: addresses.iter().map(ToString::to_string).collect(),
            info_source: "guest-agent".into(),
        })
    })
}

/// An Ethernet address, in lower case.
fn mac(text: &str) -> Option<String> {
    let octet = |octet: &str| octet.len() == 2 && octet.bytes().all(|b| b.is_ascii_hexdigit());
    let good = text.len() == 17 && text.split(':').all(octet);
    good.then(|| text.to_ascii_lowercase())
}

pub(super) fn freeze_status(value: &Value) -> Option<FreezeStatus> {
    match value.as_str()? {
        "frozen" => Some(FreezeStatus::Frozen),
        "thawed" => Some(FreezeStatus::Thawed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use corten_link::MAX_MESSAGE;
    use serde_json::json;

    use super::*;
    use crate::guest_agent::{Command, ProtocolError};
    use corten_link::GuestInformation;

    fn answer(command: Command, value: &Value) -> Answer {
        command.decode(json!({ "return": value }).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn debian_is_known_by_its_names() {
        let value = json!({
            "name": "Debian GNU/Linux", "kernel-release": "6.12.43+deb13-amd64", "version": "13 (trixie)",
            "pretty-name": "Debian GNU/Linux 13 (trixie)", "version-id": "13", "id": "debian", "machine": "x86_64",
            "kernel-version": "#1 SMP PREEMPT_DYNAMIC Debian 6.12.43-1", "variant": "unknown to us",
        });
        let Answer::OperatingSystem(os) = answer(Command::OsInfo, &value) else { unreachable!() };
        let told = serde_json::to_value(os).unwrap();
        let expected = json!({
            "id": "debian", "name": "Debian GNU/Linux", "prettyName": "Debian GNU/Linux 13 (trixie)",
            "version": "13 (trixie)", "versionId": "13", "kernelRelease": "6.12.43+deb13-amd64",
            "kernelVersion": "#1 SMP PREEMPT_DYNAMIC Debian 6.12.43-1", "machine": "x86_64",
        });
        assert_eq!(told, expected);
    }

    #[test]
    fn first_ipv4_address_is_the_interfaces_own_and_loopback_is_left_out() {
        let value = json!([
            { "name": "lo", "ip-addresses": [{ "ip-address": "127.0.0.1", "ip-address-type": "ipv4", "prefix": 8 }] },
            { "name": "eth0", "hardware-address": "02:C0:47:e4:00:01", "ip-addresses": [
                { "ip-address": "fe80::1", "ip-address-type": "ipv6", "prefix": 64 },
                { "ip-address": "10.0.2.2", "ip-address-type": "ipv4", "prefix": 24 },
                { "ip-address": "not an address" },
            ], "statistics": { "rx-bytes": 1 } },
            { "name": "sit0", "hardware-address": "00:00:00:00" },
        ]);
        let Answer::Interfaces(interfaces) = answer(Command::Interfaces, &value) else {
            unreachable!()
        };
        let expected = json!([
            { "interfaceName": "eth0", "mac": "02:c0:47:e4:00:01", "ipAddress": "10.0.2.2",
              "ipAddresses": ["fe80::1", "10.0.2.2"], "infoSource": "guest-agent" },
            { "interfaceName": "sit0", "infoSource": "guest-agent" },
        ]);
        assert_eq!(serde_json::to_value(interfaces).unwrap(), expected);
    }

    #[test]
    fn file_systems_and_users_have_the_names_of_kubevirt() {
        let value = json!([{
            "name": "vda1", "mountpoint": "/", "type": "ext4", "used-bytes": 5, "total-bytes": 10,
            "disk": [{ "bus-type": "virtio", "serial": "root", "bus": 0, "dev": "/dev/vda1", "pci-controller": {} }],
        }, { "no": "name" }]);
        let Answer::FileSystems(list) = answer(Command::FileSystems, &value) else {
            unreachable!()
        };
        let expected = json!({ "disks": [{
            "diskName": "vda1", "mountPoint": "/", "fileSystemType": "ext4", "usedBytes": 5, "totalBytes": 10,
            "disk": [{ "serial": "root", "busType": "virtio" }],
        }]});
        assert_eq!(serde_json::to_value(list).unwrap(), expected);
        let value = json!([{ "user": "root", "login-time": 1_700_000_000.25 }]);
        let Answer::Users(users) = answer(Command::Users, &value) else { unreachable!() };
        let expected = json!([{ "userName": "root", "loginTime": 1_700_000_000.25 }]);
        assert_eq!(serde_json::to_value(users).unwrap(), expected);
        let zone = answer(Command::Timezone, &json!({ "zone": "CET", "offset": 3600 }));
        assert_eq!(zone, Answer::Timezone("CET, 3600".into()));
    }

    #[test]
    fn texts_are_cut_at_a_character_and_lose_control_characters() {
        assert_eq!(cut("a\u{1b}[31mb\n", 64), "a[31mb");
        assert_eq!(cut("ää", 3), "ä");
        assert_eq!(cut("abc", 0), "");
    }

    /// The most that an agent can have us keep, in the form that takes the most room: quotes, which JSON writes as two bytes.
    #[test]
    fn all_that_can_be_learned_fits_into_a_message() {
        let long = "\"".repeat(1000);
        let name = "c".repeat(NAME);
        let address = json!({ "ip-address": "1111:2222:3333:4444:5555:6666:7777:8888" });
        let disk = json!({ "bus-type": long, "serial": long });
        let entry = json!({
            "user": long, "domain": long, "login-time": -1.234_567_890_123_456_7e-300,
            "mountpoint": long, "type": long, "used-bytes": u64::MAX, "total-bytes": u64::MAX, "disk": vec![disk; 100],
            "hardware-address": "02:c0:47:e4:00:01", "ip-addresses": vec![address; 100], "name": long,
        });
        let many = json!(vec![entry; 1000]);
        let commands = json!(vec![json!({ "name": name, "enabled": false }); 1000]);
        let Answer::Info { version, commands } =
            answer(Command::Info, &json!({ "version": long, "supported_commands": commands }))
        else {
            unreachable!()
        };
        let os = json!({
            "id": long, "name": long, "pretty-name": long, "version": long, "version-id": long,
            "kernel-release": long, "kernel-version": long, "machine": long,
        });
        let information = GuestInformation {
            agent_version: version,
            supported_commands: commands,
            host_name: host_name(&json!({ "host-name": long })).unwrap(),
            os: operating_system(&os).unwrap(),
            timezone: timezone(&json!({ "zone": long, "offset": i64::MIN })).unwrap(),
            users: users(&many).unwrap(),
            file_systems: file_systems(&many).unwrap(),
            freeze: Some(FreezeStatus::Frozen),
            interfaces: interfaces(&many).unwrap(),
        };
        let bytes = serde_json::to_vec(&information).unwrap();
        // Some is left for what such a message says besides.
        assert!(bytes.len() < MAX_MESSAGE - 4096, "{}", bytes.len());
        assert!(
            bytes.len() > 40_000,
            "the limits are narrower than they need to be: {}",
            bytes.len()
        );
    }

    #[test]
    fn answers_of_another_form_are_told_from_garbage() {
        for command in [Command::Info, Command::Users, Command::FreezeStatus, Command::Freeze] {
            let error = command.decode(br#"{"return": true}"#).unwrap_err();
            assert!(matches!(error, ProtocolError::Unexpected { .. }), "{error}");
            assert!(!error.is_garbage());
        }
    }
}
