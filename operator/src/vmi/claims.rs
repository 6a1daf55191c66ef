//! Claims of a VirtualMachineInstance: which it uses, how they stand, what is shown of them. Pure.

use crate::pod::Claims;
use corten_resources::Quantity;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::machine::Source;
use corten_resources::types::{ClaimInfo, VirtualMachineInstanceSpec, VolumeStatus};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ClaimQuantity;
use std::collections::BTreeMap;

/// Annotations of CDI on claims that it fills.
pub(super) const CDI: &str = "cdi.kubevirt.io/";
/// How far the Pod that fills a claim has come.
const FILLING: &str = "cdi.kubevirt.io/storage.pod.phase";

/// A claim that a volume uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used<'a> {
    pub(super) volume: &'a str,
    pub(super) claim: &'a str,
    /// A DataVolume fills it.
    pub(super) is_data_volume: bool,
}

/// The claims that volumes use, in their order.
pub(super) fn used(spec: &VirtualMachineInstanceSpec) -> impl Iterator<Item = Used<'_>> {
    spec.volumes.iter().filter_map(|volume| {
        let (claim, is_data_volume) = match volume.source()? {
            Source::PersistentVolumeClaim(claim) => (claim.claim_name.as_str(), false),
            Source::DataVolume(data) => (data.name.as_str(), true),
            Source::Ephemeral(source) => {
                (source.persistent_volume_claim.as_ref()?.claim_name.as_str(), false)
            }
            _ => return None,
        };
        Some(Used { volume: &volume.name, claim, is_data_volume })
    })
}

/// How the claims of a VirtualMachineInstance stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Not there.
    pub(super) missing: Vec<String>,
    /// Their volume is gone, with what was on it.
    pub(super) lost: Vec<String>,
    /// Still being filled: not to be used yet.
    pub(super) filling: Vec<String>,
    /// Without a volume. Some get theirs only when a Pod that uses them has a node.
    pub(super) pending: Vec<String>,
    /// Those of DataVolumes that cannot be used yet; none if there is no DataVolume.
    pub(super) data_volumes: Option<Vec<String>>,
}

pub(super) fn standing(spec: &VirtualMachineInstanceSpec, claims: &Claims) -> Standing {
    let mut standing = Standing::default();
    for used in used(spec) {
        let name = used.claim.to_owned();
        let claim = claims.get(used.claim);
        let phase = claim.and_then(|claim| claim.status.as_ref()?.phase.as_deref());
        let list = match (claim, phase) {
            (None, _) => Some(&mut standing.missing),
            (Some(_), Some("Lost")) => Some(&mut standing.lost),
            (Some(claim), _) if is_filling(claim) => Some(&mut standing.filling),
            (Some(_), Some("Bound")) => None,
            (Some(_), _) => Some(&mut standing.pending),
        };
        let is_usable = list.is_none();
        if let Some(list) = list
            && !list.contains(&name)
        {
            list.push(name.clone());
        }
        if used.is_data_volume {
            let waiting = standing.data_volumes.get_or_insert_default();
            if !is_usable {
                waiting.push(name);
            }
        }
    }
    standing
}

fn is_filling(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim.metadata.annotations.as_ref().and_then(|all| all.get(FILLING));
    phase.is_some_and(|phase| phase != "Succeeded")
}

/// Shows what is known of claims. What others show of the same volumes stays.
pub(super) fn show(vmi: &mut VirtualMachineInstance, claims: &Claims) {
    let known: Vec<(String, ClaimInfo)> = used(&vmi.spec)
        .filter_map(|used| Some((used.volume.to_owned(), info(claims.get(used.claim)?))))
        .collect();
    for (volume, info) in known {
        let all = &mut vmi.status.volume_status;
        match all.iter_mut().find(|status| status.name == volume) {
            Some(status) => status.persistent_volume_claim_info = Some(info),
            None => all.push(VolumeStatus {
                name: volume,
                persistent_volume_claim_info: Some(info),
                ..VolumeStatus::default()
            }),
        }
    }
}

