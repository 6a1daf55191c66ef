//! What the VM process may do, as the kernel tells it.

use std::fs;

use anyhow::{Context, Result, ensure};
use nix::unistd::{geteuid, getpid};

use crate::rig::{FOR_EVER, Rig, status_field};

#[test]
fn vm_process_is_locked_in_as_in_a_pod() -> Result<()> {
    ensure!(geteuid().is_root(), "this test is for root");
    let rig = Rig::new()?;
    rig.detached("first", FOR_EVER)?;
    let (supervisor, process) = rig.processes("first")?;
    let field = |name: &str| status_field(process, name);
    for name in ["Uid", "Gid"] {
        ensure!(field(name)? == "107\t107\t107\t107", "{name}: {}", field(name)?);
    }
    ensure!(field("Groups")?.is_empty(), "groups: {}", field("Groups")?);
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        ensure!(field(name)? == "0000000000000000", "{name}: {}", field(name)?);
    }
    ensure!(field("NoNewPrivs")? == "1" && field("Seccomp")? == "2");
    // It is the first process of its own namespace.
    ensure!(field("NSpid")?.ends_with("\t1"), "{}", field("NSpid")?);
    for namespace in ["mnt", "net", "ipc", "uts", "pid", "cgroup"] {
        let of = |pid| fs::read_link(format!("/proc/{pid}/ns/{namespace}"));
        ensure!(of(process)? != of(getpid())?, "{namespace} is ours");
        ensure!(of(process)? != of(supervisor)?, "{namespace} is the supervisor's");
    }
    let mounts = fs::read_to_string(format!("/proc/{process}/mountinfo"))?;
    let only = mounts.lines().next().context("no mount")?;
    ensure!(mounts.lines().count() == 1, "{mounts}");
    ensure!(only.contains(" / / ro,nosuid,nodev,noexec") && only.contains("tmpfs"), "{only}");
    let root = format!("/proc/{process}/root/");
    ensure!(fs::read_dir(&root)?.count() == 0, "its root is not empty");
    ensure!(fs::read_to_string(format!("/proc/{process}/environ"))?.is_empty());
    let devices = fs::read_to_string(format!("/proc/{process}/net/dev"))?;
    ensure!(devices.lines().count() == 3, "it has more than its loopback: {devices}");
    let limits = fs::read_to_string(format!("/proc/{process}/limits"))?;
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    ensure!(core.is_some_and(|line| line.split_whitespace().nth(4) == Some("0")), "{limits}");
    rig.corten(&["kill", "first"])?.with(0)?;
    rig.is_clean(&[supervisor, process])
}

#[test]
fn run_directory_is_its_users_alone() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let rig = Rig::new()?;
    rig.detached("first", FOR_EVER)?;
    for path in ["run", "run/first"] {
        let mode = fs::metadata(rig.path(path))?.permissions().mode();
        ensure!(mode & 0o777 == 0o700, "{path}: {mode:o}");
    }
    rig.corten(&["kill", "first"])?.with(0)?;
    fs::set_permissions(rig.path("run"), fs::Permissions::from_mode(0o777))?;
    let mut running = rig.run(&Rig::vmi("first", FOR_EVER), &[])?;
    running.close_input();
    running.end()?.with(84)?.said("is not this user's alone")?;
    Ok(())
}
