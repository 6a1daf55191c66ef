//! VMI -> machine: a pure function, so that the same object always gives the same machine.
//!
//! What only the host knows (what a volume turned out to be, which address an interface has) comes as [`Resolved`]. In a Pod and
//! on a host without a cluster it is found out in different ways; the machine is made of it here, for both.
//!
//! | VMI | machine |
//! |---|---|
//! | `cpu`, `resources`, `memory` | sockets, cores, threads; memory in whole pages |
//! | `disks`, in their order, then volumes that none names | virtio-blk, whatever the bus; CD-ROMs are only read |
//! | `interfaces` in their order | virtio-net |
//! | `rng`; `autoattachMemBalloon`; `autoattachVSOCK` | entropy device; balloon unless it says no; socket device |
//! | always | console device with the guest agent's stream |

mod disks;
mod uuid;

#[cfg(test)]
mod served;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use corten_link::launcher::ConnectedInterface;
use corten_link::{
    Addressing, BalloonDescription, ConsoleDescription, EntropyHost, ImageFormat,
    MachineDescription, NetworkDescription, NetworkHost, Role, VsockDescription,
};
use corten_resources::machine::Topology;
use corten_resources::served::Scope;
use corten_resources::types::{VirtualMachineInstance, VirtualMachineInstanceSpec};
use corten_resources::validate::{Finding, can_run, check_annotations, validate};
use thiserror::Error;

pub use self::disks::disks;
pub use self::uuid::uuid;
pub(crate) use self::uuid::uuid_text;

/// Guests have whole pages; a size such as `1G` is cut to them.
const PAGE: u64 = 4096;
/// The stream on which a guest's agent listens, by the name under which it looks for it.
pub const AGENT_STREAM: &str = "org.qemu.guest_agent.0";
/// The interface of a VMI that names none, and does not want none.
pub const DEFAULT_INTERFACE: &str = "default";

/// What the host knows of a VMI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Volumes by name.
    pub disks: BTreeMap<String, DiskPlace>,
    /// Interfaces by name.
    pub interfaces: BTreeMap<String, InterfacePlace>,
    /// The guest's address on the socket device, if it has one.
    pub guest_cid: Option<u32>,
}

/// What a volume turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskPlace {
    /// What it is made of; nothing if it is one raw file or block device.
    pub images: Vec<ImageFormat>,
    /// It cannot be written to.
    pub read_only: bool,
    /// Bytes.
    pub size: u64,
    /// The smallest blocks that it can be had in.
    pub block_size: u32,
    /// The smallest blocks that it can be had in past the page cache; none if it cannot.
    pub direct: Option<u32>,
}

/// What an interface is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfacePlace {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// How many queue pairs its TAP has.
    pub pairs: u16,
    /// The largest packet that gets through; none to leave it to the guest.
    pub mtu: Option<u16>,
    /// What the guest is told of its addresses; none for nothing.
    pub addressing: Option<Addressing>,
}

impl From<ConnectedInterface> for InterfacePlace {
    fn from(connected: ConnectedInterface) -> Self {
        let ConnectedInterface { mac, pairs, mtu, addressing } = connected;
        Self { mac, pairs, mtu: Some(mtu), addressing }
    }
}

/// A machine, and what it boots from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// For the VM process.
    pub machine: MachineDescription,
    /// The kernel to start; none if the guest's disks are to be looked at.
    pub kernel: Option<KernelPaths>,
    /// Its vCPUs wait to be told to go.
    pub start_paused: bool,
    /// Between the power button and the end by force.
    pub grace_period: Duration,
    /// What the guest writes to its serial console is logged.
    pub log_serial_console: bool,
}

/// What a kernel is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelPaths {
    /// Path of the kernel in the image.
    pub kernel: String,
    /// Path of the initial RAM disk in the image.
    pub initrd: Option<String>,
}

/// Why a VMI gives no machine: findings, each with the path of its field.
///
/// The operator has looked at the object before; but it may be newer than this launcher.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{}", texts(.0))]
pub struct PlanError(Vec<Finding>);

