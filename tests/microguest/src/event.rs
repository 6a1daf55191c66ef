//! Results of the guest, as its host reads them.

use std::fmt;

use crate::DriverFailure;
use crate::protocol::{
    ENTRY_64, ENTRY_PVH, EVENT_BAD_BOOT_INFORMATION, EVENT_CHECKSUM, EVENT_COUNTER,
    EVENT_COUNTER_CHECKSUM, EVENT_DISK_CHECKSUM, EVENT_DISK_COMPLETIONS, EVENT_DISK_PROGRESS,
    EVENT_DISK_READY, EVENT_DISK_TICKS, EVENT_DONE, EVENT_DRIVER_FAILED, EVENT_ERROR_CODE,
    EVENT_EXCEPTION, EVENT_FAULT_ADDRESS, EVENT_FILLED, EVENT_HELLO, EVENT_HOSTILE_CHECKSUM,
    EVENT_INTERRUPT, EVENT_LOST, EVENT_PROCESSORS, EVENT_READ, EVENT_READY, EVENT_RUNG,
    EVENT_UNKNOWN_COMMAND, EVENT_WRITTEN, EVENT_WRONG_WORDS, RESULT_SIZE,
};

/// How the guest is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// By the PVH note: 32-bit protected mode, paging off.
    Pvh,
    /// By the ELF header's entry: long mode, Linux boot parameters.
    Linux64,
}

/// One result. The codes and what their values mean stand in [`crate::protocol`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each stands documented as a code of the protocol")]
pub enum Event {
    Hello(Entry),
    Done {
        commands: u64,
    },
    UnknownCommand {
        offset: u64,
    },
    BadBootInformation {
        magic: u64,
    },
    Written {
        words: u64,
    },
    Filled {
        words: u64,
    },
    WrongWords(u64),
    Checksum(u64),
    Ready {
        vector: u64,
    },
    Interrupt {
        number: u64,
    },
    Rung {
        times: u64,
    },
    Read(u64),
    Counter(u64),
    CounterChecksum(u64),
    Lost {
        counter: u64,
    },
    DiskReady {
        sectors: u64,
    },
    DiskProgress {
        completions: u64,
    },
    DiskTicks(u64),
    DiskCompletions(u64),
    DiskChecksum(u64),
    DriverFailed {
        failure: DriverFailure,
        found: u64,
    },
    Processors(u64),
    HostileChecksum(u64),
    ErrorCode(u64),
    FaultAddress(u64),
    Exception {
        vector: u8,
        rip: u64,
    },
    /// A code that this build does not know: the guest's memory or its code is damaged.
    Unknown {
        code: u32,
        value: u64,
    },
}

impl Event {
    fn decode(code: u32, value: u64) -> Self {
        match code {
            EVENT_HELLO if value == u64::from(ENTRY_PVH) => Self::Hello(Entry::Pvh),
            EVENT_HELLO if value == u64::from(ENTRY_64) => Self::Hello(Entry::Linux64),
            EVENT_DONE => Self::Done { commands: value },
            EVENT_UNKNOWN_COMMAND => Self::UnknownCommand { offset: value },
            EVENT_BAD_BOOT_INFORMATION => Self::BadBootInformation { magic: value },
            EVENT_WRITTEN => Self::Written { words: value },
            EVENT_FILLED => Self::Filled { words: value },
            EVENT_WRONG_WORDS => Self::WrongWords(value),
            EVENT_CHECKSUM => Self::Checksum(value),
            EVENT_READY => Self::Ready { vector: value },
            EVENT_INTERRUPT => Self::Interrupt { number: value },
            EVENT_RUNG => Self::Rung { times: value },
            EVENT_READ => Self::Read(value),
            EVENT_COUNTER => Self::Counter(value),
            EVENT_COUNTER_CHECKSUM => Self::CounterChecksum(value),
            EVENT_LOST => Self::Lost { counter: value },
            EVENT_DISK_READY => Self::DiskReady { sectors: value },
            EVENT_DISK_PROGRESS => Self::DiskProgress { completions: value },
            EVENT_DISK_TICKS => Self::DiskTicks(value),
            EVENT_DISK_COMPLETIONS => Self::DiskCompletions(value),
            EVENT_DISK_CHECKSUM => Self::DiskChecksum(value),
            EVENT_DRIVER_FAILED => {
                let [failure, ..] = value.to_le_bytes();
                match DriverFailure::decode(failure) {
                    Some(failure) => Self::DriverFailed { failure, found: value >> 8 },
                    None => Self::Unknown { code, value },
                }
            }
            EVENT_PROCESSORS => Self::Processors(value),
            EVENT_HOSTILE_CHECKSUM => Self::HostileChecksum(value),
            EVENT_ERROR_CODE => Self::ErrorCode(value),
            EVENT_FAULT_ADDRESS => Self::FaultAddress(value),
            _ => match code.checked_sub(EVENT_EXCEPTION).map(u8::try_from) {
                Some(Ok(vector)) => Self::Exception { vector, rip: value },
                _ => Self::Unknown { code, value },
            },
        }
    }

