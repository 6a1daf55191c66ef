//! What Corten needs of KVM, one feature a test, tried with a microguest.
//!
//! These pass on real KVM and on one that emulates each instruction, as root with device nodes and in the cage with
//! nothing but a link. A failure here says that the host, not Corten, cannot do a thing.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corten_microguest::protocol::{IMAGE_END, IMAGE_START};
use corten_microguest::{DriverFailure, Entry, Event, checksum_with, counter_checksum, word_at};
use corten_tests::dirty_log::DirtyTracking;
use corten_tests::memory::{MemoryError, PAGE_SIZE};
use corten_tests::uffd::PageServer;
use corten_tests::{Access, MicroVm, Place, Ram, RunError};
use kvm_bindings::{
    KVM_IRQ_ROUTING_MSI, KvmIrqRouting, kvm_irq_routing_entry, kvm_irq_routing_entry__bindgen_ty_1,
    kvm_irq_routing_msi,
};
use kvm_ioctls::{IoEventAddress, NoDatamatch};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// For a guest that is to report; long, for a machine in an emulator under load.
const SOON: Duration = Duration::from_secs(30);
/// For a guest that is not to report.
const A_WHILE: Duration = Duration::from_millis(50);
/// Where there is no memory.
const MMIO: GuestAddress = GuestAddress(0xd000_0000);
const PAGE: u64 = PAGE_SIZE as u64;
/// Of the memory that each guest here has.
const RAM_PAGES: u32 = 4096;

/// A guest that has said hello.
fn started(command_line: &str) -> Result<MicroVm> {
    let mut vm = MicroVm::boot(Entry::Pvh, command_line)?;
    expect(&mut vm, Event::Hello(Entry::Pvh))?;
    Ok(vm)
}

fn started_with(tracking: DirtyTracking, command_line: &str) -> Result<MicroVm> {
    let mut vm = MicroVm::new(Ram::new(RAM_PAGES as usize * PAGE_SIZE)?, tracking)?;
    vm.load(Entry::Pvh, command_line)?;
    expect(&mut vm, Event::Hello(Entry::Pvh))?;
    Ok(vm)
}

fn expect(vm: &mut MicroVm, expected: Event) -> Result<()> {
    let event = vm.next_event(SOON)?;
    ensure!(event == expected, "{event} came, not {expected}; console {:?}", vm.console());
    Ok(())
}

#[test]
fn pvh_entry_says_hello() -> Result<()> {
    let mut vm = MicroVm::boot(Entry::Pvh, "hello")?;
    expect(&mut vm, Event::Hello(Entry::Pvh))?;
    expect(&mut vm, Event::Done { commands: 1 })?;
    assert_eq!(vm.console(), "microguest by PVH entry: hello\n");
    Ok(())
}

#[test]
fn entry_in_64_bits_says_hello() -> Result<()> {
    let mut vm = MicroVm::boot(Entry::Linux64, "hello")?;
    expect(&mut vm, Event::Hello(Entry::Linux64))?;
    expect(&mut vm, Event::Done { commands: 1 })?;
    assert_eq!(vm.console(), "microguest by 64-bit entry: hello\n");
    Ok(())
}

#[test]
fn unknown_command_is_reported_by_its_place() -> Result<()> {
    let mut vm = started("console=ttyS0 hello nonsense first=1")?;
    expect(&mut vm, Event::UnknownCommand { offset: 20 })
}

#[test]
fn driver_without_its_device_gives_up() -> Result<()> {
    let mut vm = started("disk")?;
    // Ports without a device read as all ones: 2 is the type of a disk that is in no slot.
    expect(&mut vm, Event::DriverFailed { failure: DriverFailure::NoDevice, found: 2 })
}

