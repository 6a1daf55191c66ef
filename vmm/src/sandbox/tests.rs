//! Filters end processes, so each scene is played in one of its own: this program, started again.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use super::*;

const SCENE: &str = "CORTEN_SANDBOX_SCENE";

/// Calls that open something, reach somebody, run something or go past the filter.
const FORBIDDEN: [i64; 22] = [
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_open_by_handle_at,
    libc::SYS_creat,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_pkey_mprotect,
    libc::SYS_personality,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_register,
];

/// Plays a scene, in a thread of `kind`: how it ended, and what was said on standard error.
fn watch(scene: &str, kind: ThreadKind, mode: Mode) -> (ExitStatus, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sandbox::tests::stage", "--ignored", "--nocapture"])
        .env(SCENE, format!("{scene} {} {mode:?}", kind.name()))
        .env("RUST_BACKTRACE", "1")
        .output()
        .unwrap();
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The same, with the exit status.
fn play(scene: &str, kind: ThreadKind, mode: Mode) -> (Option<i32>, String) {
    let (status, text) = watch(scene, kind, mode);
    (status.code(), text)
}

fn act(scene: &str) {
    match scene {
        "panic" => std::panic::panic_any(String::from("on purpose")),
        // SAFETY: the path is a C string.
        "open" => drop(unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY) }),
        // SAFETY: the request is none that any device has, so that nothing is read or written.
        "ioctl" => drop(unsafe { libc::ioctl(0, 0x1234, 0) }),
        "executable memory" => {
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a new mapping at a place that the kernel chooses.
            unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
        }
        "thread" => {
            // SAFETY: without arguments it makes nothing.
            let answer = unsafe { libc::syscall(libc::SYS_clone3, 0, 0) };
            assert_eq!((answer, nix::Error::last()), (-1, nix::Error::ENOSYS));
            let narrowed = || {
                enter(ThreadKind::Io);
                vec![7; 1 << 20]
            };
            let made = std::thread::Builder::new().name("io-3".into()).spawn(narrowed);
            assert_eq!(made.unwrap().join().unwrap().len(), 1 << 20);
        }
        "abort" => std::process::abort(),
        "fault" => {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping at a place that the kernel chooses.
            let page =
                unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0) };
            // SAFETY: the page is ours and may not be read, so that the processor refuses, and the process ends.
            unsafe { page.cast::<u64>().read_volatile() };
        }
        "fork" => {
            // SAFETY: it is not made; otherwise the child would end at once.
            unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        }
        other => unreachable!("no scene {other}"),
    }
    report::end(EndReason::PoweredOff, format_args!("went on"));
}

#[test]
#[ignore = "started by the others, in a process of its own"]
fn stage() {
    let scene = std::env::var(SCENE).unwrap();
    let (rest, mode) = scene.rsplit_once(' ').unwrap();
    let (scene, kind) = rest.rsplit_once(' ').unwrap();
    let kind = ThreadKind::ALL.into_iter().find(|other| other.name() == kind).unwrap();
    prepare(if mode == "Log" { Mode::Log } else { Mode::Enforce }).unwrap();
    if kind == ThreadKind::Owner {
        report::name_thread("owner");
        lock_in();
        act(scene);
    }
    let scene = scene.to_owned();
    let thread = std::thread::Builder::new().name(format!("{}-7", kind.name()));
    let play = move || {
        enter(kind);
        act(&scene);
    };
    thread.spawn(play).unwrap().join().unwrap();
}

fn name_on_stage(kind: ThreadKind) -> String {
    if kind == ThreadKind::Owner { "owner".into() } else { format!("{}-7", kind.name()) }
}

#[test]
fn panic_is_told_and_ends_the_process_in_every_kind_of_thread() {
    for kind in ThreadKind::ALL {
        let (status, text) = play("panic", kind, Mode::Enforce);
        assert_eq!(status, Some(86), "{text}");
        let line = format!("corten-vmm: thread {} panicked at vmm/src/", name_on_stage(kind));
        assert!(text.contains(&line) && text.contains(": on purpose\n"), "{text}");
    }
}

#[test]
fn forbidden_call_is_named_and_ends_the_process_in_every_kind_of_thread() {
    for kind in ThreadKind::ALL {
        let (status, text) = play("open", kind, Mode::Enforce);
        assert_eq!(status, Some(85), "{text}");
        let name = name_on_stage(kind);
        let line = format!("corten-vmm: thread {name} may not make the system call openat (257)\n");
        assert!(text.contains(&line), "{text}");
    }
}

#[test]
fn abort_and_fault_end_the_process_by_their_signals_in_every_kind_of_thread() {
    for kind in ThreadKind::ALL {
        for (scene, signal) in [("abort", libc::SIGABRT), ("fault", libc::SIGSEGV)] {
            let (status, text) = watch(scene, kind, Mode::Enforce);
            assert_eq!(status.signal(), Some(signal), "{kind:?}: {text}");
            assert!(!status.core_dumped());
        }
    }
}

#[test]
fn forbidden_arguments_are_found() {
    for (scene, expected) in [
        ("ioctl", "ioctl (16) with request 0x1234"),
        ("executable memory", "mmap (9)"),
        ("fork", "clone (56)"),
    ] {
        let (status, text) = play(scene, ThreadKind::Owner, Mode::Enforce);
        assert_eq!(status, Some(85), "{text}");
        assert!(
            text.contains(&format!("owner may not make the system call {expected}\n")),
            "{text}"
        );
    }
}

#[test]
fn locked_in_owner_makes_threads_that_narrow_themselves() {
    let (status, text) = play("thread", ThreadKind::Owner, Mode::Enforce);
    assert_eq!(status, Some(0), "{text}");
}

#[test]
fn what_is_only_logged_goes_on() {
    for kind in ThreadKind::ALL {
        let (status, text) = play("open", kind, Mode::Log);
        assert_eq!(status, Some(0), "{text}");
        assert!(text.contains("went on"), "{text}");
    }
}

#[test]
fn nothing_that_leads_out_is_in_any_list() {
    for kind in ThreadKind::ALL {
        let calls = kind.calls();
        assert!(calls.iter().all(|call| !FORBIDDEN.contains(&call.number)), "{kind:?}");
    }
    let elsewhere = ThreadKind::ALL
        .into_iter()
        .filter(|kind| kind.calls().iter().any(|call| call.number == libc::SYS_io_uring_enter));
    assert!(elsewhere.eq([ThreadKind::Owner, ThreadKind::Io]));
}
