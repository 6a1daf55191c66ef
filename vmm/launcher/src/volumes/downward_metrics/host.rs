//! What the kernel says of a node and of a VM process.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Context, Metric, Value};

/// The unit in which the kernel tells times to programs: 1/100 s on every architecture that Corten runs on.
const TICKS: u64 = 100;
/// How many processors are looked at.
const MAX_PROCESSORS: usize = 8192;

/// What is known of the node beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// Its name.
    pub name: String,
    /// What runs the VM, and which version of it.
    pub product: String,
}

/// What is known of the VM beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmFacts {
    /// Its process.
    pub process: u32,
    /// How many vCPUs it has.
    pub vcpus: u64,
    /// Bytes of memory that the guest has now.
    pub memory: u64,
    /// Bytes of memory that it may have.
    pub memory_limit: u64,
}

/// All that can be told now. What cannot be read is left out: a guest rather sees no number than a wrong one.
pub fn collect(host: &HostFacts, vm: &VmFacts) -> Vec<Metric> {
    collect_in(Path::new("/"), host, vm)
}

fn collect_in(root: &Path, host: &HostFacts, vm: &VmFacts) -> Vec<Metric> {
    let text = |name, text: &str| Some(of_host(name, "", Value::Text(text.into())));
    let of_vm = |name, unit, value| Metric { context: Context::Vm, name, unit, value };
    let file = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let time = vcpu_ticks(&root.join(format!("proc/{}/task", vm.process)));
    let metrics = [
        text("HostName", &host.name),
        text("HostSystemInfo", "linux"),
        text("VirtualizationVendor", "kubevirt.io"),
        text("VirtProductInfo", &host.product),
        time.map(|ticks| of_vm("TotalCPUTime", "s", seconds(ticks))),
        Some(of_vm("ResourceProcessorLimit", "", Value::Count(vm.vcpus))),
        Some(of_vm("PhysicalMemoryAllocatedToVirtualSystem", "KiB", Value::Count(vm.memory >> 10))),
        Some(of_vm("ResourceMemoryLimit", "KiB", Value::Count(vm.memory_limit >> 10))),
        packages(root).map(|count| of_host("NumberOfPhysicalCPUs", "", Value::Count(count))),
        busy_ticks(&file("proc/stat")).map(|ticks| of_host("TotalCPUTime", "s", seconds(ticks))),
    ];
    let mut metrics: Vec<Metric> = metrics.into_iter().flatten().collect();
    metrics.extend(memory(&file("proc/meminfo")).unwrap_or_default());
    metrics.extend(paging(&file("proc/vmstat")).unwrap_or_default());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map(|now| now.as_secs());
    if let Ok(Ok(now)) = now.map(i64::try_from) {
        metrics.push(of_host("Time", "s", Value::Time(now)));
    }
    metrics
}

fn of_host(name: &'static str, unit: &'static str, value: Value) -> Metric {
    Metric { context: Context::Host, name, unit, value }
}

fn seconds(ticks: u64) -> Value {
    let whole = u32::try_from(ticks / TICKS).unwrap_or(u32::MAX);
    let rest = u32::try_from(ticks % TICKS).unwrap_or(0);
    Value::Real(f64::from(whole) + f64::from(rest) / 100.0)
}

/// The time that threads of vCPUs were at work.
fn vcpu_ticks(tasks: &Path) -> Option<u64> {
    let mut ticks = None;
    for task in fs::read_dir(tasks).ok()?.flatten() {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The name is in brackets and may have anything in it.
        let Some((name, fields)) = stat.rsplit_once(") ") else { continue };
        if !name.contains("(vcpu-") {
            continue;
        }
        // Fields 14 and 15 of proc(5), counted from 3.
        let times =
            fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
        *ticks.get_or_insert(0) += times.sum::<u64>();
    }
    ticks
}

/// The time that the node's processors worked for programs and the kernel.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let mut times = line.split_whitespace().map(|field| field.parse::<u64>().ok());
    // User, nice, system.
    Some(times.next()?? + times.next()?? + times.next()??)
}

/// How many packages its processors are in.
fn packages(root: &Path) -> Option<u64> {
    let processors = fs::read_dir(root.join("sys/devices/system/cpu")).ok()?.flatten();
    let package = |entry: fs::DirEntry| {
        fs::read_to_string(entry.path().join("topology/physical_package_id")).ok()
    };
    let mut packages: Vec<String> = processors.take(MAX_PROCESSORS).filter_map(package).collect();
    packages.sort_unstable();
    packages.dedup();
    u64::try_from(packages.len()).ok().filter(|count| *count > 0)
}

