//! The launcher: the first process of a launcher Pod's container.
//!
//! It binds a socket in its device directory and waits. The node agent connects, proves nothing and is asked for nothing:
//! who may reach that directory is the node's root. It hands over the VMI and open descriptors; the launcher makes a
//! machine description of the VMI ([`machine`]), opens kernel and initrd in the image volume ([`image`]), starts
//! corten-vmm with one link ([`vmm`]) and from then on passes requests down and events up. It outlives every agent.
//!
//! ```text
//!            start            first answer of the VM          the VM process ended
//!  waiting --------> preparing ----------------> running -------------------------> ended
//!     |                  |                                                            ^
//!     +------------------+------- SIGTERM, kill, anything missing --------------------+
//! ```
//!
//! The guest's agent, if it has one, is asked how the guest is and has its clock set ([`guest_agent`]). What the guest says on its
//! serial console goes into the Pod's log ([`console`]). Once the VM process runs the launcher is locked in ([`sandbox`]).
//!
//! One thread, one loop over descriptors ([`launcher`]); nothing in it blocks. When it ends, its exit status is that of
//! [`corten_link::EndReason`] and the reason stands in the Pod's termination message ([`termination`]).

pub mod console;
pub mod door;
pub mod guest_agent;
pub mod image;
pub mod launcher;
pub mod log;
pub mod machine;
pub mod names;
pub mod options;
pub mod prepare;
pub mod sandbox;
pub mod stop;
pub mod termination;
pub mod vmm;
pub mod volumes;
