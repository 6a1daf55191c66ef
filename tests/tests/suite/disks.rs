//! Disks of Linux guests on Corten's machine, seen from both sides. These run in a node, in the cage, where `guests`
//! starts them.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corten_link::{DiskDescription, DiskEngine, DiskHost, EndReason, Event, Reply, Request};
use corten_tests::guest::{script_disk, source};
use corten_tests::process::{VmProcess, asset, disk, machine};
use sha2::{Digest, Sha256};

/// A boot takes 5 s in a quiet emulated node.
const BOOT: Duration = Duration::from_secs(180);
const MIB: u64 = 1 << 20;
/// What guests work in: an emulated one is slow.
const BLOCK: u64 = 256 << 10;

/// A disk of random-looking bytes, the same each time.
fn data_disk(mebibytes: u64) -> Result<File> {
    let file = tempfile::tempfile()?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = Vec::with_capacity(1 << 20);
    for at in 0..mebibytes {
        block.clear();
        while block.len() < 1 << 20 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            block.extend(state.to_le_bytes());
        }
        file.write_all_at(&block, at * MIB)?;
    }
    Ok(file)
}

fn checksum(file: &File, at: u64, length: u64) -> Result<String> {
    let mut bytes = vec![0; usize::try_from(length)?];
    file.read_exact_at(&mut bytes, at)?;
    Ok(checksum_of(&bytes))
}

fn checksum_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Boots a guest that finds `data` as its first disk and runs `script`.
fn guest(cpus: u16, data: &File, description: DiskDescription, script: &str) -> Result<VmProcess> {
    let script = script_disk(script)?;
    let mut machine = machine(cpus, 256 * MIB);
    let read_only = DiskDescription { read_only: true, ..disk("script") };
    let tools = DiskDescription { name: "tools".into(), ..read_only.clone() };
    machine.disks = vec![description, read_only, tools];
    let tools = asset("CORTEN_ASSET_GUEST_TOOLS_DISK", "disk.raw")?;
    let disks = [("data", data), ("script", &script), ("tools", &tools)];
    VmProcess::boot_machine(
        machine,
        source("quiet corten.script=/dev/vdb corten.modules=ext4")?,
        &disks,
    )
}

fn powers_off(process: &mut VmProcess) -> Result<String> {
    let event = process.next_event(BOOT)?;
    let console = process.console();
    ensure!(
        matches!(event, Event::Ended { reason: EndReason::PoweredOff, .. }),
        "{event:?}\n{console}"
    );
    ensure!(console.contains("CORTEN-SCRIPT-EXIT 0"), "{console}");
    Ok(console)
}

/// What the guest printed behind `word`.
fn said<'a>(console: &'a str, word: &str) -> Result<&'a str> {
    let line = console.lines().find_map(|line| line.trim().strip_prefix(word));
    line.map(str::trim).with_context(|| format!("no {word}\n{console}"))
}

/// Reads, writes with a flush, discards and zeroes; after a reboot looks whether all of it is still so.
const BOTH_SIDES: &str = r#"set -e
tool() {
	mountpoint -q /mnt || { mount -o ro /dev/vdc /mnt && mount -t devtmpfs dev /mnt/dev; }
	chroot /mnt "$@"
}
sum() { dd if=/dev/vda bs=256k skip=$1 count=$2 iflag=direct 2>/dev/null | sha256sum | cut -d ' ' -f 1; }
if [ "$(dd if=/dev/vda bs=512 count=1 skip=512 2>/dev/null | head -c 6)" = marked ]; then
	echo "AGAIN $(sum 2 4)"
	exit 0
fi
echo "SERIAL $(cat /sys/block/vda/serial)"
echo "SIZE $(cat /sys/block/vda/size)"
echo "READ-ONLY $(cat /sys/block/vda/ro) $(cat /sys/block/vdb/ro)"
echo "FIRST $(sum 0 8)"
dd if=/dev/vda of=/dev/vda bs=256k skip=8 seek=2 count=4 oflag=direct conv=fsync,notrunc 2>/dev/null
echo "SECOND $(sum 2 4)"
blkdiscard -o 4194304 -l 2097152 /dev/vda
tool /sbin/blkdiscard -z -o 6291456 -l 262144 /dev/vda
echo "DISCARDED $(sum 16 8) ZEROED $(sum 24 1)"
if dd if=/dev/zero of=/dev/vdb bs=512 count=1 conv=fsync 2>/dev/null; then exit 1; fi
printf marked | dd of=/dev/vda bs=512 seek=512 conv=sync,fsync,notrunc 2>/dev/null
echo reboot >/run/end
"#;

fn both_sides(host: DiskHost) -> Result<()> {
    let data = data_disk(8)?;
    let (first, copied) = (checksum(&data, 0, 8 * BLOCK)?, checksum(&data, 8 * BLOCK, 4 * BLOCK)?);
    let blocks = data.metadata()?.blocks();
    let description = DiskDescription { host, ..disk("data") };
    let mut process = guest(1, &data, description, BOTH_SIDES)?;
    ensure!(process.next_event(BOOT)? == Event::Reset, "{}", process.console());
    process.wait_for("AGAIN", 1, BOOT)?;
    let (reply, _) = process.ask(Request::Counters)?;
    let console = powers_off(&mut process)?;
    ensure!(said(&console, "SERIAL ")? == "data");
    ensure!(said(&console, "SIZE ")? == "16384");
    ensure!(said(&console, "READ-ONLY ")? == "0 1");
    ensure!(said(&console, "FIRST ")? == first, "{console}");
    ensure!(said(&console, "SECOND ")? == copied, "{console}");
    ensure!(said(&console, "AGAIN ")? == copied, "{console}");
    ensure!(
        checksum(&data, 2 * BLOCK, 4 * BLOCK)? == copied,
        "the host does not see what was written"
    );
    let zeros = vec![0; usize::try_from(8 * BLOCK)?];
    let expected = format!("{} ZEROED {}", checksum_of(&zeros), checksum_of(&zeros[..1 << 18]));
    ensure!(said(&console, "DISCARDED ")? == expected, "{console}");
    let freed = blocks.saturating_sub(data.metadata()?.blocks()) * 512;
    ensure!(freed >= 8 * BLOCK, "only {freed} bytes were given back");
    let Reply::Counters { counters } = reply else { anyhow::bail!("{reply:?}") };
    let counted = counters.disks.get("data").context("no counters of the disk")?;
    ensure!(counted.flushes > 0 && counted.discards > 0 && counted.errors == 0, "{counted:?}");
    Ok(())
}