fn info(claim: &PersistentVolumeClaim) -> ClaimInfo {
    let spec = claim.spec.as_ref();
    let status = claim.status.as_ref();
    let modes = status.and_then(|status| status.access_modes.as_ref());
    let wanted = spec.and_then(|spec| spec.access_modes.as_ref());
    let requests = spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    ClaimInfo {
        access_modes: modes.or(wanted).cloned().unwrap_or_default(),
        capacity: amounts(status.and_then(|status| status.capacity.as_ref())),
        claim_name: claim.metadata.name.clone(),
        requests: amounts(requests),
        volume_mode: Some(
            spec.and_then(|spec| spec.volume_mode.clone())
                .unwrap_or_else(|| "Filesystem".to_owned()),
        ),
        ..ClaimInfo::default()
    }
}

fn amounts(list: Option<&BTreeMap<String, ClaimQuantity>>) -> BTreeMap<String, Quantity> {
    list.into_iter()
        .flatten()
        .map(|(resource, amount)| (resource.clone(), Quantity::new(&amount.0)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::{claim, claims, minimal_vmi};
    use serde_json::json;

    fn vmi() -> VirtualMachineInstance {
        minimal_vmi(|vmi| {
            vmi["spec"]["volumes"] = json!([
                { "name": "root", "persistentVolumeClaim": { "claimName": "a" } },
                { "name": "again", "ephemeral": { "persistentVolumeClaim": { "claimName": "a" } } },
                { "name": "data", "dataVolume": { "name": "b" } },
                { "name": "seed", "cloudInitNoCloud": { "userData": "x" } },
            ]);
        })
    }

    #[test]
    fn claims_are_told_apart_by_how_they_stand() {
        let with = |a: &str, b: &str| {
            standing(
                &vmi().spec,
                &claims([
                    claim("a", |claim| claim["status"]["phase"] = json!(a)),
                    claim("b", |claim| claim["status"]["phase"] = json!(b)),
                ]),
            )
        };
        let names = |name: &str| vec![name.to_owned()];
        assert_eq!(
            with("Bound", "Bound"),
            Standing { data_volumes: Some(vec![]), ..Standing::default() }
        );
        assert_eq!(with("Pending", "Bound").pending, names("a"));
        assert_eq!(with("Lost", "Bound").lost, names("a"));
        let waiting = with("Bound", "Pending");
        assert_eq!((waiting.pending, waiting.data_volumes), (names("b"), Some(names("b"))));
        let none = standing(&vmi().spec, &Claims::new());
        assert_eq!(
            (none.missing, none.data_volumes),
            (vec!["a".to_owned(), "b".to_owned()], Some(names("b")))
        );
    }

    #[test]
    fn a_claim_that_is_being_filled_is_not_to_be_used_yet() {
        let filling = |phase: &str| {
            claims([
                claim("a", |_| ()),
                claim("b", |claim| claim["metadata"]["annotations"] = json!({ FILLING: phase })),
            ])
        };
        assert_eq!(standing(&vmi().spec, &filling("Running")).filling, ["b"]);
        assert!(standing(&vmi().spec, &filling("Succeeded")).filling.is_empty());
    }

    #[test]
    fn what_is_known_of_a_claim_is_shown_beside_what_others_show() {
        let mut vmi = vmi();
        vmi.status.volume_status = vec![VolumeStatus {
            name: "root".into(),
            target: "vda".into(),
            ..VolumeStatus::default()
        }];
        show(&mut vmi, &claims([claim("a", |_| ())]));
        let names: Vec<_> = vmi
            .status
            .volume_status
            .iter()
            .map(|one| (one.name.as_str(), one.target.as_str()))
            .collect();
        assert_eq!(names, [("root", "vda"), ("again", "")]);
        let info = vmi.status.volume_status[0].persistent_volume_claim_info.as_ref().unwrap();
        assert_eq!(
            (info.claim_name.as_deref(), info.volume_mode.as_deref()),
            (Some("a"), Some("Filesystem"))
        );
        assert_eq!(
            (info.requests["storage"].as_str(), info.capacity["storage"].as_str()),
            ("1Gi", "2Gi")
        );
        assert_eq!(info.access_modes, ["ReadWriteOnce"]);
    }
}
