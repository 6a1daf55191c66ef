//! A guest: a namespace whose interface is the other end of a TAP. A thread carries frames between the two.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{configure, within};
use crate::link;
use crate::namespace::Namespace;
use crate::rtnl::{Change, Rtnl};
use crate::tap::Tap;

pub(super) struct Guest {
    pub(super) namespace: Namespace,
    stop: Arc<AtomicBool>,
    carrier: Option<JoinHandle<()>>,
}

impl Guest {
    /// A guest on `queues` with the addresses given.
    pub(super) fn new(
        queues: Vec<OwnedFd>,
        mac: [u8; 6],
        addresses: &[(&str, u8)],
        ways_out: &[&str],
    ) -> Self {
        let namespace = Namespace::create().unwrap();
        let tap = within(&namespace, || {
            link::set_up("lo").unwrap();
            let tap = Tap::create_down("eth0", 1).unwrap();
            let mut rtnl = Rtnl::open().unwrap();
            let link = rtnl.link("eth0").unwrap().unwrap();
            let change = Change { mac: Some(mac), ..Change::default() };
            rtnl.change_link(link.index, change).unwrap();
            configure("eth0", addresses, ways_out);
            tap.into_queues().remove(0)
        });
        let stop = Arc::new(AtomicBool::new(false));
        let carrier = thread::spawn({
            let stop = Arc::clone(&stop);
            move || carry(tap, queues, &stop)
        });
        Self { namespace, stop, carrier: Some(carrier) }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.carrier.take().map(JoinHandle::join).unwrap().unwrap();
    }
}

/// Carries frames, with their headers, until it is told to stop.
fn carry(own: OwnedFd, queues: Vec<OwnedFd>, stop: &AtomicBool) {
    let mut own = File::from(own);
    let mut queues: Vec<_> = queues.into_iter().map(File::from).collect();
    let mut frame = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        let mut ready = vec![PollFd::new(own.as_fd(), PollFlags::POLLIN)];
        ready.extend(queues.iter().map(|queue| PollFd::new(queue.as_fd(), PollFlags::POLLIN)));
        poll(&mut ready, PollTimeout::from(50_u8)).unwrap();
        while let Some(length) = frame_from(&mut own, &mut frame) {
            queues[0].write_all(&frame[..length]).unwrap();
        }
        for queue in &mut queues {
            while let Some(length) = frame_from(queue, &mut frame) {
                own.write_all(&frame[..length]).unwrap();
            }
        }
    }
}

fn frame_from(queue: &mut File, frame: &mut [u8]) -> Option<usize> {
    match queue.read(frame) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        outcome => Some(outcome.unwrap()),
    }
}