#[test]
fn port_writes_exit_with_their_size_and_value() -> Result<()> {
    let command = |size| format!("doorbell port=0x510 size={size} value=0x44332211 ");
    let mut vm = started(&[1, 2, 4].map(command).concat())?;
    for _ in 0..3 {
        expect(&mut vm, Event::Rung { times: 1 })?;
    }
    let written = |bytes: &[u8]| Access { place: Place::Port(0x510), bytes: bytes.to_vec() };
    let expected = [&[0x11][..], &[0x11, 0x22], &[0x11, 0x22, 0x33, 0x44]].map(written);
    assert_eq!(vm.accesses(), expected);
    Ok(())
}

#[test]
fn port_reads_get_the_answer_of_the_host() -> Result<()> {
    let mut vm = started("read port=0x510 size=1 read port=0x510 size=2 read port=0x510 size=4")?;
    vm.answer_reads_with(0x8877_6655_4433_2211);
    expect(&mut vm, Event::Read(0x11))?;
    expect(&mut vm, Event::Read(0x2211))?;
    expect(&mut vm, Event::Read(0x4433_2211))?;
    assert_eq!(vm.exits().of("in"), 3);
    Ok(())
}

#[test]
fn mmio_writes_exit_with_their_size_and_value() -> Result<()> {
    let command =
        |size| format!("doorbell address={:#x} size={size} value=0x8877665544332211 ", MMIO.0);
    let mut vm = started(&[1, 2, 4, 8].map(command).concat())?;
    for _ in 0..4 {
        expect(&mut vm, Event::Rung { times: 1 })?;
    }
    let bytes = 0x8877_6655_4433_2211_u64.to_le_bytes();
    let written = |size| Access { place: Place::Address(MMIO), bytes: bytes[..size].to_vec() };
    assert_eq!(vm.accesses(), [1, 2, 4, 8].map(written));
    Ok(())
}

#[test]
fn mmio_reads_get_the_answer_of_the_host() -> Result<()> {
    let command = |size| format!("read address={:#x} size={size} ", MMIO.0);
    let mut vm = started(&[1, 4, 8].map(command).concat())?;
    vm.answer_reads_with(0x8877_6655_4433_2211);
    expect(&mut vm, Event::Read(0x11))?;
    expect(&mut vm, Event::Read(0x4433_2211))?;
    expect(&mut vm, Event::Read(0x8877_6655_4433_2211))?;
    assert_eq!(vm.exits().of("mmio-read"), 3);
    Ok(())
}

#[test]
fn filled_memory_checks_right_and_a_damaged_word_is_found() -> Result<()> {
    let range = "first=0x200000 pages=2 step=64 seed=9";
    let mut vm = started(&format!("fill {range} check {range} hello check {range}"))?;
    expect(&mut vm, Event::Filled { words: 128 })?;
    expect(&mut vm, Event::WrongWords(0))?;
    expect(&mut vm, Event::Checksum(checksum_of(0x20_0000, 2, 64, 9)))?;
    vm.ram().mapping().write_obj(0_u64, GuestAddress(0x20_1040))?;
    expect(&mut vm, Event::WrongWords(1))
}

fn checksum_of(first: u64, pages: u64, step: usize, seed: u64) -> u64 {
    let addresses = (first..first + pages * PAGE).step_by(step);
    addresses.fold(0, |checksum, address| checksum_with(checksum, word_at(address, seed)))
}

/// Pages in the log, but for those of the guest's own image: its stack is written all the time.
fn dirty_outside_image(vm: &MicroVm) -> Result<BTreeSet<u64>> {
    let image = IMAGE_START / PAGE..IMAGE_END / PAGE;
    Ok(vm.dirty_pages()?.into_iter().filter(|page| !image.contains(page)).collect())
}

/// The guest has only read its boot information, below the image. Hardware KVM may map a page for writing when it is
/// first read and logs it then, so such a page may be in the log once.
fn only_boot_is_dirty(vm: &MicroVm) -> Result<()> {
    let boot = 0..IMAGE_START / PAGE;
    let dirty = dirty_outside_image(vm)?;
    ensure!(dirty.iter().all(|page| boot.contains(page)), "nobody has written {dirty:?}");
    Ok(())
}

