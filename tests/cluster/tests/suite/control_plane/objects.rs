//! Objects of tests, and what becomes of them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use corten_cluster::kubectl::Kubectl;
use serde_json::{Value, json};

use super::operator::OPERATOR;
use crate::workbench::{Workbench, eventually};

/// The checkout's file or directory of that name.
pub(super) fn checkout(name: &str) -> PathBuf {
    // Tests run in the directory of their package.
    Path::new("../..").join(name)
}

/// All objects of the YAML files in a directory, by file.
pub(super) fn objects_in(directory: &Path) -> Result<Vec<(String, Value)>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|it| it == "yaml"));
    files.sort();
    let mut objects = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file)?;
        let found: Vec<Value> =
            serde_saphyr::from_multiple(&text).with_context(|| format!("cannot read {name}"))?;
        objects.extend(found.into_iter().map(|object| (name.clone(), object)));
    }
    Ok(objects)
}

/// Puts what is shipped into the cluster, without the operator's Pods: tests run it, and say where its Services lead.
pub(super) fn install(kubectl: &Kubectl) -> Result<()> {
    let mut objects = objects_in(&checkout("resources/manifests"))?;
    for (_, object) in &mut objects {
        match (object["kind"].as_str(), object["metadata"]["name"].as_str()) {
            (Some("Deployment"), Some(OPERATOR)) => object["spec"]["replicas"] = json!(0),
            (Some("Service"), _) => {
                object["spec"].as_object_mut().context("a Service has a spec")?.remove("selector");
            }
            _ => {}
        }
    }
    // The KubeVirt object's kind has to be known first.
    let (last, first): (Vec<_>, Vec<_>) =
        objects.into_iter().map(|(_, object)| object).partition(|it| it["kind"] == "KubeVirt");
    apply_all(kubectl, &first)?;
    kubectl.run(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"])?;
    eventually("its KubeVirt object is not taken", || apply_all(kubectl, &last))
}

fn apply_all(kubectl: &Kubectl, objects: &[Value]) -> Result<()> {
    ensure!(!objects.is_empty(), "nothing to apply");
    kubectl.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string())
}

/// A VMI that is served.
pub(super) fn vmi(name: &str) -> Value {
    crate::guest::vmi(name, "")
}

/// A VMI on that node and no other.
pub(super) fn vmi_on(name: &str, node: &str) -> Value {
    let mut vmi = vmi(name);
    vmi["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    vmi
}

/// A VirtualMachine with that run strategy.
pub(super) fn vm(name: &str, strategy: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": { "name": name },
        "spec": {
            "runStrategy": strategy,
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": vmi(name)["spec"],
            },
        },
    })
}

/// A claim with a volume of its own, which nothing ever looks into.
pub(super) fn claim(bench: &mut Workbench, name: &str) -> Result<()> {
    let volume = format!("{}-{name}", bench.namespace);
    let size = json!({ "storage": "1Gi" });
    bench.create_global(&json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": volume },
        "spec": {
            "capacity": size,
            "accessModes": ["ReadWriteOnce"],
            "hostPath": { "path": "/nowhere" },
            "claimRef": { "namespace": bench.namespace, "name": name },
        },
    }))?;
    bench.create(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": name },
        "spec": {
            "storageClassName": "",
            "volumeName": volume,
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": size },
        },
    }))?;
    bench.run(&[
        "wait",
        "--for=jsonpath={.status.phase}=Bound",
        "--timeout=120s",
        &format!("pvc/{name}"),
    ])?;
    Ok(())
}

/// An object in the namespace of a test.
pub(super) struct Object<'a> {
    bench: &'a Workbench,
    kind: &'a str,
    name: &'a str,
}

impl<'a> Object<'a> {
    /// The object of this kind and name, which need not be there.
    pub(super) fn new(bench: &'a Workbench, kind: &'a str, name: &'a str) -> Self {
        Self { bench, kind, name }
    }

    /// As it is now.
    pub(super) fn get(&self) -> Result<Value> {
        match self.find()? {
            Some(object) => Ok(object),
            None => bail!("there is no {} {}", self.kind, self.name),
        }
    }

