//! Network interfaces whose packets the kernel's vhost-net moves, with a driver of our own: rings in a memfd, a TAP in a
//! network of its own, and the host on its other side. These tests need /dev/vhost-net and root: a node.

mod bench;
mod moves;
mod trouble;

use self::bench::{Bench, HEADER, MAC, Path, frame};