fn pages_from(first: u64, count: u64, step: u64) -> BTreeSet<u64> {
    (0..count).map(|page| (first + page * step) / PAGE).collect()
}

#[test]
fn dirty_log_has_exactly_the_pages_written_since_it_was_read() -> Result<()> {
    let mut vm = started_with(
        DirtyTracking::OnRead,
        "write first=0x400000 pages=100 write first=0x480000 pages=50 step=0x3000 hello",
    )?;
    only_boot_is_dirty(&vm)?;
    expect(&mut vm, Event::Written { words: 100 })?;
    assert_eq!(dirty_outside_image(&vm)?, pages_from(0x40_0000, 100, PAGE));
    assert_eq!(vm.dirty_pages()?, BTreeSet::new());
    expect(&mut vm, Event::Written { words: 50 })?;
    assert_eq!(dirty_outside_image(&vm)?, pages_from(0x48_0000, 50, 0x3000));
    Ok(())
}

#[test]
fn manual_dirty_log_keeps_pages_until_they_are_cleared() -> Result<()> {
    let mut vm = started_with(
        DirtyTracking::Manual,
        "write first=0x400000 pages=128 write first=0x400000 pages=10 step=0x2000",
    )?;
    only_boot_is_dirty(&vm)?;
    vm.clear_dirty_pages(0, RAM_PAGES)?;
    expect(&mut vm, Event::Written { words: 128 })?;
    let all = pages_from(0x40_0000, 128, PAGE);
    assert_eq!(dirty_outside_image(&vm)?, all);
    assert_eq!(dirty_outside_image(&vm)?, all, "reading has cleared the log");

    vm.clear_dirty_pages(0x40_0000 / PAGE, 64)?;
    assert_eq!(dirty_outside_image(&vm)?, pages_from(0x44_0000, 64, PAGE));
    vm.clear_dirty_pages(0x44_0000 / PAGE, 64)?;
    assert_eq!(dirty_outside_image(&vm)?, BTreeSet::new());

    expect(&mut vm, Event::Written { words: 10 })?;
    assert_eq!(dirty_outside_image(&vm)?, pages_from(0x40_0000, 10, 0x2000));
    Ok(())
}

#[test]
fn initially_set_dirty_log_starts_full_and_tracks_after_clearing() -> Result<()> {
    let mut vm = started_with(
        DirtyTracking::ManualInitiallySet,
        "write first=0x400000 pages=20 write first=0x400000 pages=20 step=0x2000",
    )?;
    assert_eq!(vm.dirty_pages()?, (0..u64::from(RAM_PAGES)).collect());
    expect(&mut vm, Event::Written { words: 20 })?;
    vm.clear_dirty_pages(0, RAM_PAGES)?;
    assert_eq!(vm.dirty_pages()?, BTreeSet::new());
    expect(&mut vm, Event::Written { words: 20 })?;
    assert_eq!(dirty_outside_image(&vm)?, pages_from(0x40_0000, 20, 0x2000));
    Ok(())
}

/// An eventfd that is interrupt `vector` to the guest.
fn message_interrupt(vm: &MicroVm, vector: u32) -> Result<EventFd> {
    const GSI: u32 = 5;
    const LOCAL_APIC: u32 = 0xfee0_0000;
    let msi = kvm_irq_routing_msi { address_lo: LOCAL_APIC, data: vector, ..Default::default() };
    let route = kvm_irq_routing_entry {
        gsi: GSI,
        type_: KVM_IRQ_ROUTING_MSI,
        u: kvm_irq_routing_entry__bindgen_ty_1 { msi },
        ..Default::default()
    };
    let routes = KvmIrqRouting::from_entries(&[route]).context("one route is too many")?;
    vm.fd().set_gsi_routing(&routes)?;
    let interrupt = EventFd::new(EFD_CLOEXEC)?;
    vm.fd().register_irqfd(&interrupt, GSI)?;
    Ok(interrupt)
}

