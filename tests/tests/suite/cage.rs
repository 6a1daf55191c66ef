//! The cage of a launcher Pod, seen from inside. These tests make sense, and pass, only when this program is the command
//! of the cage.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs;
use std::io::{self, PipeReader, Read, Write};
use std::net::UdpSocket;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::OnceLock;
use std::thread;

use corten_link::{Grant, Link, Role};
use kvm_ioctls::Kvm;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{getgid, getgroups, getuid};

const HOW_TO_RUN: &str =
    "this test belongs into the cage: corten-lab-node cage --profile=launcher -- THIS-PROGRAM";
const LAUNCHER_ID: u32 = 107;

/// What this process came with. Every test asks for it first, so nothing was opened before it was recorded.
struct Cage {
    profile: String,
    descriptors: BTreeSet<RawFd>,
    grant: Grant,
    /// Its other end is the cage's, which would see it close.
    _link: Link,
}

fn cage() -> &'static Cage {
    static CAGE: OnceLock<Cage> = OnceLock::new();
    CAGE.get_or_init(|| {
        let profile = std::env::var("CORTEN_CAGE").expect(HOW_TO_RUN);
        let number = std::env::var("CORTEN_LINK_FD").expect(HOW_TO_RUN);
        let descriptors = open_descriptors();
        let number: RawFd = number.parse().expect("CORTEN_LINK_FD is a number");
        // SAFETY: the cage left this descriptor to us, and it is taken once.
        let link = unsafe { OwnedFd::from_raw_fd(number) };
        let link = Link::from_fd(link).expect("CORTEN_LINK_FD is a link");
        let grant = link.receive_grant().expect("the first message is the grant");
        Cage { profile, descriptors, grant, _link: link }
    })
}

fn open_descriptors() -> BTreeSet<RawFd> {
    // By number, not by listing /proc/self/fd, which takes a descriptor itself.
    // SAFETY: F_GETFD only looks.
    (0..1024).filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } != -1).collect()
}

/// /proc/self/status, line by line.
fn status() -> BTreeMap<String, String> {
    let text = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.into(), value.trim().into())).collect()
}

/// The error of a system call with nothing but zeros, None if there is none.
fn errno_of(number: libc::c_long) -> Option<Errno> {
    // SAFETY: the calls tried here do no harm to this process when their arguments are zero.
    let result = unsafe { libc::syscall(number, 0, 0, 0, 0, 0, 0) };
    (result == -1).then(Errno::last)
}

#[test]
fn user_and_group_are_the_launchers_and_nothing_else() {
    cage();
    assert_eq!((getuid().as_raw(), getgid().as_raw()), (LAUNCHER_ID, LAUNCHER_ID));
    assert_eq!(getgroups().unwrap(), []);
    let status = status();
    let four = ["107"; 4].join("\t");
    assert_eq!((&status["Uid"], &status["Gid"], status["Groups"].as_str()), (&four, &four, ""));
}

#[test]
fn no_capability_is_left_in_any_set() {
    cage();
    let status = status();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status[set], "0000000000000000", "{set}");
    }
}

#[test]
fn new_privileges_are_out_of_reach_and_a_filter_is_on() {
    cage();
    let status = status();
    assert_eq!(status["NoNewPrivs"], "1");
    assert_eq!(status["Seccomp"], "2");
}

#[test]
fn first_process_is_ours_and_the_nodes_are_out_of_sight() {
    cage();
    // ptrace is in the profile (Linux 4.8 made it safe under a filter): that there is nobody to trace must do.
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let processes: Vec<_> = processes
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()))
        .filter_map(|entry| entry.metadata().ok())
        .collect();
    assert!(processes.iter().all(|process| process.uid() == LAUNCHER_ID));
    assert!(processes.len() < 10, "{} processes", processes.len());
    assert!(std::process::id() == 1 || std::os::unix::process::parent_id() == 1);
}

#[test]
fn descriptors_are_stdio_and_the_link() {
    assert_eq!(cage().descriptors, BTreeSet::from([0, 1, 2, 3]));
}

#[test]
fn file_systems_of_the_node_are_read_only() {
    cage();
    for directory in ["/", "/tmp", "/run"] {
        let error = fs::write(Path::new(directory).join("cage-test"), "").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem, "{directory}: {error}");
    }
}

/// What a container runtime makes read-only in /proc, which itself is not.
const PROTECTED: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// What it hides: a directory below an empty one, a file below /dev/null.
const MASKED: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

#[test]
fn mounts_that_are_writable_are_those_of_a_container() {
    cage();
    let own = ["/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/proc", "/run/corten"];
    for mount in fs::read_to_string("/proc/self/mounts").unwrap().lines() {
        let fields: Vec<&str> = mount.split(' ').collect();
        let (place, options) = (fields[1], fields[3]);
        // /dev/null, which hides it, is writable.
        let masked = MASKED.contains(&place);
        assert!(options.starts_with("ro,") || own.contains(&place) || masked, "{mount}");
        assert!(options.contains("nosuid"), "{mount}");
    }
}

