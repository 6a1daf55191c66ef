//! Volumes of every class are claimed and used.

use anyhow::Result;
use corten_cluster::assets::TOOLS_IMAGE;
use serde_json::{Value, json};

use crate::workbench::{Workbench, nodes, pod};

fn claim(name: &str, class: &str, mode: &str, access: &str) -> Value {
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

/// A Pod on `node` that has each claim: directories in /NAME, devices as /dev/NAME.
fn user(node: &str, claims: &[(&str, &str)]) -> Value {
    let mut pod = pod(node, TOOLS_IMAGE, &["-c", "exec sleep 1000"]);
    pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    pod["spec"]["securityContext"]["fsGroup"] = json!(107);
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

#[test]
fn local_volumes_are_a_directory_and_a_device() -> Result<()> {
    let bench = Workbench::new("local")?;
    bench.create(claim("file", "local", "Filesystem", "ReadWriteOnce"))?;
    bench.create(claim("block", "local", "Block", "ReadWriteOnce"))?;
    let node = &nodes(&bench.kubectl)?[0];
    bench.create(user(node, &[("file", "Filesystem"), ("block", "Block")]))?;
    bench.ready(node)?;
    bench.sh(node, "echo kept >/file/new; test -b /dev/block")?;
    assert_eq!(bench.sh(node, "cat /file/new")?, "kept\n");
    Ok(())
}

#[test]
fn shared_volumes_are_the_same_on_each_node() -> Result<()> {
    let bench = Workbench::new("shared")?;
    bench.create(claim("directory", "nfs", "Filesystem", "ReadWriteMany"))?;
    bench.create(claim("disk", "shared-block", "Block", "ReadWriteMany"))?;
    let nodes = nodes(&bench.kubectl)?;
    for node in &nodes {
        bench.create(user(node, &[("directory", "Filesystem"), ("disk", "Block")]))?;
    }
    for node in &nodes {
        bench.ready(node)?;
        bench.sh(node, &format!("echo {node} >>/directory/seen; test -b /dev/disk"))?;
    }
    let seen = bench.sh(&nodes[0], "cat /directory/seen")?;
    assert_eq!(seen.lines().collect::<Vec<_>>(), nodes);
    Ok(())
}
