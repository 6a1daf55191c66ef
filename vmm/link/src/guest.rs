//! What the agent in a guest told, under the names that it has in KubeVirt's API: the answer of the subresource `guestosinfo`, parts
//! of which are `userlist`, `filesystemlist`, and `guestOSInfo` and `interfaces` of a VMI's status.

use serde::{Deserialize, Serialize};

/// All that was learned of a guest by its agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestInformation {
    /// Version of the agent, by its own account.
    #[serde(rename = "guestAgentVersion", skip_serializing_if = "String::is_empty")]
    pub agent_version: String,
    /// Commands that it knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub supported_commands: Vec<AgentCommand>,
    /// Host name.
    #[serde(rename = "hostname", skip_serializing_if = "String::is_empty")]
    pub host_name: String,
    /// Operating system.
    #[serde(skip_serializing_if = "OperatingSystem::is_empty")]
    pub os: OperatingSystem,
    /// Name of the time zone and its offset from UTC in seconds, as in `CET, 3600`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub timezone: String,
    /// Who is logged in.
    #[serde(rename = "userList", skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<GuestUser>,
    /// Mounted file systems.
    #[serde(rename = "fsInfo", skip_serializing_if = "FileSystems::is_empty")]
    pub file_systems: FileSystems,
    /// Whether file systems are frozen; not known at first.
    #[serde(rename = "fsFreezeStatus", skip_serializing_if = "Option::is_none")]
    pub freeze: Option<FreezeStatus>,
    /// Network interfaces but the loopback.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<GuestInterface>,
}

impl GuestInformation {
    /// Commands that KubeVirt requires of an agent and this one does not know. If there are any, the VMI gets the
    /// condition AgentVersionNotSupported.
    pub fn missing_commands(&self) -> Vec<&'static str> {
        let known =
            |name: &&str| self.supported_commands.iter().any(|command| command.name == *name);
        REQUIRED.into_iter().filter(|name| !known(name)).collect()
    }
}

const REQUIRED: [&str; 10] = [
    "guest-ping",
    "guest-get-time",
    "guest-info",
    "guest-shutdown",
    "guest-network-get-interfaces",
    "guest-get-fsinfo",
    "guest-get-host-name",
    "guest-get-users",
    "guest-get-timezone",
    "guest-get-osinfo",
];

/// A command of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentCommand {
    /// Its name.
    pub name: String,
    /// Whether the guest's administrator lets it be used.
    pub enabled: bool,
}

/// The guest's operating system, mostly as in os-release(5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperatingSystem {
    /// As `debian`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// As `Debian GNU/Linux`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Name and version for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pretty_name: String,
    /// As `13 (trixie)`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// As `13`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version_id: String,
    /// As uname(2) says.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel_release: String,
    /// As uname(2) says.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel_version: String,
    /// As uname(2) says.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub machine: String,
}

impl OperatingSystem {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Somebody who is logged in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestUser {
    /// Who.
    pub user_name: String,
    /// Of which domain, on Windows.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Since when, in seconds since the epoch.
    pub login_time: f64,
}

/// A list under the name that it has in KubeVirt's API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileSystems {
    /// One for each that is mounted from a disk.
    pub disks: Vec<FileSystem>,
}

impl FileSystems {
    fn is_empty(&self) -> bool {
        self.disks.is_empty()
    }
}

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileSystem {
    /// The guest's name of the block device, as `vda1`.
    pub disk_name: String,
    /// Where it is mounted.
    pub mount_point: String,
    /// As `ext4`.
    pub file_system_type: String,
    /// Bytes in use; 0 where the agent does not say.
    pub used_bytes: u64,
    /// Bytes in all; 0 where the agent does not say.
    pub total_bytes: u64,
    /// Disks that it lies on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disk: Vec<FileSystemDisk>,
}

/// A disk as the guest sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileSystemDisk {
    /// Its serial number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub serial: String,
    /// As `virtio`.
    pub bus_type: String,
}

/// A network interface as the guest sees it; which of the VMI's it is, its hardware address tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestInterface {
    /// The guest's name.
    pub interface_name: String,
    /// Hardware address, lower case.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// The first IPv4 address, or else the first one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ip_address: String,
    /// All.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ip_addresses: Vec<String>,
    /// Always `guest-agent`.
    pub info_source: String,
}

/// Whether an agent has file systems frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FreezeStatus {
    /// It has.
    Frozen,
    /// It has not.
    Thawed,
}

/// What there is to tell of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct AgentReport {
    /// Whether it answers.
    pub connected: bool,
    /// Since when, in seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Why it does not answer any more; empty if it does, or never did.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lost: String,
    /// When it last set the guest's clock, in seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_set: Option<u64>,
    /// What it told, which stays when it is gone.
    pub guest: GuestInformation,
}