#[test]
fn settings_of_the_kernel_are_read_only() {
    cage();
    // Not every kernel has all of them, but each has these.
    assert!(Path::new("/proc/sys").exists() && Path::new("/proc/irq").exists());
    for path in PROTECTED.into_iter().filter(|path| Path::new(path).exists()) {
        let flags = statvfs(path).unwrap().flags();
        assert!(flags.contains(FsFlags::ST_RDONLY), "{path}: {flags:?}");
    }
}

#[test]
fn masked_paths_show_nothing() {
    cage();
    let null = fs::metadata("/dev/null").unwrap().rdev();
    // Not every kernel has all of them.
    let present = MASKED.into_iter().filter_map(|path| Some((path, fs::metadata(path).ok()?)));
    let (directories, files): (Vec<_>, Vec<_>) = present.partition(|(_, found)| found.is_dir());
    for (path, _) in directories {
        assert_eq!(fs::read_dir(path).unwrap().count(), 0, "{path}");
        assert!(statvfs(path).unwrap().flags().contains(FsFlags::ST_RDONLY), "{path}");
    }
    assert!(files.iter().any(|(path, _)| *path == "/proc/interrupts"));
    for (path, file) in files {
        assert_eq!(file.rdev(), null, "{path}");
    }
}

#[test]
fn socket_binds_in_the_device_directory() {
    cage();
    let directory = fs::metadata("/run/corten").unwrap();
    assert_eq!((directory.uid(), directory.mode() & 0o7777), (LAUNCHER_ID, 0o700));
    let path = "/run/corten/test.sock";
    let listener = UnixListener::bind(path);
    fs::remove_file(path).unwrap();
    assert!(listener.is_ok(), "{listener:?}");
}

#[test]
fn devices_are_those_of_a_container() {
    cage();
    let names: BTreeSet<String> = fs::read_dir("/dev")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let wanted = "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero";
    assert_eq!(names, wanted.split(' ').map(String::from).collect());
    fs::write("/dev/null", "x").unwrap();
    assert_eq!(fs::File::open("/dev/zero").unwrap().read(&mut [1]).unwrap(), 1);
}

#[test]
fn granted_kvm_creates_a_machine() {
    let kvm = cage().grant[&Role::kvm()].try_clone().unwrap();
    // SAFETY: the descriptor is an open /dev/kvm that nobody else owns.
    let kvm = unsafe { Kvm::from_raw_fd(kvm.into_raw_fd()) };
    assert_eq!(kvm.get_api_version(), 12);
    let vm = kvm.create_vm().unwrap();
    vm.create_vcpu(0).unwrap();
}

nix::ioctl_read_bad! {
    /// TUNGETIFF.
    get_interface, libc::TUNGETIFF, libc::ifreq
}

#[test]
fn granted_taps_are_up_and_have_a_virtio_header() {
    let taps: Vec<_> =
        cage().grant.iter().filter(|(role, _)| role.as_str().starts_with("tap/")).collect();
    assert!(!taps.is_empty());
    for (role, queue) in taps {
        let (name, flags) = interface_of(queue);
        let wanted = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        assert_eq!(flags & (wanted | libc::IFF_PERSIST), wanted, "{role}");
        let up = fs::read_to_string(format!("/sys/class/net/{name}/flags")).unwrap();
        let up = u32::from_str_radix(up.trim().trim_start_matches("0x"), 16).unwrap();
        assert_eq!(up & 1, 1, "{name} is down");
    }
}

fn interface_of(queue: &OwnedFd) -> (String, libc::c_int) {
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_ifindex: 0 },
    };
    // SAFETY: the request is valid for writes.
    unsafe { get_interface(queue.as_raw_fd(), &raw mut request) }.expect("it is a queue of a TAP");
    // SAFETY: the kernel ends the name with NUL.
    let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) };
    // SAFETY: TUNGETIFF has just filled this member of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    (name.to_string_lossy().into_owned(), flags.into())
}

#[test]
fn network_is_loopback_and_the_granted_taps() {
    let queues = cage().grant.iter().filter(|(role, _)| role.as_str().starts_with("tap/"));
    let mut wanted: BTreeSet<String> = queues.map(|(_, queue)| interface_of(queue).0).collect();
    wanted.insert("lo".into());
    let present = fs::read_dir("/sys/class/net").unwrap();
    let present = present.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(present.collect::<BTreeSet<_>>(), wanted);

    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
    assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 1);
}

#[test]
fn io_uring_is_for_the_launcher_profile_only() {
    let profile = cage().profile.as_str();
    let mut parameters = [0_u8; 120];
    // SAFETY: struct io_uring_params has 120 bytes, valid for reads and writes.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    let outcome = Errno::result(ring).map(|_| "a ring").map_err(|error| (error, profile));
    let wanted =
        BTreeMap::from([("launcher", Ok("a ring")), ("default", Err((Errno::EPERM, "default")))]);
    assert_eq!(outcome, wanted[profile]);
}

