//! One pair of queues as vhost serves it: what is told to the kernel, and in which order.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_net::{VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_MRG_RXBUF};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::kernel::{Call, Ring, Vhost, VhostDevice};
use super::table::MemoryTable;
use crate::Interrupt;
use crate::virtio::VirtQueue;

/// Features that are vhost's business, all of which drivers are offered. The others are between the driver and the TAP,
/// or this process. Without VHOST_NET_F_VIRTIO_NET_HDR, as the header is the TAP's.
const RING_FEATURES: u64 = 1 << VIRTIO_F_VERSION_1
    | 1 << VIRTIO_RING_F_EVENT_IDX
    | 1 << VIRTIO_RING_F_INDIRECT_DESC
    | 1 << VIRTIO_NET_F_MRG_RXBUF;

/// What a driver must have taken. Kernels leave the number of buffers in a header unwritten where it is always one, and none
/// hides the flags of checksums.
const DRIVER_FEATURES: u64 = 1 << VIRTIO_NET_F_MRG_RXBUF | 1 << VIRTIO_NET_F_GUEST_CSUM;

/// A pair's vhost, and what it is heard by. Made before the vmm is locked in.
pub(in crate::net) struct VhostPair<V = VhostDevice> {
    vhost: V,
    /// Rings when a ring is found broken.
    errors: EventFd,
    /// Rings when a queue got another vector.
    moved: Arc<EventFd>,
}

impl VhostPair {
    pub(in crate::net) fn new(vhost: VhostDevice) -> io::Result<Self> {
        Self::with(vhost)
    }

    /// Features of rings that drivers are offered, and that this vhost does not have.
    pub(in crate::net) fn missing_features(&self) -> u64 {
        RING_FEATURES & !self.vhost.features()
    }
}

#[expect(private_bounds, reason = "other modules have it for VhostDevice only")]
impl<V: Vhost> VhostPair<V> {
    pub(super) fn with(vhost: V) -> io::Result<Self> {
        let eventfd = || EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK);
        Ok(Self { vhost, errors: eventfd()?, moved: Arc::new(eventfd()?) })
    }

    pub(super) fn errors(&self) -> &EventFd {
        &self.errors
    }

    pub(super) fn moved(&self) -> &Arc<EventFd> {
        &self.moved
    }

    /// Tells vhost what a driver with these features has set up. Nothing runs yet. An error if it cannot serve it: then
    /// somebody else has to.
    pub(in crate::net) fn set_up(&self, features: u64, queues: [&VirtQueue; 2]) -> io::Result<()> {
        let unsupported = || io::Error::from(io::ErrorKind::Unsupported);
        let [receive, _] = queues;
        if features & DRIVER_FEATURES != DRIVER_FEATURES || !receive.has_interrupts() {
            return Err(unsupported());
        }
        self.vhost.call(&Call::Features(features & RING_FEATURES))?;
        self.vhost.call(&Call::Memory(MemoryTable::of(receive.ram())))?;
        for (ring, queue) in Ring::BOTH.into_iter().zip(queues) {
            let places = queue.places().ok_or_else(unsupported)?;
            self.vhost.call(&Call::Size(ring, queue.size()))?;
            self.vhost.call(&Call::Addresses(ring, places))?;
            self.vhost.call(&Call::Error(ring, Some(self.errors.as_raw_fd())))?;
        }
        Ok(())
    }

    /// Sets both rings to work, where the queues are. After an error neither is.
    pub(super) fn start(&self, queues: &[VirtQueue; 2], tap: RawFd) -> io::Result<()> {
        // What it says is over, or will be found again. It fails if there is nothing.
        let _ = self.errors.read();
        let started = self.try_start(queues, tap);
        if started.is_err() {
            // What fails here failed there.
            let _ = self.let_go();
        }
        started
    }

    fn try_start(&self, queues: &[VirtQueue; 2], tap: RawFd) -> io::Result<()> {
        for (ring, queue) in Ring::BOTH.into_iter().zip(queues) {
            self.vhost.call(&Call::Base(ring, queue.next_available()))?;
            self.connect(ring, queue)?;
            self.vhost.call(&Call::Kick(ring, Some(queue.doorbell().as_raw_fd())))?;
        }
        Ring::BOTH.into_iter().try_for_each(|ring| self.vhost.call(&Call::Backend(ring, Some(tap))))
    }

    /// Has the rings raise the interrupts that their queues have now.
    pub(super) fn reconnect(&self, queues: &[VirtQueue; 2]) -> io::Result<()> {
        Ring::BOTH.into_iter().zip(queues).try_for_each(|(ring, queue)| self.connect(ring, queue))
    }

    fn connect(&self, ring: Ring, queue: &VirtQueue) -> io::Result<()> {
        let interrupt = queue.interrupt();
        let eventfd = interrupt.as_ref().map(Interrupt::eventfd).map(AsRawFd::as_raw_fd);
        self.vhost.call(&Call::Interrupt(ring, eventfd))
    }

    /// Stops both rings. The queues go on where they are.
    pub(super) fn stop(&self, queues: &mut [VirtQueue; 2]) -> io::Result<()> {
        self.let_go()?;
        for (ring, queue) in Ring::BOTH.into_iter().zip(queues) {
            queue.take_over(self.vhost.base(ring)?);
        }
        Ok(())
    }

    /// The TAP first: without it nothing is moved any more. Then the eventfds, which vhost would wake up for.
    fn let_go(&self) -> io::Result<()> {
        for ring in Ring::BOTH {
            self.vhost.call(&Call::Backend(ring, None))?;
        }
        for ring in Ring::BOTH {
            self.vhost.call(&Call::Kick(ring, None))?;
            self.vhost.call(&Call::Interrupt(ring, None))?;
        }
        Ok(())
    }
}
