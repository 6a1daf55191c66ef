//! DataVolumes of a VirtualMachine: made from `dataVolumeTemplates`, filled by the Containerized Data Importer (CDI).
//!
//! They are not watched, as the importer may not be there, or come later: whether it is is asked once a minute, and
//! only if a VirtualMachine has templates. While one is being filled it is looked at every few seconds.

use crate::control::owner;
use corten_resources::cluster::VirtualMachine;
use corten_resources::names::CREATED_BY_LABEL;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta, TypeMeta};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long an answer about the importer is good for.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(60);
/// How soon to look at a DataVolume that is being filled.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The DataVolumes of a VirtualMachine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Volumes {
    /// It has no templates of any.
    #[default]
    None,
    /// It has, and nothing in the cluster knows what to do with them.
    NoImporter,
    /// What there is of each template, in their order.
    Known(Vec<VolumeState>),
}

/// A DataVolume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeState {
    /// Its phase, empty at first; none if it is not there.
    pub phase: Option<String>,
    /// There is a PersistentVolumeClaim of its name, which is used as it is.
    pub claimed: bool,
}

/// How far they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// They can be used.
    Ready,
    /// They can be used, and are bound to a node by that.
    Binding,
    /// They are being made or filled.
    Filling,
    /// One of them cannot be filled.
    Failed,
}

impl Volumes {
    pub(super) fn progress(&self) -> Progress {
        let Self::Known(all) = self else { return Progress::Ready };
        let each: Vec<_> = all.iter().map(VolumeState::progress).collect();
        [Progress::Failed, Progress::Filling, Progress::Binding]
            .into_iter()
            .find(|progress| each.contains(progress))
            .unwrap_or(Progress::Ready)
    }
}

impl VolumeState {
    fn progress(&self) -> Progress {
        match self.phase.as_deref() {
            None if self.claimed => Progress::Ready,
            Some("Succeeded") => Progress::Ready,
            Some("WaitForFirstConsumer" | "PendingPopulation") => Progress::Binding,
            Some("Failed") => Progress::Failed,
            None | Some(_) => Progress::Filling,
        }
    }
}

fn kind() -> GroupVersionKind {
    GroupVersionKind::gvk("cdi.kubevirt.io", "v1beta1", "DataVolume")
}

/// DataVolumes, as the API server knows them.
pub(super) fn data_volume() -> ApiResource {
    ApiResource::from_gvk_with_plural(&kind(), "datavolumes")
}

/// Those that are not there, as they are to be made. What is wrong with a template is told by its path.
pub(super) fn missing(
    vm: &VirtualMachine,
    volumes: &Volumes,
) -> Result<Vec<DynamicObject>, String> {
    let Volumes::Known(known) = volumes else { return Ok(Vec::new()) };
    let mut missing = Vec::new();
    for (number, template) in vm.spec.data_volume_templates.iter().enumerate() {
        let metadata = template.metadata.clone().unwrap_or_default();
        if metadata.name.is_empty() {
            return Err(format!(
                "spec.dataVolumeTemplates[{number}].metadata.name: it has no name: give it one"
            ));
        }
        if known.get(number).is_none_or(|known| known.phase.is_some() || known.claimed) {
            continue;
        }
        let kind = data_volume();
        let mut labels = metadata.labels;
        labels.insert(CREATED_BY_LABEL.to_owned(), vm.uid().unwrap_or_default());
        missing.push(DynamicObject {
            types: Some(TypeMeta { api_version: kind.api_version, kind: kind.kind }),
            metadata: ObjectMeta {
                name: Some(metadata.name),
                namespace: vm.namespace(),
                labels: Some(labels),
                annotations: Some(metadata.annotations),
                owner_references: Some(vec![owner::reference(vm)]),
                ..ObjectMeta::default()
            },
            data: json!({ "spec": template.spec }),
        });
    }
    Ok(missing)
}

/// Whether the cluster has the importer.
#[derive(Debug, Default)]
pub(super) struct Importer(Mutex<Option<(Instant, bool)>>);

