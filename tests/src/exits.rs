//! What a guest's exits bring: text, results, I/O to places without a device.

use std::collections::BTreeMap;
use std::fmt;

use corten_microguest::ResultPort;
use corten_microguest::protocol::{CONSOLE_PORT, RESULT_PORT};
use kvm_ioctls::VcpuExit;
use vm_memory::GuestAddress;

/// Exits by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitCounts(BTreeMap<&'static str, u64>);

impl ExitCounts {
    /// How many there were of `reason`: "out", "in", "mmio-write", "mmio-read", "interrupted".
    pub fn of(&self, reason: &str) -> u64 {
        self.0.get(reason).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, reason: &'static str) {
        *self.0.entry(reason).or_default() += 1;
    }
}

impl fmt::Display for ExitCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> =
            self.0.iter().map(|(reason, n)| format!("{reason}={n}")).collect();
        f.write_str(if counts.is_empty() { "none" } else { "" })?;
        f.write_str(&counts.join(" "))
    }
}

/// Where a guest did I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A port.
    Port(u16),
    /// An address without memory.
    Address(GuestAddress),
}

/// I/O to a place where there is no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Where.
    pub place: Place,
    /// What was written; zeros of the right number where it was read.
    pub bytes: Vec<u8>,
}

/// What the guest's exits brought.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) results: ResultPort,
    pub(crate) console: Vec<u8>,
    pub(crate) exits: ExitCounts,
    pub(crate) accesses: Vec<Access>,
    pub(crate) answer: u64,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            results: ResultPort::default(),
            console: Vec::new(),
            exits: ExitCounts::default(),
            accesses: Vec::new(),
            // As a bus on which nobody answers.
            answer: u64::MAX,
        }
    }
}

impl Seen {
    /// Serves one exit; one that no microguest makes comes back as text.
    pub(crate) fn take(&mut self, exit: VcpuExit<'_>) -> Result<(), String> {
        let (reason, place, bytes) = match exit {
            VcpuExit::IoOut(CONSOLE_PORT, bytes) => {
                self.exits.add("out");
                self.console.extend_from_slice(bytes);
                return Ok(());
            }
            VcpuExit::IoOut(RESULT_PORT, bytes) => {
                self.exits.add("out");
                self.results.take(bytes);
                return Ok(());
            }
            VcpuExit::IoOut(port, bytes) => ("out", Place::Port(port), bytes.to_vec()),
            VcpuExit::MmioWrite(address, bytes) => {
                ("mmio-write", Place::Address(GuestAddress(address)), bytes.to_vec())
            }
            VcpuExit::IoIn(port, bytes) => ("in", Place::Port(port), answered(bytes, self.answer)),
            VcpuExit::MmioRead(address, bytes) => {
                let place = Place::Address(GuestAddress(address));
                ("mmio-read", place, answered(bytes, self.answer))
            }
            other => return Err(format!("{other:?}")),
        };
        self.exits.add(reason);
        self.accesses.push(Access { place, bytes });
        Ok(())
    }
}

fn answered(bytes: &mut [u8], answer: u64) -> Vec<u8> {
    let zeros = vec![0; bytes.len()];
    for (byte, answer) in bytes.iter_mut().zip(answer.to_le_bytes()) {
        *byte = answer;
    }
    zeros
}