#[test]
fn both_sides_see_the_same_through_flush_discard_and_reboot() -> Result<()> {
    both_sides(DiskHost::default())
}

#[test]
fn long_both_sides_see_the_same_with_threads_and_without_the_page_cache() -> Result<()> {
    both_sides(DiskHost { engine: DiskEngine::Pool, direct: true, ..DiskHost::default() })
}

#[test]
fn every_processor_has_a_queue_and_an_interrupt() -> Result<()> {
    let script = r#"set -e
        ls /sys/block/vda/mq | wc -l | sed 's/^ */QUEUES /'
        for cpu in 0 1 2 3; do taskset -c $cpu dd if=/dev/vda of=/dev/null bs=64k count=16 skip=$((cpu * 16)) iflag=direct 2>/dev/null; done
        grep virtio /proc/interrupts
        echo "BUSY $(awk '/virtio0-req/ { busy = 0; for (i = 2; i <= 5; i++) busy += $i; if (busy) n++ } END { print n }' /proc/interrupts)"
    "#;
    let data = data_disk(8)?;
    let mut process = guest(4, &data, DiskDescription { queues: 4, ..disk("data") }, script)?;
    let console = powers_off(&mut process)?;
    ensure!(said(&console, "QUEUES ")? == "4", "{console}");
    ensure!(said(&console, "BUSY ")? == "4", "{console}");
    Ok(())
}

#[test]
fn guest_writes_on_in_a_new_process() -> Result<()> {
    let script = r#"set -e
        i=0
        while [ $i -lt 24 ]; do
            dd if=/dev/vda of=/dev/vda bs=64k skip=64 seek=$i count=1 oflag=direct conv=fsync,notrunc 2>/dev/null
            echo "WROTE $i"
            i=$((i + 1))
        done
        echo "SUM $(dd if=/dev/vda bs=64k count=24 iflag=direct 2>/dev/null | sha256sum | cut -d ' ' -f 1)"
    "#;
    let data = data_disk(8)?;
    let script = script_disk(script)?;
    let disks = [("data", &data), ("script", &script)];
    let mut machine = machine(2, 256 * MIB);
    machine.disks = vec![disk("data"), DiskDescription { read_only: true, ..disk("script") }];
    let mut process =
        VmProcess::boot_machine(machine, source("quiet corten.script=/dev/vdb")?, &disks)?;
    let mut console = String::new();
    for wrote in ["WROTE 3", "WROTE 9", "WROTE 15"] {
        process.wait_for(wrote, 1, BOOT)?;
        process.must(Request::Pause)?;
        let saved = process.must(Request::Save)?;
        console += &process.console();
        drop(process);
        process = VmProcess::load_with_disks(saved, &disks)?;
        process.must(Request::Resume)?;
    }
    console += &powers_off(&mut process)?;
    let mut block = vec![0; 64 << 10];
    data.read_exact_at(&mut block, 64 * (64 << 10))?;
    let expected = checksum_of(&block.repeat(24));
    ensure!(said(&console, "SUM ")? == expected, "{console}");
    ensure!(checksum(&data, 0, 24 * (64 << 10))? == expected);
    Ok(())
}

#[test]
fn long_disk_that_another_vm_writes_to_is_refused() -> Result<()> {
    let path = tempfile::NamedTempFile::new()?;
    path.as_file().set_len(MIB)?;
    let open = || File::options().read(true).write(true).open(path.path());
    let (one, two) = (open()?, open()?);
    let start = |file: &File| {
        let mut machine = machine(1, 256 * MIB);
        machine.disks = vec![disk("data")];
        VmProcess::boot_machine(machine, source("quiet corten.end=idle")?, &[("data", file)])
    };
    let first = start(&one)?;
    first.wait_for("CORTEN-GUEST-UP", 1, BOOT)?;
    let mut second = start(&two)?;
    let event = second.next_event(BOOT)?;
    let Event::Ended { reason: EndReason::NotStarted, detail, .. } = event else {
        anyhow::bail!("{event:?}")
    };
    ensure!(detail.contains("the disk \"data\" cannot be taken"), "{detail}");
    // The lock is the open file's: whoever else has it must let go, too.
    drop((first, one));
    let third = start(&two)?;
    third.wait_for("CORTEN-GUEST-UP", 1, BOOT)
}

#[test]
fn long_read_only_disk_is_shared() -> Result<()> {
    let mut text = String::new();
    let data = data_disk(1)?;
    for _ in 0..2 {
        let description = DiskDescription { read_only: true, ..disk("data") };
        let script = "dd if=/dev/vda bs=1M count=1 iflag=direct 2>/dev/null | sha256sum";
        let mut process = guest(1, &data, description, script)?;
        text += &powers_off(&mut process)?;
    }
    let sum = checksum(&data, 0, MIB)?;
    ensure!(text.matches(&sum).count() == 2, "{text}");
    Ok(())
}
