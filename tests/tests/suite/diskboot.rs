//! Linux guests that are booted from their own disks on Corten's machine. Run in a node, in the cage, where `guests`
//! starts them.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use corten_link::{
    BootOrigin, DiskDescription, DiskHost, EndReason, Event, ImageFormat, MachineDescription,
    Request, Role,
};
use corten_tests::guest::script_disk;
use corten_tests::process::{VmProcess, asset, disk, grants_of, machine};

/// A boot takes 5 s in a quiet emulated node.
const BOOT: Duration = Duration::from_secs(180);
/// Of the tiny disk's file system.
const BLOCK: usize = 1024;
/// What is copied at once.
const CHUNK: usize = 64 << 10;

/// Says what the guest was booted with. The first time, it then installs another kernel under another name with another
/// argument, and restarts without unmounting anything: what it has written may be in the journal only.
const UPGRADE: &str = r#"
read -r line </proc/cmdline
echo "BOOTED-WITH $line"
case $line in
*generation=2*) echo poweroff >/run/end; exit ;;
esac
set -e
mount -o remount,rw /
cp /boot/vmlinuz-* /boot/vmlinuz-new
sed -i -e 's#/boot/vmlinuz-[^ ]*#/boot/vmlinuz-new#' -e 's#corten.end=button#corten.end=button generation=2#' /boot/grub/grub.cfg
sync
echo b >/proc/sysrq-trigger
"#;

fn next_origin(process: &mut VmProcess) -> Result<BootOrigin> {
    match process.next_event(BOOT)? {
        Event::Booting { from } => Ok(from),
        other => bail!("{other:?}\n{}", process.console()),
    }
}

/// How its boot configuration begins, and with it a block of the disk.
const CONFIGURATION: &[u8] = b"# Boot entries of the tiny disk";

/// The tiny disk, with a boot entry that runs a script on a second one. Contents of files have no checksum.
fn scripted_disk() -> Result<File> {
    let original = asset("CORTEN_ASSET_GUEST_TINY_DISK", "disk.raw")?;
    let file = tempfile::tempfile()?;
    let length = original.metadata()?.len();
    file.set_len(length)?;
    let old = "ro console=ttyS0 quiet corten.script=cidata";
    let new = "console=ttyS0 quiet corten.script=/dev/vdb ";
    let mut changed = 0;
    let mut chunk = [0; CHUNK];
    for offset in (0..length).step_by(CHUNK) {
        original.read_exact_at(&mut chunk, offset)?;
        for block in chunk.chunks_mut(BLOCK).filter(|block| block.starts_with(CONFIGURATION)) {
            let text = String::from_utf8_lossy(block).replace(old, new);
            block.copy_from_slice(text.as_bytes());
            changed += 1;
        }
        // Sparse: memory of a node is short.
        if chunk != [0; CHUNK] {
            file.write_all_at(&chunk, offset)?;
        }
    }
    ensure!(changed > 0, "the tiny disk has another boot configuration");
    Ok(file)
}

/// A machine that boots from its disk `root`.
fn booting(disks: Vec<DiskDescription>) -> MachineDescription {
    MachineDescription { disks, boot_order: vec!["root".into()], ..machine(1, 256 << 20) }
}

fn check(origin: &BootOrigin, expected_kernel: &str, expected_title: &str) -> Result<()> {
    let BootOrigin::Disk { disk, partition, kernel, title, passed_over } = origin else {
        bail!("{origin:?}")
    };
    ensure!(disk == "root" && *partition == 1, "{origin:?}");
    ensure!(kernel.starts_with(expected_kernel) && title == expected_title, "{origin:?}");
    ensure!(passed_over.is_empty(), "{origin:?}");
    Ok(())
}