    /// Whether the guest has halted for good after this.
    pub fn is_last(&self) -> bool {
        matches!(
            self,
            Self::Done { .. }
                | Self::UnknownCommand { .. }
                | Self::BadBootInformation { .. }
                | Self::DriverFailed { .. }
                | Self::Exception { .. }
        )
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exception { vector, rip } => write!(f, "Exception {vector} at {rip:#x}"),
            Self::DriverFailed { failure, found } => {
                write!(f, "DriverFailed({failure:?}, found {found:#x})")
            }
            Self::FaultAddress(address) => write!(f, "FaultAddress({address:#x})"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// Puts results together of the bytes that exits carry. What is in it belongs to the state of a guest that moves.
#[derive(Clone, Debug, Default)]
pub struct ResultPort(Vec<u8>);

impl ResultPort {
    /// Takes what one exit brought.
    pub fn take(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next whole result.
    pub fn next_event(&mut self) -> Option<Event> {
        let (code, rest) = self.0.split_first_chunk()?;
        let (value, _) = rest.split_first_chunk()?;
        let event = Event::decode(u32::from_le_bytes(*code), u64::from_le_bytes(*value));
        self.0.drain(..usize::from(RESULT_SIZE));
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(code: u32, value: u64) -> Vec<u8> {
        [&code.to_le_bytes()[..], &value.to_le_bytes()].concat()
    }

    #[test]
    fn results_in_pieces_come_out_whole() {
        let bytes = [result(EVENT_DONE, 3), result(EVENT_EXCEPTION + 14, 0x10_0040)].concat();
        for size in 1..=bytes.len() {
            let mut port = ResultPort::default();
            let mut events = Vec::new();
            for piece in bytes.chunks(size) {
                port.take(piece);
                events.extend(std::iter::from_fn(|| port.next_event()));
            }
            let exception = Event::Exception { vector: 14, rip: 0x10_0040 };
            assert_eq!(events, [Event::Done { commands: 3 }, exception], "pieces of {size}");
        }
    }

    #[test]
    fn unknown_codes_keep_their_number() {
        for code in [0, 99, EVENT_EXCEPTION + 256, u32::MAX] {
            let mut port = ResultPort::default();
            port.take(&result(code, 7));
            assert_eq!(port.next_event(), Some(Event::Unknown { code, value: 7 }));
        }
    }

    #[test]
    fn failure_of_a_driver_says_what_it_found() {
        let mut port = ResultPort::default();
        port.take(&result(EVENT_DRIVER_FAILED, 0x0012_340a));
        port.take(&result(EVENT_DRIVER_FAILED, 0x0012_34ff));
        let failed = Event::DriverFailed { failure: DriverFailure::UsedId, found: 0x1234 };
        let unknown = Event::Unknown { code: EVENT_DRIVER_FAILED, value: 0x0012_34ff };
        assert_eq!([port.next_event(), port.next_event()], [Some(failed), Some(unknown)]);
        assert!(failed.is_last());
        assert_eq!(failed.to_string(), "DriverFailed(UsedId, found 0x1234)");
    }
}
