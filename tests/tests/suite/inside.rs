//! What a Linux guest finds when it looks around in Corten's machine. Runs in a node, in the cage, where `guests` starts
//! it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use corten_link::{DiskDescription, EndReason, Event, MachineDescription};
use corten_tests::guest::{script_disk, source};
use corten_tests::process::{SERIAL, VmProcess, asset, disk, machine};

/// A boot with six processors takes 15 s in a quiet emulated node.
const BOOT: Duration = Duration::from_secs(240);

/// Prints each part under a title of its own.
const LOOK_AROUND: &str = r#"
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -o ro /dev/vdb /mnt
mount -t proc proc /mnt/proc
mount -t sysfs sys /mnt/sys
mount -t devtmpfs dev /mnt/dev
part() { echo "== $1"; shift; "$@" 2>&1; }
part lscpu chroot /mnt lscpu
part flags sh -c 'grep -m 1 ^flags /proc/cpuinfo'
part apicids sh -c 'grep ^apicid /proc/cpuinfo'
part lspci chroot /mnt lspci -vv -nn
part dmidecode chroot /mnt dmidecode -q -t 0,1,3
part clock cat /sys/devices/system/clocksource/clocksource0/current_clocksource
dd if=/dev/vdc of=/dev/null bs=4k count=64 2>/dev/null
part interrupts cat /proc/interrupts
part iomem cat /proc/iomem
part complaints chroot /mnt /bin/dmesg --level=emerg,alert,crit,err,warn
part dmesg dmesg
echo "== end"
"#;

fn look_around() -> Result<BTreeMap<String, String>> {
    let tools = asset("CORTEN_ASSET_GUEST_TOOLS_DISK", "disk.raw")?;
    let script = script_disk(LOOK_AROUND)?;
    let read_only = |name| DiskDescription { read_only: true, ..disk(name) };
    let machine = MachineDescription {
        cores: 3,
        threads: 2,
        disks: vec![read_only("script"), read_only("tools"), read_only("again")],
        ..machine(3, 512 << 20)
    };
    let source = source("corten.script=/dev/vda corten.modules=ext4,button loglevel=3")?;
    let disks = [("script", &script), ("tools", &tools), ("again", &tools)];
    let mut process = VmProcess::boot_machine(machine, source, &disks)?;
    let event = process.next_event(BOOT)?;
    let console = process.console();
    ensure!(
        matches!(event, Event::Ended { reason: EndReason::PoweredOff, .. }),
        "{event:?}\n{console}"
    );
    ensure!(console.contains("== end"), "{console}");
    let parts = console.split("== ").skip(1).filter_map(|part| part.split_once('\n'));
    Ok(parts.map(|(title, text)| (title.trim().into(), text.replace('\r', ""))).collect())
}

/// The lines of a part that contain `text`.
fn lines<'a>(part: &'a str, text: &'a str) -> Vec<&'a str> {
    part.lines().filter(|line| line.contains(text)).collect()
}

#[test]
fn linux_finds_the_machine_that_was_described() -> Result<()> {
    let found = look_around()?;
    let part = |title: &str| found.get(title).map_or("", String::as_str);
    let mut wrong = processors(part("lscpu"), part("flags"));
    wrong.extend(bus(part("lspci")));
    wrong.extend(interrupts(part("interrupts")));
    let host = std::fs::read_to_string("/proc/cpuinfo")?;
    let name = host.lines().find_map(|line| line.strip_prefix("model name\t: ")).unwrap_or("?");
    if !part("lscpu").contains(name.trim()) {
        wrong.push(format!("the processor is not called {name:?}"));
    }
    if lines(part("apicids"), "apicid").len() != 6 {
        wrong.push(format!("APIC ids: {}", part("apicids")));
    }
    if !["kvm-clock", "tsc"].contains(&part("clock").trim()) {
        wrong.push(format!("clock source {}", part("clock")));
    }
    let dmi = part("dmidecode");
    if !dmi.contains("Manufacturer: Corten") || !dmi.contains(SERIAL) {
        wrong.push(format!("SMBIOS: {dmi}"));
    }
    let complaints = part("complaints").lines().filter(|line| !is_expected(line));
    wrong.extend(complaints.map(|line| format!("dmesg: {line}")));
    ensure!(wrong.is_empty(), "{}\n\n{found:#?}", wrong.join("\n"));
    Ok(())
}

fn processors(lscpu: &str, flags: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (heading, expected) in [
        ("CPU(s):", "6"),
        ("Thread(s) per core:", "2"),
        ("Core(s) per socket:", "3"),
        ("Socket(s):", "1"),
        ("Hypervisor vendor:", "KVM"),
        ("Virtualization type:", "full"),
    ] {
        let line = lscpu.lines().find_map(|line| line.trim().strip_prefix(heading));
        if line.map(str::trim) != Some(expected) {
            wrong.push(format!("lscpu: {heading} {line:?}, not {expected}"));
        }
    }
    let flags: Vec<&str> = flags.split_whitespace().collect();
    for absent in ["vmx", "svm", "arch_perfmon", "perfctr_core"] {
        if flags.contains(&absent) {
            wrong.push(format!("the processor has {absent}"));
        }
    }
    for present in ["tsc_deadline_timer", "x2apic", "hypervisor"] {
        if !flags.contains(&present) {
            wrong.push(format!("the processor has no {present}"));
        }
    }
    wrong
}

fn bus(lspci: &str) -> Vec<String> {
    let expected = [
        ("Host bridge", 1),
        ("[1af4:1042]", 3),
        ("MSI-X: Enable+ Count=2 Masked-", 3),
        ("Region 0: Memory at c0", 3),
        ("Kernel driver in use: virtio-pci", 3),
    ];
    let other = expected.iter().filter(|(text, count)| lines(lspci, text).len() != *count);
    other.map(|(text, count)| format!("lspci: not {count} times {text:?}")).collect()
}

fn interrupts(table: &str) -> Vec<String> {
    let count = |name: &str| -> Option<u64> {
        let line = table.lines().find(|line| line.contains(name))?;
        let counts = line.split_whitespace().skip(1).map_while(|count| count.parse::<u64>().ok());
        Some(counts.sum())
    };
    let mut wrong = Vec::new();
    for busy in ["virtio0-req.0", "virtio1-req.0", "virtio2-req.0", "ttyS0"] {
        if count(busy).is_none_or(|count| count == 0) {
            wrong.push(format!("{busy} never interrupts"));
        }
    }
    for quiet in ["ERR:", "MIS:", "SPU:"] {
        if count(quiet) != Some(0) {
            wrong.push(format!("interrupts: {quiet} {:?}", count(quiet)));
        }
    }
    if lines(table, "-req.0").iter().any(|line| !line.contains("MSI")) {
        wrong.push("a disk interrupts by a line".into());
    }
    wrong
}

/// Said on any machine that is as slow as an emulated one under load.
fn is_expected(line: &str) -> bool {
    ["hrtimer: interrupt took", "clocksource: Long readout interval"]
        .iter()
        .any(|text| line.contains(text))
}
