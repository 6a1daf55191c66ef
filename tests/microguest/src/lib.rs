//! A freestanding guest for tests of anything that runs virtual machines on KVM.
//!
//! It boots by the PVH note and by the 64-bit entry with Linux boot parameters, carries out the commands on its
//! command line and reports each result on one port; see [`protocol`]. It uses general registers only and few
//! instructions, so it also runs where KVM emulates every instruction (about a million a second).
//!
//! The command line is a list of commands, each followed by its settings `name=number`, decimal or `0x` hexadecimal:
//!
//! | command | settings (default) | what the guest does |
//! |---|---|---|
//! | `hello` | | nothing: it says hello anyway |
//! | `quiet` | | nothing; as the first command it keeps the guest from saying hello on its console |
//! | `write` | `first`, `pages` (1), `step` (0x1000), `value` | writes `value` to one word each `step` bytes, `pages` times |
//! | `fill` | `first`, `pages` (1), `step` (8), `seed` | fills pages with [`word_at`], one word each `step` bytes |
//! | `check` | as `fill` | reads them back; counts wrong words |
//! | `doorbell` | `port` or `address`, `size` (4), `value`, `count` (1) | writes to a port or to memory-mapped I/O |
//! | `read` | `port` or `address`, `size` (4) | reads once |
//! | `typed` | `lines` (1) | says again what is typed at the serial console, until so many lines were |
//! | `interrupts` | `vector` (0x41), `count` (1) | waits, halted, for interrupts and reports each |
//! | `timer` | `vector` (0x42), `count` (1), `ticks` (1000000) | arms the local APIC's timer for each interrupt anew |
//! | `count` | `first`, `every` (64) | counts for ever, checks its memory each time, reports each `every` steps |
//! | `disk` | `rounds`, `blocks`, `sectors`, `seed` and more: see below | reads and writes by a virtio-blk driver |
//! | `balloon` | `rounds` (16), `seed` (1), `asked` (0), `event_index` (1) | gives pages to a virtio-balloon device, takes them back, says how it uses memory; see [`BalloonWork`] |
//! | `console` | `rounds` (16), `seed` (1), `event_index` (1) | echoes by a virtio-console device; see [`ConsoleWork`] |
//! | `entropy` | `rounds` (16), `seed` (1), `event_index` (1) | asks a virtio-rng device; [`EntropyWork`] knows what comes of it |
//! | `hostile` | `rounds`, `seed`, `steps` and more: see below | attacks a virtio device while a disk works |
//! | `network` | `rounds` (16), `seed` (1), `event_index` (1) | sends and receives by a virtio-net device; see [`NetworkWork`] |
//! | `filters` | `rounds` (8), `seed` (1), `event_index` (1) | asks a virtio-net device for some frames and not for others; see [`FiltersWork`] |
//! | `streams` | `rounds` (4), `seed` (1), `exits` (1), `event_index` (1) | exchanges messages by a named port of a virtio-console device; see [`StreamsWork`] |
//! | `vsock` | `rounds` (4), `seed` (1), `exits` (1), `event_index` (1) | opens streams by a virtio-vsock device and has some opened; see [`VsockWork`] |
//! | `processors` | `count` (1) | starts all other CPUs, waits until `count` of them have started |
//! | `loop` | | loops for ever without an exit |
//! | `undefined` | | executes `ud2` |
//! | `fault` | `address` | reads a byte there |
//! | `shutdown` | | ends in a triple fault |
//!
//! `disk` drives the first virtio-blk device on PCI bus 0, by MSI-X, and resets it at the end. In each of
//! [`protocol::DISK_LANES`] lanes it does `rounds` (16) requests on the first `blocks` (64) blocks of `sectors` (1)
//! sectors: reads, writes and flushes, drawn by `seed`. It waits, halted, for interrupts on `vector` (0x50); those of the
//! configuration come on the next vector. The local APIC's timer interrupts on the one behind, `ticks` (1000000) after
//! each time that it was armed, all along and once more at the end. It reports `every` (16) requests, unless that is 0.
//! With `event_index=0` it leaves VIRTIO_F_RING_EVENT_IDX alone. [`DiskWork`] knows what comes of it, on the result port
//! and on the console.
//!
//! `hostile` attacks the virtio device in PCI slot `slot` (the last one) and drives the first disk in a slot before that,
//! its neighbour, in `rounds` (16) rounds. A round is one sector written and one read by the neighbour, with `steps` (16)
//! attacks during each of the two; everything is drawn by `seed`. RAM ends at `memory` (32 MiB), its last 4 MiB are the
//! attacker's. It says on the console where it is, `every` (4) rounds, and at the end, when the device is back to good
//! use. Bits of `attacks` (all) say which kinds it may use. With `cpus=2` the second of two CPUs attacks by registers and
//! queues all the time, which depends on time. [`HostileWork`] knows what comes of the neighbour.

mod balloon;
mod console;
mod disk;
mod draw;
mod entropy;
mod event;
mod failure;
mod filters;
mod hostile;
mod network;
pub mod protocol;
mod streams;
mod tally;
mod vsock;

pub use balloon::BalloonWork;
pub use console::ConsoleWork;
pub use disk::DiskWork;
pub use entropy::EntropyWork;
pub use event::{Entry, Event, ResultPort};
pub use failure::DriverFailure;
pub use filters::FiltersWork;
pub use hostile::HostileWork;
pub use network::NetworkWork;
pub use streams::{Message, StreamsWork};
pub use tally::Tally;
pub use vsock::{Introduction, VsockWork};

/// The guest, an ELF file for [`protocol::IMAGE_START`] with a PVH note.
pub const ELF: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/microguest.elf"));

/// The word that `fill` writes at `address`.
pub const fn word_at(address: u64, seed: u64) -> u64 {
    (address ^ seed).wrapping_mul(protocol::WORD_MULTIPLIER)
}

/// A running checksum after one more word.
pub const fn checksum_with(checksum: u64, word: u64) -> u64 {
    checksum.rotate_left(protocol::CHECKSUM_ROTATION) ^ word
}

/// The checksum that `count` has when its counter is `counter`.
pub fn counter_checksum(counter: u64) -> u64 {
    (1..=counter).fold(0, |checksum, number| checksum_with(checksum, word_at(number, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_an_elf_with_a_pvh_note() {
        assert_eq!(&ELF[..4], b"\x7fELF");
        let note = [4_u32, 4, 18].map(u32::to_le_bytes).concat();
        let found =
            ELF.windows(16).any(|bytes| bytes[..12] == note[..] && &bytes[12..] == b"Xen\0");
        assert!(found, "no note of type 18 by Xen");
    }

    #[test]
    fn counter_checksum_takes_each_number() {
        let two = checksum_with(checksum_with(0, word_at(1, 0)), word_at(2, 0));
        assert_eq!(counter_checksum(2), two);
        assert_eq!(counter_checksum(0), 0);
    }
}
