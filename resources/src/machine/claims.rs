//! How large the disks of claims are to be.

use std::collections::BTreeMap;

use crate::Quantity;
use crate::types::{VirtualMachineInstance, VolumeStatus};

impl VirtualMachineInstance {
    /// What the operator has found out about its claims, in bytes by the names of their volumes: each disk is as large as was asked
    /// for, unless the claim has less.
    pub fn claim_capacities(&self) -> BTreeMap<String, u64> {
        const STORAGE: &str = "storage";
        let bytes = |list: &BTreeMap<String, Quantity>| {
            list.get(STORAGE).and_then(|amount| amount.units().ok())
        };
        let capacity = |status: &VolumeStatus| {
            let info = status.persistent_volume_claim_info.as_ref()?;
            let amounts = [bytes(&info.requests), bytes(&info.capacity)];
            Some((status.name.clone(), amounts.into_iter().flatten().min()?))
        };
        self.status.volume_status.iter().filter_map(capacity).collect()
    }
}
