//! The new process on its way to the VM process: system calls on what was prepared, and nothing else. Another thread of
//! its maker may have held a lock, of the allocator for one, when the memory was copied.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;

use libc::{c_int, c_ulong};
use nix::errno::Errno;

use super::steps::{Level, Step, USER};

const LINK: RawFd = 3;
const PROGRAM: RawFd = 4;
const TELL: RawFd = 5;

const MAX_FILES: libc::rlim_t = 8192;
/// The largest number that the kernel would ever give a capability.
const CAPABILITIES: c_ulong = 63;
/// _LINUX_CAPABILITY_VERSION_3 of linux/capability.h.
const CAPABILITY_VERSION: u32 = 0x2008_0522;
const HOST_NAME: &[u8] = b"corten";

/// All that it works with. Descriptors have numbers above [`TELL`].
pub(super) struct Child {
    pub(super) level: Level,
    pub(super) null: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) link: OwnedFd,
    pub(super) program: OwnedFd,
    /// Closed by success; a failed step is written to it.
    pub(super) tell: OwnedFd,
    pub(super) root: CString,
    pub(super) arguments: Vec<CString>,
    pub(super) uid_map: Vec<u8>,
    pub(super) gid_map: Vec<u8>,
}

impl Child {
    /// Takes all steps. Comes back only if one fails, having told it.
    pub(super) fn run(&mut self) -> isize {
        for (number, step) in (0_u8..).zip(Step::ALL) {
            if !step.is_for(self.level) {
                continue;
            }
            if let Err(errno) = self.take(step) {
                let [a, b, c, d] = (errno as i32).to_ne_bytes();
                let report = [number, a, b, c, d];
                let tell = self.tell.as_raw_fd();
                // At one of the two places, depending on how far it came. Nothing else can be done about a failure.
                for fd in [tell, TELL] {
                    // SAFETY: the buffer is as long as it says.
                    let written = unsafe { libc::write(fd, report.as_ptr().cast(), report.len()) };
                    if written > 0 {
                        break;
                    }
                }
                return 127;
            }
        }
        127
    }