fn upgrades(root: DiskDescription, mut devices: Vec<(Role, OwnedFd)>) -> Result<()> {
    let script = script_disk(UPGRADE)?;
    devices.extend(grants_of(&[("script", &script)])?);
    let read_only = DiskDescription { read_only: true, ..disk("script") };
    let mut process = VmProcess::boot_disks(booting(vec![root, read_only]), devices)?;
    check(&next_origin(&mut process)?, "/boot/vmlinuz-6.", "Tiny Linux")?;
    process.wait_for("BOOTED-WITH", 1, BOOT)?;
    let event = process.next_event(BOOT)?;
    ensure!(event == Event::Reset, "{event:?}\n{}", process.console());
    check(&next_origin(&mut process)?, "/boot/vmlinuz-new", "Tiny Linux")?;
    let event = process.next_event(BOOT)?;
    let console = process.console();
    let Event::Ended { reason: EndReason::PoweredOff, .. } = event else {
        bail!("{event:?}\n{console}")
    };
    let lines: Vec<&str> = console.lines().filter(|line| line.contains("BOOTED-WITH")).collect();
    let [first, second] = lines[..] else { bail!("{console}") };
    ensure!(!first.contains("generation=2") && second.contains("generation=2"), "{console}");
    Ok(())
}

#[test]
fn guest_on_a_raw_disk_gets_the_kernel_that_it_has_installed() -> Result<()> {
    let file = scripted_disk()?;
    upgrades(disk("root"), grants_of(&[("root", &file)])?)
}

/// Its guest then finds no partition: to it the disk has larger sectors than its table was made for.
#[test]
fn kernel_is_found_on_a_disk_that_is_read_past_the_page_cache() -> Result<()> {
    let file = asset("CORTEN_ASSET_GUEST_TINY_DISK", "disk.raw")?;
    let host = DiskHost { direct: true, ..DiskHost::default() };
    let root = DiskDescription { host, read_only: true, ..disk("root") };
    let mut process = VmProcess::boot_disks(booting(vec![root]), grants_of(&[("root", &file)])?)?;
    check(&next_origin(&mut process)?, "/boot/vmlinuz-6.", "Tiny Linux")
}

#[test]
fn long_guest_on_an_image_gets_the_kernel_that_is_in_its_overlay() -> Result<()> {
    let (file, overlay) = (scripted_disk()?, tempfile::tempfile()?);
    let host = DiskHost { images: vec![ImageFormat::Raw], ..DiskHost::default() };
    let devices =
        vec![(Role::image("root", 0)?, file.into()), (Role::overlay("root")?, overlay.into())];
    upgrades(DiskDescription { host, ..disk("root") }, devices)
}

/// A machine on an image of qcow2, which is only read.
fn on_qcow2(asset_name: &str) -> Result<VmProcess> {
    let image = asset(asset_name, "disk.qcow2")?;
    let host = DiskHost { images: vec![ImageFormat::Qcow2], ..DiskHost::default() };
    let root = DiskDescription { host, ..disk("root") };
    let overlay = tempfile::tempfile()?;
    let devices =
        vec![(Role::image("root", 0)?, image.into()), (Role::overlay("root")?, overlay.into())];
    VmProcess::boot_disks(MachineDescription { memory: 512 << 20, ..booting(vec![root]) }, devices)
}

#[test]
fn tiny_disk_boots_as_qcow2_and_hears_its_power_button() -> Result<()> {
    let mut process = on_qcow2("CORTEN_ASSET_GUEST_TINY_QCOW2")?;
    check(&next_origin(&mut process)?, "/boot/vmlinuz-6.", "Tiny Linux")?;
    process.wait_for("CORTEN-GUEST-UP", 1, BOOT)?;
    // It is ready when it waits for the button; whoever presses again is heard then.
    for _ in 0..60 {
        process.must(Request::PowerButton)?;
        if let Ok(event) = process.next_event(Duration::from_secs(3)) {
            ensure!(
                matches!(event, Event::Ended { reason: EndReason::PoweredOff, .. }),
                "{event:?}"
            );
            return Ok(());
        }
    }
    Err(anyhow::anyhow!("{}", process.console())).context("it does not hear its power button")
}

#[test]
fn long_debian_is_booted_by_what_its_own_update_grub_wrote() -> Result<()> {
    let mut process = on_qcow2("CORTEN_ASSET_GUEST_DEBIAN_QCOW2")?;
    check(&next_origin(&mut process)?, "/boot/vmlinuz-6.1", "Debian GNU/Linux")?;
    process.wait_for("debian login:", 1, BOOT)
}
