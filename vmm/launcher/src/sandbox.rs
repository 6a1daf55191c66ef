//! What the launcher may still do once its VM process runs.
//!
//! From then on everything that it needs is open: its door, its signals, the link to the VM process, the log, the termination
//! message, what metrics are read from. It reads what the guest's agent and the VM process write, so it gives up the rest: it
//! opens nothing, makes no socket but pairs of them (the guest's agent gets a new one each time that it is lost), connects to nothing,
//! makes no ring and executes no path.
//!
//! **What happens to a call that is not listed.** It fails with EPERM, and the launcher goes on. It is the first process of its
//! container: if the filter ended it, as that of the VM process does, a call that somebody forgot here, or that another release of the C
//! library makes, would take a running VM with it. A launcher that was taken over gains nothing by going on: what is refused is
//! refused.
//!
//! **What is left for a later release.** A descriptor that came over the link can be executed (`execveat` with an empty path), in a
//! new process or in this one: so a VM process will be replaced while its guest runs. Filters are inherited, so what a VM process needs
//! is allowed here, too; it narrows itself further (`vmm/src/sandbox`). It finds no rings and serves disks by threads.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};
use thiserror::Error;

/// Why the launcher cannot lock itself in.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// The filter is none.
    #[error("cannot make the launcher's system-call filter")]
    Make(#[from] BackendError),
    /// The kernel does not take it.
    #[error("cannot enter the launcher's system-call filter")]
    Enter(#[from] seccompiler::Error),
}

/// A filter that was made and not entered yet.
#[derive(Debug)]
pub struct Filter(BpfProgram);

impl Filter {
    /// Makes it, so that entering it is all that can still fail.
    pub fn new() -> Result<Self, SandboxError> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
        for number in OWN.iter().chain(LATER) {
            rules.insert(*number, Vec::new());
        }
        for (number, argument, allowed) in NARROW {
            let rule = |value: &u64| {
                let (length, operation) = (SeccompCmpArgLen::Qword, SeccompCmpOp::Eq);
                SeccompRule::new(vec![SeccompCondition::new(*argument, length, operation, *value)?])
            };
            let values = allowed.iter().map(rule).collect::<Result<Vec<_>, _>>()?;
            rules.entry(*number).or_default().extend(values);
        }
        let (refused, listed) =
            (SeccompAction::Errno(libc::EPERM.cast_unsigned()), SeccompAction::Allow);
        Ok(Self(SeccompFilter::new(rules, refused, listed, TargetArch::x86_64)?.try_into()?))
    }

    /// Locks the calling thread in, and whatever it starts from now on. The launcher has one thread.
    pub fn enter(&self) -> Result<(), SandboxError> {
        Ok(apply_filter(&self.0)?)
    }
}

const STREAM: u64 = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC).cast_unsigned() as u64;
const SEQUENCE: u64 = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC).cast_unsigned() as u64;
const EMPTY_PATH: u64 = libc::AT_EMPTY_PATH.cast_unsigned() as u64;

/// The call, an argument counted from 0, and what it may be.
const NARROW: &[(i64, u8, &[u64])] = &[
    // A pair of stream or sequence sockets cannot send elsewhere; one of datagram sockets could.
    (libc::SYS_socketpair, 1, &[STREAM, SEQUENCE]),
    // No other receiver than the one that it is connected to.
    (libc::SYS_sendto, 4, &[0]),
    // The path is in memory, where no filter looks, and has to be empty only by custom: it leads to the image at most, which is only read.
    (libc::SYS_execveat, 4, &[EMPTY_PATH]),
];

/// What the launcher's loop, the standard library and the C library make.
const OWN: &[i64] = &[
    // The loop.
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_lseek,
    libc::SYS_ftruncate,
    libc::SYS_accept4,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_kill,
    // Memory, time, keys of hash maps.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    libc::SYS_getrandom,
    // Signals, also those by which a panic ends the process.
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// What a program does that is executed by descriptor, and what a VM process does before it has narrowed itself.
const LATER: &[i64] = &[
    // A new process, its descriptors and its threads. Namespaces are no matter: they want rights that nobody here has.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_vfork,
    libc::SYS_pipe2,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_arch_prctl,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_seccomp,
    libc::SYS_sched_getaffinity,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    // A machine.
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_signalfd4,
    libc::SYS_memfd_create,
    libc::SYS_statx,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_copy_file_range,
];

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::net::TcpStream;
    use std::os::unix::net::{UnixDatagram, UnixStream};
    use std::process::Command;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

    use super::*;
    use crate::volumes::downward_metrics::{Collector, HostFacts, VmFacts};

    /// A filter is a thread's own, so this one tries it, and only it is locked in.
    fn locked_in<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let filter = Filter::new().unwrap();
        let thread = std::thread::spawn(move || {
            filter.enter().unwrap();
            work()
        });
        thread.join().unwrap()
    }

    fn is_refused<T>(outcome: std::io::Result<T>) -> bool {
        outcome.err().and_then(|error| error.raw_os_error()) == Some(libc::EPERM)
    }

    #[test]
    fn nothing_is_opened_connected_or_executed_by_path() {
        let refused = locked_in(|| {
            let internet =
                || socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None);
            [
                is_refused(File::open("/proc/self/stat")),
                is_refused(std::fs::read_dir("/")),
                is_refused(TcpStream::connect("127.0.0.1:1")),
                is_refused(internet().map_err(Into::into)),
                is_refused(UnixStream::connect("/nonexistent")),
                is_refused(UnixDatagram::pair()),
                is_refused(Command::new("/bin/true").spawn()),
            ]
        });
        assert_eq!(refused, [true; 7]);
    }

    #[test]
    fn no_ring_is_made_and_no_other_process_is_reached() {
        let results = locked_in(|| {
            let calls = [
                libc::SYS_io_uring_setup,
                libc::SYS_ptrace,
                libc::SYS_pidfd_getfd,
                libc::SYS_setns,
            ];
            calls.map(|number| {
                // SAFETY: none of them is made; with these arguments each would fail.
                let result = unsafe { libc::syscall(number, 0, 0, 0, 0) };
                (result, std::io::Error::last_os_error().raw_os_error())
            })
        });
        assert_eq!(results, [(-1, Some(libc::EPERM)); 4]);
    }

    #[test]
    fn metrics_that_were_found_before_are_read_after() {
        let host = HostFacts { name: "node".into(), product: "corten".into() };
        let vm = VmFacts { process: std::process::id(), vcpus: 1, memory: 0, memory_limit: 0 };
        let collector = Collector::new(host, vm);
        let before = collector.collect().len();
        assert_eq!(locked_in(move || collector.collect().len()), before);
        assert!(before > 12, "{before}");
    }

    #[test]
    fn what_is_open_goes_on_and_pairs_of_sockets_can_be_made() {
        let mut file = tempfile::tempfile().unwrap();
        let text = locked_in(move || {
            let (mut ours, mut theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            ours.write_all(b"by a pair")?;
            drop(ours);
            let mut text = String::new();
            theirs.read_to_string(&mut text)?;
            file.write_all(text.as_bytes())?;
            file.rewind()?;
            file.read_to_string(&mut text)?;
            std::io::Result::Ok(text)
        });
        assert_eq!(text.unwrap(), "by a pairby a pair");
    }
}
