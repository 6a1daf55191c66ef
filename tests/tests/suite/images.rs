//! A disk of a Linux guest on Corten's machine that is a qcow2 image with an overlay, seen from both sides. Runs in a node,
//! in the cage, where `guests` starts it.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use anyhow::{Result, ensure};
use corten_link::{ConsoleDescription, Event, Request, Role};
use corten_tests::guest::ScriptedGuest;
use corten_tests::process::asset;
use corten_tests::snapshot_files::SnapshotFiles;
use sha2::{Digest, Sha256};

/// A boot takes 5 s in a quiet emulated node.
const BOOT: Duration = Duration::from_secs(180);
/// How much of the disk the guest reads.
const READ: usize = 8 << 20;
/// Where it writes what its tools' disk begins with: not whole clusters of the image.
const WRITTEN: std::ops::Range<usize> = 5 << 18..(5 << 18) + (100 << 10);

/// Says what is on the disk, and again after each word that is typed; some are to do something.
const SCRIPT: &str = r#"
say() { echo "DISK $(dd if=/dev/vdc bs=256k count=32 iflag=direct 2>/dev/null | sha256sum)"; }
exec 4<>/dev/hvc0
say
while read -r word <&4; do
    case $word in
    write) tool dd if=/dev/vdb of=/dev/vdc bs=4k count=25 seek=320 oflag=direct conv=fsync,notrunc 2>/dev/null ;;
    reboot) break ;;
    esac
    say
done
echo reboot >/run/end
"#;

fn beginning(file: &File, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn line(bytes: &[u8]) -> String {
    let sum: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("DISK {sum}")
}

#[test]
fn image_is_read_and_what_is_written_survives_saves_a_snapshot_and_a_reboot() -> Result<()> {
    let overlay = tempfile::tempfile()?;
    let image = asset("CORTEN_ASSET_GUEST_TINY_QCOW2", "disk.qcow2")?;
    let untouched = beginning(&asset("CORTEN_ASSET_GUEST_TINY_DISK", "disk.raw")?, READ)?;
    let mut changed = untouched.clone();
    let tools = asset("CORTEN_ASSET_GUEST_TOOLS_DISK", "disk.raw")?;
    changed[WRITTEN].copy_from_slice(&beginning(&tools, WRITTEN.len())?);
    let (untouched, now) = (line(&untouched), line(&changed));

    let guest = ScriptedGuest::new(1, 256, "virtio_console", SCRIPT)?;
    let mut guest = guest.image_disk("image", image, &overlay)?;
    guest.machine.console = Some(ConsoleDescription { streams: Vec::new() });
    let (_shown, output) = std::io::pipe()?;
    let (input, mut typed) = std::io::pipe()?;
    guest.devices.push((Role::terminal(), output.into()));
    guest.devices.push((Role::terminal_input(), input.into()));
    let mut process = guest.boot()?;
    process.wait_for(&untouched, 1, BOOT)?;
    ensure!(overlay.metadata()?.blocks() == 0, "the guest has only read");

    typed.write_all(b"write\n")?;
    process.wait_for(&now, 1, BOOT)?;
    let mut bytes = vec![0; WRITTEN.len()];
    overlay.read_exact_at(&mut bytes, WRITTEN.start as u64)?;
    ensure!(bytes == changed[WRITTEN], "it is not in the overlay");

    for _ in 0..2 {
        process.must(Request::Pause)?;
        let saved = process.must(Request::Save)?;
        drop(process);
        process = guest.load(saved)?;
        process.must(Request::Resume)?;
        typed.write_all(b"again\n")?;
        process.wait_for(&now, 1, BOOT)?;
    }
    process.must(Request::Pause)?;
    let files = process.must_snapshot_in(SnapshotFiles::in_memory()?)?;
    drop(process);
    process = guest.restore(&files)?;
    process.must(Request::Resume)?;
    typed.write_all(b"again\n")?;
    process.wait_for(&now, 1, BOOT)?;

    typed.write_all(b"reboot\n")?;
    let event = process.next_event(BOOT)?;
    ensure!(event == Event::Reset, "{event:?}\n{}", process.console());
    process.wait_for(&now, 2, BOOT)
}
