//! What a launcher Pod asks of its node.

use corten_resources::Quantity;
use corten_resources::names::KVM_RESOURCE;
use corten_resources::types::VirtualMachineInstanceSpec;
use corten_resources::validate::Finding;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as PodQuantity;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
/// Thousandths of a processor that are kept for a vCPU: KubeVirt's allocation ratio of ten.
const MILLIS_FOR_A_VCPU: u64 = 100;

/// Memory beyond the guest's that a launcher may need, in whole MiB.
///
/// - 16 MiB: launcher and VMM (3 to 5 MiB resident, measured), their buffers, and the kernel's side of both.
/// - Page tables, which are charged to the Pod: with 4 KiB pages 8 bytes for each 4096 of guest memory in the process
///   and the same again in KVM, so 1/256.
/// - 256 KiB for a vCPU: its state in KVM, its thread's stacks, the page it shares with KVM.
pub fn memory_overhead(guest: u64, vcpus: u32) -> u64 {
    let bytes = (16 * MIB).saturating_add(guest / 256).saturating_add(u64::from(vcpus) * (MIB / 4));
    bytes.div_ceil(MIB).saturating_mul(MIB)
}

/// Requests and limits of the container. The user's own count for the guest, so the overhead comes on top of them.
pub(super) fn of_container(
    spec: &VirtualMachineInstanceSpec,
) -> Result<core::ResourceRequirements, Finding> {
    let guest = spec.guest_memory()?;
    let vcpus = spec.topology()?.vcpus();
    let overhead = memory_overhead(guest, vcpus);
    let user = spec.domain.resources.clone().unwrap_or_default();

    let mut requests = BTreeMap::from([(KVM_RESOURCE.to_owned(), PodQuantity("1".to_owned()))]);
    let mut limits = requests.clone();
    let kept = match user.requests.get("memory") {
        Some(amount) => bytes("requests", amount)?,
        None => guest,
    };
    requests.insert("memory".to_owned(), memory(kept, overhead));
    if let Some(limit) = user.limits.get("memory") {
        limits.insert("memory".to_owned(), memory(bytes("limits", limit)?, overhead));
    }
    let cpu = user
        .requests
        .get("cpu")
        .map_or_else(|| format!("{}m", u64::from(vcpus) * MILLIS_FOR_A_VCPU), Quantity::to_string);
    requests.insert("cpu".to_owned(), PodQuantity(cpu));
    if let Some(limit) = user.limits.get("cpu") {
        limits.insert("cpu".to_owned(), PodQuantity(limit.to_string()));
    }
    Ok(core::ResourceRequirements {
        limits: Some(limits),
        requests: Some(requests),
        ..Default::default()
    })
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

    #[test]
    fn the_overhead_is_fixed_plus_page_tables_plus_vcpus() {
        let table = [
            (0, 1, 17),
            (256 * MIB, 1, 18),
            (1 << 30, 1, 21),
            (1 << 30, 4, 21),
            (64 << 30, 64, 288),
        ];
        for (guest, vcpus, mib) in table {
            assert_eq!(memory_overhead(guest, vcpus), mib * MIB, "{guest} {vcpus}");
        }
    }

    #[test]
    fn the_largest_guest_does_not_overflow() {
        assert!(memory_overhead(u64::MAX, 254) < u64::MAX);
    }
}
