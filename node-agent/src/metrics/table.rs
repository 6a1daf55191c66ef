//! The numbers of VMs, one row each: name, meaning, and where it comes from.
//!
//! Names, labels and meanings are KubeVirt's. A number that is not known is not told: no row makes a 0 of it.

use std::time::Duration;

use corten_link::{DiskCounters, GuestMemoryUse, NetworkCounters};
use corten_serving::metrics::{Kind, heading, sample};

use super::vm::Vm;

/// One number of each VM, or one of each disk, interface or vCPU that it has.
pub(super) struct Metric {
    pub(super) name: &'static str,
    help: &'static str,
    kind: Kind,
    /// Labels after node, namespace and name.
    pub(super) labels: &'static [&'static str],
    source: Source,
}

/// Where a number comes from.
enum Source {
    Vm(fn(&Vm) -> Vec<Reading>),
    /// What the guest said of its memory, if it did and that is fresh.
    Guest(fn(&GuestMemoryUse) -> Option<u64>),
}

/// Values of a metric's own labels, and the number.
type Reading = (Vec<String>, f64);

const DRIVE: &[&str] = &["drive"];
const INTERFACE: &[&str] = &["interface"];

pub(super) const METRICS: &[Metric] = &[
    counter(
        "kubevirt_vmi_cpu_usage_seconds_total",
        "CPU time of the VM process: vCPUs, devices and everything else.",
        &[],
        |vm| one(vm.cpu().map(|cpu| seconds(cpu.process_nanoseconds))),
    ),
    counter(
        "kubevirt_vmi_vcpu_seconds_total",
        "CPU time of each vCPU, in the guest and on its behalf. The only state is running.",
        &["id", "state"],
        |vm| {
            let reading =
                |(id, time): (u32, u64)| (vec![id.to_string(), "running".into()], seconds(time));
            vm.vcpus().map(reading).collect()
        },
    ),
    gauge("kubevirt_vmi_memory_domain_bytes", "Memory that the guest was given.", |vm| {
        one(vm.info().map(|info| number(info.memory)))
    }),
    gauge(
        "kubevirt_vmi_memory_resident_bytes",
        "Guest memory that takes room on the host.",
        |vm| one(vm.memory().map(|memory| number(memory.allocated))),
    ),
    gauge(
        "kubevirt_vmi_memory_actual_balloon_bytes",
        "Memory that the balloon leaves the guest.",
        |vm| {
            let left = |info: &corten_link::Info| {
                Some(info.memory.saturating_sub(vm.memory()?.balloon_actual))
            };
            one(vm.info().and_then(left).map(number))
        },
    ),
    guest("kubevirt_vmi_memory_available_bytes", "Memory that the guest sees.", |said| said.total),
    guest("kubevirt_vmi_memory_unused_bytes", "Memory that the guest uses for nothing.", |said| {
        said.free
    }),
    guest(
        "kubevirt_vmi_memory_usable_bytes",
        "Memory that the guest could have without swapping.",
        |said| said.available,
    ),
    guest(
        "kubevirt_vmi_memory_cached_bytes",
        "Memory of the guest that holds files and could be had at once.",
        |said| said.caches,
    ),
    guest_counter(
        "kubevirt_vmi_memory_pgmajfault_total",
        "Page faults in the guest that waited for a disk.",
        |said| said.major_faults,
    ),
    guest_counter(
        "kubevirt_vmi_memory_pgminfault_total",
        "Page faults in the guest that waited for none.",
        |said| said.minor_faults,
    ),
    guest(
        "kubevirt_vmi_memory_swap_in_traffic_bytes",
        "Bytes that the guest read back from swap.",
        |said| said.swap_in,
    ),
    guest(
        "kubevirt_vmi_memory_swap_out_traffic_bytes",
        "Bytes that the guest wrote to swap.",
        |said| said.swap_out,
    ),
    gauge(
        "kubevirt_vmi_launcher_memory_overhead_bytes",
        "Memory that the Pod is given beyond the guest's.",
        |vm| one(vm.overhead.map(number)),
    ),
    counter(
        "kubevirt_vmi_storage_iops_read_total",
        "Reads of a disk that succeeded.",
        DRIVE,
        |vm| drives(vm, |disk| disk.reads),
    ),
    counter(
        "kubevirt_vmi_storage_iops_write_total",
        "Writes to a disk that succeeded.",
        DRIVE,
        |vm| drives(vm, |disk| disk.writes),
    ),
    counter(
        "kubevirt_vmi_storage_read_traffic_bytes_total",
        "Bytes read from a disk.",
        DRIVE,
        |vm| drives(vm, |disk| disk.read_bytes),
    ),
    counter(
        "kubevirt_vmi_storage_write_traffic_bytes_total",
        "Bytes written to a disk.",
        DRIVE,
        |vm| drives(vm, |disk| disk.written_bytes),
    ),
    counter(
        "kubevirt_vmi_storage_flush_requests_total",
        "Flushes of a disk that succeeded.",
        DRIVE,
        |vm| drives(vm, |disk| disk.flushes),
    ),
    counter(
        "corten_vmi_storage_errors_total",
        "Requests to a disk that the host failed.",
        DRIVE,
        |vm| drives(vm, |disk| disk.errors),
    ),
    counter(
        "kubevirt_vmi_network_receive_bytes_total",
        "Bytes that the guest received.",
        INTERFACE,
        |vm| frames(vm, |network| network.received_bytes),
    ),
    counter(
        "kubevirt_vmi_network_transmit_bytes_total",
        "Bytes that the guest sent.",
        INTERFACE,
        |vm| frames(vm, |network| network.transmitted_bytes),
    ),
    counter(
        "kubevirt_vmi_network_receive_packets_total",
        "Frames that the guest received.",
        INTERFACE,
        |vm| frames(vm, |network| network.received),
    ),
    counter(
        "kubevirt_vmi_network_transmit_packets_total",
        "Frames that the guest sent.",
        INTERFACE,
        |vm| frames(vm, |network| network.transmitted),
    ),
    counter(
        "kubevirt_vmi_network_receive_packets_dropped_total",
        "Frames for the guest that it did not get.",
        INTERFACE,
        |vm| frames(vm, |network| network.receive_dropped),
    ),
    counter(
        "kubevirt_vmi_network_transmit_packets_dropped_total",
        "Frames of the guest that the host did not take.",
        INTERFACE,
        |vm| frames(vm, |network| network.transmit_dropped),
    ),
    counter(
        "kubevirt_vmi_network_receive_errors_total",
        "Times that frames for the guest could not be read.",
        INTERFACE,
        |vm| frames(vm, |network| network.receive_errors),
    ),
    counter(
        "corten_vmi_exits_total",
        "Times that a vCPU left the guest for the VM process.",
        &["reason"],
        |vm| {
            let Some(counted) = vm.counters() else { return Vec::new() };
            let reasons = [
                ("port", counted.port_exits),
                ("memory", counted.memory_exits),
                ("kick", counted.kicks),
            ];
            reasons.map(|(reason, exits)| (vec![reason.into()], number(exits))).into()
        },
    ),
    gauge(
        "corten_vmi_launcher_answering",
        "1 if the VM's launcher answered just now, 0 if it did not.",
        |vm| one(Some(f64::from(u8::from(vm.answer.is_some())))),
    ),
];

