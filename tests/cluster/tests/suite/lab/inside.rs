//! What a launcher Pod is on its node: its rings, its memory.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::process::{in_node, vmm_process};
use crate::guest::{Guest, add_disk, text, vmi};
use crate::workbench::Workbench;

const MEBIBYTE: u64 = 1 << 20;

/// The guest fills most of its memory, and says so; then it waits for its button.
fn filler(name: &str, guest: u64, filled: u64) -> Value {
    let mut object = vmi(name, "corten.script=cidata corten.end=button");
    object["spec"]["domain"]["memory"]["guest"] = json!(format!("{guest}Mi"));
    add_disk(&mut object, "scratch", json!({ "emptyDisk": { "capacity": "64Mi" } }));
    let script = format!(
        "#!/bin/sh\n\
         mkdir -p /full\n\
         mount -t tmpfs -o size={filled}m tmpfs /full\n\
         dd if=/dev/zero of=/dev/vda bs=1M count=64 conv=fsync 2>/dev/null\n\
         dd if=/dev/zero bs=1M count={filled} 2>/dev/null | tr '\\000' x >/full/it\n\
         echo \"FILLED $(wc -c </full/it)\"\n"
    );
    add_disk(&mut object, "seed", json!({ "cloudInitNoCloud": { "userData": script } }));
    object
}

/// What the kernel says of the control group of a Pod: files of one number, and lines of memory.stat.
fn memory(pod: &Value) -> Result<BTreeMap<String, u64>> {
    let script = r#"group=$(find /sys/fs/cgroup -type d -name "*pod$1" | head -n 1)
        for file in current peak max; do echo "$file $(cat $group/memory.$file)"; done
        cat $group/memory.stat"#;
    let said = in_node(text(&pod["spec"]["nodeName"]), script, &[text(&pod["metadata"]["uid"])])?;
    let numbers = said.lines().filter_map(|line| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.parse().ok()?))
    });
    Ok(numbers.collect())
}

/// Bytes of an amount such as 20Mi.
fn bytes(amount: &Value) -> Result<u64> {
    let amount = text(amount);
    let digits = amount.trim_end_matches(char::is_alphabetic);
    let unit = match &amount[digits.len()..] {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => MEBIBYTE,
        "Gi" => 1 << 30,
        other => anyhow::bail!("unit {other:?}"),
    };
    Ok(digits.parse::<u64>()? * unit)
}

/// The guest's memory is charged to its Pod, and all else is less than what is reserved for it.
fn check_memory(guest: &Guest<'_>, mebibytes: u64, filled: u64) -> Result<()> {
    let (object, pod) = (guest.object()?, guest.pod()?);
    let overhead = bytes(&object["status"]["memory"]["memoryOverhead"])?;
    let memory = memory(&pod)?;
    let of =
        |name: &str| memory.get(name).copied().with_context(|| format!("no {name}: {memory:?}"));
    let guest_memory = mebibytes * MEBIBYTE;
    let (shared, peak) = (of("shmem")?, of("peak")?);
    println!(
        "guest of {mebibytes} MiB: {} MiB charged, peak {} MiB, {} MiB of it shared memory, {} MiB page cache; {} KiB reserved",
        of("current")? / MEBIBYTE,
        peak / MEBIBYTE,
        shared / MEBIBYTE,
        of("file")?.saturating_sub(shared) / MEBIBYTE,
        overhead >> 10,
    );
    ensure!(shared >= filled * MEBIBYTE, "what the guest wrote is not charged: {memory:?}");
    ensure!(peak <= guest_memory + overhead, "more than {overhead} beside the guest: {memory:?}");
    Ok(())
}

#[test]
fn disks_are_served_by_io_uring_and_memory_is_the_pods() -> Result<()> {
    Workbench::test("inside", |bench| {
        bench.create(filler("small", 128, 48))?;
        let guest = Guest::new(bench, "small");
        guest.says(&format!("FILLED {}", 48 * MEBIBYTE))?;
        check_memory(&guest, 128, 48)?;

        let pod = guest.pod()?;
        let process = vmm_process(&pod)?;
        let script = r#"for file in /proc/$1/fd/*; do
            case $(readlink $file) in anon_inode:\[io_uring\]*) cat /proc/$1/fdinfo/${file##*/};; esac
        done"#;
        let rings = in_node(text(&pod["spec"]["nodeName"]), script, &[&process.pid])?;
        let tails = rings.lines().filter_map(|line| line.strip_prefix("SqTail:"));
        let submitted: u64 = tails.filter_map(|tail| tail.trim().parse::<u64>().ok()).sum();
        ensure!(submitted > 0, "no ring has been used: {rings:?}");
        Ok(())
    })
}

#[test]
fn long_memory_of_a_large_guest_is_the_pods() -> Result<()> {
    Workbench::test("large", |bench| {
        bench.create(filler("large", 2048, 1700))?;
        let guest = Guest::new(bench, "large");
        guest.says(&format!("FILLED {}", 1700 * MEBIBYTE))?;
        check_memory(&guest, 2048, 1700)
    })
}
