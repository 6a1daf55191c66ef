//! Exits, interrupts and system calls, counted by the kernel for every VMM in the same way.
//!
//! Histogram triggers of tracefs add up in the kernel; no event is written anywhere. They stand in an instance of their
//! own, so whoever else traces on this machine is not disturbed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use syscalls::Sysno;

use crate::report::Counts;

const TRACEFS: &str = "/sys/kernel/tracing";

/// What is counted: event, and the field by which. The other key is always the thread.
const USERSPACE_EXITS: Event = Event { path: "kvm/kvm_userspace_exit", key: Some("reason") };
const HARDWARE_EXITS: Event = Event { path: "kvm/kvm_exit", key: Some("exit_reason") };
const INTERRUPTS: Event = Event { path: "kvm/kvm_inj_virq", key: None };
const PORTS: Event = Event { path: "kvm/kvm_pio", key: Some("port") };
const SYSTEM_CALLS: Event = Event { path: "raw_syscalls/sys_enter", key: Some("id") };
const EVENTS: [Event; 5] = [USERSPACE_EXITS, HARDWARE_EXITS, INTERRUPTS, PORTS, SYSTEM_CALLS];

/// Reasons of KVM's API that a guest of a benchmark meets.
const REASONS: [(u64, &str); 14] = [
    (0, "unknown"),
    (2, "port"),
    (3, "hypercall"),
    (4, "debug"),
    (5, "halt"),
    (6, "memory-mapped"),
    (7, "interrupt window"),
    (8, "shutdown"),
    (10, "signal"),
    (12, "access to the TPR"),
    (17, "internal error"),
    (24, "system event"),
    (26, "end of I/O APIC interrupt"),
    (29, "read of MSR"),
];

/// Where it is, `exit_reason` is one of SVM's; elsewhere of VMX's.
const SVM_MODULE: &str = "/sys/module/kvm_amd";
/// AMD64 Architecture Programmer's Manual, volume 2, appendix C: those that a boot meets.
const SVM_EXITS: [(u64, &str); 13] = [
    (0x10, "write of CR0"),
    (0x14, "write of CR4"),
    (0x60, "interrupt of the host"),
    (0x64, "interrupt window"),
    (0x6e, "RDTSC"),
    (0x72, "CPUID"),
    (0x77, "PAUSE"),
    (0x78, "HLT"),
    (0x7b, "port"),
    (0x7c, "MSR"),
    (0x81, "hypercall"),
    (0x8d, "XSETBV"),
    (0x400, "nested page fault"),
];
/// Intel's Software Developer's Manual, volume 3, appendix C.
const VMX_EXITS: [(u64, &str); 13] = [
    (0, "exception or NMI"),
    (1, "interrupt of the host"),
    (7, "interrupt window"),
    (10, "CPUID"),
    (12, "HLT"),
    (18, "hypercall"),
    (28, "control register"),
    (30, "port"),
    (31, "read of MSR"),
    (32, "write of MSR"),
    (48, "EPT violation"),
    (49, "EPT misconfiguration"),
    (52, "preemption timer"),
];

#[derive(Clone, Copy, Debug)]
struct Event {
    path: &'static str,
    key: Option<&'static str>,
}

impl Event {
    fn trigger(self) -> String {
        let by = self.key.map(|key| format!(",{key}")).unwrap_or_default();
        // By default there is room for 2048 pairs; a busy machine has more threads than a node.
        format!("hist:keys=common_pid{by}:size=16384")
    }
}

/// Counts what VMMs do. Nothing is left of it in the kernel when it is dropped.
#[derive(Debug)]
pub(crate) struct Counter {
    instance: PathBuf,
}

impl Counter {
    pub(crate) fn new() -> Result<Self> {
        let instances = Path::new(TRACEFS).join("instances");
        ensure!(instances.is_dir(), "{TRACEFS} is not there or not allowed: mount tracefs");
        let instance = instances.join(format!("corten-bench-{}", std::process::id()));
        fs::create_dir(&instance).context("cannot make an instance of tracefs")?;
        let counter = Self { instance };
        for event in EVENTS {
            let directory = counter.event(event);
            ensure!(directory.is_dir(), "this kernel has no tracepoint {}", event.path);
        }
        Ok(counter)
    }

    fn event(&self, event: Event) -> PathBuf {
        self.instance.join("events").join(event.path)
    }

    /// Begins at zero.
    pub(crate) fn start(&self) -> Result<()> {
        self.stop();
        for event in EVENTS {
            let file = self.event(event).join("trigger");
            fs::write(&file, event.trigger())
                .with_context(|| format!("cannot count {}", event.path))?;
        }
        Ok(())
    }

    fn stop(&self) {
        for event in EVENTS {
            // What was not set cannot be removed, and that is as well.
            let _ = fs::write(self.event(event).join("trigger"), format!("!{}", event.trigger()));
        }
    }

