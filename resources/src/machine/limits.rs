//! What a machine takes of texts and lists. Those who make it are asked last, when much is made already: what is over a limit
//! is refused before, by the field's path.

/// Bytes of the serial number in the guest's tables (`arch/x86_64/smbios.rs` of the VM process).
pub const SERIAL_BYTES: usize = 1024;
/// Bytes of a kernel's command line, as Linux has it on x86.
pub const KERNEL_ARGS_BYTES: usize = 2047;
/// Time servers that a guest is told with its address.
pub const NTP_SERVERS: usize = 16;
/// Characters of the label of a disk with files (ECMA-119).
pub const LABEL_BYTES: usize = 32;
/// Levels of a path on such a disk, the file's own among them.
pub const PATH_LEVELS: usize = 8;
/// Bytes of a name on such a disk.
pub const FILE_NAME_BYTES: usize = 253;
/// Ports of one interface. Each is a port of the host's that is taken, and an element of its rules.
pub const PORTS: usize = 1024;
/// Pairs of queues of one interface: each is a TAP's queue and a vhost-net of the host's.
pub const NETWORK_QUEUE_PAIRS: u32 = 127;
