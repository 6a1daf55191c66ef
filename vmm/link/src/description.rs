//! What a machine is to be: what its user wants, and how the host treats it.

use serde::{Deserialize, Serialize};

use crate::Addressing;

/// A machine as its user wants it. What it boots from comes as descriptors: a kernel, or disks with a system on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MachineDescription {
    /// Bytes of memory.
    pub memory: u64,
    /// Packages.
    pub sockets: u16,
    /// Cores of a package.
    pub cores: u16,
    /// Threads of a core.
    pub threads: u16,
    /// Kernel command line.
    pub command_line: String,
    /// What the guest reads as its UUID; all zero is "none".
    pub uuid: [u8; 16],
    /// What the guest reads as its serial number.
    pub serial: String,
    /// Whether to make huge pages of guest memory in the background: it takes processor time, and the guest's accesses are
    /// faster.
    #[serde(default)]
    pub huge_pages: bool,
    /// Names of the disks that a system is looked for on if no kernel is granted, in that order, at the start and at each
    /// reset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boot_order: Vec<String>,
    /// Disks, in the order in which the guest finds them.
    #[serde(default)]
    pub disks: Vec<DiskDescription>,
    /// Network interfaces, in the order in which the guest finds them.
    #[serde(default)]
    pub networks: Vec<NetworkDescription>,
    /// A terminal and streams by name, without the cost of a serial port; none for none.
    #[serde(default)]
    pub console: Option<ConsoleDescription>,
    /// Random numbers of the host's; none for none.
    #[serde(default)]
    pub entropy: Option<EntropyHost>,
    /// Takes back memory that the guest can spare; none for none.
    #[serde(default)]
    pub balloon: Option<BalloonDescription>,
    /// Streams between the guest's processes and the host's; none for none.
    #[serde(default)]
    pub vsock: Option<VsockDescription>,
}

/// A disk as its user wants it. It comes as a descriptor of the role `disk/NAME`, or as several if it is made of images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DiskDescription {
    /// That of its role.
    pub name: String,
    /// What the guest knows it by: at most 20 bytes of printable ASCII.
    #[serde(default)]
    pub serial: String,
    /// Refuses to be written.
    #[serde(default)]
    pub read_only: bool,
    /// How many queues it has.
    #[serde(default = "one")]
    pub queues: u16,
    /// What transfers are multiples of; none for what the file needs.
    #[serde(default)]
    pub block_size: Option<u32>,
    /// What the guest does not see of it.
    #[serde(default)]
    pub host: DiskHost,
}

fn one() -> u16 {
    1
}

/// How the host treats a disk. May change when a machine is loaded elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct DiskHost {
    /// Whether to bypass the page cache, where the file system can.
    pub direct: bool,
    /// What becomes of requests that the host fails.
    pub on_error: OnDiskError,
    /// What does its transfers.
    pub engine: DiskEngine,
    /// Bytes.
    pub bytes: Option<Rate>,
    /// Requests.
    pub requests: Option<Rate>,
    /// Other machines may write to it at the same time, if they share it too.
    #[serde(skip_serializing_if = "is_not")]
    pub shared: bool,
    /// What it is made of, each the backing file of the one before it; nothing if it is one raw file. The images come as
    /// `image/NAME/0` and so on, are only read, and what is written goes to `overlay/NAME`, a file of this machine's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageFormat>,
}

fn is_not(switch: &bool) -> bool {
    !switch
}

/// How an image is to be read. It is never guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageFormat {
    /// Its bytes are the disk's.
    Raw,
    /// qcow2, versions 2 and 3.
    Qcow2,
}

/// What becomes of a request that the host fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDiskError {
    /// The guest gets an I/O error.
    #[default]
    Report,
    /// The machine is paused. A resume does the request again.
    Pause,
}

/// What does a disk's transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskEngine {
    /// Rings where the host allows them, else threads.
    #[default]
    Auto,
    /// io_uring.
    Ring,
    /// Threads.
    Pool,
}

/// How much of something a device may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rate {
    /// In each second, over a long time.
    pub per_second: u64,
    /// At once, after a rest.
    pub burst: u64,
}

/// A network interface as its user wants it. Each pair of queues comes as a descriptor of the role `tap/NAME/PAIR`: a TAP's
/// queue, opened with IFF_NO_PI and IFF_VNET_HDR, and with IFF_MULTI_QUEUE if there are several. All queues of a TAP have to be
/// there: the kernel spreads frames over them. With an open /dev/vhost-net of the role `vhost/NAME/PAIR` for each, fresh for
/// this process, the kernel moves the packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NetworkDescription {
    /// That of its roles.
    pub name: String,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// The largest packet that the guest is to send; none for what it thinks itself.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// How many pairs of queues it has.
    #[serde(default = "one")]
    pub pairs: u16,
    /// What the guest does not see of it.
    #[serde(default)]
    pub host: NetworkHost,
}

/// How the host treats a network interface. May change when a machine is loaded elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct NetworkHost {
    /// How much the guest may receive.
    pub receive: NetworkRates,
    /// How much the guest may transmit.
    pub transmit: NetworkRates,
    /// What the guest is told of its addresses; none for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addressing: Option<Addressing>,
}

/// How much may go in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct NetworkRates {
    /// Bytes.
    pub bytes: Option<Rate>,
    /// Packets.
    pub packets: Option<Rate>,
}

/// A console device as its user wants it. Port 0 is a terminal (`hvc0`): its output goes to the descriptor of the role
/// `hvc`, its input comes from `hvc/input`; either may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ConsoleDescription {
    /// Names of streams, from port 1 on. Each may come with a socket of the role `port/NUMBER`, or get one later by
    /// [`Request::Attach`](crate::Request::Attach).
    pub streams: Vec<String>,
}

/// How the host gives random numbers. May change when a machine is loaded elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct EntropyHost {
    /// Bytes.
    pub bytes: Option<Rate>,
}

/// A balloon as its user wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct BalloonDescription {
    /// A guest short of memory may take pages out of the balloon by itself.
    pub deflate_on_oom: bool,
    /// The guest reports pages that are free, without being asked, and the host takes them back.
    pub reporting: bool,
}

/// A socket device as its user wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct VsockDescription {
    /// The guest's address: 3 or more.
    pub guest_cid: u32,
}