#[test]
fn irqfd_delivers_each_message_interrupt() -> Result<()> {
    let mut vm = started("interrupts vector=0x51 count=20")?;
    let interrupt = message_interrupt(&vm, 0x51)?;
    expect(&mut vm, Event::Ready { vector: 0x51 })?;
    for number in 1..=20 {
        interrupt.write(1)?;
        expect(&mut vm, Event::Interrupt { number })?;
    }
    expect(&mut vm, Event::Done { commands: 1 })
}

#[test]
fn irqfd_wakes_a_halted_guest() -> Result<()> {
    let mut vm = started("interrupts vector=0x51 count=3")?;
    let interrupt = message_interrupt(&vm, 0x51)?;
    expect(&mut vm, Event::Ready { vector: 0x51 })?;
    let (ring, rings) = mpsc::channel::<()>();
    thread::scope(|scope| {
        // The guest is in HLT, and the vCPU's thread asleep in KVM_RUN, before this one rings.
        let ringer = scope.spawn(move || -> Result<()> {
            for () in rings {
                thread::sleep(A_WHILE);
                interrupt.write(1)?;
            }
            Ok(())
        });
        for number in 1..=3 {
            ring.send(())?;
            expect(&mut vm, Event::Interrupt { number })?;
        }
        drop(ring);
        ringer.join().ok().context("the ringing thread panicked")?
    })
}

fn doorbell() -> Result<EventFd> {
    Ok(EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?)
}

#[test]
fn ioeventfd_counts_port_doorbells_without_an_exit() -> Result<()> {
    let mut vm = started("doorbell port=0x510 count=25 size=2")?;
    let rung = doorbell()?;
    vm.fd().register_ioevent(&rung, &IoEventAddress::Pio(0x510), NoDatamatch)?;
    expect(&mut vm, Event::Rung { times: 25 })?;
    assert_eq!(rung.read()?, 25);
    assert_eq!(vm.accesses(), []);
    Ok(())
}

#[test]
fn ioeventfd_counts_mmio_doorbells_without_an_exit() -> Result<()> {
    let mut vm = started(&format!("doorbell address={:#x} count=25", MMIO.0))?;
    let rung = doorbell()?;
    vm.fd().register_ioevent(&rung, &IoEventAddress::Mmio(MMIO.0), NoDatamatch)?;
    expect(&mut vm, Event::Rung { times: 25 })?;
    assert_eq!(rung.read()?, 25);
    assert_eq!(vm.accesses(), []);
    Ok(())
}

#[test]
fn ioeventfd_with_a_value_leaves_other_values_to_the_host() -> Result<()> {
    let ring =
        |value, count| format!("doorbell address={:#x} value={value} count={count} ", MMIO.0);
    let mut vm = started(&(ring(7, 3) + &ring(8, 1)))?;
    let rung = doorbell()?;
    vm.fd().register_ioevent(&rung, &IoEventAddress::Mmio(MMIO.0), 7_u32)?;
    expect(&mut vm, Event::Rung { times: 3 })?;
    expect(&mut vm, Event::Rung { times: 1 })?;
    assert_eq!(rung.read()?, 3);
    let other = Access { place: Place::Address(MMIO), bytes: vec![8, 0, 0, 0] };
    assert_eq!(vm.accesses(), [other]);
    Ok(())
}

const SERVED: GuestAddress = GuestAddress(0x60_0000);
const SERVED_PAGES: usize = 64;
const CHECK_SERVED: &str = "check first=0x600000 pages=64 step=64 seed=3";

