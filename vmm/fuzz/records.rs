//! Any bytes either are a records file that can be written and read again, or are refused. So are any parts under a good checksum,
//! which no random bytes would have: a file may be damaged, or made to do harm.
#![no_main]

use std::sync::LazyLock;

use corten_devices::Records;
use corten_vmm::arch::x86_64::cpuid::ProcessorName;
use corten_vmm::arch::x86_64::topology::Topology;
use corten_vmm::machine::{HostProcessor, Identification, MACHINE_VERSION, MachineSpec, plan};
use corten_vmm::snapshot::{BootSizes, Header, Snapshot, SnapshotId, open, seal};
use libfuzzer_sys::fuzz_target;

const ID: SnapshotId = SnapshotId([7; 16]);

/// The parts of a good one.
static PARTS: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    let leaf =
        kvm_bindings::kvm_cpuid_entry2 { function: 0x8000_0008, eax: 40, ..Default::default() };
    let name = ProcessorName::default();
    let host = HostProcessor { cpuid: vec![leaf], name, tsc_khz: 2_000_000 };
    let spec = MachineSpec {
        memory: 32 << 20,
        topology: Topology { sockets: 1, cores: 1, threads: 1 },
        identity: Identification::default(),
        devices: Vec::new(),
    };
    let good = Snapshot {
        id: ID,
        blueprint: plan(&spec, &host).expect("a machine can be this small"),
        records: Records::default(),
        command_line: String::new(),
        boot: Some(BootSizes { kernel: 1, initrd: None }),
        boot_order: Vec::new(),
        found: None,
        disks: Vec::new(),
    };
    let bytes = good.encode().expect("it is small");
    let (_, parts) = open(&bytes).expect("it was just made");
    parts.into_iter().map(|(name, content)| (name.to_owned(), content.to_vec())).collect()
});

fn check(bytes: &[u8]) {
    if let Ok(snapshot) = Snapshot::decode(bytes) {
        let again = snapshot.encode().expect("what was read can be written");
        // Not equal in all: numbers with a fraction, which no record has, may differ in their last digit.
        assert_eq!(Snapshot::decode(&again).expect("and read").blueprint, snapshot.blueprint);
    }
}

fuzz_target!(|input: (u8, &[u8])| {
    let (kind, bytes) = input;
    let mut parts = PARTS.clone();
    match kind % 4 {
        0 => return check(bytes),
        1 => parts[0].1 = bytes.to_vec(),
        2 => parts[1].1 = bytes.to_vec(),
        _ => parts.push(("record".into(), bytes.to_vec())),
    }
    let header = Header { machine_version: MACHINE_VERSION.into(), id: ID };
    check(&seal(header, &parts).expect("it is small"));
});
