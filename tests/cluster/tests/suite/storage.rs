//! Volumes of every kind are claimed and used, and what the user of VM processes may open of them is on record.

use anyhow::Result;
use corten_cluster::assets::{SAMPLES_IMAGE, TOOLS_IMAGE};
use corten_cluster::kubectl::Kubectl;
use serde_json::{Value, json};

use crate::workbench::{PREFIX, Workbench, nodes, on_node, pod};

/// A claim of one gigabyte.
pub(crate) fn claim(name: &str, class: &str, mode: &str, access: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": name },
        "spec": {
            "storageClassName": class,
            "volumeMode": mode,
            "accessModes": [access],
            "resources": { "requests": { "storage": "1G" } },
        },
    })
}

/// Makes the claims, each as (name, class, mode, access).
pub(crate) fn claims(bench: &Workbench, claims: &[(&str, &str, &str, &str)]) -> Result<()> {
    offer_again(&bench.kubectl)?;
    claims
        .iter()
        .try_for_each(|(name, class, mode, access)| bench.create(claim(name, class, mode, access)))
}

/// Volumes that earlier tests had are kept for whoever had them, who will not come back. Others' are left alone.
fn offer_again(kubectl: &Kubectl) -> Result<()> {
    let list: Value = serde_json::from_str(&kubectl.run(&["get", "pv", "-o", "json"])?)?;
    for volume in list["items"].as_array().into_iter().flatten() {
        let owner = volume["spec"]["claimRef"]["namespace"].as_str().unwrap_or_default();
        let name = volume["metadata"]["name"].as_str().unwrap_or_default();
        if volume["status"]["phase"] == "Released" && owner.starts_with(PREFIX) {
            let nobody = r#"{"spec":{"claimRef":null}}"#;
            kubectl.run(&["patch", "pv", name, "--type=merge", "-p", nobody])?;
        }
    }
    Ok(())
}

/// A Pod on `node` that has each claim: directories in /NAME, devices as /dev/NAME.
pub(crate) fn user(node: &str, claims: &[(&str, &str)]) -> Value {
    let mut pod = on_node(node, pod(node, TOOLS_IMAGE, &["-c", "exec sleep 1000"]));
    let volume =
        |name: &str| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } });
    let of_mode = |wanted: &'static str| {
        claims.iter().filter(move |(_, mode)| *mode == wanted).map(|(name, _)| *name)
    };
    pod["spec"]["volumes"] = claims.iter().map(|(name, _)| volume(name)).collect();
    let container = &mut pod["spec"]["containers"][0];
    container["volumeMounts"] = of_mode("Filesystem")
        .map(|name| json!({ "name": name, "mountPath": format!("/{name}") }))
        .collect();
    container["volumeDevices"] = of_mode("Block")
        .map(|name| json!({ "name": name, "devicePath": format!("/dev/{name}") }))
        .collect();
    pod
}

fn with_fs_group(mut pod: Value) -> Value {
    pod["spec"]["securityContext"]["fsGroup"] = json!(107);
    pod
}

/// What comes of opening `path` as the Pod's user; `how` is a redirection of the shell. "opened", or the error.
fn open(bench: &Workbench, pod: &str, how: &str, path: &str) -> Result<String> {
    let said = bench.sh(pod, &format!("(true {how}{path}) 2>&1 && echo opened || true"))?;
    Ok(said.trim().rsplit(": ").next().unwrap_or_default().to_owned())
}

const REFUSED: &str = "Permission denied";

#[test]
fn long_local_volumes_are_a_directory_and_a_device_of_root() -> Result<()> {
    Workbench::test("local", |bench| {
        let local = |name, mode| (name, "local", mode, "ReadWriteOnce");
        claims(bench, &[local("file", "Filesystem"), local("block", "Block")])?;
        let node = &nodes(&bench.kubectl)?[0];
        bench.create(user(node, &[("file", "Filesystem"), ("block", "Block")]))?;
        bench.ready(node)?;
        bench.sh(node, "test -b /dev/block")?;
        assert_eq!(bench.sh(node, "stat -c %u /file /dev/block")?, "0\n0\n");
        // An earlier test may have left a file of its own there.
        assert_eq!(open(bench, node, ">", &format!("/file/{}", bench.namespace))?, REFUSED);
        assert_eq!(open(bench, node, "<", "/dev/block")?, REFUSED);
        Ok(())
    })
}

#[test]
fn long_group_of_a_pod_opens_directories_but_no_devices() -> Result<()> {
    Workbench::test("group", |bench| {
        let local = |name, mode| (name, "local", mode, "ReadWriteOnce");
        claims(bench, &[local("file", "Filesystem"), local("block", "Block")])?;
        let node = &nodes(&bench.kubectl)?[0];
        bench.create(with_fs_group(user(node, &[("file", "Filesystem"), ("block", "Block")])))?;
        bench.ready(node)?;
        assert_eq!(open(bench, node, ">", "/file/new")?, "opened");
        assert_eq!(open(bench, node, "<", "/dev/block")?, REFUSED);
        Ok(())
    })
}

#[test]
fn shared_volumes_are_the_same_on_each_node() -> Result<()> {
    Workbench::test("shared", |bench| {
        let directory = ("directory", "nfs", "Filesystem", "ReadWriteMany");
        claims(bench, &[directory, ("disk", "shared-block", "Block", "ReadWriteMany")])?;
        let nodes = nodes(&bench.kubectl)?;
        for node in &nodes {
            bench.create(user(node, &[("directory", "Filesystem"), ("disk", "Block")]))?;
        }
        for node in &nodes {
            bench.ready(node)?;
            bench.sh(node, &format!("echo $HOSTNAME >/directory/{node}; test -b /dev/disk"))?;
            assert_eq!(open(bench, node, "<", "/dev/disk")?, REFUSED);
        }
        for node in &nodes {
            for writer in &nodes {
                let seen = bench.sh(node, &format!("cat /directory/{writer}"))?;
                assert_eq!(seen, format!("{writer}\n"));
            }
        }
        Ok(())
    })
}

#[test]
fn image_volume_can_be_read_and_not_written_in_a_restricted_namespace() -> Result<()> {
    Workbench::test("image-volume", |bench| {
        let mut pod = pod("reader", TOOLS_IMAGE, &["-c", "exec sleep 1000"]);
        let image = json!({ "reference": SAMPLES_IMAGE, "pullPolicy": "IfNotPresent" });
        pod["spec"]["volumes"] = json!([{ "name": "image", "image": image }]);
        pod["spec"]["containers"][0]["volumeMounts"] =
            json!([{ "name": "image", "mountPath": "/image" }]);
        bench.create(pod)?;
        bench.ready("reader")?;
        assert_eq!(bench.sh("reader", "ls /image")?, "samples\n");
        assert_eq!(open(bench, "reader", "<", "/image/samples")?, "opened");
        assert_eq!(open(bench, "reader", ">", "/image/new")?, "Read-only file system");
        Ok(())
    })
}