const fn counter(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    read: fn(&Vm) -> Vec<Reading>,
) -> Metric {
    Metric { name, help, kind: Kind::Counter, labels, source: Source::Vm(read) }
}

const fn gauge(name: &'static str, help: &'static str, read: fn(&Vm) -> Vec<Reading>) -> Metric {
    Metric { name, help, kind: Kind::Gauge, labels: &[], source: Source::Vm(read) }
}

const fn guest(
    name: &'static str,
    help: &'static str,
    read: fn(&GuestMemoryUse) -> Option<u64>,
) -> Metric {
    Metric { name, help, kind: Kind::Gauge, labels: &[], source: Source::Guest(read) }
}

const fn guest_counter(
    name: &'static str,
    help: &'static str,
    read: fn(&GuestMemoryUse) -> Option<u64>,
) -> Metric {
    Metric { name, help, kind: Kind::Counter, labels: &[], source: Source::Guest(read) }
}

fn one(value: Option<f64>) -> Vec<Reading> {
    value.map(|value| (Vec::new(), value)).into_iter().collect()
}

fn drives(vm: &Vm, read: fn(&DiskCounters) -> u64) -> Vec<Reading> {
    vm.disks().map(|(name, disk)| (vec![name.to_owned()], number(read(disk)))).collect()
}

fn frames(vm: &Vm, read: fn(&NetworkCounters) -> u64) -> Vec<Reading> {
    let known = vm.interfaces();
    known.map(|(name, network)| (vec![name.to_owned()], number(read(network)))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows no other numbers")]
fn number(value: u64) -> f64 {
    value as f64
}

fn seconds(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64()
}

impl Metric {
    fn read(&self, vm: &Vm) -> Vec<Reading> {
        match self.source {
            Source::Vm(read) => read(vm),
            Source::Guest(read) => one(vm.guest().and_then(read).map(number)),
        }
    }

    fn write(&self, text: &mut String, node: &str, vms: &[Vm]) {
        heading(text, self.name, self.help, self.kind);
        for vm in vms {
            for (values, value) in self.read(vm) {
                let of_vm = [("node", node), ("namespace", &vm.namespace), ("name", &vm.name)];
                let own = self.labels.iter().copied().zip(values.iter().map(String::as_str));
                let labels: Vec<_> = of_vm.into_iter().chain(own).collect();
                sample(text, self.name, &labels, value);
            }
        }
    }
}

/// Writes every number of the VMs of `node`.
pub(super) fn write(text: &mut String, node: &str, vms: &[Vm]) {
    METRICS.iter().for_each(|metric| metric.write(text, node, vms));
}
