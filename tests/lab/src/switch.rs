//! The network between nodes: an Ethernet switch of our own, on socket pairs, that never leaves this process.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

/// QEMU sends at most 64 KiB and a little.
const MAX_FRAME: usize = 70_000;
/// A node that takes nothing for that long loses frames, as on a real network.
const PATIENCE: Duration = Duration::from_millis(200);

/// A port's other ends, by number.
#[derive(Debug)]
struct Ports {
    sockets: Vec<UnixDatagram>,
    /// The wire to each node; the one from it belongs to the thread that forwards.
    down: Vec<Mutex<Line>>,
    /// Which port an address was last seen on.
    learned: Mutex<HashMap<[u8; 6], usize>>,
}

/// Connects `count` nodes at `rate` bits a second each (none: as fast as it goes); returns their ends.
pub fn connect(count: usize, rate: Option<u64>) -> Result<Vec<OwnedFd>> {
    let mut theirs = Vec::new();
    let mut sockets = Vec::new();
    for _ in 0..count {
        let (ours, end) = UnixDatagram::pair()?;
        ours.set_write_timeout(Some(PATIENCE))?;
        sockets.push(ours);
        theirs.push(end.into());
    }
    let down = (0..count).map(|_| Mutex::new(Line::new(rate))).collect();
    let ports = Arc::new(Ports { sockets, down, learned: Mutex::default() });
    for port in 0..count {
        let ports = Arc::clone(&ports);
        std::thread::Builder::new()
            .name(format!("switch-{port}"))
            .spawn(move || forward(&ports, port, rate))?;
    }
    Ok(theirs)
}

/// Forwards what node `port` sends, until it is gone.
fn forward(ports: &Ports, port: usize, rate: Option<u64>) {
    let mut frame = vec![0; MAX_FRAME];
    let mut line = Line::new(rate);
    loop {
        match ports.sockets[port].recv(&mut frame) {
            Ok(0) => return,
            Ok(length) => {
                line.carry(length);
                ports.deliver(port, &frame[..length]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

impl Ports {
    fn deliver(&self, from: usize, frame: &[u8]) {
        let (Some(to), Some(source)) = (frame.first_chunk::<6>(), frame.get(6..12)) else { return };
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(source) = source.try_into() {
            learned.insert(source, from);
        }
        let known = learned.get(to).copied();
        drop(learned);
        // The lowest bit of the first byte marks broadcast and multicast.
        let one = known.filter(|_| to[0] & 1 == 0);
        for (port, socket) in self.sockets.iter().enumerate() {
            if port != from && one.is_none_or(|one| one == port) {
                self.down[port].lock().unwrap_or_else(PoisonError::into_inner).carry(frame.len());
                let _ = socket.send(frame);
            }
        }
    }
}

/// A wire of settable rate: a frame occupies it for its length.
#[derive(Debug)]
struct Line {
    rate: Option<u64>,
    free: Instant,
}

impl Line {
    fn new(rate: Option<u64>) -> Self {
        Self { rate, free: Instant::now() }
    }

    fn carry(&mut self, bytes: usize) {
        let Some(rate) = self.rate else { return };
        let nanoseconds = (bytes as u64).saturating_mul(8_000_000_000) / rate.max(1);
        let now = Instant::now();
        self.free = self.free.max(now) + Duration::from_nanos(nanoseconds);
        // Sleeping for less than that is less exact than not sleeping.
        let wait = self.free - now;
        if wait > Duration::from_millis(2) {
            std::thread::sleep(wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(end: OwnedFd) -> UnixDatagram {
        let socket = UnixDatagram::from(end);
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    }

    fn frame(to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
        [&to[..], &from[..], b"payload"].concat()
    }

    #[test]
    fn broadcast_reaches_all_and_unicast_only_its_address() {
        let mut nodes: Vec<_> = connect(3, None).unwrap().into_iter().map(node).collect();
        let (a, b) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let mut buffer = [0; 64];
        nodes[0].send(&frame([0xff; 6], a)).unwrap();
        assert_eq!(nodes[1].recv(&mut buffer).unwrap(), 19);
        assert_eq!(nodes[2].recv(&mut buffer).unwrap(), 19);

        nodes[1].send(&frame(a, b)).unwrap();
        assert_eq!(nodes[0].recv(&mut buffer).unwrap(), 19);
        let third = nodes.remove(2);
        third.set_nonblocking(true).unwrap();
        assert!(third.recv(&mut buffer).is_err(), "unicast frame reached a third node");
    }

    #[test]
    fn rate_holds_frames_back() {
        let nodes: Vec<_> = connect(2, Some(8_000_000)).unwrap().into_iter().map(node).collect();
        let big = [&frame([0xff; 6], [2; 6])[..], &[0; 9_981]].concat();
        let started = Instant::now();
        let mut buffer = vec![0; 20_000];
        for _ in 0..10 {
            nodes[0].send(&big).unwrap();
            assert_eq!(nodes[1].recv(&mut buffer).unwrap(), 10_000);
        }
        // 100 kB at 1 MB/s; a lower bound, so a busy machine cannot break it.
        assert!(started.elapsed() >= Duration::from_millis(90));
    }

    #[test]
    fn short_frames_are_dropped() {
        let nodes: Vec<_> = connect(2, None).unwrap().into_iter().map(node).collect();
        nodes[0].send(b"short").unwrap();
        nodes[0].send(&frame([0xff; 6], [2; 6])).unwrap();
        let mut buffer = [0; 64];
        assert_eq!(nodes[1].recv(&mut buffer).unwrap(), 19);
    }
}
