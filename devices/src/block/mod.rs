//! Virtio block device (virtio 1.2, section 5.2) on a raw file or block device that was opened for it, or on images with
//! an overlay (`images`).
//!
//! ```text
//!   chain ─▶ request ─▶ transfer ─▶ backend: ring ─┐ system calls on one descriptor
//!              │            ▲             or pool ─┘
//!              │            └── next step ◀── answer of the kernel
//!              ▼ wrong                              │ done
//!   status byte, used ring ◀────────────────────────┘      failed: told to the guest, or held
//! ```
//!
//! **Requests**: read, write, flush, get-id, discard, write zeroes; read-only disks; one task and one backend for each
//! queue. A chain that has a place for its status gets one, whatever is wrong with it; one without fails the device.
//!
//! **Durability.** A flush is answered when fdatasync has returned, so all that was answered before it is on the disk. A
//! driver that took neither FLUSH nor the cache mode gets every write synced before its answer.
//!
//! **Threads.** A worker has the task. A ring has no thread of ours; without one, four threads serve the disk.
//!
//! **Failures of the host**, a full disk among them, go by [`ErrorPolicy`]: the guest is told, or the request is held,
//! the owner is told, nothing more is taken from the queue, and the next [`rearm`](crate::virtio::QueueTask::rearm) does
//! it again.
//!
//! **System calls.** When made, before lock-in: fcntl, lseek, statx, ioctl(BLKSSZGET), eventfd2, timerfd_create, and
//! io_uring_setup, io_uring_register and mmap, or clone3. At work: read, write, timerfd_settime, poll, and io_uring_enter,
//! or futex and (on the disk's threads only) preadv, pwritev, fdatasync, fallocate, and pread64, pwrite64 for images. The
//! owner: lseek to resize, fcntl to lock, preadv and pread64 to read what it boots from ([`DiskReader`]).
//!
//! **Pause** waits for transfers at the backend, with a deadline. **Saved** are what the guest was promised (checked
//! when loading), the cache mode and the requests held; in a record of its own, which parts of the disk are in the overlay.
//! Not saved: the content, the levels of rate limits, counters.

mod backend;
mod config;
mod device;
mod disk;
mod file;
#[cfg(feature = "fuzz")]
mod fuzzing;
mod images;
mod metrics;
mod reader;
mod request;
mod state;
mod worker;

pub use self::backend::{Engine, ThreadStart};
pub use self::config::{BlockConfig, BlockError, ErrorPolicy};
pub use self::device::Block;
pub use self::disk::Disk;
pub use self::file::{DiskError, DiskFile, DiskIdentity, LockError, lock, lock_shared, unlock};
#[cfg(feature = "fuzz")]
pub use self::fuzzing::{Gate, gated_disk, look_at_request};
#[cfg(feature = "fuzz")]
pub use self::images::read_any_images;
pub use self::images::{
    Allocation, ImageDisk, ImageError, ImageFile, ImageFormat, MAX_IMAGES, MAX_SIZE, OverlayState,
    Qcow2Error,
};
pub use self::metrics::BlockCounters;
pub use self::reader::DiskReader;
pub use self::request::{Action, Request, SectorRange, Segment};
pub use self::state::{BlockState, HeldRequest};
pub use self::worker::{BlockTask, DiskFailure, FailureReport};

#[cfg(test)]
mod tests;
