//! Registers of a 16550A, without what is around them: no lock, no descriptor, no interrupt.
//!
//! The registers are the state that is saved, so that none can be forgotten. The line is infinitely fast: the
//! transmitter is always empty. Modem lines say that someone is connected, and never change.
//!
//! Written anew instead of taking vm-superio's (0.8.2), whose interrupts are good enough for Linux only: reading the
//! cause of an interrupt clears all causes, also "data available" while there is more, and two causes at once read as a
//! third one (line status). It also ignores the FIFO control register, which therefore is missing from its state.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::State;

/// Received bytes that wait for the guest at most. More than the 16 of the chip, which no driver can tell: all read
/// until the line status says that there is no more.
pub const INPUT_SIZE: usize = 64;

const DATA: u64 = 0;
const INTERRUPT_ENABLE: u64 = 1;
/// Read: interrupt identification. Written: FIFO control.
const INTERRUPT_CAUSE: u64 = 2;
const LINE_CONTROL: u64 = 3;
const MODEM_CONTROL: u64 = 4;
const LINE_STATUS: u64 = 5;
const MODEM_STATUS: u64 = 6;
const SCRATCH: u64 = 7;

const ENABLE_RECEIVED: u8 = 1 << 0;
const ENABLE_TRANSMITTED: u8 = 1 << 1;
const ENABLE_ALL: u8 = 0x0f;

const CAUSE_NONE: u8 = 0b0001;
const CAUSE_TRANSMITTED: u8 = 0b0010;
const CAUSE_RECEIVED: u8 = 0b0100;
const CAUSE_FIFOS_ON: u8 = 0xc0;

const FIFOS_ON: u8 = 1 << 0;
const CLEAR_INPUT: u8 = 1 << 1;
/// Bits of FIFO control that stay: enable, DMA mode, trigger level. The level is kept but not followed: every byte is
/// told of at once.
const FIFO_CONTROL_KEPT: u8 = 0b1100_1001;

const DIVISOR_ACCESS: u8 = 1 << 7;

const MODEM_CONTROL_ALL: u8 = 0x1f;
const LOOPBACK: u8 = 1 << 4;

const DATA_READY: u8 = 1 << 0;
/// Holding register and shift register are empty.
const TRANSMITTER_EMPTY: u8 = 0b0110_0000;

/// Carrier, data set ready, clear to send.
const MODEM_CONNECTED: u8 = 0b1011_0000;

/// State of a [`Serial`](super::Serial): the registers of the UART and the input that the guest has not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SerialState {
    divisor: [u8; 2],
    interrupt_enable: u8,
    fifo_control: u8,
    line_control: u8,
    modem_control: u8,
    scratch: u8,
    /// The guest has not yet been told that the transmitter is empty again.
    transmitted: bool,
    input: VecDeque<u8>,
}

impl State for SerialState {
    const KIND: &'static str = "serial";
    const VERSION: u16 = 1;
}

impl Default for SerialState {
    /// After power-on. The divisor is that of 115200 baud: a Linux told of no other rate goes on with the one it finds.
    fn default() -> Self {
        Self {
            divisor: [1, 0],
            interrupt_enable: 0,
            fifo_control: 0,
            line_control: 0,
            modem_control: 0,
            scratch: 0,
            transmitted: false,
            input: VecDeque::with_capacity(INPUT_SIZE),
        }
    }
}

