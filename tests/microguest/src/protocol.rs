//! What the guest and its host agree on: ports, addresses, event codes.
//!
//! The build script turns each line `pub const NAME: TYPE = NUMBER;` of this file into a `#define` for the guest, so
//! the numbers stand here only. It refuses a constant that is written in another way.

/// The port of the first serial console, to which the guest writes text byte by byte.
pub const CONSOLE_PORT: u16 = 0x3f8;
/// The port to which each result goes: event (u32), then value (u64), little endian, by one `rep outsl`.
pub const RESULT_PORT: u16 = 0xc00;
/// Bytes of one result. An exit to the host may carry any part of them.
pub const RESULT_SIZE: u16 = 12;

/// First address of the guest's image: code, tables, stack.
pub const IMAGE_START: u64 = 0x10_0000;
/// First address after the guest's image. From here on memory belongs to the commands.
pub const IMAGE_END: u64 = 0x20_0000;

/// Value of [`EVENT_HELLO`]: came in by the PVH note's 32-bit entry.
pub const ENTRY_PVH: u32 = 1;
/// Value of [`EVENT_HELLO`]: came in by the ELF header's 64-bit entry.
pub const ENTRY_64: u32 = 2;

/// The guest is up; the value says by which entry. Always the first result.
pub const EVENT_HELLO: u32 = 1;
/// Every command was carried out; the value is their number. The guest has halted for good.
pub const EVENT_DONE: u32 = 2;
/// A word of the command line is no command; the value is its offset. The guest has halted for good.
pub const EVENT_UNKNOWN_COMMAND: u32 = 3;
/// The boot information has not the magic number of its entry; the value is what stood there.
pub const EVENT_BAD_BOOT_INFORMATION: u32 = 4;
/// `write` is through; the value is the number of words written.
pub const EVENT_WRITTEN: u32 = 5;
/// `fill` is through; the value is the number of words written.
pub const EVENT_FILLED: u32 = 6;
/// `check` is through; the value is the number of words that were not what `fill` writes.
pub const EVENT_WRONG_WORDS: u32 = 7;
/// Follows [`EVENT_WRONG_WORDS`]: the checksum of the words as they were read.
pub const EVENT_CHECKSUM: u32 = 8;
/// `interrupts` or `timer` can take interrupts from now on; the value is the vector.
pub const EVENT_READY: u32 = 9;
/// One interrupt was taken; the value counts them from 1.
pub const EVENT_INTERRUPT: u32 = 10;
/// `doorbell` is through; the value is the number of writes.
pub const EVENT_RUNG: u32 = 11;
/// `read` is through; the value is what was read.
pub const EVENT_READ: u32 = 12;
/// `count` got so far.
pub const EVENT_COUNTER: u32 = 13;
/// Follows [`EVENT_COUNTER`]: the running checksum over all numbers so far.
pub const EVENT_COUNTER_CHECKSUM: u32 = 14;
/// `count` found its memory other than its registers; the value is the counter. Never sent unless state was lost.
pub const EVENT_LOST: u32 = 15;
/// The error code of the exception that follows.
pub const EVENT_ERROR_CODE: u32 = 16;
/// CR2 at the exception that follows.
pub const EVENT_FAULT_ADDRESS: u32 = 17;
/// `disk` has its device at work; the value is the disk's size in sectors.
pub const EVENT_DISK_READY: u32 = 18;
/// `disk` got so far; the value is the number of requests done.
pub const EVENT_DISK_PROGRESS: u32 = 19;
/// `disk` is through: the timer interrupts that came meanwhile. The only result of it that depends on time.
pub const EVENT_DISK_TICKS: u32 = 20;
/// Follows [`EVENT_DISK_TICKS`]: the number of requests done.
pub const EVENT_DISK_COMPLETIONS: u32 = 21;
/// Follows [`EVENT_DISK_COMPLETIONS`]: the checksum over all statuses and all data read.
pub const EVENT_DISK_CHECKSUM: u32 = 22;
/// A driver gave up: the lowest byte of the value is a `FAILURE_`, the rest is what was found. Both are on the console,
/// too. The guest has halted for good.
pub const EVENT_DRIVER_FAILED: u32 = 23;
/// `processors` is through; the value is the number of other CPUs that started.
pub const EVENT_PROCESSORS: u32 = 24;
/// `hostile` is through; the value is the checksum over all that the neighbour read.
pub const EVENT_HOSTILE_CHECKSUM: u32 = 25;
/// Plus the vector: an exception; the value is RIP. The guest has halted for good.
pub const EVENT_EXCEPTION: u32 = 0x100;

/// `count` keeps its counter at `first`, its checksum in the next word and one number a page in as many pages behind.
pub const TRAIL_PAGES: u64 = 8;
/// The word that `fill` writes at an address is (address ^ seed) * this, modulo 2^64.
pub const WORD_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// A checksum takes a word by (checksum rotated left by this many bits) ^ word.
pub const CHECKSUM_ROTATION: u32 = 7;

