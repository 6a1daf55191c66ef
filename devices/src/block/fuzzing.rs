//! For the fuzz target: from a chain to a request, without a disk; and a disk whose requests take as long as they are told to.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::memfd::{MFdFlags, memfd_create};
use virtio_queue::desc::split::Descriptor;
use vm_memory::Bytes;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::backend::{Backend, Completion, Transfer, run};
use super::request::{MAX_LENGTH, OK, Reject, Request, Rules, parse};
use super::{Block, BlockConfig, DiskFile, Engine, ErrorPolicy};
use crate::virtio::GuestRam;

/// Sectors of the disk that requests are for.
const CAPACITY: u64 = 1 << 20;

/// Reads a request of descriptors by address, length, flags and successor, and asserts what holds of any. Bits of `disk`
/// say of what kind the disk is.
pub fn look_at_request(ram: &GuestRam, descriptors: &[(u64, u32, u16)], disk: u8) {
    let rules = Rules {
        capacity: CAPACITY,
        block_size: if disk & 1 == 0 { 512 } else { 4096 },
        read_only: disk & 2 != 0,
        discard: disk & 4 != 0,
        write_zeroes: disk & 8 != 0,
    };
    let descriptor =
        |(address, length, flags): &(u64, u32, u16)| Descriptor::new(*address, *length, *flags, 0);
    match parse(7, descriptors.iter().map(descriptor), ram, &rules) {
        Ok(request) => {
            request.action.check(ram, &rules).expect("what was taken is taken again");
            assert!(request.action.length() <= MAX_LENGTH, "a request is not longer");
            ram.write_obj(OK, request.status).expect("the status has a place");
            let saved = serde_json::to_string(&request).expect("a request can be held");
            let loaded: Request = serde_json::from_str(&saved).expect("and loaded");
            assert_eq!(loaded, request);
        }
        Err(Reject::Answered { status, code, .. }) => {
            assert_ne!(code, OK);
            ram.write_obj(code, status).expect("the status has a place");
        }
        Err(Reject::Unanswerable) => {}
    }
}

/// Bytes of a gated disk.
const SIZE: u64 = 1 << 20;

/// Lets transfers of one queue of a disk be done.
pub struct Gate {
    allowed: AtomicUsize,
    eventfd: EventFd,
}

impl Gate {
    /// As many more as this.
    pub fn open(&self, count: usize) {
        self.allowed.fetch_add(count, Ordering::Relaxed);
        // The only failure is a count of 2^64 - 1, at which it is readable.
        let _ = self.eventfd.write(1);
    }
}

/// Does transfers where it is asked for them, if they are allowed.
struct Gated {
    file: File,
    waiting: VecDeque<Transfer>,
    gate: Arc<Gate>,
}

impl Backend for Gated {
    fn completed(&self) -> &EventFd {
        &self.gate.eventfd
    }

    fn submit(&mut self, transfer: Transfer) {
        self.waiting.push_back(transfer);
    }

    fn kick(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn completions(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        let allowed = self.gate.allowed.load(Ordering::Relaxed).min(self.waiting.len());
        self.gate.allowed.fetch_sub(allowed, Ordering::Relaxed);
        for mut transfer in self.waiting.drain(..allowed) {
            let result = run(&self.file, &mut transfer);
            done.push(Completion { token: transfer.token(), result });
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }
}

/// A disk of 1 MiB with two queues, and what lets each go on. Bits of `kind` say of what kind it is.
pub fn gated_disk(kind: u8) -> (Block, Vec<Arc<Gate>>) {
    let file = File::from(memfd_create("disk", MFdFlags::MFD_CLOEXEC).expect("it can be made"));
    file.set_len(SIZE).expect("a memfd can be sized");
    let gate = |_| {
        let eventfd = EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK).expect("an eventfd can be made");
        Arc::new(Gate { allowed: AtomicUsize::new(0), eventfd })
    };
    let gates: Vec<Arc<Gate>> = (0..2).map(gate).collect();
    let backend = |gate: &Arc<Gate>| -> Box<dyn Backend> {
        let file = file.try_clone().expect("a descriptor can be duplicated");
        Box::new(Gated { file, waiting: VecDeque::new(), gate: Arc::clone(gate) })
    };
    let backends = gates.iter().map(backend).collect();
    let config = BlockConfig {
        queues: 2,
        queue_size: 16,
        read_only: kind & 1 != 0,
        block_size: (kind & 2 != 0).then_some(4096),
        on_error: if kind & 4 == 0 { ErrorPolicy::Report } else { ErrorPolicy::Stop },
        lock: false,
        ..BlockConfig::default()
    };
    let disk = file.try_clone().expect("a descriptor can be duplicated");
    let disk = DiskFile::new(disk.into(), false).expect("it is a file");
    let block = Block::with(disk, config, Arc::new(|_| {}), (Engine::Pool, backends));
    if kind & 8 != 0 {
        // The host fails what is behind its end.
        file.set_len(SIZE / 2).expect("a memfd can be sized");
    }
    (block.expect("it can be made"), gates)
}
