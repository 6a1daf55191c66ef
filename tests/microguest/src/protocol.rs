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
/// Plus the vector: an exception; the value is RIP. The guest has halted for good.
pub const EVENT_EXCEPTION: u32 = 0x100;

/// `count` keeps its counter at `first`, its checksum in the next word and one number a page in as many pages behind.
pub const TRAIL_PAGES: u64 = 8;
/// The word that `fill` writes at an address is (address ^ seed) * this, modulo 2^64.
pub const WORD_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// A checksum takes a word by (checksum rotated left by this many bits) ^ word.
pub const CHECKSUM_ROTATION: u32 = 7;
