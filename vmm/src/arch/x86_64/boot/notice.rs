//! For a machine with nothing to boot: a few instructions that write a text to the first serial port and wait for the
//! power button, as a system would. 32 bits, paging off, everything in the first MiB.

use kvm_bindings::{kvm_dtable, kvm_regs, kvm_sregs};
use vm_memory::{Bytes, GuestAddress};

use super::registers::{CODE, CR0_EXTENSION_TYPE, CR0_PROTECTION, flat_segments, regs_at};
use super::{BootError, StartRegisters};
use crate::arch::x86_64::layout;
use crate::ram::GuestMemory;

/// What is written at most: it lies where a command line would.
const MAX_TEXT: usize = layout::COMMAND_LINE_SIZE;

/// Where the code is, its stack below it.
const CODE_START: GuestAddress = GuestAddress(0x8000);
/// Where the table of interrupts is.
const INTERRUPTS: GuestAddress = GuestAddress(0x9000);
/// The one that the power button raises.
const VECTOR: u16 = 0x30;
/// Where it is handled.
const HANDLER: u32 = 0x63;

/// ESI is the text, ECX how long it is. The line of ACPI events is 9, and its registers are at 0x600: those that a
/// system finds in the ACPI tables.
const STUB: [u8; 121] = [
    0xe3, 0x13, //                         jecxz ready
    // next:
    0xba, 0xfd, 0x03, 0x00, 0x00, //       mov edx, 0x3fd
    // wait:
    0xec, //                               in al, dx
    0xa8, 0x20, //                         test al, 0x20: the transmitter is empty
    0x74, 0xfb, //                         jz wait
    0xac, //                               lodsb
    0xba, 0xf8, 0x03, 0x00, 0x00, //       mov edx, 0x3f8
    0xee, //                               out dx, al
    0xe2, 0xed, //                         loop next
    // ready: the local APIC takes interrupts, the IOAPIC passes line 9 on to CPU 0.
    0xc7, 0x05, 0xf0, 0x00, 0xe0, 0xfe, 0xff, 0x01, 0x00,
    0x00, // mov dword [0xfee000f0], 0x1ff
    0xc7, 0x05, 0x00, 0x00, 0xc0, 0xfe, 0x23, 0x00, 0x00,
    0x00, // mov dword [0xfec00000], 0x23
    0xc7, 0x05, 0x10, 0x00, 0xc0, 0xfe, 0x00, 0x00, 0x00, 0x00, // mov dword [0xfec00010], 0
    0xc7, 0x05, 0x00, 0x00, 0xc0, 0xfe, 0x22, 0x00, 0x00,
    0x00, // mov dword [0xfec00000], 0x22
    0xc7, 0x05, 0x10, 0x00, 0xc0, 0xfe, 0x30, 0x00, 0x00,
    0x00, // mov dword [0xfec00010], 0x30
    // What came before that raised nothing.
    0xe8, 0x04, 0x00, 0x00, 0x00, //       call look
    // enable:
    0xfb, //                               sti
    // halt:
    0xf4, //                               hlt
    0xeb, 0xfd, //                         jmp halt
    // look:
    0xba, 0x04, 0x06, 0x00, 0x00, //       mov edx, 0x604: events, cleared when read
    0xed, //                               in eax, dx
    0xa8, 0x01, //                         test al, 1: the power button
    0x74, 0x08, //                         jz nothing
    0xba, 0x00, 0x06, 0x00, 0x00, //       mov edx, 0x600: sleep control
    0xb0, 0x34, //                         mov al, 0x34: sleep type 5, now
    0xee, //                               out dx, al
    // nothing:
    0xc3, //                               ret
    // handler: nothing was under way that it would have to return to.
    0xbc, 0x00, 0x80, 0x00, 0x00, //       mov esp, 0x8000
    0xe8, 0xe3, 0xff, 0xff, 0xff, //       call look
    0xc7, 0x05, 0xb0, 0x00, 0xe0, 0xfe, 0x00, 0x00, 0x00,
    0x00, // mov dword [0xfee000b0], 0: end of interrupt
    0xeb, 0xd3, //                         jmp enable
];

/// Writes text and code into guest memory; `text` is cut if it does not fit.
pub fn notice(
    memory: &GuestMemory,
    text: &str,
    reset: kvm_sregs,
) -> Result<StartRegisters, BootError> {
    let text = &text.as_bytes()[..text.floor_char_boundary(MAX_TEXT)];
    memory.write_slice(text, layout::COMMAND_LINE)?;
    memory.write_slice(&STUB, CODE_START)?;
    // Selectors 0x10 and 0x18: flat code of 32 bits, flat data.
    memory.write_obj([0, 0, 0x00cf_9b00_0000_ffff, 0x00cf_9300_0000_ffff_u64], layout::GDT)?;
    memory.write_obj(gate(), GuestAddress(INTERRUPTS.0 + u64::from(VECTOR) * 8))?;
    let mut sregs = flat_segments(reset, false);
    sregs.gdt = kvm_dtable { base: layout::GDT.0, limit: 4 * 8 - 1, ..Default::default() };
    sregs.idt =
        kvm_dtable { base: INTERRUPTS.0, limit: (VECTOR + 1) * 8 - 1, ..Default::default() };
    sregs.cr0 = CR0_PROTECTION | CR0_EXTENSION_TYPE;
    sregs.cr4 = 0;
    sregs.efer = 0;
    let regs = kvm_regs {
        rsi: layout::COMMAND_LINE.0,
        rcx: text.len() as u64,
        rsp: CODE_START.0,
        ..regs_at(CODE_START)
    };
    Ok(StartRegisters { regs, sregs })
}

/// An interrupt gate of 32 bits to the handler.
fn gate() -> u64 {
    let address = CODE_START.0 + u64::from(HANDLER);
    (address & 0xffff) | u64::from(CODE) << 16 | 0x8e00 << 32 | (address >> 16) << 48
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ram::{Ram, slots};

    fn with_memory(bytes: u64, text: &str) -> Result<StartRegisters, BootError> {
        let slots = slots(bytes, layout::LOW_RAM_END, layout::HIGH_RAM).unwrap();
        notice(Ram::new(&slots).unwrap().memory(), text, kvm_sregs::default())
    }

    #[test]
    fn handler_is_where_the_gate_says() {
        assert_eq!(STUB[HANDLER as usize..][..5], [0xbc, 0x00, 0x80, 0x00, 0x00]);
        assert_eq!(CODE_START.0, 0x8000, "it is the handler's stack");
        assert_eq!(gate(), 0x0000_8e00_0010_8063);
    }

    #[test]
    fn one_mebibyte_is_enough_for_any_text() {
        assert_eq!(with_memory(1 << 20, "nothing").unwrap().regs.rcx, 7);
        assert_eq!(with_memory(1 << 20, &"x".repeat(1 << 20)).unwrap().regs.rcx, 0x1_0000);
        assert!(with_memory(4096, "nothing").is_err());
    }
}
