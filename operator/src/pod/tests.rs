//! Pods of many machines, as whole files: what changes in a Pod is seen in a review.
//!
//! To write them anew: `CORTEN_GOLDEN=write cargo test -p corten-operator golden`, and look at what changed.

use super::*;
use crate::SeccompKind;
use crate::vmi::testing::{claim, claims, minimal_vmi, settings};
use corten_resources::cluster::to_yaml;
use serde_json::json;
use std::path::Path;

fn pod_of(change: impl FnOnce(&mut Value)) -> core::Pod {
    launcher_pod(&minimal_vmi(change), 0, &known_claims(), &settings()).unwrap()
}

fn known_claims() -> Claims {
    claims([
        claim("files", |_| ()),
        claim("blocks", |claim| claim["spec"]["volumeMode"] = json!("Block")),
    ])
}

/// The Pod is the one in the file of this name.
fn golden(name: &str, pod: &core::Pod) {
    let path = Path::new("tests/golden").join(format!("{name}.yaml"));
    let text = to_yaml(pod).unwrap();
    if std::env::var_os("CORTEN_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, written, "{name}");
}

/// A machine that boots from disks, with these volumes.
fn with_volumes(vmi: &mut Value, volumes: &Value) {
    vmi["spec"]["domain"]["firmware"] = json!({});
    vmi["spec"]["volumes"] = volumes.clone();
}

#[test]
fn golden_least() {
    golden("least", &pod_of(|_| ()));
}

#[test]
fn golden_everything_of_placement_and_resources() {
    golden(
        "everything",
        &pod_of(|vmi| {
            vmi["metadata"]["labels"] = json!({ "app": "web", "kubevirt.io/nodeName": "left-over", "kubevirt.io": "forged" });
            vmi["metadata"]["annotations"] = json!({ "k8s.v1.cni.cncf.io/networks": "blue",
                "kubectl.kubernetes.io/last-applied-configuration": "{}", "corten.kubevirt.io/launch-attempt": "3",
                "container.apparmor.security.beta.kubernetes.io/compute": "unconfined", "io.kubernetes.cri-o.userns-mode": "auto" });
            let spec = &mut vmi["spec"];
            spec["nodeSelector"] = json!({ "disk": "fast" });
            spec["affinity"] = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
                { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } } }] } });
            spec["topologySpreadConstraints"] = json!([{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": { "app": "web" } } }]);
            spec["priorityClassName"] = json!("high");
            spec["schedulerName"] = json!("other");
            spec["terminationGracePeriodSeconds"] = json!(0);
            spec["tolerations"] = json!([{ "key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3 }]);
            spec["domain"]["cpu"] = json!({ "cores": 2 });
            spec["domain"]["resources"] = json!({ "requests": { "memory": "128Mi", "cpu": 1, "ephemeral-storage": "1Gi" },
                "limits": { "memory": "1Gi", "cpu": "2", "ephemeral-storage": "2Gi" } });
            let container = &mut spec["domain"]["firmware"]["kernelBoot"]["container"];
            container["imagePullPolicy"] = json!("Always");
            container["imagePullSecret"] = json!("registry");
        }),
    );
}

#[test]
fn golden_names_and_probes() {
    golden(
        "names-and-probes",
        &pod_of(|vmi| {
            let spec = &mut vmi["spec"];
            spec["hostname"] = json!("web-1");
            spec["subdomain"] = json!("web");
            spec["dnsPolicy"] = json!("None");
            spec["dnsConfig"] = json!({ "nameservers": ["10.0.0.10"], "searches": ["lab"], "options": [{ "name": "ndots", "value": "2" }] });
            spec["livenessProbe"] =
                json!({ "tcpSocket": { "port": 22 }, "initialDelaySeconds": 60 });
            spec["readinessProbe"] = json!({ "httpGet": { "port": "http", "path": "/well", "httpHeaders": [{ "name": "a", "value": "b" }] },
                "periodSeconds": 5, "timeoutSeconds": 2, "failureThreshold": 4, "successThreshold": 1 });
        }),
    );
}

#[test]
fn golden_networks() {
    golden(
        "networks",
        &pod_of(|vmi| {
            vmi["metadata"]["annotations"] = json!({ "k8s.v1.cni.cncf.io/networks": "replaced",
                "k8s.v1.cni.cncf.io/network-status": "[]" });
            let spec = &mut vmi["spec"];
            spec["domain"]["devices"] = json!({ "interfaces": [
                { "name": "first", "bridge": {} },
                { "name": "red", "bridge": {}, "macAddress": "02-00-00-AA-00-07", "ports": [
                    { "name": "http", "port": 80, "protocol": "TCP" }, { "name": "dns", "port": 53, "protocol": "UDP" },
                    { "name": "http", "port": 8080 }, { "name": "longer-than-a-pods-name", "port": 81 }, { "port": 80 } ] },
                { "name": "blue", "bridge": {} },
                { "name": "gone", "bridge": {}, "state": "absent" },
            ] });
            spec["networks"] = json!([
                { "name": "first", "multus": { "networkName": "lab/uplink", "default": true } },
                { "name": "red", "multus": { "networkName": "lan" } },
                { "name": "blue", "multus": { "networkName": "lab/storage" } },
                { "name": "gone", "multus": { "networkName": "lan" } },
            ]);
        }),
    );
}

#[test]
fn golden_container_disk_and_inline_cloud_init() {
    golden(
        "container-disk",
        &pod_of(|vmi| {
            with_volumes(
                vmi,
                &json!([
                    { "name": "root", "containerDisk": { "image": "corten.test/debian:12", "imagePullPolicy": "IfNotPresent", "imagePullSecret": "registry" } },
                    { "name": "tools", "containerDisk": { "image": "corten.test/tools:1", "imagePullSecret": "registry" } },
                    { "name": "seed", "cloudInitNoCloud": { "userData": "#!/bin/sh\necho password" } },
                ]),
            );
            vmi["spec"]["domain"]["devices"]["disks"] = json!([
                { "name": "root", "disk": { "bus": "virtio" } }, { "name": "tools", "cdrom": { "bus": "sata" } }, { "name": "seed", "disk": {} }]);
        }),
    );
}

#[test]
fn golden_claims_as_files_and_blocks() {
    golden(
        "claims",
        &pod_of(|vmi| {
            with_volumes(
                vmi,
                &json!([
                    { "name": "root", "persistentVolumeClaim": { "claimName": "files" } },
                    { "name": "data", "persistentVolumeClaim": { "claimName": "blocks" } },
                    { "name": "shared", "persistentVolumeClaim": { "claimName": "files", "readOnly": true } },
                    { "name": "imported", "dataVolume": { "name": "blocks" } },
                    { "name": "base", "ephemeral": { "persistentVolumeClaim": { "claimName": "files" } } },
                ]),
            );
        }),
    );
}

#[test]
fn golden_empty_disks() {
    golden(
        "empty-disks",
        &pod_of(|vmi| {
            vmi["spec"]["volumes"] = json!([
                { "name": "scratch", "emptyDisk": { "capacity": "1Gi" } },
                { "name": "kernel-boot", "emptyDisk": { "capacity": "512Mi" } },
                { "name": "metrics", "downwardMetrics": {} },
            ]);
        }),
    );
}

#[test]
fn golden_files_of_the_cluster() {
    golden(
        "files",
        &pod_of(|vmi| {
            vmi["spec"]["volumes"] = json!([
                { "name": "map", "configMap": { "name": "settings", "optional": true } },
                { "name": "keys", "secret": { "secretName": "keys" } },
                { "name": "account", "serviceAccount": { "serviceAccountName": "robot" } },
                { "name": "fields", "downwardAPI": { "fields": [{ "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } }] } },
                { "name": "answers", "sysprep": { "secret": { "name": "answers" } } },
            ]);
        }),
    );
}

#[test]
fn golden_secrets_of_cloud_init() {
    golden(
        "cloud-init-secrets",
        &pod_of(|vmi| {
            vmi["spec"]["volumes"] = json!([
                { "name": "seed", "cloudInitNoCloud": { "secretRef": { "name": "user.data" }, "networkDataSecretRef": { "name": "network" } } },
            ]);
            vmi["spec"]["accessCredentials"] = json!([{ "sshPublicKey": {
                "source": { "secret": { "secretName": "network" } }, "propagationMethod": { "noCloud": {} } } }]);
        }),
    );
}

#[test]
fn golden_administrators_settings() {
    let mut settings = settings();
    settings.launcher_image = "elsewhere/launcher:2".to_owned();
    settings.launcher_pull_policy = "Always".to_owned();
    settings.seccomp = SeccompKind::RuntimeDefault;
    settings.cpu_allocation_ratio = 1;
    settings.image_pull_secrets = vec!["mirror".to_owned(), "registry".to_owned()];
    let vmi = minimal_vmi(|vmi| {
        vmi["spec"]["domain"]["firmware"]["kernelBoot"]["container"]["imagePullSecret"] =
            json!("registry");
        vmi["spec"]["domain"]["resources"] =
            json!({ "overcommitGuestOverhead": true, "limits": { "memory": "512Mi" } });
    });
    golden("settings", &launcher_pod(&vmi, 2, &Claims::new(), &settings).unwrap());
}

#[test]
fn nothing_for_the_guest_is_in_the_pod() {
    let text = to_yaml(&pod_of(|vmi| {
        vmi["metadata"]["annotations"] =
            json!({ "kubectl.kubernetes.io/last-applied-configuration": "password=hidden" });
        vmi["spec"]["domain"]["firmware"]["kernelBoot"]["kernelArgs"] = json!("password=hidden");
        vmi["spec"]["volumes"] = json!([
            { "name": "seed", "cloudInitConfigDrive": { "userData": "password: hidden", "networkDataBase64": "aGlkZGVu" } },
        ]);
    }))
    .unwrap();
    assert!(!text.contains("hidden") && !text.contains("aGlkZGVu"), "{text}");
}

#[test]
fn what_cannot_be_in_a_pod_is_refused_by_path() {
    type Change = fn(&mut Value);
    let table: [(Change, &str); 6] = [
        (
            |vmi| {
                vmi["metadata"]["annotations"] = json!({ "hooks.kubevirt.io/hookSidecars": "[]" });
            },
            "metadata.annotations[hooks.kubevirt.io/hookSidecars]",
        ),
        (
            |vmi| {
                vmi["spec"]["volumes"] =
                    json!([{ "name": "a", "hostDisk": { "path": "/etc/shadow", "type": "Disk" } }]);
            },
            "spec.volumes[0].hostDisk",
        ),
        (
            |vmi| {
                vmi["spec"]["volumes"] =
                    json!([{ "name": "a", "persistentVolumeClaim": { "claimName": "missing" } }]);
            },
            "spec.volumes[0].persistentVolumeClaim",
        ),
        (
            |vmi| {
                vmi["spec"]["volumes"] =
                    json!([{ "name": "a", "emptyDisk": { "capacity": "lots" } }]);
            },
            "spec.volumes[0].emptyDisk.capacity",
        ),
        (|vmi| vmi["spec"]["affinity"] = json!({ "nodeAffinity": 3 }), "spec.affinity"),
        (
            |vmi| vmi["spec"]["readinessProbe"] = json!({ "guestAgentPing": {} }),
            "spec.readinessProbe.guestAgentPing",
        ),
    ];
    for (change, path) in table {
        let refused = launcher_pod(&minimal_vmi(change), 0, &known_claims(), &settings());
        assert_eq!(refused.unwrap_err().path, path);
    }
}

#[test]
fn a_pod_whose_images_became_empty_directories_is_noticed() {
    let vmi = minimal_vmi(|_| ());
    let mut pod = pod_of(|_| ());
    assert!(!lacks_images(&pod, &vmi.spec));
    let volumes = pod.spec.as_mut().unwrap().volumes.as_mut().unwrap();
    volumes[0].image = None;
    volumes[0].empty_dir = Some(core::EmptyDirVolumeSource::default());
    assert!(lacks_images(&pod, &vmi.spec));
}