fn texts(findings: &[Finding]) -> String {
    let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

impl PlanError {
    /// The findings.
    pub fn findings(&self) -> &[Finding] {
        &self.0
    }
}

impl From<Finding> for PlanError {
    fn from(finding: Finding) -> Self {
        Self(vec![finding])
    }
}

/// Whether everything in a VMI is served there; what its user should know all the same. To be asked before anything is opened
/// or made for it.
pub fn check(vmi: &VirtualMachineInstance, scope: Scope) -> Result<Vec<Finding>, PlanError> {
    let mut findings = validate(&vmi.spec, scope);
    findings.extend(check_annotations("metadata.annotations", &vmi.metadata.annotations));
    if !can_run(&findings) {
        findings.retain(Finding::is_refusal);
        return Err(PlanError(findings));
    }
    Ok(findings)
}

/// The machine that a VMI wants, of what the host has for it.
pub fn plan(vmi: &VirtualMachineInstance, resolved: &Resolved) -> Result<Plan, PlanError> {
    let spec = &vmi.spec;
    let topology = spec.topology()?;
    // Without a kernel of its own it boots from its disks, if from anything.
    let kernel = spec.kernel_boot()?;
    let firmware = spec.domain.firmware.as_ref();
    let balloon = BalloonDescription { deflate_on_oom: true, reporting: true };
    let machine = MachineDescription {
        memory: spec.guest_memory()? / PAGE * PAGE,
        sockets: topology.sockets,
        cores: topology.cores,
        threads: topology.threads,
        command_line: kernel.map(|kernel| kernel.args.into()).unwrap_or_default(),
        uuid: uuid(vmi)?,
        serial: firmware.and_then(|firmware| firmware.serial.clone()).unwrap_or_default(),
        huge_pages: false,
        boot_order: if kernel.is_some() { Vec::new() } else { disks::boot_order(spec) },
        disks: disks::describe(spec, topology, &resolved.disks)?,
        networks: networks(spec, &resolved.interfaces)?,
        console: Some(ConsoleDescription { streams: vec![AGENT_STREAM.into()] }),
        entropy: spec.wants_entropy().then(EntropyHost::default),
        balloon: spec.wants_balloon().then_some(balloon),
        vsock: vsock(spec, resolved)?,
    };
    let kernel = kernel.map(|kernel| KernelPaths {
        kernel: kernel.path.into(),
        initrd: kernel.initrd_path.map(Into::into),
    });
    Ok(Plan {
        machine,
        kernel,
        start_paused: spec.starts_paused(),
        grace_period: spec.grace_period(),
        log_serial_console: spec.log_serial_console(),
    })
}

fn networks(
    spec: &VirtualMachineInstanceSpec,
    places: &BTreeMap<String, InterfacePlace>,
) -> Result<Vec<NetworkDescription>, Finding> {
    const PATH: &str = "spec.domain.devices.interfaces";
    let interfaces = &spec.domain.devices.interfaces;
    let mut names: Vec<(String, &str)> = Vec::new();
    for (number, interface) in interfaces.iter().enumerate() {
        if interface.state.as_deref() != Some("absent") {
            names.push((format!("{PATH}[{number}]"), interface.name.as_str()));
        }
    }
    // Whoever connects interfaces has decided whether there is one that nobody named.
    if interfaces.is_empty() && places.contains_key(DEFAULT_INTERFACE) {
        names.push((PATH.into(), DEFAULT_INTERFACE));
    }
    let mut taken = BTreeSet::new();
    let mut describe = |(path, name): (String, &str)| {
        let Some(place) = places.get(name) else {
            return Err(Finding::invalid(path, format!("interface {name:?} was not connected")));
        };
        Ok(NetworkDescription {
            name: segment(&path, name, &mut taken)?,
            mac: place.mac,
            mtu: place.mtu,
            pairs: place.pairs,
            host: NetworkHost { addressing: place.addressing.clone(), ..NetworkHost::default() },
        })
    };
    names.into_iter().map(&mut describe).collect()
}

fn vsock(
    spec: &VirtualMachineInstanceSpec,
    resolved: &Resolved,
) -> Result<Option<VsockDescription>, Finding> {
    if !spec.wants_vsock() {
        return Ok(None);
    }
    let guest_cid = resolved.guest_cid.filter(|cid| *cid >= 3);
    let missing = || {
        Finding::invalid("spec.domain.devices.autoattachVSOCK", "the guest was given no address")
    };
    Ok(Some(VsockDescription { guest_cid: guest_cid.ok_or_else(missing)? }))
}

/// What stands for a name in roles. No two are the same.
fn segment(path: &str, name: &str, taken: &mut BTreeSet<String>) -> Result<String, Finding> {
    if name.is_empty() {
        return Err(Finding::missing(format!("{path}.name"), "it has no name"));
    }
    let segment = Role::segment(name);
    if !taken.insert(segment.clone()) {
        return Err(Finding::invalid(format!("{path}.name"), format!("{name:?} is there twice")));
    }
    Ok(segment)
}

/// How many vCPUs, where that is a number of queues.
fn queues(topology: Topology) -> u16 {
    u16::try_from(topology.vcpus()).unwrap_or(1)
}
