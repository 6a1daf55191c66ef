//! From an object and a launcher's answer to text.

use corten_link::{
    Counters, CpuCounters, DiskCounters, GuestMemoryUse, Info, Memory, NetworkCounters, Role,
    RunState,
};
use corten_resources::types::VirtualMachineInstance;
use serde_json::json;

use super::*;

const MIB: u64 = 1 << 20;

fn vmi() -> VirtualMachineInstance {
    serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": "v", "uid": "u"},
        "spec": {"domain": {
            "cpu": {"sockets": 2},
            "devices": {
                "disks": [{"name": "root"}, {"name": "Data_1"}],
                "interfaces": [{"name": "Net_1", "masquerade": {}}],
            },
        }},
        "status": {"phase": "Running", "memory": {"memoryOverhead": "18Mi"}},
    }))
    .unwrap()
}

fn answer() -> VmAnswer {
    let info = Info {
        machine_version: 1,
        state: RunState::Running,
        vcpus: 2,
        memory: 512 * MIB,
        resets: 0,
        open_ports: Vec::new(),
        boot: None,
        button_waits: false,
    };
    let disk = |reads| DiskCounters { reads, read_bytes: 4096, ..DiskCounters::default() };
    let network =
        NetworkCounters { received: 3, received_bytes: 300, ..NetworkCounters::default() };
    let cpu = CpuCounters {
        process_nanoseconds: 2_500_000_000,
        vcpu_nanoseconds: vec![(0, 1_500_000_000), (1, 500_000_000), (7, 1)],
    };
    let counters = Counters {
        cpu: Some(cpu),
        disks: [(Role::segment("root"), disk(5)), (Role::segment("Data_1"), disk(6))].into(),
        networks: [(Role::segment("Net_1"), network)].into(),
        ..Counters::default()
    };
    let guest = GuestMemoryUse { age: 5_000, free: Some(100 * MIB), ..GuestMemoryUse::default() };
    let memory = Memory {
        allocated: 200 * MIB,
        balloon_target: 0,
        balloon_actual: 12 * MIB,
        guest: Some(guest),
    };
    VmAnswer { info, counters, memory }
}

/// Samples of the VM, without what is before the names of the metrics' own labels.
fn told(vm: Vm) -> Vec<String> {
    let text = text("node1", true, &[vm]);
    let of_vm = "node=\"node1\",namespace=\"n\",name=\"v\"";
    text.lines()
        .filter(|line| !line.starts_with('#') && line.contains(of_vm))
        .map(|line| line.replace(&format!("{of_vm},"), "").replace(&format!("{{{of_vm}}}"), ""))
        .collect()
}

fn has(lines: &[String], line: &str) -> bool {
    lines.iter().any(|found| found == line)
}

#[test]
fn numbers_have_kubevirt_s_names_and_the_object_s_words() {
    let lines = told(Vm::of(&vmi()).answered(answer()));
    for line in [
        "kubevirt_vmi_cpu_usage_seconds_total 2.5",
        "kubevirt_vmi_vcpu_seconds_total{id=\"0\",state=\"running\"} 1.5",
        "kubevirt_vmi_vcpu_seconds_total{id=\"1\",state=\"running\"} 0.5",
        "kubevirt_vmi_memory_domain_bytes 536870912",
        "kubevirt_vmi_memory_resident_bytes 209715200",
        "kubevirt_vmi_memory_actual_balloon_bytes 524288000",
        "kubevirt_vmi_memory_unused_bytes 104857600",
        "kubevirt_vmi_launcher_memory_overhead_bytes 18874368",
        "kubevirt_vmi_storage_iops_read_total{drive=\"Data_1\"} 6",
        "kubevirt_vmi_storage_iops_read_total{drive=\"root\"} 5",
        "kubevirt_vmi_network_receive_bytes_total{interface=\"Net_1\"} 300",
        "corten_vmi_launcher_answering 1",
    ] {
        assert!(has(&lines, line), "{line} is not in {lines:#?}");
    }
}

#[test]
fn what_is_not_known_is_not_told() {
    let absent = |vm: Vm, name: &str| {
        let lines = told(vm);
        assert!(!lines.iter().any(|line| line.starts_with(name)), "{name} is in {lines:#?}");
    };
    let vm = |change: fn(&mut VmAnswer)| {
        let mut answer = answer();
        change(&mut answer);
        Vm::of(&vmi()).answered(answer)
    };
    absent(vm(|_| {}), "kubevirt_vmi_memory_usable_bytes");
    absent(vm(|answer| answer.counters.cpu = None), "kubevirt_vmi_cpu_usage_seconds_total");
    absent(vm(|answer| answer.counters.cpu = None), "kubevirt_vmi_vcpu_seconds_total");
    let stale = |answer: &mut VmAnswer| {
        answer.memory.guest.as_mut().unwrap().age = 61_000;
    };
    absent(vm(stale), "kubevirt_vmi_memory_unused_bytes");
    let by_kernel = |answer: &mut VmAnswer| {
        answer.counters.networks.values_mut().for_each(|network| network.by_kernel = true);
    };
    absent(vm(by_kernel), "kubevirt_vmi_network_");
}

#[test]
fn launcher_that_says_nothing_leaves_what_the_object_says() {
    assert_eq!(
        told(Vm::of(&vmi())),
        ["kubevirt_vmi_launcher_memory_overhead_bytes 18874368", "corten_vmi_launcher_answering 0"]
    );
}

#[test]
fn launcher_has_no_series_beyond_what_its_object_has() {
    let mut hostile = answer();
    for number in 0..1000 {
        hostile.counters.disks.insert(format!("d{number}"), DiskCounters::default());
        hostile.counters.networks.insert(format!("n{number}"), NetworkCounters::default());
        hostile.counters.cpu.as_mut().unwrap().vcpu_nanoseconds.push((100 + number, 1));
        hostile.counters.cpu.as_mut().unwrap().vcpu_nanoseconds.push((1, 500_000_000));
    }
    let honest = told(Vm::of(&vmi()).answered(answer()));
    assert_eq!(told(Vm::of(&vmi()).answered(hostile)), honest);
}

#[test]
fn interface_that_nobody_named_is_the_default_one() {
    let mut object = vmi();
    object.spec.domain.devices.interfaces.clear();
    let mut answer = answer();
    answer.counters.networks = [("default".into(), NetworkCounters::default())].into();
    let lines = told(Vm::of(&object).answered(answer));
    assert!(has(&lines, "kubevirt_vmi_network_receive_bytes_total{interface=\"default\"} 0"));
}

#[test]
fn every_name_is_in_the_docs_and_every_name_of_the_docs_is_told() {
    let page = include_str!("../../../docs/metrics.md");
    let (_, page) = page.split_once("\n## Node agents\n").unwrap();
    let told = text("node1", true, &[]);
    let names: Vec<_> =
        told.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for name in &names {
        assert!(page.contains(&format!("| `{name}` |")), "docs/metrics.md lacks {name}");
    }
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let name = line.split('`').nth(1).unwrap();
        assert!(names.contains(&name), "docs/metrics.md has {name}, which nobody tells");
    }
}
