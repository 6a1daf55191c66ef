//! The sandbox of a VM process: a system-call filter for each kind of thread, and an end that says what broke it.
//!
//! ```text
//!   prepare ─▶ grant, first request ─▶ blueprint, images read ─▶ rings made ─▶ lock_in ─▶ assemble, load ─▶ first guest step
//!     │              │                         │                     │            │            │
//!   handlers      control, events            parser            disk-N, addresses  owner       vcpu-N, io-N
//!                 └──────────── each thread enters its own filter first of all ─────────────────┘
//! ```
//!
//! **When.** [`prepare`] comes first in the process: no new privileges, no core dump (it would hold the guest's memory),
//! the handler of forbidden calls, the panic hook. [`lock_in`] is the owner's: the grant and the first request are
//! there, descriptors are duplicated, every ring is made, restricted and enabled, and no kernel has been parsed and no
//! guest has run yet. From then on nothing can be opened, connected or executed, and no ring made.
//!
//! **What is read before.** How many rings there are stands in a blueprint and follows from the disks, so saved machines,
//! snapshots and headers of images are read before lock-in, and anybody may have written them. That is done by [`parse`]: in
//! a thread of its own, with a filter that leaves it files that are open already and nothing else, while the owner waits. What
//! comes back are values of our types. Records of devices are in them as text, and are read by the devices after lock-in.
//! A thread shares its memory with the others: the filter bounds what a parser can do itself, it does not make of it
//! another process.
//!
//! **Who.** Filters only narrow, and threads inherit: a reset makes threads from the owner, so its filter is what all
//! kinds together need, and what it takes to make a thread. Each other thread narrows itself by [`enter`] before it
//! does anything else. What each kind may do stands in `calls`.
//!
//! **What.** Whatever is not listed traps: one line on standard error names the thread and the call, and the process
//! ends with [`EndReason::Forbidden`]. Requests of ioctl are listed one by one, memory is never executable, clone makes
//! threads only. clone3, whose flags lie in memory where no filter sees them, does not exist (ENOSYS), and the C library
//! takes clone instead.
//!
//! **Panics.** One line and [`EndReason::Crashed`], in whatever thread: a machine that lost a worker must not live on,
//! and a backtrace would open files.
//!
//! **The C library.** Its allocator reads /proc and /sys to manage more than one arena, at a moment of its own choosing.
//! So there is one arena; threads have their caches before it. What it keeps of a start is given back ([`trim_heap`]).
//!
//! **Diagnosis.** With [`Mode::Log`] (`corten-vmm --seccomp log`) what would trap is done, and the kernel logs it with
//! thread and number. A process in which nobody called [`prepare`] has no sandbox: tests of single parts.

mod calls;
mod filter;
mod report;
mod requests;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, OnceLock};

use corten_devices::block::ThreadStart;
use corten_link::EndReason;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use thiserror::Error;

pub use calls::ThreadKind;
use filter::Filters;
pub use filter::Mode;

/// Those of this process, made before there is a thread to enter them.
static FILTERS: OnceLock<Filters> = OnceLock::new();

/// Why a process has no sandbox.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// The system refused.
    #[error("cannot {what}")]
    System {
        /// To do what.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A filter is none.
    #[error("cannot make the system-call filter of {0} threads")]
    Filter(&'static str, #[source] seccompiler::BackendError),
    /// There is one already.
    #[error("the sandbox is prepared already")]
    Twice,
}

/// Prepares the process: call it first, from the thread that will be the owner.
pub fn prepare(mode: Mode) -> Result<(), SandboxError> {
    let system = |what: &'static str| {
        move |errno: nix::Error| SandboxError::System { what, source: errno.into() }
    };
    prctl::set_no_new_privs().map_err(system("give up new privileges"))?;
    // Two ways, as a limit does not keep a handler of core dumps from being called.
    prctl::set_dumpable(false).map_err(system("turn core dumps off"))?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(system("limit core dumps"))?;
    one_arena()?;
    report::name_thread("owner");
    report::install().map_err(|source| SandboxError::System { what: "handle signals", source })?;
    FILTERS.set(Filters::compile(mode)?).map_err(|_| SandboxError::Twice)
}

fn one_arena() -> Result<(), SandboxError> {
    // SAFETY: it takes two integers.
    let taken = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    let refused = || SandboxError::System {
        what: "limit the allocator",
        source: io::ErrorKind::InvalidInput.into(),
    };
    if taken == 1 { Ok(()) } else { Err(refused()) }
}

/// Gives memory back that the allocator keeps of a start or a reset: it takes several times what a machine at work needs.
pub fn trim_heap() {
    // SAFETY: it takes an integer, and gives back only what is free.
    unsafe { libc::malloc_trim(0) };
}

/// Locks the owner in, and with it every thread that it will ever make.
pub fn lock_in() {
    enter(ThreadKind::Owner);
}

/// Locks the calling thread in, first of all that it does. A thread that cannot be locked in ends the process.
pub fn enter(kind: ThreadKind) {
    let Some(filters) = FILTERS.get() else { return };
    if kind != ThreadKind::Owner {
        report::name_thread(std::thread::current().name().unwrap_or(kind.name()));
    }
    if let Err(error) = filters.apply(kind) {
        report::end(EndReason::NotStarted, format_args!("cannot be locked in: {error}"));
    }
}

/// Has `parse` read what anybody may have written, in a thread that can do nothing else, and waits for it.
pub fn parse<T: Send>(parse: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let read = || {
            enter(ThreadKind::Parser);
            parse()
        };
        let name = ThreadKind::Parser.name();
        let parser = std::thread::Builder::new().name(name.into()).spawn_scoped(scope, read)?;
        parser.join().or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// What a thread does first that a device starts by itself.
pub fn thread_start(kind: ThreadKind) -> ThreadStart {
    Arc::new(move || enter(kind))
}
