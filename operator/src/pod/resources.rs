//! What a launcher Pod asks of its node.

use crate::Settings;
use corten_resources::Quantity;
use corten_resources::machine::Source;
use corten_resources::names::KVM_RESOURCE;
use corten_resources::types::VirtualMachineInstanceSpec;
use corten_resources::validate::Finding;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as PodQuantity;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// What a Pod with scratch is counted with, as KubeVirt's: what the guest will write nobody knows.
const LEAST_SCRATCH: &str = "50M";

/// Memory beyond the guest's that a launcher may need, in whole MiB.
///
/// - 16 MiB: launcher and VMM (3 to 5 MiB resident, measured), their buffers, and the kernel's side of both.
/// - Page tables, which are charged to the Pod: with 4 KiB pages 8 bytes for each 4096 of guest memory in the process
///   and the same again in KVM, so 1/256.
/// - 256 KiB for a vCPU: its state in KVM, its thread's stacks, the page it shares with KVM.
/// - 1 MiB for a disk: its queues, rings and worker, and what an image's format keeps in memory.
/// - 2 MiB more for a disk that the launcher makes in memory: as much as a ConfigMap or Secret has, twice while it is made.
/// - What the user adds: `reservedOverhead.addedOverhead`.
pub fn memory_overhead(spec: &VirtualMachineInstanceSpec) -> Result<u64, Finding> {
    let (guest, vcpus) = (spec.guest_memory()?, spec.topology()?.vcpus());
    let disks = spec.volumes.len() as u64;
    let in_memory = spec.volumes.iter().filter(|volume| volume.source().is_some_and(is_in_memory));
    let in_memory = in_memory.count() as u64;
    let memory = spec.domain.memory.as_ref();
    let reserved = memory.and_then(|memory| memory.reserved_overhead.as_ref());
    let added = reserved.and_then(|reserved| reserved.added_overhead.as_ref());
    let added = added.map(|amount| {
        let path = "spec.domain.memory.reservedOverhead.addedOverhead";
        amount.units().map_err(|error| Finding::invalid(path, error.to_string()))
    });
    let bytes = [
        16 * MIB,
        guest / 256,
        u64::from(vcpus) * (MIB / 4),
        disks.saturating_mul(MIB),
        in_memory.saturating_mul(2 * MIB),
        added.transpose()?.unwrap_or(0),
    ];
    let bytes = bytes.into_iter().fold(0, u64::saturating_add);
    Ok(bytes.div_ceil(MIB).saturating_mul(MIB))
}

fn is_in_memory(source: Source<'_>) -> bool {
    matches!(
        source,
        Source::CloudInitConfigDrive(_)
            | Source::CloudInitNoCloud(_)
            | Source::ConfigMap(_)
            | Source::DownwardApi(_)
            | Source::DownwardMetrics(_)
            | Source::Secret(_)
            | Source::ServiceAccount(_)
            | Source::Sysprep(_)
    )
}

/// Requests and limits of the container. The user's own count for the guest, so the overhead comes on top of them.
pub(super) fn of_container(
    spec: &VirtualMachineInstanceSpec,
    settings: &Settings,
    has_scratch: bool,
) -> Result<core::ResourceRequirements, Finding> {
    let guest = spec.guest_memory()?;
    let overhead = memory_overhead(spec)?;
    let user = spec.domain.resources.clone().unwrap_or_default();

    let mut requests = BTreeMap::from([(KVM_RESOURCE.to_owned(), PodQuantity("1".to_owned()))]);
    let mut limits = requests.clone();
    let kept = match user.requests.get("memory") {
        Some(amount) => bytes("requests", amount)?,
        None => guest,
    };
    // Whoever says so lets the scheduler believe that the guest is all there is; the limit must hold the whole.
    let requested = if user.overcommit_guest_overhead == Some(true) { 0 } else { overhead };
    requests.insert("memory".to_owned(), memory(kept, requested));
    if let Some(limit) = user.limits.get("memory") {
        limits.insert("memory".to_owned(), memory(bytes("limits", limit)?, overhead));
    }
    let cpu = match user.requests.get("cpu") {
        Some(amount) => amount.to_string(),
        None => share(spec.topology()?.vcpus(), settings.cpu_allocation_ratio),
    };
    requests.insert("cpu".to_owned(), PodQuantity(cpu));
    if let Some(limit) = user.limits.get("cpu") {
        limits.insert("cpu".to_owned(), PodQuantity(limit.to_string()));
    }
    if has_scratch {
        requests.insert(EPHEMERAL_STORAGE.to_owned(), PodQuantity(LEAST_SCRATCH.to_owned()));
    }
    for (users, ours) in [(&user.requests, &mut requests), (&user.limits, &mut limits)] {
        if let Some(amount) = users.get(EPHEMERAL_STORAGE) {
            ours.insert(EPHEMERAL_STORAGE.to_owned(), PodQuantity(amount.to_string()));
        }
    }
    Ok(core::ResourceRequirements {
        limits: Some(limits),
        requests: Some(requests),
        ..Default::default()
    })
}

