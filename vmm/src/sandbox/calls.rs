//! Which thread may make which system call.

use libc::{
    F_ADD_SEALS, F_DUPFD_CLOEXEC, F_GET_SEALS, F_GETFD, F_GETFL, F_OFD_GETLK, F_OFD_SETLK, F_SETFL,
    PR_SET_NAME, PR_SET_NO_NEW_PRIVS, PROT_EXEC, SECCOMP_SET_MODE_FILTER, SIGABRT, SIGBUS, SIGSEGV,
    SIGUSR1,
};

use super::requests::{
    KVM_OF_OWNER, KVM_OF_VCPU, TUN_OF_IO, TUN_OF_OWNER, UFFD_OF_PAGER, VHOST_OF_IO, VHOST_OF_OWNER,
};

/// What a thread is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadKind {
    /// Decides everything, makes all other threads.
    Owner,
    /// Runs a vCPU.
    Vcpu,
    /// Serves queues of devices.
    Io,
    /// Does a disk's transfers where there is no ring.
    Disk,
    /// Receives requests, sends replies.
    Control,
    /// Tells events.
    Events,
    /// Brings pages of a saved machine as they are touched.
    Pager,
    /// Makes huge pages of small ones.
    Collapse,
    /// Reads what somebody else has written, before the owner is locked in.
    Parser,
    /// Answers what guests ask about their addresses.
    Addresses,
}

impl ThreadKind {
    /// Every kind, the owner first.
    pub const ALL: [Self; 10] = [
        Self::Owner,
        Self::Vcpu,
        Self::Io,
        Self::Disk,
        Self::Control,
        Self::Events,
        Self::Pager,
        Self::Collapse,
        Self::Parser,
        Self::Addresses,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Vcpu => "vcpu",
            Self::Io => "io",
            Self::Disk => "disk",
            Self::Control => "control",
            Self::Events => "events",
            Self::Pager => "pager",
            Self::Collapse => "collapse",
            Self::Parser => "parser",
            Self::Addresses => "addresses",
        }
    }

    /// What threads of this kind may do.
    pub(super) fn calls(self) -> Vec<Call> {
        let own = |kind: Self| match kind {
            Self::Owner => OWNER,
            Self::Vcpu => VCPU,
            Self::Io => IO,
            Self::Disk => DISK,
            Self::Control => CONTROL,
            Self::Events => EVENTS,
            Self::Pager => PAGER,
            Self::Collapse => COLLAPSE,
            Self::Parser => PARSER,
            Self::Addresses => ADDRESSES,
        };
        let tables: Vec<&[Call]> = match self {
            // A thread inherits the filter of the one that makes it.
            Self::Owner => Self::ALL.into_iter().map(own).collect(),
            other => vec![own(other)],
        };
        [ANY].into_iter().chain(tables).flatten().copied().collect()
    }
}

/// A system call that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) number: i64,
    pub(super) when: When,
}

/// With which arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// The argument of this number, counted from 0, has one of these values. The kernel looks at 32 bits of it.
    Equals(u8, &'static [u32]),
    /// It has none of these bits.
    Lacks(u8, u32),
    /// It is the number of this process.
    OwnProcess(u8),
}

const fn any(number: i64) -> Call {
    Call { number, when: When::Always }
}

const fn equals(number: i64, argument: u8, values: &'static [u32]) -> Call {
    Call { number, when: When::Equals(argument, values) }
}

const fn lacks(number: i64, argument: u8, bits: i32) -> Call {
    Call { number, when: When::Lacks(argument, bits.cast_unsigned()) }
}

/// Flags of the C library's threads: CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, PARENT_SETTID and
/// CHILD_CLEARTID. No process, no namespace.
const THREAD: u32 = 0x003d_0f00;

/// What the C library, the standard library and the end of a thread take, and what a panic or a fault needs to be told.
const ANY: &[Call] = &[
    any(libc::SYS_write),
    any(libc::SYS_writev),
    any(libc::SYS_close),
    // Memory.
    any(libc::SYS_brk),
    lacks(libc::SYS_mmap, 2, PROT_EXEC),
    lacks(libc::SYS_mprotect, 2, PROT_EXEC),
    any(libc::SYS_munmap),
    any(libc::SYS_mremap),
    any(libc::SYS_madvise),
    // Time, which is a system call wherever the host's counter is not stable, and other threads.
    any(libc::SYS_clock_gettime),
    any(libc::SYS_gettimeofday),
    any(libc::SYS_clock_nanosleep),
    any(libc::SYS_nanosleep),
    any(libc::SYS_futex),
    any(libc::SYS_sched_yield),
    any(libc::SYS_restart_syscall),
    // Keys of hash maps.
    any(libc::SYS_getrandom),
    // Signals: faults go to the standard library's handler, which puts back the default one.
    any(libc::SYS_rt_sigreturn),
    any(libc::SYS_rt_sigprocmask),
    equals(
        libc::SYS_rt_sigaction,
        0,
        &[SIGSEGV.cast_unsigned(), SIGBUS.cast_unsigned(), SIGABRT.cast_unsigned()],
    ),
    any(libc::SYS_sigaltstack),
    any(libc::SYS_getpid),
    any(libc::SYS_gettid),
    Call { number: libc::SYS_tgkill, when: When::OwnProcess(0) },
    // The end.
    any(libc::SYS_exit),
    any(libc::SYS_exit_group),
];

