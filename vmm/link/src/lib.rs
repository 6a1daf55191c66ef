//! The one link between node agent, launcher, CLI and VMM.
//!
//! A link is a Unix socket of type SOCK_SEQPACKET, so message borders are the kernel's work. A [`Message`] is
//! JSON of at most [`MAX_MESSAGE`] bytes; descriptors travel beside it (SCM_RIGHTS), each under a [`Role`], never
//! as a path. The first message a VM process receives is [`Message::Grant`]: whatever it may touch.
//!
//! What comes in is never trusted: sizes, counts and names are checked before anything is built from them, and
//! descriptors of a refused message are closed.

mod addressing;
mod boot;
mod control;
mod counters;
mod description;
mod end;
mod fault;
mod guest;
pub mod launcher;
mod message;
mod resolv;
mod role;
mod snapshot;
mod socket;

pub use addressing::{
    Addressing, DhcpOptions, Ipv4Addressing, Ipv4Route, Ipv6Addressing, PrivateOption,
};
pub use boot::{BootFault, BootOrigin};
pub use control::{Event, Info, Reply, Request, RunState};
pub use counters::{
    AddressCounters, BalloonCounters, ConsoleCounters, Counters, CpuCounters, DiskCounters,
    EntropyCounters, GuestMemoryUse, Memory, NetworkCounters, VsockCounters,
};
pub use description::{
    BalloonDescription, ConsoleDescription, DiskDescription, DiskEngine, DiskHost, EntropyHost,
    ImageFormat, MachineDescription, NetworkDescription, NetworkHost, NetworkRates, OnDiskError,
    Rate, VsockDescription,
};
pub use end::EndReason;
pub use fault::StartFault;
pub use guest::{
    AgentCommand, AgentReport, FileSystem, FileSystemDisk, FileSystems, FreezeStatus,
    GuestInformation, GuestInterface, GuestUser, OperatingSystem,
};
pub use message::{MAX_DESCRIPTORS, MAX_MESSAGE, Message, MessageError, VERSION};
pub use resolv::Resolver;
pub use role::{Role, RoleError};
pub use snapshot::{FillCounters, FillWork, Restoration};
pub use socket::{Grant, Link, LinkError};