impl Importer {
    /// Looks up the DataVolumes of a VirtualMachine.
    pub(super) async fn look(
        &self,
        vm: &VirtualMachine,
        client: &Client,
    ) -> Result<Volumes, kube::Error> {
        if vm.spec.data_volume_templates.is_empty() {
            return Ok(Volumes::None);
        }
        if !self.is_there(client).await? {
            return Ok(Volumes::NoImporter);
        }
        let namespace = vm.namespace().unwrap_or_default();
        let volumes: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), &namespace, &data_volume());
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
        let mut known = Vec::new();
        for template in &vm.spec.data_volume_templates {
            let name = template.metadata.as_ref().map_or("", |metadata| metadata.name.as_str());
            if name.is_empty() {
                known.push(VolumeState::default());
                continue;
            }
            let found = volumes.get_opt(name).await?;
            let phase = found.map(|volume| {
                let phase = volume.data.pointer("/status/phase").and_then(Value::as_str);
                phase.unwrap_or_default().to_owned()
            });
            let claimed = phase.is_none() && claims.get_metadata_opt(name).await?.is_some();
            known.push(VolumeState { phase, claimed });
        }
        Ok(Volumes::Known(known))
    }

    async fn is_there(&self, client: &Client) -> Result<bool, kube::Error> {
        // Held while the answer is waited for, so that many VirtualMachines ask once.
        let mut known = self.0.lock().await;
        if let Some((asked, answer)) = *known
            && asked.elapsed() < ASK_AGAIN
        {
            return Ok(answer);
        }
        let answer = match kube::discovery::pinned_kind(client, &kind()).await {
            Ok(_) => true,
            Err(kube::Error::Discovery(_)) => false,
            Err(kube::Error::Api(status)) if status.code == 404 => false,
            Err(error) => return Err(error),
        };
        *known = Some((Instant::now(), answer));
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::testing::{VM_UID, vm};

    fn with_templates(templates: &Value) -> VirtualMachine {
        vm("Always", |vm| vm["spec"]["dataVolumeTemplates"] = templates.clone())
    }

    fn at(phase: &str) -> VolumeState {
        VolumeState { phase: Some(phase.to_owned()), claimed: false }
    }

    #[test]
    fn the_slowest_volume_says_how_far_they_are() {
        let table = [
            (vec![], Progress::Ready),
            (vec![at("Succeeded")], Progress::Ready),
            (vec![at("Succeeded"), at("WaitForFirstConsumer")], Progress::Binding),
            (vec![at("PendingPopulation")], Progress::Binding),
            (vec![at("WaitForFirstConsumer"), at("ImportInProgress")], Progress::Filling),
            (vec![at("")], Progress::Filling),
            (vec![VolumeState::default()], Progress::Filling),
            (vec![VolumeState { phase: None, claimed: true }], Progress::Ready),
            (vec![at("ImportInProgress"), at("Failed")], Progress::Failed),
        ];
        for (all, expected) in table {
            assert_eq!(Volumes::Known(all.clone()).progress(), expected, "{all:?}");
        }
    }

    #[test]
    fn what_is_missing_is_made_with_the_machine_as_its_owner() {
        let vm = with_templates(&json!([
            { "metadata": { "name": "root", "labels": { "a": "b" } }, "spec": { "source": { "blank": {} }, "later": 1 } },
            { "metadata": { "name": "data" }, "spec": {} },
            { "metadata": { "name": "kept" }, "spec": {} },
        ]));
        let known = vec![
            VolumeState::default(),
            at("Succeeded"),
            VolumeState { phase: None, claimed: true },
        ];
        let made = missing(&vm, &Volumes::Known(known)).unwrap();
        assert_eq!(made.len(), 1);
        let volume = serde_json::to_value(&made[0]).unwrap();
        assert_eq!(volume["apiVersion"], "cdi.kubevirt.io/v1beta1");
        assert_eq!(
            (&volume["kind"], &volume["metadata"]["name"]),
            (&json!("DataVolume"), &json!("root"))
        );
        assert_eq!(volume["metadata"]["ownerReferences"][0]["uid"], VM_UID);
        assert_eq!(volume["metadata"]["labels"], json!({ "a": "b", CREATED_BY_LABEL: VM_UID }));
        assert_eq!(volume["spec"], json!({ "source": { "blank": {} }, "later": 1 }));
    }

    #[test]
    fn a_template_without_a_name_is_told_by_its_path() {
        let vm = with_templates(&json!([{ "spec": {} }]));
        let error = missing(&vm, &Volumes::Known(vec![VolumeState::default()])).unwrap_err();
        assert!(error.starts_with("spec.dataVolumeTemplates[0].metadata.name: "), "{error}");
    }

    #[test]
    fn without_templates_or_importer_nothing_is_made() {
        let vm = with_templates(&json!([{ "metadata": { "name": "root" }, "spec": {} }]));
        assert_eq!(missing(&vm, &Volumes::NoImporter).unwrap().len(), 0);
        assert_eq!(missing(&vm, &Volumes::None).unwrap().len(), 0);
    }
}