/// What `fill` with seed 3 would have left in a page.
fn filled_page(address: GuestAddress, page: &mut [u8; PAGE_SIZE]) {
    for (word, at) in page.chunks_exact_mut(8).zip((address.0..).step_by(8)) {
        word.copy_from_slice(&word_at(at, 3).to_le_bytes());
    }
}

#[test]
fn userfaultfd_serves_guest_memory_page_by_page() -> Result<()> {
    let mut vm = started(CHECK_SERVED)?;
    let server = PageServer::start(vm.ram(), SERVED, SERVED_PAGES, filled_page)?;
    expect(&mut vm, Event::WrongWords(0))?;
    expect(&mut vm, Event::Checksum(checksum_of(SERVED.0, 64, 64, 3)))?;
    let expected: Vec<_> =
        (SERVED.0..).step_by(PAGE_SIZE).take(SERVED_PAGES).map(GuestAddress).collect();
    assert_eq!(server.finish()?, expected);
    Ok(())
}

#[test]
fn page_served_with_wrong_contents_is_found_by_the_guest() -> Result<()> {
    let mut vm = started(CHECK_SERVED)?;
    let server = PageServer::start(vm.ram(), SERVED, SERVED_PAGES, |address, page| {
        filled_page(address, page);
        page[0x40] ^= u8::from(address.0 == 0x61_0000);
    })?;
    expect(&mut vm, Event::WrongWords(1))?;
    server.finish()?;
    Ok(())
}

#[test]
fn local_apic_timer_interrupts_each_time_it_is_armed() -> Result<()> {
    let mut vm = started("timer vector=0x60 count=5 ticks=1000000")?;
    expect(&mut vm, Event::Ready { vector: 0x60 })?;
    for number in 1..=5 {
        expect(&mut vm, Event::Interrupt { number })?;
    }
    expect(&mut vm, Event::Done { commands: 1 })
}

/// How a moving guest gets its memory in the next VM.
type Transfer = fn(&Ram) -> Result<Ram, MemoryError>;

fn moved(mut vm: MicroVm, transfer: Transfer) -> Result<MicroVm> {
    let saved = vm.save()?;
    let mut next = MicroVm::new(transfer(vm.ram())?, DirtyTracking::Off)?;
    drop(vm);
    next.restore(&saved)?;
    Ok(next)
}

/// What a counting guest has reported, each report checked.
#[derive(Default)]
struct Count {
    counter: u64,
    checksum_follows: bool,
}

impl Count {
    const EVERY: u64 = 50;

    fn take(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Counter(n) if n == self.counter + Self::EVERY => self.counter = n,
            Event::CounterChecksum(n)
                if self.checksum_follows && n == counter_checksum(self.counter) => {}
            other => bail!("{other} came after {}", self.counter),
        }
        self.checksum_follows = !self.checksum_follows;
        Ok(())
    }

    fn reports(&mut self, vm: &mut MicroVm, reports: usize) -> Result<()> {
        (0..reports).try_for_each(|_| self.take(vm.next_event(SOON)?))
    }

    fn for_a_while(&mut self, vm: &mut MicroVm, a_while: Duration) -> Result<()> {
        let end = Instant::now() + a_while;
        while let Some(event) = vm.run_for(end.saturating_duration_since(Instant::now()))? {
            self.take(event)?;
        }
        Ok(())
    }
}

fn count_over_hops(transfer: Transfer) -> Result<()> {
    let mut vm = started("count first=0x300000 every=50")?;
    let mut count = Count::default();
    for hop in 0..5 {
        // In the middle of a report: the exit that carried it is not yet complete.
        count.reports(&mut vm, 2 * hop + 1)?;
        vm = moved(vm, transfer)?;
        // At whatever instruction the time is over.
        count.for_a_while(&mut vm, Duration::from_micros(1500 + 731 * hop as u64))?;
        vm = moved(vm, transfer)?;
    }
    count.reports(&mut vm, 10)
}

#[test]
fn counting_guest_goes_on_in_other_vms_over_the_same_memory() -> Result<()> {
    count_over_hops(Ram::mapped_again)
}

