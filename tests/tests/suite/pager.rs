//! Guest memory that is filled in by userfaultfd, without a guest: whoever touches it waits for its page.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corten_devices::virtio::DiscardError;
use corten_tests::host;
use corten_vmm::ram::{CHUNK, PageSource, Present, Ram, Slot, SourceError};
use vm_memory::{Bytes, GuestAddress};

/// Long, for a machine under load.
const SOON: Duration = Duration::from_secs(60);
const PAGE: u64 = 4096;
/// The second begins in the middle of a chunk, and ends in one.
const SLOTS: [Slot; 2] =
    [Slot { start: 0, size: 0x53_3000 }, Slot { start: 4 << 30, size: 0x12_5000 }];
const SIZE: u64 = SLOTS[0].size + SLOTS[1].size;

/// Every page has its number in it, and each third nothing.
struct Numbers {
    /// A chunk that cannot be had.
    damaged: Option<u64>,
    bytes_read: u64,
}

fn number_in(page: u64) -> u64 {
    if page.is_multiple_of(3) { 0 } else { page }
}

impl PageSource for Numbers {
    fn chunk(&mut self, number: u64, buffer: &mut [u8]) -> Result<Present, SourceError> {
        if self.damaged == Some(number) {
            return Err("the test wants it so".into());
        }
        for (page, bytes) in (number * CHUNK / PAGE..).zip(buffer.chunks_mut(4096)) {
            bytes.fill(0);
            bytes[..8].copy_from_slice(&number_in(page).to_le_bytes());
        }
        self.bytes_read += buffer.len() as u64;
        Ok(Present::of(buffer))
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read
    }
}

/// Memory, and who is told if it cannot be filled in.
fn memory(damaged: Option<u64>) -> Result<(Ram, Receiver<String>)> {
    let ram = Ram::new(&SLOTS)?;
    let (sender, told) = channel();
    let report = Box::new(move |why| drop(sender.send(why)));
    let source = Box::new(Numbers { damaged, bytes_read: 0 });
    ram.fill(source, Some(&host::userfaultfd()?), report)?;
    Ok((ram, told))
}

/// Where page `number` of the memfd is.
fn address_of(number: u64) -> GuestAddress {
    let offset = number * PAGE;
    GuestAddress(match offset.checked_sub(SLOTS[0].size) {
        Some(offset) => SLOTS[1].start + offset,
        None => offset,
    })
}

fn read(ram: &Ram, number: u64) -> Result<u64> {
    Ok(ram.memory().read_obj(address_of(number))?)
}

#[test]
fn every_page_comes_when_it_is_touched() -> Result<()> {
    let (ram, _told) = memory(None)?;
    for page in (0..SIZE / PAGE).rev() {
        ensure!(read(&ram, page)? == number_in(page), "page {page}");
    }
    let fill = ram.fill_counters();
    ensure!(fill.filling && fill.all.bytes_read == SIZE, "{fill:?}");
    ensure!(fill.all.pages + fill.all.zero_pages == SIZE / PAGE, "{fill:?}");
    Ok(())
}

#[test]
fn many_who_touch_memory_while_it_is_filled_in_find_what_belongs_there() -> Result<()> {
    let (ram, _told) = memory(None)?;
    let pages = SIZE / PAGE;
    std::thread::scope(|scope| {
        let ram = &ram;
        let wanderers: Vec<_> = [1, 7, 11, 1009]
            .map(|stride| {
                scope.spawn(move || -> Result<()> {
                    for step in 0..pages {
                        let page = step * stride % pages;
                        ensure!(read(ram, page)? == number_in(page), "page {page}");
                    }
                    Ok(())
                })
            })
            .into();
        ram.begin_filling()?;
        for wanderer in wanderers {
            wanderer.join().ok().context("it panicked")??;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    ram.finish_filling(SOON)?;
    let fill = ram.fill_counters();
    ensure!(!fill.filling && fill.all.pages == pages - pages.div_ceil(3), "{fill:?}");
    Ok(())
}

#[test]
fn nothing_is_filled_in_before_it_is_wanted() -> Result<()> {
    let (ram, _told) = memory(None)?;
    ram.bring_in(address_of(0x533 + 7), SOON)?;
    let before = ram.fill_counters();
    ensure!(before.all.bytes_read == CHUNK && before.all.faults == 0, "{before:?}");
    ensure!(read(&ram, 0x533 + 8)? == number_in(0x533 + 8));
    ram.finish_filling(SOON)?;
    ensure!(ram.fill_counters().all.bytes_read == SIZE);
    Ok(())
}

#[test]
fn memory_is_not_given_back_before_all_is_there() -> Result<()> {
    let (ram, _told) = memory(None)?;
    let devices = ram.for_devices();
    let refused = devices.discard(address_of(1), PAGE);
    ensure!(matches!(refused, Err(DiscardError::Filling)), "{refused:?}");
    ram.finish_filling(SOON)?;
    devices.discard(address_of(1), PAGE)?;
    ensure!(read(&ram, 1)? == 0 && read(&ram, 2)? == 2);
    Ok(())
}

#[test]
fn emptied_memory_is_no_longer_filled_in() -> Result<()> {
    let (ram, _told) = memory(None)?;
    ensure!(read(&ram, 1)? == 1);
    ram.empty()?;
    ensure!(read(&ram, 1)? == 0 && read(&ram, 500)? == 0);
    ram.begin_filling()?;
    ram.finish_filling(SOON)?;
    ensure!(read(&ram, 700)? == 0 && !ram.fill_counters().filling);
    Ok(())
}

#[test]
fn page_that_cannot_be_had_is_told_and_who_waits_for_it_gets_nothing_else() -> Result<()> {
    let damaged = 5;
    let (ram, told) = memory(Some(damaged))?;
    ensure!(read(&ram, 1)? == 1 && !ram.is_broken());
    std::thread::scope(|scope| {
        let ram = &ram;
        let waits = scope.spawn(move || read(ram, damaged * CHUNK / PAGE + 2));
        let why = told.recv_timeout(SOON)?;
        ensure!(why.contains("the test wants it so"), "{why}");
        ensure!(ram.is_broken() && ram.begin_filling().is_err());
        ensure!(ram.finish_filling(SOON).is_err() && ram.bring_in(address_of(9), SOON).is_err());
        ensure!(!waits.is_finished(), "it got something");
        // Nobody's any more: then all go on.
        ram.empty()?;
        ensure!(waits.join().ok().context("it panicked")?? == 0);
        Ok(())
    })
}
