//! Between the machine's owner and the device: who wants to connect, and what may be connected.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;
use std::{fmt, io};

use thiserror::Error;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Orders that may wait for the device.
const MAX_ORDERS: usize = 256;

/// The guest wants to connect to a port of the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What the answer has to carry. Never used twice by one device.
    pub ticket: u64,
    /// The port.
    pub port: u32,
}

/// Tells the machine's owner. Called on an I/O thread; must not wait.
pub type AskReport = Arc<dyn Fn(Ask) + Send + Sync>;

/// What the owner has the device do.
pub(super) enum Order {
    Grant { ticket: u64, socket: OwnedFd },
    Refuse { ticket: u64 },
    Connect { socket: OwnedFd, guest_port: u32, ordered: Instant },
}

/// Why an order is not taken. Its socket is closed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum OrderError {
    /// The guest, or the worker, does not keep up.
    #[error("{MAX_ORDERS} orders wait for the socket device already: try again later")]
    Busy,
    /// Nobody is there to connect to.
    #[error("the guest has no driver for the socket device, or none yet")]
    NoDriver,
}

/// The owner's side of a socket device: may be cloned, and used on any thread. No call waits.
///
/// All sockets are connected stream sockets. They belong to the device from the call on and are closed by it, whatever
/// comes of it. While the machine is paused, orders wait.
#[derive(Clone)]
pub struct HostSide {
    orders: SyncSender<Order>,
    bell: Arc<EventFd>,
    has_driver: Arc<AtomicBool>,
}

impl fmt::Debug for HostSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_driver = self.has_driver.load(Ordering::Acquire);
        f.debug_struct("HostSide").field("has_driver", &has_driver).finish_non_exhaustive()
    }
}

impl HostSide {
    /// Answers an [`Ask`] with a socket. If the guest has given up meanwhile, or the time is over, the socket is closed.
    pub fn grant(&self, ticket: u64, socket: OwnedFd) -> Result<(), OrderError> {
        self.order(Order::Grant { ticket, socket })
    }

    /// Answers an [`Ask`] with no: the guest's connection is reset.
    pub fn refuse(&self, ticket: u64) -> Result<(), OrderError> {
        self.order(Order::Refuse { ticket })
    }

    /// Connects a socket to a port of the guest's. If the guest refuses or does not answer in time, the socket is
    /// closed, before it has given or taken a byte.
    pub fn connect(&self, socket: OwnedFd, guest_port: u32) -> Result<(), OrderError> {
        if !self.has_driver.load(Ordering::Acquire) {
            return Err(OrderError::NoDriver);
        }
        self.order(Order::Connect { socket, guest_port, ordered: Instant::now() })
    }

    fn order(&self, order: Order) -> Result<(), OrderError> {
        self.orders.try_send(order).map_err(|error| match error {
            TrySendError::Full(_) => OrderError::Busy,
            TrySendError::Disconnected(_) => OrderError::NoDriver,
        })?;
        // The only failure is a count of 2^64 - 1, at which it rings already.
        let _ = self.bell.write(1);
        Ok(())
    }
}

/// The device's end of it.
pub(super) struct Orders {
    received: Receiver<Order>,
    bell: Arc<EventFd>,
    has_driver: Arc<AtomicBool>,
}

/// Both ends.
pub(super) fn orders() -> io::Result<(HostSide, Orders)> {
    let (sender, received) = sync_channel(MAX_ORDERS);
    let bell = Arc::new(EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?);
    let has_driver = Arc::new(AtomicBool::new(false));
    let side =
        HostSide { orders: sender, bell: Arc::clone(&bell), has_driver: Arc::clone(&has_driver) };
    Ok((side, Orders { received, bell, has_driver }))
}

impl Orders {
    /// Readable when there are orders.
    pub(super) fn bell(&self) -> &EventFd {
        &self.bell
    }

    /// Makes the bell unreadable. To be called before [`Self::next`], or an order in between would be lost.
    pub(super) fn answer_bell(&self) {
        // It fails if nobody rang.
        let _ = self.bell.read();
    }

    /// There are more orders than were taken.
    pub(super) fn ring_bell(&self) {
        let _ = self.bell.write(1);
    }

    pub(super) fn next(&self) -> Option<Order> {
        self.received.try_recv().ok()
    }

    pub(super) fn has_driver(&self) -> bool {
        self.has_driver.load(Ordering::Acquire)
    }

    /// Whether the guest can be connected to from now on. If not, what waits is given up.
    pub(super) fn set_driver(&self, has_driver: bool) {
        self.has_driver.store(has_driver, Ordering::Release);
        if !has_driver {
            (0..MAX_ORDERS).map_while(|_| self.next()).for_each(drop);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn orders_arrive_with_a_bell() {
        let (side, orders) = orders().unwrap();
        side.refuse(7).unwrap();
        assert!(orders.bell().read().is_ok());
        assert!(matches!(orders.next(), Some(Order::Refuse { ticket: 7 })));
        assert!(orders.next().is_none());
    }

    #[test]
    fn nobody_connects_to_a_guest_without_driver() {
        let (side, orders) = orders().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        assert_eq!(side.connect(ours.into(), 22), Err(OrderError::NoDriver));
        assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0);
        orders.set_driver(true);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        side.connect(ours.into(), 22).unwrap();
        orders.set_driver(false);
        assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn orders_that_nobody_takes_are_bounded() {
        let (side, orders) = orders().unwrap();
        let taken = (0..1000).filter(|ticket| side.refuse(*ticket).is_ok()).count();
        assert_eq!(taken, MAX_ORDERS);
        assert_eq!(side.refuse(0), Err(OrderError::Busy));
        drop(orders);
        assert_eq!(side.refuse(0), Err(OrderError::NoDriver));
    }
}
