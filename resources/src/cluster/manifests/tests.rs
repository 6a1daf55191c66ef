//! What is written is in the checkout, whole, and such that Kubernetes' types know every field of it.

use super::*;
use crate::served::Scope;
use crate::types::VirtualMachineInstance;
use crate::validate::{admit, can_run, validate};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeSet;
use std::path::Path;

fn resources() -> &'static Path {
    // Tests run in the directory of their package.
    Path::new(".")
}

#[test]
fn the_files_in_the_checkout_are_those_that_would_be_written() {
    let wanted = files(&Images::default()).unwrap();
    for (name, text) in &wanted {
        let found = std::fs::read_to_string(resources().join(name)).unwrap_or_default();
        assert!(
            found == *text,
            "resources/{name} is not what the types give: \
             run `cargo run -p corten-resources --features cluster --bin manifests`"
        );
    }
    let folders: BTreeSet<_> =
        wanted.iter().filter_map(|(name, _)| Path::new(name).parent()).collect();
    for folder in folders {
        for entry in std::fs::read_dir(resources().join(folder)).unwrap() {
            let entry = entry.unwrap();
            let name = folder.join(entry.file_name()).to_str().unwrap().to_owned();
            let is_written = wanted.iter().any(|(written, _)| *written == name);
            assert!(is_written || entry.path().is_dir(), "{name} is a file that nothing writes");
        }
    }
}

/// Every object of the examples, with the file that it is in.
fn examples() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(resources().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        found.extend(objects.into_iter().map(|object| (path.display().to_string(), object)));
    }
    assert!(!found.is_empty(), "no example was found");
    found
}

#[test]
fn every_example_can_be_run() {
    for (path, object) in examples() {
        let Some(kind) = object["kind"].as_str().and_then(Kind::named) else { continue };
        let findings = admit(kind, None, &object, Scope::Standalone);
        assert!(can_run(&findings), "{path}: {findings:?}");
    }
}

#[test]
fn every_example_without_a_network_can_be_run_in_a_cluster() {
    for (path, object) in examples() {
        let Some(kind) = object["kind"].as_str().and_then(Kind::named) else { continue };
        let findings = admit(kind, None, &object, Scope::Cluster);
        let refused: Vec<_> = findings.iter().filter(|it| it.is_refusal()).collect();
        let of_networks = |path: &str| {
            path.contains("spec.networks")
                || path.contains("interface")
                || path.contains("Interface")
        };
        assert!(refused.iter().all(|it| of_networks(&it.path)), "{path}: {refused:?}");
    }
}

#[test]
fn first_example_runs_in_a_cluster_too() {
    let text = include_str!("../../../examples/vmi-kernel-boot.yaml");
    let vmi: VirtualMachineInstance = serde_saphyr::from_str(text).unwrap();
    assert_eq!(validate(&vmi.spec, Scope::Cluster), []);
}

#[test]
fn the_kubevirt_object_is_one_that_is_taken() {
    let object = kubevirt(&Installation::default());
    assert_eq!(admit(Kind::KubeVirt, None, &object, Scope::Cluster), []);
}

#[test]
fn every_object_is_whole_as_kubernetes_types_read_it() {
    let mut objects = install(&Installation::default());
    objects.extend(installed(&Images::default()));
    for object in objects {
        let kind = object["kind"].as_str().unwrap().to_owned();
        let read = match kind.as_str() {
            "Namespace" => again::<Namespace>(&object),
            "Service" => again::<Service>(&object),
            "ServiceAccount" => again::<ServiceAccount>(&object),
            "Role" => again::<Role>(&object),
            "RoleBinding" => again::<RoleBinding>(&object),
            "ClusterRole" => again::<ClusterRole>(&object),
            "ClusterRoleBinding" => again::<ClusterRoleBinding>(&object),
            "Deployment" => again::<Deployment>(&object),
            "DaemonSet" => again::<DaemonSet>(&object),
            "PodDisruptionBudget" => again::<PodDisruptionBudget>(&object),
            "CustomResourceDefinition" => again::<CustomResourceDefinition>(&object),
            "ValidatingAdmissionPolicy" => again::<ValidatingAdmissionPolicy>(&object),
            "ValidatingAdmissionPolicyBinding" => {
                again::<ValidatingAdmissionPolicyBinding>(&object)
            }
            other => panic!("no type for {other}"),
        };
        assert!(
            read == object,
            "{kind} {}: a field that Kubernetes does not have",
            object["metadata"]["name"]
        );
    }
}

fn again<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
}

#[test]
fn no_two_objects_have_the_same_name() {
    let mut objects = install(&Installation::default());
    objects.extend(installed(&Images::default()));
    let mut names = BTreeSet::new();
    for object in &objects {
        let metadata = &object["metadata"];
        let name = format!("{} {} {}", object["kind"], metadata["namespace"], metadata["name"]);
        assert!(names.insert(name.clone()), "{name}");
    }
}

#[test]
fn nobody_may_do_everything() {
    for object in install(&Installation::default()) {
        for rule in object["rules"].as_array().into_iter().flatten() {
            assert!(!rule.to_string().contains("\"*\""), "{}: {rule}", object["metadata"]["name"]);
        }
    }
}

#[test]
fn policies_and_agents_follow_the_namespace() {
    let objects = installed_in(&Images::default(), "elsewhere");
    let text = Value::from(objects).to_string();
    assert!(!text.contains("\"kubevirt\"") && !text.contains("serviceaccount:kubevirt:"));
}

#[test]
fn every_policy_may_be_changed_by_the_operator() {
    for object in policy::objects("kubevirt") {
        let name = object["metadata"]["name"].as_str().unwrap();
        assert!(policy::NAMES.contains(&name), "{name}");
    }
}