    fn take(&self, step: Step) -> Result<(), Errno> {
        match step {
            Step::MapUser => self.map_user(),
            Step::DetachMounts => mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None),
            Step::EmptyRoot => self.empty_root(),
            Step::HostName => {
                // SAFETY: the buffer is as long as it says.
                done(unsafe { libc::sethostname(HOST_NAME.as_ptr().cast(), HOST_NAME.len()) })
            }
            Step::Descriptors => self.descriptors(),
            Step::Limits => limits(),
            Step::Bounding => self.bounding(),
            Step::User => self.user(),
            Step::Capabilities => capabilities(),
            Step::NoNewPrivileges => prctl(libc::PR_SET_NO_NEW_PRIVS, 1),
            Step::DeathSignal => {
                prctl(libc::PR_SET_PDEATHSIG, c_ulong::from(libc::SIGKILL.cast_unsigned()))
            }
            Step::Signals => signals(),
            Step::Execute => self.execute(),
        }
    }

    fn map_user(&self) -> Result<(), Errno> {
        write_file(c"/proc/self/setgroups", b"deny")?;
        write_file(c"/proc/self/uid_map", &self.uid_map)?;
        write_file(c"/proc/self/gid_map", &self.gid_map)
    }

    /// A file system with nothing in it becomes the root, and all others are let go.
    fn empty_root(&self) -> Result<(), Errno> {
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let options = c"size=4k,nr_inodes=2,mode=0555";
        mount(Some(c"none"), &self.root, Some(c"tmpfs"), flags, Some(options))?;
        change_directory(&self.root)?;
        // The old root is put where the new one is, and found there by the same name.
        // SAFETY: both are strings that end.
        let pivoted = unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) };
        done(pivoted)?;
        // SAFETY: it is a string that ends.
        done(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) })?;
        let flags = flags | libc::MS_REMOUNT | libc::MS_RDONLY;
        mount(None, c"/", None, flags, Some(c"size=4k,nr_inodes=2,mode=0555"))?;
        change_directory(c"/")
    }

    fn descriptors(&self) -> Result<(), Errno> {
        let null = self.null.as_raw_fd();
        let places = [
            (null, 0),
            (null, 1),
            (self.stderr.as_raw_fd(), 2),
            (self.link.as_raw_fd(), LINK),
            (self.program.as_raw_fd(), PROGRAM),
            (self.tell.as_raw_fd(), TELL),
        ];
        for (from, to) in places {
            let flags = if to >= PROGRAM { libc::O_CLOEXEC } else { 0 };
            // SAFETY: it only takes numbers. What was in those places is not used any more.
            done(unsafe { libc::dup3(from, to, flags) })?;
        }
        let first = TELL.cast_unsigned() + 1;
        // SAFETY: it only takes numbers; none of those descriptors is used from here on.
        done(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) })
    }

    fn bounding(&self) -> Result<(), Errno> {
        for capability in 0..=CAPABILITIES {
            match prctl(libc::PR_CAPBSET_DROP, capability) {
                // The kernel knows no more.
                Err(Errno::EINVAL) => return Ok(()),
                // Whoever has no capability cannot drop any, and no_new_privs keeps it from getting one.
                Err(Errno::EPERM) if self.level == Level::Plain => return Ok(()),
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn user(&self) -> Result<(), Errno> {
        // SAFETY: it takes nothing.
        let is_root = unsafe { libc::geteuid() } == 0;
        if self.level == Level::UserNamespace || !is_root {
            return Ok(());
        }
        // By the kernel's own calls: those of the C library would have all threads of the maker follow.
        // SAFETY: no group is read from the pointer.
        done(unsafe { libc::syscall(libc::SYS_setgroups, 0, ptr::null::<u32>()) })?;
        // SAFETY: it only takes numbers.
        done(unsafe { libc::syscall(libc::SYS_setresgid, USER, USER, USER) })?;
        // SAFETY: it only takes numbers.
        done(unsafe { libc::syscall(libc::SYS_setresuid, USER, USER, USER) })
    }

    fn execute(&self) -> Result<(), Errno> {
        let mut arguments = [ptr::null(); 8];
        // The last one stays empty: it is the end.
        for (place, argument) in arguments.iter_mut().take(7).zip(&self.arguments) {
            *place = argument.as_ptr();
        }
        let environment = [ptr::null::<libc::c_char>()];
        let flags = libc::AT_EMPTY_PATH;
        // SAFETY: the path is a string that ends, both lists are of such strings and end by a null pointer.
        done(unsafe {
            libc::syscall(
                libc::SYS_execveat,
                PROGRAM,
                c"".as_ptr(),
                arguments.as_ptr(),
                environment.as_ptr(),
                flags,
            )
        })
    }
}

/// What a call that gives -1 for a failure came to.
fn done(outcome: impl Into<i64>) -> Result<(), Errno> {
    if outcome.into() < 0 { Err(Errno::last()) } else { Ok(()) }
}

fn prctl(option: c_int, value: c_ulong) -> Result<(), Errno> {
    // SAFETY: none of the options used here takes a pointer.
    done(unsafe { libc::prctl(option, value, 0, 0, 0) })
}

fn mount(
    source: Option<&CStr>,
    target: &CStr,
    kind: Option<&CStr>,
    flags: c_ulong,
    options: Option<&CStr>,
) -> Result<(), Errno> {
    let pointer = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
    let options = pointer(options).cast();
    // SAFETY: all of them are strings that end, or null.
    done(unsafe { libc::mount(pointer(source), target.as_ptr(), pointer(kind), flags, options) })
}

fn change_directory(path: &CStr) -> Result<(), Errno> {
    // SAFETY: it is a string that ends.
    done(unsafe { libc::chdir(path.as_ptr()) })
}

fn write_file(path: &CStr, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: it is a string that ends.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    done(fd)?;
    // SAFETY: the buffer is as long as it says. The descriptor is closed with all others.
    let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    done(i64::try_from(written).unwrap_or(-1))
}

fn limits() -> Result<(), Errno> {
    for (resource, most) in [(libc::RLIMIT_CORE, 0), (libc::RLIMIT_NOFILE, MAX_FILES)] {
        let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the structure is the one it wants.
        done(unsafe { libc::getrlimit(resource, &raw mut now) })?;
        let most = most.min(now.rlim_max);
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the structure is the one it wants.
        done(unsafe { libc::setrlimit(resource, &raw const limit) })?;
    }
    // SAFETY: it only takes a number.
    unsafe { libc::umask(0o077) };
    Ok(())
}

fn capabilities() -> Result<(), Errno> {
    // Ambient ones first: they are raised from the sets that go next.
    let ambient = c_ulong::from(libc::PR_CAP_AMBIENT_CLEAR_ALL.cast_unsigned());
    prctl(libc::PR_CAP_AMBIENT, ambient)?;
    let header = [CAPABILITY_VERSION, 0];
    let none = [0_u32; 6];
    // SAFETY: header and data are as large as this version has them.
    done(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) })
}

/// Its maker waits for signals in another way, and has them blocked.
fn signals() -> Result<(), Errno> {
    let none: u64 = 0;
    let size = size_of::<u64>();
    let how = libc::SIG_SETMASK;
    let old = ptr::null_mut::<u64>();
    // SAFETY: the set is as large as it says.
    done(unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const none, old, size) })
}
