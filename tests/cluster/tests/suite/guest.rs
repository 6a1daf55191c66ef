//! A VirtualMachineInstance of a test, as kubectl shows it.

use std::io::Read;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail, ensure};
use corten_cluster::kubectl::Kubectl;
use serde_json::{Value, json};

use crate::workbench::{Workbench, eventually};

/// The lab's guests say this when their user space runs.
pub(crate) const UP: &str = "CORTEN-GUEST-UP";

/// A VMI that boots the lab's newest kernel with these arguments, as fast as an emulated node can.
pub(crate) fn vmi(name: &str, kernel_arguments: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "domain": {
                "memory": { "guest": "256Mi" },
                "devices": { "autoattachPodInterface": false },
                "firmware": { "kernelBoot": {
                    "kernelArgs": format!("console=ttyS0 quiet mitigations=off {kernel_arguments}"),
                    "container": {
                        "image": "corten.test/kernel-boot-6.12:1",
                        "kernelPath": "/boot/vmlinux",
                        "initrdPath": "/boot/initrd",
                    },
                } },
            },
        },
    })
}

/// A VirtualMachine with that VMI as its template; it is restarted whenever its guest ends.
pub(crate) fn vm(mut vmi: Value) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": vmi["metadata"].take(),
        "spec": { "runStrategy": "Always", "template": { "spec": vmi["spec"].take() } },
    })
}

/// Adds a disk of that volume, whose only member says what it is, to a VMI.
pub(crate) fn add_disk(vmi: &mut Value, name: &str, mut volume: Value) {
    volume["name"] = json!(name);
    for (list, item) in [
        ("/spec/volumes", volume),
        ("/spec/domain/devices/disks", json!({ "name": name, "disk": { "bus": "virtio" } })),
    ] {
        let (parent, member) = list.rsplit_once('/').unwrap_or_default();
        let parent = vmi.pointer_mut(parent).map(|it| &mut it[member]);
        match parent {
            Some(Value::Array(items)) => items.push(item),
            Some(empty) => *empty = json!([item]),
            None => {}
        }
    }
}

/// A VMI in the namespace of a test.
pub(crate) struct Guest<'a> {
    bench: &'a Workbench,
    name: &'a str,
}

impl<'a> Guest<'a> {
    /// The VMI of this name, which was made already.
    pub(crate) fn new(bench: &'a Workbench, name: &'a str) -> Self {
        Self { bench, name }
    }

    /// The object.
    pub(crate) fn object(&self) -> Result<Value> {
        let text = self.bench.run(&["get", "vmi", self.name, "-o", "json"])?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Its Pods, whatever became of them.
    pub(crate) fn pods(&self) -> Result<Vec<Value>> {
        let selector = format!("vm.kubevirt.io/name={}", self.name);
        let text = self.bench.run(&["get", "pods", "-l", &selector, "-o", "json"])?;
        let mut list: Value = serde_json::from_str(&text)?;
        match list["items"].take() {
            Value::Array(pods) => Ok(pods),
            other => bail!("no list of Pods: {other}"),
        }
    }

    /// Its only Pod.
    pub(crate) fn pod(&self) -> Result<Value> {
        let mut pods = self.pods()?;
        ensure!(pods.len() == 1, "{} has {} Pods", self.name, pods.len());
        pods.pop().context("no Pod")
    }

    /// The one of its Pods that has not ended.
    pub(crate) fn running_pod(&self) -> Result<Value> {
        let mut pods = self.pods()?;
        pods.retain(|pod| !matches!(text(&pod["status"]["phase"]), "Failed" | "Succeeded"));
        ensure!(pods.len() == 1, "{} has {} Pods that live", self.name, pods.len());
        pods.pop().context("no Pod")
    }

    /// Waits until its status has `value` at that place, and returns the object.
    pub(crate) fn reaches(&self, pointer: &str, value: &str) -> Result<Value> {
        eventually(&format!("{} does not come to {value}", self.name), || {
            let object = self.object()?;
            let is = object["status"].pointer(pointer).and_then(Value::as_str);
            ensure!(is == Some(value), "its status is {}", object["status"]);
            Ok(object)
        })
    }

    /// Waits until its guest runs and its Pod is ready, and returns the object.
    pub(crate) fn is_ready(&self) -> Result<Value> {
        eventually(&format!("{} does not become ready", self.name), || {
            let object = self.object()?;
            ensure!(
                object["status"]["phase"] == "Running"
                    && condition(&object, "Ready")["status"] == "True",
                "its status is {}",
                object["status"]
            );
            Ok(object)
        })
    }

    /// Its console and what its launcher said.
    pub(crate) fn log(&self) -> Result<String> {
        let pod = self.pod()?;
        self.bench.run(&["logs", text(&pod["metadata"]["name"])])
    }

    /// Waits until that is in its log, and returns all of it.
    pub(crate) fn says(&self, words: &str) -> Result<String> {
        eventually(&format!("{} does not say {words:?}", self.name), || {
            let log = self.log()?;
            ensure!(log.contains(words), "the end of what it said: {}", tail(&log));
            Ok(log)
        })
    }

    /// Collects its log from now to its end, also when its Pod is removed at once.
    pub(crate) fn follow_log(&self) -> Result<FollowedLog> {
        let pod = self.pod()?;
        let arguments = ["-n", &self.bench.namespace, "logs", "-f", text(&pod["metadata"]["name"])];
        FollowedLog::start(&self.bench.kubectl, &arguments)
    }
}

/// A condition of an object, or null.
pub(crate) fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|it| it["type"] == kind).cloned().unwrap_or_default()
}

/// A text in JSON.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn tail(log: &str) -> &str {
    let start = log.len().saturating_sub(1000);
    log.get(log.ceil_char_boundary(start)..).unwrap_or_default()
}

/// kubectl that follows a log.
pub(crate) struct FollowedLog(Child);

impl FollowedLog {
    fn start(kubectl: &Kubectl, arguments: &[&str]) -> Result<Self> {
        let mut command = kubectl.command();
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(Self(command.spawn().context("cannot run kubectl")?))
    }

    /// Waits for the end of the log. The container has ended, or is about to: kubelet sees to that.
    pub(crate) fn end(mut self) -> Result<String> {
        let mut log = String::new();
        let mut output = self.0.stdout.take().context("kubectl has no output")?;
        output.read_to_string(&mut log)?;
        Ok(log)
    }
}

impl Drop for FollowedLog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
