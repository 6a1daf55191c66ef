//! Tests that start virtual machines. One program, so that it can start itself elsewhere: in a node, in the cage.
//!
//! - [`micro`] runs anywhere with a /dev/kvm;
//! - [`process`] is Corten's VM process with a microguest in it, and runs where `micro` does;
//! - [`restore`] stops that process at every n-th exit, [`failures`] lets its disk fail, [`hostile`] has a guest that does
//!   everything wrong; they run where `micro` does;
//! - [`snapshot`] writes that process's machine to files and goes on from them, [`pager`] is about the memory of one that
//!   does; they run where `micro` does;
//! - [`changed`] loads machines whose plan somebody changed, and runs where `micro` does;
//! - [`nothing`] is that process without anything to boot, and runs where `micro` does;
//! - [`sandbox`] tries what the threads of that process may do, and runs where `micro` does;
//! - [`addresses`] is what a guest is told of its addresses, over real sockets, and runs where `micro` does, as root;
//! - [`machine`] is Corten's own machine with a microguest in it, and runs where `micro` does;
//! - [`cage`], [`linux`], [`disks`], [`diskboot`], [`images`], [`volumes`], [`networks`], [`sockets`], [`memory`],
//!   [`consoles`], [`agents`], [`inside`] and [`odyssey`] run only in a node, in the cage, where [`lab`] and [`guests`] start them;
//! - [`vhost`] and [`run`] run only in a node, as root, where [`guests`] starts them;
//! - [`lab`] and [`guests`] start nodes; names that begin with `long_` are left to `scripts/test --long`.

mod addresses;
mod agents;
mod cage;
mod changed;
mod consoles;
mod diskboot;
mod disks;
mod failures;
mod guests;
mod hostile;
mod images;
mod inside;
mod lab;
mod linux;
mod machine;
mod memory;
mod micro;
mod networks;
mod nothing;
mod odyssey;
mod pager;
mod process;
mod restore;
mod run;
mod sandbox;
mod snapshot;
mod sockets;
mod vhost;
mod volumes;