/// What is kept of processors for so many vCPUs, `ratio` of which share one.
fn share(vcpus: u32, ratio: u32) -> String {
    let millis = (u64::from(vcpus) * 1000).div_ceil(u64::from(ratio.max(1)));
    format!("{}m", millis.max(1))
}

fn bytes(list: &str, amount: &Quantity) -> Result<u64, Finding> {
    let path = || format!("spec.domain.resources.{list}.memory");
    amount.units().map_err(|error| Finding::invalid(path(), error.to_string()))
}

fn memory(base: u64, overhead: u64) -> PodQuantity {
    PodQuantity(Quantity::of_bytes(base.saturating_add(overhead)).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(memory: &Value, cores: u32, volumes: &Value) -> VirtualMachineInstanceSpec {
        let domain = json!({ "memory": memory, "cpu": { "cores": cores } });
        serde_json::from_value(json!({ "domain": domain, "volumes": volumes })).unwrap()
    }

    #[test]
    fn the_overhead_is_fixed_plus_page_tables_plus_vcpus() {
        let table =
            [("1Mi", 1, 17), ("256Mi", 1, 18), ("1Gi", 1, 21), ("1Gi", 4, 21), ("64Gi", 64, 288)];
        for (guest, cores, mib) in table {
            let spec = spec(&json!({ "guest": guest }), cores, &json!([]));
            assert_eq!(memory_overhead(&spec), Ok(mib * MIB), "{guest} {cores}");
        }
    }

    #[test]
    fn disks_and_what_the_user_adds_come_on_top() {
        let volumes = json!([
            { "name": "a", "persistentVolumeClaim": { "claimName": "a" } },
            { "name": "b", "cloudInitNoCloud": { "userData": "x" } },
        ]);
        let memory = json!({ "guest": "256Mi", "reservedOverhead": { "addedOverhead": "100Mi" } });
        assert_eq!(memory_overhead(&spec(&memory, 1, &volumes)), Ok((18 + 2 + 2 + 100) * MIB));
        let wrong = json!({ "guest": "256Mi", "reservedOverhead": { "addedOverhead": "some" } });
        let finding = memory_overhead(&spec(&wrong, 1, &json!([]))).unwrap_err();
        assert_eq!(finding.path, "spec.domain.memory.reservedOverhead.addedOverhead");
    }

    #[test]
    fn the_largest_guest_does_not_overflow() {
        let spec = spec(&json!({ "guest": "8Ti" }), 254, &json!([]));
        assert!(memory_overhead(&spec).unwrap() < u64::MAX);
    }

    #[test]
    fn a_vcpu_is_counted_as_its_share_of_a_processor() {
        let table = [
            (1, 10, "100m"),
            (4, 10, "400m"),
            (3, 1, "3000m"),
            (1, 3, "334m"),
            (1, 0, "1000m"),
            (1, 5000, "1m"),
        ];
        for (vcpus, ratio, millis) in table {
            assert_eq!(share(vcpus, ratio), millis, "{vcpus} {ratio}");
        }
    }
}