impl SerialState {
    /// What is wrong with it, if no UART can be in this state.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.interrupt_enable & !ENABLE_ALL != 0 {
            return Err(format!("interrupt enable {:#x}", self.interrupt_enable));
        }
        let off = self.fifo_control & FIFOS_ON == 0;
        if self.fifo_control & !FIFO_CONTROL_KEPT != 0 || off && self.fifo_control != 0 {
            return Err(format!("FIFO control {:#x}", self.fifo_control));
        }
        if self.modem_control & !MODEM_CONTROL_ALL != 0 {
            return Err(format!("modem control {:#x}", self.modem_control));
        }
        if self.transmitted && self.interrupt_enable & ENABLE_TRANSMITTED == 0 {
            return Err("an interrupt that is not enabled is pending".into());
        }
        if self.input.len() > INPUT_SIZE {
            return Err(format!("{} bytes of input", self.input.len()));
        }
        Ok(())
    }

    /// Makes room for all input there can be, so that no access of the guest allocates.
    pub(super) fn reserve(&mut self) {
        self.input.reserve(INPUT_SIZE.saturating_sub(self.input.len()));
    }

    /// Answers a guest's read.
    pub(super) fn read(&mut self, port: u64) -> u8 {
        match port {
            DATA if self.is_divisor_access() => self.divisor[0],
            INTERRUPT_ENABLE if self.is_divisor_access() => self.divisor[1],
            DATA => self.input.pop_front().unwrap_or(0),
            INTERRUPT_ENABLE => self.interrupt_enable,
            INTERRUPT_CAUSE => self.read_cause(),
            LINE_CONTROL => self.line_control,
            MODEM_CONTROL => self.modem_control,
            LINE_STATUS if self.input.is_empty() => TRANSMITTER_EMPTY,
            LINE_STATUS => TRANSMITTER_EMPTY | DATA_READY,
            MODEM_STATUS => self.modem_status(),
            SCRATCH => self.scratch,
            _ => 0xff,
        }
    }

    /// Takes a guest's write; the byte to send, if it is one.
    pub(super) fn write(&mut self, port: u64, byte: u8) -> Option<u8> {
        match port {
            DATA if self.is_divisor_access() => self.divisor[0] = byte,
            INTERRUPT_ENABLE if self.is_divisor_access() => self.divisor[1] = byte,
            DATA => return self.transmit(byte),
            INTERRUPT_ENABLE => self.enable_interrupts(byte & ENABLE_ALL),
            INTERRUPT_CAUSE => self.control_fifos(byte),
            LINE_CONTROL => self.line_control = byte,
            MODEM_CONTROL => self.modem_control = byte & MODEM_CONTROL_ALL,
            SCRATCH => self.scratch = byte,
            _ => {}
        }
        None
    }

    /// Takes bytes from outside, as many as there is room for. None in loopback, where the line is cut off.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.input_wanted());
        self.input.extend(&bytes[..taken]);
        taken
    }

    /// For how many bytes there is room.
    pub(super) fn input_wanted(&self) -> usize {
        if self.is_loopback() { 0 } else { INPUT_SIZE.saturating_sub(self.input.len()) }
    }

    /// Whether input would find an empty buffer.
    pub(super) fn has_room(&self) -> bool {
        self.input.is_empty() && !self.is_loopback()
    }

    /// Why the guest has to be interrupted: bits of enabled causes, none if 0.
    pub(super) fn causes(&self) -> u8 {
        let received = self.interrupt_enable & ENABLE_RECEIVED != 0 && !self.input.is_empty();
        let received = if received { CAUSE_RECEIVED } else { 0 };
        let transmitted = if self.transmitted { CAUSE_TRANSMITTED } else { 0 };
        received | transmitted
    }

    fn is_divisor_access(&self) -> bool {
        self.line_control & DIVISOR_ACCESS != 0
    }

    fn is_loopback(&self) -> bool {
        self.modem_control & LOOPBACK != 0
    }

    /// The most urgent cause. "Transmitter empty" is gone once it was read; data stay a cause until they were.
    fn read_cause(&mut self) -> u8 {
        let cause = match self.causes() {
            0 => CAUSE_NONE,
            causes if causes & CAUSE_RECEIVED != 0 => CAUSE_RECEIVED,
            _ => {
                self.transmitted = false;
                CAUSE_TRANSMITTED
            }
        };
        let fifos = if self.fifo_control & FIFOS_ON != 0 { CAUSE_FIFOS_ON } else { 0 };
        cause | fifos
    }

    fn transmit(&mut self, byte: u8) -> Option<u8> {
        self.transmitted = self.interrupt_enable & ENABLE_TRANSMITTED != 0;
        if !self.is_loopback() {
            return Some(byte);
        }
        // As on a line, what finds the buffer full is lost.
        if self.input.len() < INPUT_SIZE {
            self.input.push_back(byte);
        }
        None
    }

    /// Enabling "transmitter empty" tells of it at once, since it is: Linux' test for broken UARTs, and its restart of
    /// output, rely on it.
    fn enable_interrupts(&mut self, enable: u8) {
        let changed = self.interrupt_enable ^ enable;
        self.interrupt_enable = enable;
        if changed & ENABLE_TRANSMITTED != 0 {
            self.transmitted = enable & ENABLE_TRANSMITTED != 0;
        }
    }

    /// Turning the FIFOs on or off clears them, too.
    fn control_fifos(&mut self, byte: u8) {
        let kept = if byte & FIFOS_ON != 0 { byte & FIFO_CONTROL_KEPT } else { 0 };
        if (self.fifo_control ^ kept) & FIFOS_ON != 0 || kept != 0 && byte & CLEAR_INPUT != 0 {
            self.input.clear();
        }
        self.fifo_control = kept;
    }

    /// In loopback, outputs of the modem control register are wired to these inputs.
    fn modem_status(&self) -> u8 {
        if !self.is_loopback() {
            return MODEM_CONNECTED;
        }
        // Data terminal ready -> data set ready, request to send -> clear to send, two outputs -> ring, carrier.
        [(0, 5), (1, 4), (2, 6), (3, 7)]
            .iter()
            .fold(0, |status, (from, to)| status | (self.modem_control >> from & 1) << to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_interrupts(enable: u8) -> SerialState {
        let mut uart = SerialState::default();
        uart.write(INTERRUPT_ENABLE, enable);
        uart
    }

    #[test]
    fn linux_finds_a_16550a() {
        let mut uart = SerialState::default();
        uart.write(INTERRUPT_ENABLE, 0);
        assert_eq!(uart.read(INTERRUPT_ENABLE) & 0x0f, 0);
        uart.write(INTERRUPT_ENABLE, 0x0f);
        assert_eq!(uart.read(INTERRUPT_ENABLE), 0x0f);
        // Loopback, output 2 and request to send: carrier and clear to send.
        uart.write(MODEM_CONTROL, 0x1a);
        assert_eq!(uart.read(MODEM_STATUS) & 0xf0, 0x90);
        uart.write(INTERRUPT_CAUSE, FIFOS_ON);
        assert_eq!(uart.read(INTERRUPT_CAUSE) >> 6, 3);
        // A 16750 would show bit 5 for its longer FIFO.
        uart.write(INTERRUPT_CAUSE, FIFOS_ON | 0x20);
        assert_eq!(uart.read(INTERRUPT_CAUSE) >> 5, 6);
    }

    #[test]
    fn divisor_is_behind_its_access_bit() {
        let mut uart = SerialState::default();
        uart.write(LINE_CONTROL, 0x83);
        assert_eq!((uart.read(DATA), uart.read(INTERRUPT_ENABLE)), (1, 0));
        assert_eq!(uart.write(DATA, 0x34), None);
        uart.write(INTERRUPT_ENABLE, 0x12);
        assert_eq!((uart.read(DATA), uart.read(INTERRUPT_ENABLE)), (0x34, 0x12));
        uart.write(LINE_CONTROL, 3);
        assert_eq!((uart.read(DATA), uart.read(INTERRUPT_ENABLE)), (0, 0));
        assert_eq!(uart.read(LINE_CONTROL), 3);
    }

    #[test]
    fn input_is_read_in_order_and_shown_in_line_status() {
        let mut uart = SerialState::default();
        assert_eq!(uart.read(LINE_STATUS), 0x60);
        assert_eq!(uart.receive(b"ab"), 2);
        assert_eq!((uart.read(LINE_STATUS), uart.read(DATA)), (0x61, b'a'));
        assert_eq!((uart.read(LINE_STATUS), uart.read(DATA)), (0x61, b'b'));
        assert_eq!((uart.read(LINE_STATUS), uart.read(DATA)), (0x60, 0));
    }

    #[test]
    fn input_beyond_the_buffer_is_not_taken() {
        let mut uart = SerialState::default();
        assert_eq!(uart.receive(&[1; INPUT_SIZE + 9]), INPUT_SIZE);
        assert_eq!(uart.receive(&[1]), 0);
        uart.read(DATA);
        assert_eq!(uart.receive(&[1, 2]), 1);
    }

    #[test]
    fn received_data_stay_a_cause_until_all_are_read() {
        let mut uart = with_interrupts(ENABLE_RECEIVED);
        uart.receive(b"ab");
        assert_eq!(uart.read(INTERRUPT_CAUSE), CAUSE_RECEIVED);
        uart.read(DATA);
        assert_eq!(uart.read(INTERRUPT_CAUSE), CAUSE_RECEIVED);
        uart.read(DATA);
        assert_eq!(uart.read(INTERRUPT_CAUSE), CAUSE_NONE);
    }

    #[test]
    fn empty_transmitter_is_a_cause_until_it_was_read() {
        let mut uart = with_interrupts(ENABLE_TRANSMITTED);
        assert_eq!(uart.read(INTERRUPT_CAUSE), CAUSE_TRANSMITTED);
        assert_eq!(uart.read(INTERRUPT_CAUSE), CAUSE_NONE);
        assert_eq!(uart.write(DATA, b'x'), Some(b'x'));
        assert_eq!(uart.read(INTERRUPT_CAUSE), CAUSE_TRANSMITTED);
    }

    #[test]
    fn enabling_an_interrupt_whose_cause_is_there_tells_of_it() {
        let mut uart = SerialState::default();
        uart.receive(b"a");
        assert_eq!(uart.causes(), 0);
        uart.write(INTERRUPT_ENABLE, ENABLE_RECEIVED | ENABLE_TRANSMITTED);
        assert_eq!(uart.causes(), CAUSE_RECEIVED | CAUSE_TRANSMITTED);
        uart.write(INTERRUPT_ENABLE, 0);
        assert_eq!(uart.causes(), 0);
    }

    #[test]
    fn of_two_causes_received_data_come_first_and_the_other_is_kept() {
        let mut uart = with_interrupts(ENABLE_RECEIVED | ENABLE_TRANSMITTED);
        uart.receive(b"a");
        assert_eq!(uart.read(INTERRUPT_CAUSE), CAUSE_RECEIVED);
        uart.read(DATA);
        assert_eq!(uart.read(INTERRUPT_CAUSE), CAUSE_TRANSMITTED);
        assert_eq!(uart.read(INTERRUPT_CAUSE), CAUSE_NONE);
    }

    #[test]
    fn loopback_sends_to_itself_and_takes_no_input() {
        let mut uart = SerialState::default();
        uart.write(MODEM_CONTROL, LOOPBACK);
        assert_eq!(uart.receive(b"x"), 0);
        for byte in 0..100 {
            assert_eq!(uart.write(DATA, byte), None);
        }
        let input: Vec<u8> = (0..INPUT_SIZE).map(|_| uart.read(DATA)).collect();
        assert_eq!(input, (0..64).collect::<Vec<u8>>());
        assert_eq!(uart.read(LINE_STATUS), 0x60);
    }

    #[test]
    fn fifo_control_clears_input() {
        for (before, byte, left) in [
            (0, FIFOS_ON, 0),
            (FIFOS_ON, 0, 0),
            (FIFOS_ON, FIFOS_ON | CLEAR_INPUT, 0),
            (FIFOS_ON, FIFOS_ON, 1),
            (0, CLEAR_INPUT, 1),
            (0, 0, 1),
        ] {
            let mut uart = SerialState::default();
            uart.write(INTERRUPT_CAUSE, before);
            uart.receive(b"a");
            uart.write(INTERRUPT_CAUSE, byte);
            assert_eq!(uart.input.len(), left, "{before} {byte}");
        }
    }
}