#[test]
fn counting_guest_goes_on_in_other_vms_over_copied_memory() -> Result<()> {
    count_over_hops(Ram::copied)
}

#[test]
fn counting_guest_notices_memory_from_the_past() -> Result<()> {
    let mut vm = started("count first=0x300000 every=50")?;
    let mut count = Count::default();
    count.reports(&mut vm, 4)?;
    let past: u64 = vm.ram().mapping().read_obj(GuestAddress(0x30_0000))?;
    count.reports(&mut vm, 4)?;
    vm.ram().mapping().write_obj(past, GuestAddress(0x30_0000))?;
    let event = vm.next_event(SOON)?;
    assert!(matches!(event, Event::Lost { .. }), "{event}");
    Ok(())
}

#[test]
fn halted_guest_takes_interrupts_in_its_next_vm() -> Result<()> {
    let mut vm = started("interrupts vector=0x51 count=4")?;
    expect(&mut vm, Event::Ready { vector: 0x51 })?;
    for number in 1..=4 {
        assert_eq!(vm.run_for(A_WHILE)?, None, "the guest is to be halted");
        vm = moved(vm, Ram::mapped_again)?;
        message_interrupt(&vm, 0x51)?.write(1)?;
        expect(&mut vm, Event::Interrupt { number })?;
    }
    expect(&mut vm, Event::Done { commands: 1 })
}

#[test]
fn armed_timer_fires_in_the_next_vm() -> Result<()> {
    let mut vm = started("timer vector=0x60 ticks=400000000")?;
    expect(&mut vm, Event::Ready { vector: 0x60 })?;
    // On a machine that stalls long enough it fires before the move; nothing is lost then either.
    let before = vm.run_for(A_WHILE)?;
    let mut vm = moved(vm, Ram::copied)?;
    let event = before.map_or_else(|| vm.next_event(SOON), Ok)?;
    assert_eq!(event, Event::Interrupt { number: 1 });
    Ok(())
}

#[test]
fn undefined_instruction_is_reported_with_its_place() -> Result<()> {
    let mut vm = started("undefined")?;
    expect(&mut vm, Event::ErrorCode(0))?;
    vm.next_event(SOON)?;
    let event = vm.next_event(SOON)?;
    let Event::Exception { vector: 6, rip } = event else { bail!("{event} is no #UD") };
    let instruction: [u8; 2] = vm.ram().mapping().read_obj(GuestAddress(rip))?;
    assert_eq!(instruction, [0x0f, 0x0b]);
    Ok(())
}

#[test]
fn page_fault_is_reported_with_its_address() -> Result<()> {
    let mut vm = started("fault address=0x123456789")?;
    expect(&mut vm, Event::ErrorCode(0))?;
    expect(&mut vm, Event::FaultAddress(0x1_2345_6789))?;
    let event = vm.next_event(SOON)?;
    let Event::Exception { vector: 14, rip } = event else { bail!("{event} is no #PF") };
    assert!(vm.ram().mapping().address_in_range(GuestAddress(rip)) && rip >= IMAGE_START);
    Ok(())
}

#[test]
fn looping_guest_ends_at_the_deadline() -> Result<()> {
    let mut vm = started("loop")?;
    let error = vm.next_event(A_WHILE).expect_err("a loop reports nothing");
    assert!(matches!(error, RunError::Deadline { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("rip 0x10") && text.contains("microguest by PVH entry: loop"), "{text}");
    Ok(())
}

#[test]
fn halted_guest_ends_at_the_deadline() -> Result<()> {
    let mut vm = started("interrupts")?;
    expect(&mut vm, Event::Ready { vector: 0x41 })?;
    let error = vm.next_event(A_WHILE).expect_err("nobody interrupts it");
    assert!(matches!(error, RunError::Deadline { .. }), "{error}");
    Ok(())
}
