//! What every test has: a namespace of its own that enforces "restricted", and Pods that fit in.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use corten_cluster::kubectl::Kubectl;
use serde_json::{Value, json};

/// A Pod is ready in 6 s on a quiet machine, the first of a node in 11.
pub(crate) const READY: &str = "--timeout=120s";
const PATIENCE: Duration = Duration::from_secs(120);

/// kubectl for the cluster under test. A KUBECONFIG in the environment is not meant for tests.
pub(crate) fn kubectl() -> Result<Kubectl> {
    let variable = |name: &str| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.with_context(|| format!("{name} is not set: run this by `scripts/test cluster`"))
    };
    Ok(Kubectl { program: variable("CORTEN_KUBECTL")?, kubeconfig: variable("CORTEN_KUBECONFIG")? })
}

/// Names of the cluster's nodes.
pub(crate) fn nodes(kubectl: &Kubectl) -> Result<Vec<String>> {
    let names = kubectl.run(&["get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"])?;
    Ok(names.split_whitespace().map(Into::into).collect())
}

/// A namespace for one test; it is deleted with this value, and nobody waits for that.
pub(crate) struct Workbench {
    /// Name of the namespace.
    pub(crate) namespace: String,
    /// kubectl.
    pub(crate) kubectl: Kubectl,
    /// Objects outside of it, as KIND/NAME.
    owned: Vec<String>,
}

impl Workbench {
    /// A namespace whose name starts with `purpose`.
    pub(crate) fn new(purpose: &str) -> Result<Self> {
        let namespace = format!("{purpose}-{}", std::process::id());
        let kubectl = kubectl()?;
        let object = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": namespace,
                "labels": { "pod-security.kubernetes.io/enforce": "restricted" },
            },
        });
        kubectl.apply(&object.to_string())?;
        Ok(Self { namespace, kubectl, owned: Vec::new() })
    }

    /// Runs kubectl in the namespace.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl.run(&[&["-n", &self.namespace], arguments].concat())
    }

    /// Makes an object in the namespace.
    pub(crate) fn create(&self, mut object: Value) -> Result<()> {
        object["metadata"]["namespace"] = json!(self.namespace);
        self.kubectl.apply(&object.to_string())
    }

    /// Makes an object outside of it, which is deleted together with it.
    pub(crate) fn create_global(&mut self, object: &Value) -> Result<()> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.owned.push(format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"])));
        self.kubectl.apply(&object.to_string())
    }

    /// Waits until Pod `name` is ready.
    pub(crate) fn ready(&self, name: &str) -> Result<()> {
        let pod = format!("pod/{name}");
        let outcome = self.run(&["wait", "--for=condition=Ready", READY, &pod]);
        outcome.map(|_| ()).with_context(|| {
            self.run(&["describe", &pod]).unwrap_or_else(|error| format!("{error:#}"))
        })
    }

    /// Runs a shell command in Pod `name`.
    pub(crate) fn sh(&self, name: &str, script: &str) -> Result<String> {
        self.run(&["exec", name, "--", "sh", "-ec", script])
    }
}

impl Drop for Workbench {
    fn drop(&mut self) {
        for object in &self.owned {
            let _ = self.kubectl.run(&["delete", "--wait=false", "--ignore-not-found", object]);
        }
        let namespace = &self.namespace;
        let _ = self.kubectl.run(&["delete", "--wait=false", "namespace", namespace]);
    }
}

/// A Pod that passes "restricted".
pub(crate) fn pod(name: &str, image: &str, arguments: &[&str]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 107,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": name,
                "image": image,
                "args": arguments,
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": { "drop": ["ALL"] },
                    "readOnlyRootFilesystem": true,
                },
            }],
        },
    })
}

/// A Service of both families for the Pod of the same name.
pub(crate) fn service(name: &str, port: u16, target: u16) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name },
        "spec": {
            "selector": { "app": name },
            "ipFamilyPolicy": "RequireDualStack",
            "ports": [{ "port": port, "targetPort": target }],
        },
    })
}

/// Tries until it succeeds: for what the cluster learns of in its own time.
pub(crate) fn eventually<T>(what: &str, attempt: impl Fn() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() > deadline => bail!("{what}: {error:#}"),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}
