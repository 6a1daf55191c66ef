//! A device plugin registers, and what it gives to a device reaches the one Pod that has it.

use anyhow::{Context, Result, ensure};
use corten_cluster::assets::{SAMPLES_IMAGE, TOOLS_IMAGE};
use serde_json::{Value, json};

use crate::workbench::{READY, Workbench, eventually, nodes, on_node, pod};

const RESOURCE: &str = "samples.corten.test/directory";

/// The sample plugin on each node. It is root, for it makes directories that belong to somebody else, and no more.
fn plugin(namespace: &str) -> Value {
    let host_path = |name: &str, path: &str| json!({ "name": name, "hostPath": { "path": path, "type": "DirectoryOrCreate" } });
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": "devices", "namespace": namespace },
        "spec": {
            "selector": { "matchLabels": { "app": "devices" } },
            "template": {
                "metadata": { "labels": { "app": "devices" } },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "devices",
                        "image": SAMPLES_IMAGE,
                        "args": ["devices"],
                        "securityContext": { "runAsUser": 0, "runAsGroup": 0 },
                        "volumeMounts": [
                            mount("plugins", "/var/lib/kubelet/device-plugins"),
                            mount("directories", "/run/corten-samples"),
                        ],
                    }],
                    "volumes": [
                        host_path("plugins", "/var/lib/kubelet/device-plugins"),
                        host_path("directories", "/run/corten-samples"),
                    ],
                },
            },
        },
    })
}

fn user(node: &str, name: &str) -> Value {
    let mut pod = on_node(node, pod(name, TOOLS_IMAGE, &["-c", "exec sleep 1000"]));
    pod["spec"]["containers"][0]["resources"] = json!({ "limits": { RESOURCE: "1" } });
    pod
}

#[test]
fn long_device_directory_reaches_the_restricted_pod_that_has_the_device() -> Result<()> {
    Workbench::test("devices", |bench| {
        let privileged = bench.privileged_namespace()?;
        bench.kubectl.apply(&plugin(&privileged).to_string())?;
        let rollout = ["-n", &privileged, "rollout", "status", "daemonset/devices", READY];
        bench.kubectl.run(&rollout)?;
        let node = &nodes(&bench.kubectl)?[0];
        let column = format!("jsonpath={{.status.allocatable.{}}}", RESOURCE.replace('.', "\\."));
        eventually("the node does not offer the devices", || {
            let offered = bench.kubectl.run(&["get", "node", node, "-o", &column])?;
            ensure!(offered == "2", "it offers {offered:?}");
            Ok(())
        })?;

        let users = ["first", "second"];
        for name in users {
            bench.create(user(node, name))?;
        }
        for name in users {
            bench.ready(name)?;
            let script = "id -u; stat -c '%u %a' /device; echo \"$HOSTNAME\" >/device/owner";
            assert_eq!(bench.sh(name, script)?, "107\n107 700\n");
        }
        let mut devices = Vec::new();
        for name in users {
            let found = bench.sh(name, "cat /device/*; echo \"$DEVICE\"")?;
            let (owner, device) = found.split_once('\n').context("two lines")?;
            assert_eq!(owner, name);
            devices.push(device.trim().to_owned());
        }
        devices.sort_unstable();
        assert_eq!(devices, ["directory-0", "directory-1"]);
        Ok(())
    })
}