/// Beyond what all others may: a reset assembles a machine and starts its threads; saved machines are files.
const OWNER: &[Call] = &[
    equals(libc::SYS_ioctl, 1, KVM_OF_OWNER),
    equals(libc::SYS_ioctl, 1, TUN_OF_OWNER),
    equals(libc::SYS_ioctl, 1, VHOST_OF_OWNER),
    // Threads. The other filter turns clone3 down.
    equals(libc::SYS_clone, 0, &[THREAD]),
    any(libc::SYS_clone3),
    any(libc::SYS_set_robust_list),
    any(libc::SYS_rseq),
    any(libc::SYS_sched_getaffinity),
    equals(libc::SYS_prctl, 0, &[PR_SET_NAME.cast_unsigned(), PR_SET_NO_NEW_PRIVS.cast_unsigned()]),
    equals(libc::SYS_seccomp, 0, &[SECCOMP_SET_MODE_FILTER]),
    equals(libc::SYS_rt_sigaction, 0, &[SIGUSR1.cast_unsigned()]),
    // Descriptors that are made of nothing, or of others.
    any(libc::SYS_eventfd2),
    any(libc::SYS_epoll_create1),
    any(libc::SYS_timerfd_create),
    any(libc::SYS_memfd_create),
    equals(
        libc::SYS_fcntl,
        1,
        &[
            F_DUPFD_CLOEXEC.cast_unsigned(),
            F_GETFD.cast_unsigned(),
            F_GETFL.cast_unsigned(),
            F_SETFL.cast_unsigned(),
            F_OFD_GETLK.cast_unsigned(),
            F_OFD_SETLK.cast_unsigned(),
            F_ADD_SEALS.cast_unsigned(),
            F_GET_SEALS.cast_unsigned(),
        ],
    ),
    // Files: a kernel, disks that are resized, saved machines.
    any(libc::SYS_read),
    any(libc::SYS_pread64),
    any(libc::SYS_pwrite64),
    any(libc::SYS_lseek),
    any(libc::SYS_fstat),
    any(libc::SYS_statx),
    any(libc::SYS_ftruncate),
    any(libc::SYS_fallocate),
    any(libc::SYS_fsync),
    any(libc::SYS_fdatasync),
    any(libc::SYS_copy_file_range),
];

/// A vCPU writes to the console and to eventfds, and answers doorbells that came as an exit.
const VCPU: &[Call] = &[equals(libc::SYS_ioctl, 1, KVM_OF_VCPU), any(libc::SYS_read)];

/// Whatever a queue is served by: rings, TAPs, sockets, timers, guest memory that is given back.
const IO: &[Call] = &[
    any(libc::SYS_read),
    any(libc::SYS_readv),
    any(libc::SYS_epoll_wait),
    any(libc::SYS_epoll_ctl),
    any(libc::SYS_timerfd_settime),
    any(libc::SYS_io_uring_enter),
    any(libc::SYS_recvfrom),
    any(libc::SYS_sendto),
    any(libc::SYS_shutdown),
    any(libc::SYS_fallocate),
    equals(libc::SYS_ioctl, 1, TUN_OF_IO),
    equals(libc::SYS_ioctl, 1, VHOST_OF_IO),
];

const DISK: &[Call] = &[
    any(libc::SYS_preadv),
    any(libc::SYS_pwritev),
    any(libc::SYS_pread64),
    any(libc::SYS_pwrite64),
    any(libc::SYS_fdatasync),
    any(libc::SYS_fallocate),
];

const CONTROL: &[Call] = &[any(libc::SYS_recvmsg), any(libc::SYS_sendmsg)];

const EVENTS: &[Call] = &[any(libc::SYS_sendmsg)];

const PAGER: &[Call] = &[
    any(libc::SYS_read),
    any(libc::SYS_poll),
    any(libc::SYS_pread64),
    any(libc::SYS_lseek),
    equals(libc::SYS_ioctl, 1, UFFD_OF_PAGER),
];

/// It asks which memory is in use; making huge pages of it is madvise.
const COLLAPSE: &[Call] = &[any(libc::SYS_lseek)];

/// It reads files that were granted, and makes the overlay of a disk as long as the disk.
const PARSER: &[Call] = &[
    any(libc::SYS_read),
    any(libc::SYS_pread64),
    any(libc::SYS_lseek),
    any(libc::SYS_fstat),
    any(libc::SYS_statx),
    any(libc::SYS_ftruncate),
    equals(libc::SYS_fcntl, 1, &[F_GETFD.cast_unsigned(), F_GETFL.cast_unsigned()]),
];

/// Its sockets are granted ones.
const ADDRESSES: &[Call] =
    &[any(libc::SYS_read), any(libc::SYS_poll), any(libc::SYS_recvfrom), any(libc::SYS_sendto)];
