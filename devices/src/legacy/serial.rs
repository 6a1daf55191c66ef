//! 16550A serial port: the guest's console.
//!
//! **Output** is written byte by byte as the guest sends it, one write(2) for each. Nothing is collected: a guest's
//! exit costs more than the write, and a prompt has no end of line to wait for. The writer must not block, since a vCPU
//! waits for it ([`nonblocking`] makes a descriptor so): what a slow or absent reader does not take at once, after what
//! its pipe or socket holds, is dropped and counted ([`Serial::dropped`]).
//!
//! **Input** is pushed by whoever reads the console ([`Serial::push_input`]; in a machine [`super::SerialInput`]), as
//! much as there is room for. When there is room again, [`Serial::room`] says so.
//!
//! **Interrupts** are edges: one for each cause that comes up, even while another waits. All registers and waiting
//! input are saved; a loaded device raises its interrupt again if a cause is there, so that a guest that was stopped
//! between sending a byte and being told so goes on (Firecracker lost that: #5730, #5764).

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::impossible;
use super::ports::{read_each, write_each};
use super::uart::SerialState;
use crate::{Effect, Interrupt, RecordError, Registers};

/// The device.
pub struct Serial {
    interrupt: Interrupt,
    room: EventFd,
    line: Mutex<Line>,
}

/// What the lock guards.
struct Line {
    uart: SerialState,
    output: Box<dyn Write + Send>,
    dropped: u64,
    /// Input was turned down since there was room last.
    room_wanted: bool,
}