#[test]
fn system_calls_outside_the_profile_give_eperm() {
    cage();
    let calls = [
        ("userfaultfd", libc::SYS_userfaultfd),
        ("mount", libc::SYS_mount),
        ("umount2", libc::SYS_umount2),
        ("move_mount", libc::SYS_move_mount),
        ("fsopen", libc::SYS_fsopen),
        ("pivot_root", libc::SYS_pivot_root),
        ("chroot", libc::SYS_chroot),
        ("unshare", libc::SYS_unshare),
        ("setns", libc::SYS_setns),
        ("bpf", libc::SYS_bpf),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("keyctl", libc::SYS_keyctl),
        ("add_key", libc::SYS_add_key),
        ("request_key", libc::SYS_request_key),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ("init_module", libc::SYS_init_module),
        ("kexec_load", libc::SYS_kexec_load),
        ("mbind", libc::SYS_mbind),
        ("syslog", libc::SYS_syslog),
    ];
    for (name, number) in calls {
        assert_eq!(errno_of(number), Some(Errno::EPERM), "{name}");
    }
    assert_eq!(errno_of(libc::SYS_clone3), Some(Errno::ENOSYS));
}

const PAGE: usize = 4096;

#[repr(C)]
#[derive(Default)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// Of UFFDIO_REGISTER and of UFFDIO_ZEROPAGE, which differ in the name of the last field only.
#[repr(C)]
#[derive(Default)]
struct Range {
    start: u64,
    length: u64,
    mode: u64,
    result: u64,
}

const UFFD: u8 = 0xaa;
nix::ioctl_write_int_bad! {
    /// USERFAULTFD_IOC_NEW, on the device.
    new_userfaultfd, nix::request_code_none!(UFFD, 0x00)
}
nix::ioctl_readwrite! {
    /// UFFDIO_API.
    uffd_api, UFFD, 0x3f, Api
}
nix::ioctl_readwrite! {
    /// UFFDIO_REGISTER.
    uffd_register, UFFD, 0x00, Range
}
nix::ioctl_readwrite! {
    /// UFFDIO_ZEROPAGE.
    uffd_zeropage, UFFD, 0x04, Range
}

/// KVM's faults are the kernel's. The system call would give a descriptor for faults of user mode only.
#[test]
fn granted_userfaultfd_serves_faults_of_the_kernel() {
    let device = &cage().grant[&Role::userfaultfd()];
    // SAFETY: the ioctl takes flags and gives a new descriptor.
    let uffd = unsafe { new_userfaultfd(device.as_raw_fd(), libc::O_CLOEXEC) }.unwrap();
    // SAFETY: it was made for us just now.
    let uffd = unsafe { OwnedFd::from_raw_fd(uffd) };
    let mut api = Api { api: u64::from(UFFD), ..Api::default() };
    // SAFETY: the structure is valid for reads and writes.
    unsafe { uffd_api(uffd.as_raw_fd(), &raw mut api) }.unwrap();

    let size = NonZeroUsize::new(PAGE).unwrap();
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new private mapping at an address the kernel chooses.
    let page = unsafe { mmap_anonymous(None, size, protection, MapFlags::MAP_PRIVATE) }.unwrap();
    let start = page.addr().get() as u64;
    let mut range = Range { start, length: PAGE as u64, mode: 1, result: 0 };
    // SAFETY: the structure is valid for reads and writes, and the range is the mapping above.
    unsafe { uffd_register(uffd.as_raw_fd(), &raw mut range) }.unwrap();

    let (reader, mut writer) = io::pipe().unwrap();
    writer.write_all(b"x").unwrap();
    let address = page.addr().get();
    let copied = thread::spawn(move || read_to(&reader, address));
    assert!(becomes_readable(uffd.as_fd()), "the kernel's write to the page raised no fault");
    let mut range = Range { start, length: PAGE as u64, ..Range::default() };
    // SAFETY: as above; the page is still missing.
    unsafe { uffd_zeropage(uffd.as_raw_fd(), &raw mut range) }.unwrap();
    assert_eq!(copied.join().unwrap(), 1);
    // SAFETY: the page is mapped, and the thread that wrote to it has ended.
    assert_eq!(unsafe { page.cast::<u8>().read() }, b'x');
}

/// Lets the kernel write one byte to `address`, a page of this process that stays mapped.
fn read_to(pipe: &PipeReader, address: usize) -> isize {
    let to = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the caller keeps the page mapped and does not look at it meanwhile.
    unsafe { libc::read(pipe.as_raw_fd(), to, 1) }
}

fn becomes_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::from(60_000_u16)).is_ok_and(|ready| ready == 1)
}
