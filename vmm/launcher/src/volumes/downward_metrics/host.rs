//! What the kernel says of a node and of a VM process.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Context, Metric, Value};

/// The unit in which the kernel tells times to programs: 1/100 s on every architecture that Corten runs on.
const TICKS: u64 = 100;
/// How many processors are looked at.
const MAX_PROCESSORS: usize = 8192;
/// Nothing that is read is longer.
const MAX_FILE: usize = 4 << 20;

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

/// What the kernel tells is read from files that are opened once: whoever has locked itself in can go on.
#[derive(Debug)]
pub struct Collector {
    host: HostFacts,
    vm: VmFacts,
    packages: Option<u64>,
    process: Option<File>,
    processors: Option<File>,
    memory: Option<File>,
    paging: Option<File>,
}

impl Collector {
    /// Of this node.
    pub fn new(host: HostFacts, vm: VmFacts) -> Self {
        Self::of(Path::new("/"), host, vm)
    }

    fn of(root: &Path, host: HostFacts, vm: VmFacts) -> Self {
        let open = |path: &str| File::open(root.join(path)).ok();
        Self {
            packages: packages(root),
            process: open(&format!("proc/{}/stat", vm.process)),
            processors: open("proc/stat"),
            memory: open("proc/meminfo"),
            paging: open("proc/vmstat"),
            host,
            vm,
        }
    }

    /// All that can be told now. What cannot be read is left out: a guest rather sees no number than a wrong one.
    pub fn collect(&self) -> Vec<Metric> {
        let text = |name, text: &str| Some(of_host(name, "", Value::Text(text.into())));
        let of_vm = |name, unit, value| Metric { context: Context::Vm, name, unit, value };
        let kibibytes = |name, bytes: u64| Some(of_vm(name, "KiB", Value::Count(bytes >> 10)));
        let time = process_ticks(&anew(self.process.as_ref()));
        let busy = busy_ticks(&anew(self.processors.as_ref()));
        let packages = self.packages.map(Value::Count);
        let metrics = [
            text("HostName", &self.host.name),
            text("HostSystemInfo", "linux"),
            text("VirtualizationVendor", "kubevirt.io"),
            text("VirtProductInfo", &self.host.product),
            time.map(|ticks| of_vm("TotalCPUTime", "s", seconds(ticks))),
            Some(of_vm("ResourceProcessorLimit", "", Value::Count(self.vm.vcpus))),
            kibibytes("PhysicalMemoryAllocatedToVirtualSystem", self.vm.memory),
            kibibytes("ResourceMemoryLimit", self.vm.memory_limit),
            packages.map(|count| of_host("NumberOfPhysicalCPUs", "", count)),
            busy.map(|ticks| of_host("TotalCPUTime", "s", seconds(ticks))),
        ];
        let mut metrics: Vec<Metric> = metrics.into_iter().flatten().collect();
        metrics.extend(memory(&anew(self.memory.as_ref())).unwrap_or_default());
        metrics.extend(paging(&anew(self.paging.as_ref())).unwrap_or_default());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map(|now| now.as_secs());
        if let Ok(Ok(now)) = now.map(i64::try_from) {
            metrics.push(of_host("Time", "s", Value::Time(now)));
        }
        metrics
    }
}

/// What a file of the kernel says now: it is written anew for who reads from its beginning.
fn anew(file: Option<&File>) -> String {
    let Some(file) = file else { return String::new() };
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    let mut place = 0;
    while let Ok(count @ 1..) = file.read_at(&mut piece, place) {
        bytes.extend(&piece[..count]);
        place += count as u64;
        if bytes.len() > MAX_FILE {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn of_host(name: &'static str, unit: &'static str, value: Value) -> Metric {
    Metric { context: Context::Host, name, unit, value }
}

fn seconds(ticks: u64) -> Value {
    let whole = u32::try_from(ticks / TICKS).unwrap_or(u32::MAX);
    let rest = u32::try_from(ticks % TICKS).unwrap_or(0);
    Value::Real(f64::from(whole) + f64::from(rest) / 100.0)
}

/// The time that a process was at work, with all threads that it has and had: also those of before a reset.
fn process_ticks(stat: &str) -> Option<u64> {
    // The name is in brackets and may have anything in it.
    let (_, fields) = stat.rsplit_once(") ")?;
    // Fields 14 and 15 of proc(5), counted from 3.
    let mut times = fields.split(' ').skip(11).map(|field| field.parse::<u64>().ok());
    Some(times.next()?? + times.next()??)
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
        write("proc/7/stat", "7 (corten) (vmm) S 1 1 1 0 -1 0 0 0 0 0 320 80 0 0 20 0\n");
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
        let metrics = Collector::of(node.path(), host, vm).collect();
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
        let metrics = Collector::of(root.path(), host, vm).collect();
        assert_eq!(metrics.len(), 8);
        assert_eq!(value(&metrics, Context::Vm, "TotalCPUTime"), None);
    }

    #[test]
    fn this_host_can_be_told_of() {
        let (host, vm) = facts();
        let metrics = Collector::new(host, vm).collect();
        assert!(value(&metrics, Context::Host, "FreePhysicalMemory").is_some());
        assert!(value(&metrics, Context::Host, "TotalCPUTime").is_some());
    }
}