    /// As it is now, if it is there.
    pub(super) fn find(&self) -> Result<Option<Value>> {
        let arguments = ["get", self.kind, self.name, "--ignore-not-found", "-o", "json"];
        let text = self.bench.run(&arguments)?;
        if text.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_str(&text)?)) }
    }

    /// Waits until what is asked of it holds, and returns it.
    pub(super) fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(&format!("{} {}: {what}", self.kind, self.name), || {
            let object = self.get()?;
            ensure!(holds(&object), "it is {object}");
            Ok(object)
        })
    }

    /// Waits until it has that text at that place.
    pub(super) fn reaches(&self, pointer: &str, value: &str) -> Result<Value> {
        self.until(&format!("{pointer} is not {value}"), |object| {
            object.pointer(pointer).and_then(Value::as_str) == Some(value)
        })
    }

    /// Waits until an instance has a node. Whether its container is seen to run by then is a matter of chance.
    pub(super) fn bound(&self) -> Result<Value> {
        self.until("it has no node", |object| {
            matches!(object["status"]["phase"].as_str(), Some("Scheduling" | "Scheduled"))
        })
    }

    /// Waits until an instance has a node, whether or not its agent has said that it runs.
    pub(super) fn bound_or_running(&self) -> Result<Value> {
        self.until("it has no node", |object| object["status"]["nodeName"].is_string())
    }

    /// Waits until a condition has that status, and returns the condition.
    pub(super) fn condition(&self, kind: &str, status: &str) -> Result<Value> {
        let what = format!("condition {kind} is not {status}");
        let object = self.until(&what, |object| {
            condition(object, kind).is_some_and(|condition| condition["status"] == status)
        })?;
        Ok(condition(&object, kind).cloned().unwrap_or_default())
    }

    /// Waits until it is gone.
    pub(super) fn gone(&self) -> Result<()> {
        eventually(&format!("{} {} does not go", self.kind, self.name), || {
            let object = self.find()?;
            ensure!(object.is_none(), "it is {}", object.unwrap_or_default());
            Ok(())
        })
    }

    /// Changes it by a merge patch.
    pub(super) fn patch(&self, patch: &Value) -> Result<()> {
        self.patch_as(&[], patch)
    }

    /// Changes its status by a merge patch.
    pub(super) fn patch_status(&self, patch: &Value) -> Result<()> {
        self.patch_as(&["--subresource=status"], patch)
    }

    /// Changes it by a merge patch with further arguments of kubectl.
    pub(super) fn patch_as(&self, how: &[&str], patch: &Value) -> Result<()> {
        let patch = patch.to_string();
        let arguments = ["patch", self.kind, self.name, "--type=merge", "-p", &patch];
        self.bench.run(&[&arguments[..], how].concat())?;
        Ok(())
    }

    /// Deletes it, and waits until it is gone.
    pub(super) fn delete(&self) -> Result<()> {
        self.bench.run(&["delete", "--wait=false", self.kind, self.name])?;
        self.gone()
    }
}

/// A condition of an object.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Names of all launcher Pods in the namespace.
pub(super) fn launchers(bench: &Workbench) -> Result<Vec<String>> {
    let path = "jsonpath={.items[*].metadata.name}";
    let names = bench.run(&["get", "pods", "-l", "kubevirt.io=virt-launcher", "-o", path])?;
    Ok(names.split_whitespace().map(Into::into).collect())
}

/// Waits until there are no VMIs and no launcher Pods in the namespace.
pub(super) fn all_gone(bench: &Workbench) -> Result<()> {
    eventually("something is left", || {
        let left = bench.run(&["get", "vmi,pods,vm,vmirs", "-o", "name"])?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
}

/// Ends the guest of a Pod, as its kubelet would report it.
pub(super) fn end_guest(bench: &Workbench, pod: &str, end: End) -> Result<()> {
    let (code, message) = match end {
        End::PoweredOff => (0, r#"{"reason":"powered-off","text":"the guest powered off"}"#),
        End::Panicked => (81, r#"{"reason":"panicked","text":"the guest's kernel panicked"}"#),
    };
    end_guest_saying(bench, pod, code, message)
}

/// The same with that exit status and termination message.
pub(super) fn end_guest_saying(
    bench: &Workbench,
    pod: &str,
    code: i32,
    message: &str,
) -> Result<()> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let status = json!({ "status": {
        "phase": if code == 0 { "Succeeded" } else { "Failed" },
        "containerStatuses": [{
            "name": "compute",
            "image": "corten.test/launcher:1",
            "imageID": "",
            "ready": false,
            "restartCount": 0,
            "started": false,
            "state": { "terminated": {
                "exitCode": code, "reason": "Completed", "message": message, "startedAt": now, "finishedAt": now,
            } },
        }],
    } });
    Object::new(bench, "pod", pod).patch_status(&status)
}

/// How a guest ends.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// It switches itself off.
    PoweredOff,
    /// Its kernel panics.
    Panicked,
}