fn memory(meminfo: &str) -> Option<Vec<Metric>> {
    let field = |name| number(meminfo, name, ':');
    let free = field("MemFree")?;
    let (swap_free, swap) = (field("SwapFree").unwrap_or(0), field("SwapTotal").unwrap_or(0));
    let cached = field("Buffers").unwrap_or(0) + field("Cached").unwrap_or(0);
    let used = field("MemTotal")?.saturating_sub(free).saturating_sub(cached);
    let used_with_swap = (used + swap).saturating_sub(field("SwapCached").unwrap_or(0));
    let amounts = [
        ("FreePhysicalMemory", free),
        ("FreeVirtualMemory", free + swap_free),
        ("MemoryAllocatedToVirtualServers", used),
        ("UsedVirtualMemory", used_with_swap.saturating_sub(swap_free)),
    ];
    Some(amounts.map(|(name, amount)| of_host(name, "KiB", Value::Count(amount))).into())
}

fn paging(vmstat: &str) -> Option<Vec<Metric>> {
    /// Pages are of 4 KiB.
    const PAGE: u64 = 4;
    let field = |name| number(vmstat, name, ' ').map(|pages| Value::Count(pages * PAGE));
    let into = of_host("PagedInMemory", "KiB", field("pswpin")?);
    Some(vec![into, of_host("PagedOutMemory", "KiB", field("pswpout")?)])
}

/// The number behind a name at the beginning of a line.
fn number(text: &str, name: &str, separator: char) -> Option<u64> {
    let of_line = |line: &str| {
        let (found, rest) = line.split_once(separator)?;
        let value = rest.split_whitespace().next()?;
        if found == name { value.parse().ok() } else { None }
    };
    text.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> (HostFacts, VmFacts) {
        let host = HostFacts { name: "node-1".into(), product: "corten 0.1.0".into() };
        (host, VmFacts { process: 7, vcpus: 2, memory: 1 << 30, memory_limit: 2 << 30 })
    }

    fn value(metrics: &[Metric], context: Context, name: &str) -> Option<Value> {
        let found = metrics.iter().find(|metric| metric.context == context && metric.name == name);
        found.map(|metric| metric.value.clone())
    }

    /// A node of which the kernel says this much.
    fn node() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/stat", "cpu  100 20 30 999 1 2 3 0 0 0\ncpu0 1 2 3\n");
        write(
            "proc/meminfo",
            "MemTotal:  1000 kB\nMemFree:  400 kB\nBuffers:  50 kB\nCached:  150 kB\nSwapCached: 5 kB\nSwapTotal:  200 kB\nSwapFree: 120 kB\n",
        );
        write("proc/vmstat", "pgpgin 5\npswpin 3\npswpout 4\n");
        for (task, name, user, system) in
            [(7, "corten-vmm", 900, 900), (8, "vcpu-0", 120, 30), (9, "vcpu-1", 200, 50)]
        {
            let line = format!("{task} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {user} {system} 0 0 20 0\n");
            write(&format!("proc/7/task/{task}/stat"), &line);
        }
        for (cpu, package) in [(0, 0), (1, 0), (2, 1)] {
            write(
                &format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"),
                &format!("{package}\n"),
            );
        }
        write("sys/devices/system/cpu/online", "0-2\n");
        root
    }

    #[test]
    fn everything_that_a_node_says_is_told() {
        let (node, (host, vm)) = (node(), facts());
        let metrics = collect_in(node.path(), &host, &vm);
        let expected = [
            (Context::Host, "HostName", Value::Text("node-1".into())),
            (Context::Host, "VirtProductInfo", Value::Text("corten 0.1.0".into())),
            (Context::Vm, "TotalCPUTime", Value::Real(4.0)),
            (Context::Vm, "ResourceProcessorLimit", Value::Count(2)),
            (Context::Vm, "PhysicalMemoryAllocatedToVirtualSystem", Value::Count(1 << 20)),
            (Context::Vm, "ResourceMemoryLimit", Value::Count(2 << 20)),
            (Context::Host, "NumberOfPhysicalCPUs", Value::Count(2)),
            (Context::Host, "TotalCPUTime", Value::Real(1.5)),
            (Context::Host, "FreePhysicalMemory", Value::Count(400)),
            (Context::Host, "FreeVirtualMemory", Value::Count(520)),
            (Context::Host, "MemoryAllocatedToVirtualServers", Value::Count(400)),
            (Context::Host, "UsedVirtualMemory", Value::Count(475)),
            (Context::Host, "PagedInMemory", Value::Count(12)),
            (Context::Host, "PagedOutMemory", Value::Count(16)),
        ];
        for (context, name, expected) in expected {
            assert_eq!(value(&metrics, context, name), Some(expected), "{name}");
        }
        assert!(value(&metrics, Context::Host, "Time").is_some());
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let (root, (host, vm)) = (tempfile::tempdir().unwrap(), facts());
        let metrics = collect_in(root.path(), &host, &vm);
        assert_eq!(metrics.len(), 8);
        assert_eq!(value(&metrics, Context::Vm, "TotalCPUTime"), None);
    }

    #[test]
    fn this_host_can_be_told_of() {
        let (host, vm) = facts();
        let metrics = collect(&host, &vm);
        assert!(value(&metrics, Context::Host, "FreePhysicalMemory").is_some());
        assert!(value(&metrics, Context::Host, "TotalCPUTime").is_some());
    }
}