/// Makes a descriptor fit for the output of a [`Serial`]: a write that would block fails instead.
///
/// That holds for everyone who shares the open file, so a terminal that others use is better reached through a pipe.
pub fn nonblocking(descriptor: OwnedFd) -> io::Result<File> {
    let flags = OFlag::from_bits_retain(fcntl(&descriptor, FcntlArg::F_GETFL)?);
    fcntl(&descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(descriptor.into())
}

impl Serial {
    /// A port after power-on, which sends to `output`. A write to it fails at once if it cannot succeed at once.
    pub fn new(interrupt: Interrupt, output: Box<dyn Write + Send>) -> io::Result<Self> {
        let room = EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?;
        let uart = SerialState::default();
        let line = Mutex::new(Line { uart, output, dropped: 0, room_wanted: false });
        Ok(Self { interrupt, room, line })
    }

    /// Gives the guest input. How many bytes were taken is returned; the rest is to be offered again after
    /// [`Self::room`]. Not called between [`Self::save`] and the end of a machine that goes on elsewhere.
    ///
    /// What the guest has not read when it turns its FIFO on is lost, as on a real port.
    pub fn push_input(&self, bytes: &[u8]) -> usize {
        let mut line = self.line();
        let taken = line.uart.receive(bytes);
        line.room_wanted |= taken < bytes.len();
        // Also if data were a cause before: one interrupt too many does no harm, and heals one that got lost.
        if taken > 0 && line.uart.causes() != 0 {
            self.interrupt.raise();
        }
        taken
    }

    /// How many bytes of input would be taken now. If none, [`Self::room`] tells of it when there is room.
    pub fn input_wanted(&self) -> usize {
        let mut line = self.line();
        let wanted = line.uart.input_wanted();
        line.room_wanted |= wanted == 0;
        wanted
    }

    /// Becomes readable when input that was turned down should be offered again: all earlier one has been read.
    pub fn room(&self) -> &EventFd {
        &self.room
    }

    /// How many bytes the guest sent that its console did not take. Not part of the state.
    pub fn dropped(&self) -> u64 {
        self.line().dropped
    }

    /// Its state.
    pub fn save(&self) -> SerialState {
        self.line().uart.clone()
    }

    /// Takes a state. Whoever was turned down with input may try again.
    pub fn load(&self, mut state: SerialState) -> Result<(), RecordError> {
        state.check().map_err(impossible::<SerialState>)?;
        state.reserve();
        let mut line = self.line();
        line.uart = state;
        if line.uart.causes() != 0 {
            self.interrupt.raise();
        }
        self.tell_room(&mut line);
        Ok(())
    }

    /// Lets the guest access the UART, then tells both sides what came of it.
    fn access<T>(&self, access: impl FnOnce(&mut Line) -> T) -> T {
        let mut line = self.line();
        let before = line.uart.causes();
        let result = access(&mut line);
        if line.uart.causes() & !before != 0 {
            self.interrupt.raise();
        }
        self.tell_room(&mut line);
        result
    }

    fn tell_room(&self, line: &mut Line) {
        if line.room_wanted && line.uart.has_room() {
            line.room_wanted = false;
            // The only failure is a count of 2^64 - 1, at which it is as readable as it can be.
            let _ = self.room.write(1);
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn send(&mut self, byte: u8) {
        if self.output.write_all(&[byte]).is_err() {
            self.dropped = self.dropped.saturating_add(1);
        }
    }
}

impl Registers for Serial {
    fn read(&self, offset: u64, data: &mut [u8]) {
        read_each(offset, data, |port| self.access(|line| line.uart.read(port)));
    }

    fn write(&self, offset: u64, data: &[u8]) -> Effect {
        write_each(offset, data, |port, byte| {
            self.access(|line| {
                if let Some(byte) = line.uart.write(port, byte) {
                    line.send(byte);
                }
            });
            Effect::None
        })
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serial").field("interrupt", &self.interrupt).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};
    use std::sync::Arc;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::testing::{accesses, apply, read, read_byte};
    use super::super::uart::INPUT_SIZE;
    use super::*;

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn serial() -> Serial {
        serial_to(io::sink())
    }

    fn serial_to(output: impl Write + Send + 'static) -> Serial {
        Serial::new(Interrupt::new().unwrap(), Box::new(output)).unwrap()
    }

    fn raised(serial: &Serial) -> bool {
        serial.interrupt.eventfd().read().is_ok()
    }

    fn write(serial: &Serial, offset: u64, bytes: &[u8]) {
        assert_eq!(serial.write(offset, bytes), Effect::None);
    }

    #[test]
    fn output_goes_straight_through() {
        let screen = Screen::default();
        let serial = serial_to(screen.clone());
        for byte in b"login: " {
            write(&serial, 0, &[*byte]);
        }
        assert_eq!(*screen.0.lock().unwrap(), b"login: ");
        assert_eq!(serial.dropped(), 0);
    }

    #[test]
    fn wide_write_reaches_the_next_registers_too() {
        let screen = Screen::default();
        let serial = serial_to(screen.clone());
        write(&serial, 0, b"x\x03");
        assert_eq!(*screen.0.lock().unwrap(), b"x");
        assert_eq!(read(&serial, 1, 1), [3]);
        assert_eq!(read(&serial, 6, 4), [0xb0, 0, 0xff, 0xff]);
    }

    #[test]
    fn reader_that_takes_nothing_costs_bytes_which_are_counted_and_no_time() {
        let (mut reader, writer) = pipe().unwrap();
        let serial = serial_to(nonblocking(writer.into()).unwrap());
        for _ in 0..70_000 {
            write(&serial, 0, b"x");
        }
        let dropped = usize::try_from(serial.dropped()).unwrap();
        assert!(dropped > 0);
        drop(serial);
        assert_eq!(reader.read_to_end(&mut Vec::new()).unwrap(), 70_000 - dropped);
    }

    #[test]
    fn reader_that_is_gone_costs_bytes_which_are_counted() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let serial = serial_to(nonblocking(writer.into()).unwrap());
        write(&serial, 0, b"x");
        write(&serial, 0, b"y");
        assert_eq!(serial.dropped(), 2);
    }

    #[test]
    fn input_interrupts_once_enabled_also_late() {
        let serial = serial();
        assert_eq!(serial.push_input(b"a"), 1);
        assert!(!raised(&serial));
        write(&serial, 1, &[1]);
        assert!(raised(&serial));
        assert_eq!(serial.push_input(b"b"), 1);
        assert!(raised(&serial));
        assert_eq!((read_byte(&serial, 0), read_byte(&serial, 0)), (b'a', b'b'));
        assert!(!raised(&serial));
    }

    #[test]
    fn output_interrupts_once_until_the_guest_looked() {
        let serial = serial();
        write(&serial, 1, &[2]);
        assert!(raised(&serial));
        write(&serial, 0, b"x");
        assert!(!raised(&serial));
        assert_eq!(read_byte(&serial, 2), 2);
        write(&serial, 0, b"x");
        assert!(raised(&serial));
    }

    #[test]
    fn input_turned_down_is_asked_for_when_the_rest_was_read() {
        let serial = serial();
        assert_eq!(serial.push_input(&[7; 100]), INPUT_SIZE);
        for _ in 0..INPUT_SIZE {
            serial.room().read().unwrap_err();
            assert_eq!(read_byte(&serial, 0), 7);
        }
        assert_eq!(serial.room().read().unwrap(), 1);
        assert_eq!(serial.push_input(&[7; 36]), 36);
        write(&serial, 2, &[1]);
        serial.room().read().unwrap_err();
    }

    #[test]
    fn input_that_is_not_wanted_is_asked_for_later() {
        let serial = serial();
        assert_eq!(serial.input_wanted(), INPUT_SIZE);
        assert_eq!(serial.push_input(&[7; INPUT_SIZE - 1]), INPUT_SIZE - 1);
        assert_eq!(serial.input_wanted(), 1);
        assert_eq!(serial.push_input(&[7]), 1);
        serial.room().read().unwrap_err();
        assert_eq!(serial.input_wanted(), 0);
        (0..INPUT_SIZE).for_each(|_| assert_eq!(read_byte(&serial, 0), 7));
        assert_eq!(serial.room().read().unwrap(), 1);
    }

    #[test]
    fn input_turned_down_in_loopback_is_asked_for_after_it() {
        let serial = serial();
        write(&serial, 4, &[0x10]);
        assert_eq!(serial.push_input(b"a"), 0);
        serial.room().read().unwrap_err();
        write(&serial, 4, &[0]);
        assert_eq!(serial.room().read().unwrap(), 1);
    }

    const GOLDEN: &str = concat!(
        r#"{"divisor":[12,0],"interrupt_enable":7,"fifo_control":129,"line_control":19,"#,
        r#""modem_control":11,"scratch":90,"transmitted":true,"input":[108,115,10]}"#
    );

    #[test]
    fn state_of_version_1_is_golden() {
        let serial = serial();
        serial.load(serde_json::from_str(GOLDEN).unwrap()).unwrap();
        assert_eq!(serde_json::to_string(&serial.save()).unwrap(), GOLDEN);
        assert_eq!(read(&serial, 1, 8), [7, 0xc4, 19, 11, 0x61, 0xb0, 90, 0xff]);
        assert_eq!((0..4).map(|_| read_byte(&serial, 0)).collect::<Vec<_>>(), b"ls\n\0");
        assert_eq!(read_byte(&serial, 2), 0xc2);
    }

    #[test]
    fn loaded_state_interrupts_again_if_a_cause_waits() {
        let serial = serial();
        serial.load(SerialState::default()).unwrap();
        assert!(!raised(&serial));
        serial.load(serde_json::from_str(GOLDEN).unwrap()).unwrap();
        assert!(raised(&serial));
    }

    #[test]
    fn guest_stopped_while_it_waits_for_the_transmitter_goes_on_after_load() {
        let first = serial();
        write(&first, 1, &[2]);
        write(&first, 0, b"x");
        let second = serial();
        second.load(first.save()).unwrap();
        assert!(raised(&second));
        assert_eq!(read_byte(&second, 2), 2);
    }

    #[test]
    fn impossible_states_are_refused_and_change_nothing() {
        let long = format!("[{}0]", "0,".repeat(INPUT_SIZE));
        for (from, to) in [
            (r#""interrupt_enable":7"#, r#""interrupt_enable":16"#),
            (r#""interrupt_enable":7"#, r#""interrupt_enable":5"#),
            (r#""fifo_control":129"#, r#""fifo_control":128"#),
            (r#""fifo_control":129"#, r#""fifo_control":3"#),
            (r#""modem_control":11"#, r#""modem_control":32"#),
            ("[108,115,10]", &long),
        ] {
            let state = serde_json::from_str(&GOLDEN.replace(from, to)).unwrap();
            let serial = serial();
            let error = serial.load(state).unwrap_err();
            assert!(matches!(error, RecordError::Impossible { .. }), "{to}");
            assert_eq!(serial.save(), SerialState::default());
        }
    }

    proptest! {
        #[test]
        fn save_load_save_is_equal(
            early in accesses(8),
            input in vec(any::<u8>(), 0..80),
            late in accesses(8),
        ) {
            let first = serial();
            apply(&first, &early);
            first.push_input(&input);
            apply(&first, &late);
            let state = first.save();
            let second = serial();
            second.load(serde_json::from_value(serde_json::to_value(&state).unwrap()).unwrap()).unwrap();
            prop_assert_eq!(second.save(), state);
            prop_assert_eq!(apply(&second, &late), apply(&first, &late));
            prop_assert_eq!(second.save(), first.save());
        }
    }
}
