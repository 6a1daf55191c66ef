//! What every test has: a namespace of its own that enforces "restricted", and Pods that fit in.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use corten_cluster::kubectl::Kubectl;
use corten_cluster::manifests;
pub(crate) use corten_cluster::manifests::restricted_pod as pod;
use serde_json::{Value, json};

use crate::evidence;

/// A Pod is ready in 6 s on a quiet machine, the first of a node in 11.
pub(crate) const READY: &str = "--timeout=120s";
/// Four times what the longest wait takes, a guest that boots beside another one, when the machine has other work too.
const PATIENCE: Duration = Duration::from_secs(240);

/// The names of tests' namespaces start so, which tells what is ours on anybody's cluster.
pub(crate) const PREFIX: &str = "corten-test-";

/// kubectl for the cluster under test, all of whose nodes are ready. A KUBECONFIG in the environment is not meant for tests.
pub(crate) fn kubectl() -> Result<Kubectl> {
    let kubectl = kubectl_as_it_is()?;
    heal(&kubectl);
    Ok(kubectl)
}

/// Starts nodes of the lab's own cluster anew whose kernel crashed: QEMU's emulation of SVM does that to them now and then,
/// and one test's node is every later test's too. Whatever is wrong otherwise is for the test to find.
fn heal(kubectl: &Kubectl) {
    let Some(program) = std::env::var_os("CORTEN_CLUSTER") else { return };
    for number in ["1", "2"] {
        let mut command = Command::new(&program);
        let _ = command.args(["node-heal", number]).stdin(Stdio::null()).output();
    }
    let _ = kubectl.run(&["wait", "--for=condition=Ready", READY, "node", "--all"]);
}

/// The same, whatever its nodes are like.
pub(crate) fn kubectl_as_it_is() -> Result<Kubectl> {
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

/// Names of two nodes.
pub(crate) fn two_nodes(kubectl: &Kubectl) -> Result<[String; 2]> {
    let mut nodes = nodes(kubectl)?.into_iter();
    match (nodes.next(), nodes.next()) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => bail!("this test needs a cluster of two nodes"),
    }
}

/// A namespace for one test; it is deleted with this value, and nobody waits for that.
pub(crate) struct Workbench {
    /// Name of the namespace.
    pub(crate) namespace: String,
    /// kubectl.
    pub(crate) kubectl: Kubectl,
    /// That and all further namespaces of the test.
    namespaces: Vec<String>,
    /// Objects outside of them, as KIND/NAME.
    owned: Vec<String>,
}

impl Workbench {
    /// Runs the body of a test with a namespace whose name has `purpose` in it. If it fails, the failure says where the
    /// evidence is.
    pub(crate) fn test(
        purpose: &str,
        body: impl FnOnce(&mut Workbench) -> Result<()>,
    ) -> Result<()> {
        let mut bench = Self::new(purpose)?;
        match catch_unwind(AssertUnwindSafe(|| body(&mut bench))) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.context(bench.evidence())),
            Err(panic) => {
                eprintln!("{}", bench.evidence());
                resume_unwind(panic)
            }
        }
    }

    fn new(purpose: &str) -> Result<Self> {
        let namespace = format!("{PREFIX}{purpose}-{}", std::process::id());
        let kubectl = kubectl()?;
        kubectl.apply(&manifests::namespace(&namespace, "restricted").to_string())?;
        let namespaces = vec![namespace.clone()];
        Ok(Self { namespace, kubectl, namespaces, owned: Vec::new() })
    }

    fn evidence(&self) -> String {
        match evidence::collect(&self.kubectl, &self.namespaces) {
            Ok(directory) => format!("evidence of this failure is in {}", directory.display()),
            Err(error) => format!("evidence of this failure cannot be collected: {error:#}"),
        }
    }

    /// A second namespace, in which everything is allowed; returns its name.
    pub(crate) fn privileged_namespace(&mut self) -> Result<String> {
        let name = format!("{}-privileged", self.namespace);
        self.create_global(&manifests::namespace(&name, "privileged"))?;
        self.namespaces.push(name.clone());
        Ok(name)
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
        self.run(&["wait", "--for=condition=Ready", READY, &format!("pod/{name}")])?;
        Ok(())
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

/// `pod`, on that node and no other.
pub(crate) fn on_node(node: &str, mut pod: Value) -> Value {
    pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    pod
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