/// A setting of the command cannot be; found is its value.
pub const FAILURE_SETTING: u8 = 1;
/// Bus 0 has no such device; found is the virtio device type.
pub const FAILURE_NO_DEVICE: u8 = 2;
/// A BAR is none of memory, has no address or one above 4 GiB; found is its number.
pub const FAILURE_BAR: u8 = 3;
/// A part of the device is missing; found is its kind in virtio's capabilities, or 0x11 for MSI-X.
pub const FAILURE_STRUCTURE: u8 = 4;
/// The device does not offer what it must, or refuses what it offered; found are the features offered or refused.
pub const FAILURE_FEATURES: u8 = 5;
/// The device does not take an entry of its MSI-X table; found is the entry.
pub const FAILURE_VECTOR: u8 = 6;
/// The queue is too small or cannot be enabled; found is its size.
pub const FAILURE_QUEUE: u8 = 7;
/// The disk is too small or has changed its size; found is its size in sectors.
pub const FAILURE_CAPACITY: u8 = 8;
/// A request was not done; found is its status, and in the bits from 8 on its first sector.
pub const FAILURE_STATUS: u8 = 9;
/// The used ring has a chain that is not in flight; found is its id.
pub const FAILURE_USED_ID: u8 = 10;
/// The used ring tells of other bytes written than the request has; found is their number.
pub const FAILURE_USED_LENGTH: u8 = 11;
/// The device asks to be reset; found is its status.
pub const FAILURE_NEEDS_RESET: u8 = 12;
/// What was written did not come back; found is the first word that did not.
pub const FAILURE_CONTENT: u8 = 13;

/// Bytes of a sector, by which disks are addressed.
pub const SECTOR_SIZE: u64 = 512;
/// `disk` has as many requests in flight. Block n belongs to lane n modulo this.
pub const DISK_LANES: u64 = 4;
/// Largest block of `disk`, in sectors.
pub const DISK_MAX_SECTORS: u64 = 8;
/// The kind of a request is what it was drawn from, shifted right by this: from 0 on a flush.
pub const DISK_KIND_SHIFT: u32 = 61;
/// From this kind on a read.
pub const DISK_FIRST_READ: u64 = 1;
/// From this kind on a write.
pub const DISK_FIRST_WRITE: u64 = 4;

/// Sectors of the neighbour that `hostile` uses: round n writes sector n modulo this.
pub const HOSTILE_BLOCKS: u64 = 64;
/// Round n reads sector n times this, modulo [`HOSTILE_BLOCKS`].
pub const HOSTILE_STRIDE: u64 = 5;

/// `entropy` asks for at most as many bytes at a time.
pub const ENTROPY_LARGEST: u64 = 256;
/// `console` sends at most as many bytes at a time.
pub const CONSOLE_LARGEST: u64 = 64;
/// `network` sends frames of at least as many bytes.
pub const NETWORK_SMALLEST: u64 = 60;
/// And of at most as many.
pub const NETWORK_LARGEST: u64 = 1514;
/// `vsock` connects to this port of the host's.
pub const VSOCK_PORT: u32 = 5000;
/// `vsock` sends at most as many bytes in a round, each way.
pub const VSOCK_LARGEST: u64 = 1000;
/// `vsock` keeps at most as many bytes of a stream.
pub const VSOCK_BUFFER: u32 = 256;
/// `streams` sends at most as many bytes at a time.
pub const STREAMS_LARGEST: u64 = 200;
/// `streams` gets answers in cells of as many bytes.
pub const STREAMS_CELL: u32 = 60;
/// `filters` gets frames of as many kinds for each of its own: to an address that is not listed, one that may be, a group that
/// is not, one that may be, to everybody, and to its own address.
pub const FILTERS_KINDS: u32 = 6;
/// The last byte of the addresses that may be listed.
pub const FILTERS_LISTED: u8 = 0x88;
/// The last byte of its own address, or one less than that.
pub const FILTERS_OWN: u8 = 0x10;
/// What `filters` asks for are bits of what it draws: everything.
pub const FILTERS_PROMISCUOUS: u32 = 12;
/// All groups.
pub const FILTERS_ALL_MULTICAST: u32 = 1;
/// All addresses.
pub const FILTERS_ALL_UNICAST: u32 = 2;
/// No groups.
pub const FILTERS_NO_MULTICAST: u32 = 3;
/// Nothing for everybody.
pub const FILTERS_NO_BROADCAST: u32 = 4;
/// One more address.
pub const FILTERS_UNICAST_TABLE: u32 = 5;
/// One group.
pub const FILTERS_MULTICAST_TABLE: u32 = 6;
/// Another address of its own.
pub const FILTERS_ADDRESS: u32 = 7;
/// Two pairs of queues.
pub const FILTERS_PAIRS: u32 = 8;