    /// What `threads` did since [`Self::start`].
    pub(crate) fn read(&self, threads: &[u64]) -> Result<Counts> {
        // All are read before any is made sense of: counting goes on.
        let texts = EVENTS.map(|event| fs::read_to_string(self.event(event).join("hist")));
        self.stop();
        let [exits, hardware, interrupts, ports, calls] = texts;
        let sums = |text: std::io::Result<String>, event: Event| {
            let text = text.with_context(|| format!("cannot read the count of {}", event.path))?;
            sums(&text, threads).with_context(|| format!("the count of {}", event.path))
        };
        let total = |sums: BTreeMap<u64, u64>| sums.values().sum();
        let svm = Path::new(SVM_MODULE).exists();
        let hardware_names = if svm { &SVM_EXITS[..] } else { &VMX_EXITS };
        Ok(Counts {
            userspace_exits: named(sums(exits, USERSPACE_EXITS)?, |reason| {
                name_in(&REASONS, reason)
            }),
            hardware_exits: named(sums(hardware, HARDWARE_EXITS)?, |reason| {
                name_in(hardware_names, reason)
            }),
            interrupts: total(sums(interrupts, INTERRUPTS)?),
            ports: named(sums(ports, PORTS)?, |port| format!("{port:#06x}")),
            system_calls: named(sums(calls, SYSTEM_CALLS)?, system_call),
        })
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir(&self.instance);
    }
}

fn named(sums: BTreeMap<u64, u64>, name: impl Fn(u64) -> String) -> BTreeMap<String, u64> {
    sums.into_iter().map(|(key, count)| (name(key), count)).collect()
}

fn name_in(names: &[(u64, &str)], number: u64) -> String {
    let known = names.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("reason {number:#x}"), |(_, name)| (*name).into())
}

fn system_call(number: u64) -> String {
    let known = usize::try_from(number).ok().and_then(Sysno::new);
    known.map_or_else(|| format!("call {number}"), |call| call.name().into())
}

/// Adds up what a histogram says of `threads`, by its second key; by 0 where it has none.
fn sums(histogram: &str, threads: &[u64]) -> Result<BTreeMap<u64, u64>> {
    let mut sums = BTreeMap::new();
    for line in histogram.lines() {
        if let Some(dropped) = line.trim().strip_prefix("Dropped:") {
            ensure!(dropped.trim() == "0", "the kernel had no room for all counts");
        }
        let Some(entry) = line.strip_prefix('{') else { continue };
        let Some((thread, key, count)) = entry_of(entry) else {
            bail!("not a line of a histogram: {line}");
        };
        if threads.contains(&thread) {
            *sums.entry(key).or_default() += count;
        }
    }
    Ok(sums)
}

/// ` common_pid: 7, reason: 2 } hitcount: 5`
fn entry_of(entry: &str) -> Option<(u64, u64, u64)> {
    let (keys, count) = entry.split_once("} hitcount:")?;
    let mut values = keys.split(',').map(|key| key.rsplit(':').next()?.trim().parse().ok());
    let thread = values.next()??;
    let key = values.next().unwrap_or(Some(0))?;
    Some((thread, key, count.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTOGRAM: &str = "\
# event histogram
#
# trigger info: hist:keys=common_pid,reason:vals=hitcount:sort=hitcount:size=2048 [active]
#

{ common_pid:        310, reason:          5 } hitcount:          1
{ common_pid:        311, reason:          2 } hitcount:        120
{ common_pid:        312, reason:          2 } hitcount:          7
{ common_pid:        999, reason:          6 } hitcount:        500

Totals:
    Hits: 628
    Entries: 4
    Dropped: 0
";

    #[test]
    fn threads_of_the_vmm_are_added_up_by_key() {
        let sums = sums(HISTOGRAM, &[310, 311, 312]).unwrap();
        assert_eq!(sums, BTreeMap::from([(2, 127), (5, 1)]));
        assert_eq!(
            named(sums, |reason| name_in(&REASONS, reason)),
            BTreeMap::from([("halt".into(), 1), ("port".into(), 127)])
        );
    }

    #[test]
    fn histogram_by_thread_alone_is_one_sum() {
        let text = "{ common_pid:  5 } hitcount:  9\n{ common_pid:  6 } hitcount:  1\n";
        assert_eq!(sums(text, &[5, 6]).unwrap(), BTreeMap::from([(0, 10)]));
    }

    #[test]
    fn counts_that_were_dropped_are_an_error() {
        let text = HISTOGRAM.replace("Dropped: 0", "Dropped: 3");
        assert!(sums(&text, &[]).is_err());
    }

    #[test]
    fn numbers_without_a_name_stay_numbers() {
        assert_eq!(name_in(&SVM_EXITS, 0x404), "reason 0x404");
        assert_eq!((system_call(16), system_call(99_999)), ("ioctl".into(), "call 99999".into()));
    }
}
