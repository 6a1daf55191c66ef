//! What the agents of all nodes would write: that guests run. The words are the agent's own; only here are they written for
//! guests that there are not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use corten_node_agent::identity::Known;
use corten_node_agent::status::{self, Facts, Times};
use corten_resources::types::VirtualMachineInstance;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::operator::{Operators, SYSTEM};
use crate::workbench::Workbench;

/// Their service account.
pub(super) const AGENT: &str = "corten-node-agent";

/// Follows the VMIs of a test until it is dropped. They run as soon as they have a node.
pub(super) struct Agents {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Agents {
    /// Starts them.
    pub(super) fn start(bench: &Workbench, operators: &Operators) -> Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let runtime = runtime()?;
        let admin = runtime.block_on(client(&operators.kubectl.kubeconfig, None))?;
        let mut nodes = Nodes::new(admin.clone(), operators);
        let namespace = bench.namespace.clone();
        let work = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = follow(admin, &namespace, &mut nodes) => {}
                    _ = stopped => {}
                }
            });
        };
        Ok(Self { stop: Some(stop), thread: Some(std::thread::spawn(work)) })
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One thread is enough for what tests ask.
pub(super) fn runtime() -> Result<Runtime> {
    // Fails if it was done before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// A client of the API server: by that token, or as the administrator.
pub(super) async fn client(kubeconfig: &Path, token: Option<&str>) -> Result<Client> {
    let mut config: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
    if let Some(token) = token {
        config["users"][0]["user"] = json!({ "token": token });
    }
    let config: Kubeconfig = serde_json::from_value(config)?;
    let config =
        kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Client::try_from(config).context("no client")
}

/// VirtualMachineInstances.
pub(super) fn vmis() -> ApiResource {
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", VirtualMachineInstance::KIND);
    ApiResource::from_gvk_with_plural(&kind, VirtualMachineInstance::PLURAL)
}

/// The agents' clients, one for each node: its token may write for that node only.
pub(super) struct Nodes {
    admin: Client,
    kubeconfig: PathBuf,
    clients: BTreeMap<String, Client>,
}

impl Nodes {
    /// None is known yet.
    pub(super) fn new(admin: Client, operators: &Operators) -> Self {
        let kubeconfig = operators.kubectl.kubeconfig.clone();
        Self { admin, kubeconfig, clients: BTreeMap::new() }
    }

    /// The client of a node's agent.
    pub(super) async fn client(&mut self, node: &str) -> Result<Client> {
        if let Some(client) = self.clients.get(node) {
            return Ok(client.clone());
        }
        let nodes: Api<Node> = Api::all(self.admin.clone());
        let found = nodes.get_metadata(node).await?;
        let bound = BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Node".into()),
            name: Some(node.into()),
            uid: found.metadata.uid,
        };
        let client = self.client_by(Some(bound)).await?;
        self.clients.insert(node.into(), client.clone());
        Ok(client)
    }

    /// A client by a token that was made for nothing of the cluster, or for that object.
    pub(super) async fn client_by(&self, bound: Option<BoundObjectReference>) -> Result<Client> {
        let spec = TokenRequestSpec { bound_object_ref: bound, ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin.clone(), SYSTEM);
        let made = accounts.create_token_request(AGENT, &PostParams::default(), &request).await?;
        let token = made.status.context("no token")?.token;
        client(&self.kubeconfig, Some(&token)).await
    }
}

async fn follow(admin: Client, namespace: &str, nodes: &mut Nodes) {
    let all: Api<DynamicObject> = Api::namespaced_with(admin, namespace, &vmis());
    let mut events = pin!(watcher::watcher(all, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        let Ok(Event::Apply(object) | Event::InitApply(object)) = event else { continue };
        if let Err(error) = run(object, nodes).await {
            eprintln!("an agent cannot write: {error:#}");
        }
    }
}

/// Says that a VMI runs, if it has a node and nobody has said so.
async fn run(object: DynamicObject, nodes: &mut Nodes) -> Result<()> {
    let Ok(vmi) = serde_json::from_value::<VirtualMachineInstance>(serde_json::to_value(&object)?)
    else {
        return Ok(());
    };
    let Some((pod, node)) = vmi.status.active_pods.first_key_value() else { return Ok(()) };
    let now = Timestamp::now();
    let times = Some(Times { scheduled: now, running: now });
    let facts = Facts { times, ..Facts::default() };
    let known = Known { node: node.clone(), ..Known::default() };
    let Some(patch) = status::patch(&vmi, pod, &known, &facts, now) else { return Ok(()) };
    let client = nodes.client(node).await?;
    let its: Api<DynamicObject> = Api::namespaced_with(client, &vmi.metadata.namespace, &vmis());
    match its.patch(&vmi.metadata.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        // It has changed, and comes again; or it is gone.
        Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("{} on {node}", vmi.metadata.name)),
    }
}
