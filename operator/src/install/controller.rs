//! Joins what is observed, planned and written, until told to stop.

use super::Followed;
use super::kinds::{KINDS, ObjectKind, kind_of};
use super::objects::{MANAGED_BY, Source, deployment_id, objects, without_installation};
use super::plan::{FINALIZER, Observed, Plan, elected, handed_over, is_leaving, plan};
use super::status::{Rollout, State, Target, VERSION, with_status};
use crate::certs::Bundle;
use crate::failure::chain;
use crate::metrics::{self, Outcome};
use crate::settings::given;
use crate::write::{WriteError, Writer};
use crate::{Settings, Stop};
use corten_resources::cluster::{KubeVirt, VirtualMachineInstance};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{DynamicObject, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::sleep;

/// How soon everything is compared again although nothing was heard.
const AGAIN: Duration = Duration::from_secs(60);
/// How soon while there is no KubeVirt object: nobody tells of the first VirtualMachineInstance.
const WITHOUT_OBJECT: Duration = Duration::from_secs(10);
/// How soon after a failure, or to see what became of a change.
const SOON: Duration = Duration::from_secs(2);
/// Changes that come together are looked at together.
const TOGETHER: Duration = Duration::from_millis(300);

/// Installs what the KubeVirt object says.
pub struct Installer {
    /// Where the operator is, and what it installs.
    pub namespace: String,
    /// Image of the node agents, if it is not the launcher's neighbour.
    pub agent_image: Option<String>,
    /// The KubeVirt objects.
    pub followed: Followed,
    /// What webhooks trust.
    pub bundle: watch::Receiver<Bundle>,
}

/// What keeps it from being installed.
#[derive(Debug, thiserror::Error)]
enum InstallError {
    #[error("cannot list {what}")]
    Observe {
        what: &'static str,
        #[source]
        source: kube::Error,
    },
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Keeps installed what the KubeVirt object says, until told to stop.
pub async fn run(client: Client, mut installer: Installer, writer: Arc<Writer>, stop: Stop) {
    installer.followed.known().await;
    let agents: Api<DaemonSet> = Api::namespaced(client.clone(), &installer.namespace);
    let ours = watcher::Config::default().labels(&label());
    let mut agents = pin!(watcher(agents, ours).default_backoff().touched_objects());
    let mut stopped = pin!(stop.told());
    let mut pause = Duration::ZERO;
    loop {
        tokio::select! {
            () = &mut stopped => return,
            changed = installer.followed.objects.changed() => if changed.is_err() { return },
            changed = installer.bundle.changed() => if changed.is_err() { return },
            Some(event) = agents.next() => if let Err(error) = event {
                tracing::warn!(error = chain(&error), "cannot watch the node agents");
                continue;
            },
            () = sleep(pause) => {}
        }
        sleep(TOGETHER).await;
        let began = Instant::now();
        let result = installer.reconcile(&client, &writer).await;
        let outcome = match &result {
            Ok(_) => Outcome::Done,
            Err(InstallError::Write(error)) if error.is_conflict() => Outcome::Conflict,
            Err(_) => Outcome::Failed,
        };
        metrics::reconciled("kubevirt", outcome, began.elapsed());
        pause = match result {
            Ok(pause) => pause,
            Err(error) => {
                if outcome == Outcome::Failed {
                    tracing::warn!(error = chain(&error), "installation failed");
                }
                SOON
            }
        };
    }
}

fn label() -> String {
    format!("{}={}", MANAGED_BY.0, MANAGED_BY.1)
}

impl Installer {
    /// One look at everything. Says when the next is due.
    async fn reconcile(
        &mut self,
        client: &Client,
        writer: &Writer,
    ) -> Result<Duration, InstallError> {
        let all = self.followed.objects.borrow_and_update().clone().unwrap_or_default();
        let settings = Arc::clone(&self.followed.settings.borrow());
        let bundle = self.bundle.borrow_and_update().clone();
        let object = elected(&all);
        let live = live(client, &self.namespace).await?;
        let (wanted, target) = match (object, &bundle) {
            (Some(object), Some(bundle)) => {
                let source = self.source(object, &settings, bundle);
                (Some(objects(source)), Some(target(source)))
            }
            (None, Some(bundle)) => (Some(without_installation(&self.namespace, bundle)), None),
            _ => (None, None),
        };
        let machines = match is_leaving(object) {
            true => Some(machines(client).await?),
            false => None,
        };
        let observed = Observed { object, wanted: wanted.as_deref(), live: &live, machines };
        let plan = plan(observed);
        let failure = self.carry_out(&plan, object, writer).await?;
        let over: Vec<_> = handed_over(&all, object).collect();
        for other in &over {
            release(other, writer).await?;
        }
        let now = Timestamp::now();
        for other in all.iter().filter(|it| !over.contains(it)) {
            let state = match object {
                Some(object) if object.uid() == other.uid() => {
                    // Its version is another since its finalizers were written: the watch tells.
                    if plan.hold || plan.release {
                        continue;
                    }
                    state(object, &plan, wanted.is_some(), failure.clone(), &live)
                }
                _ => State::Superfluous { elected: object.map(name).unwrap_or_default() },
            };
            let superfluous = matches!(state, State::Superfluous { .. });
            let target = target.as_ref().filter(|_| !superfluous);
            let should = with_status(other, &state, target, &live, now);
            if should.status.phase != other.status.phase {
                tracing::info!(kubevirt = name(other), phase = should.status.phase, reason = ?state, "phase");
            }
            writer.patch_status(other, &should).await?;
        }
        let settled = plan == Plan::default() && failure.is_none();
        Ok(match (settled, object) {
            (true, Some(_)) => AGAIN,
            (true, None) => WITHOUT_OBJECT,
            (false, _) => SOON,
        })
    }

    fn source<'a>(
        &'a self,
        object: &'a KubeVirt,
        settings: &'a Settings,
        bundle: &'a str,
    ) -> Source<'a> {
        Source {
            namespace: &self.namespace,
            spec: &object.spec,
            settings,
            agent_image: self.agent_image.as_deref(),
            bundle,
        }
    }

    /// Does what was planned. What cannot be applied does not keep the rest from being; the first reason is returned.
    async fn carry_out(
        &self,
        plan: &Plan,
        object: Option<&KubeVirt>,
        writer: &Writer,
    ) -> Result<Option<String>, InstallError> {
        if let (true, Some(object)) = (plan.hold, object) {
            let mut held = object.clone();
            held.finalizers_mut().push(FINALIZER.to_owned());
            writer.patch(object, &held).await?;
        }
        let mut failure = None;
        for (wanted, action) in plan
            .apply
            .iter()
            .map(|it| (it, "apply"))
            .chain(plan.remove.iter().map(|it| (it, "remove")))
        {
            let Some(kind) = kind_of(wanted) else { continue };
            let object = wanted["metadata"]["name"].as_str();
            tracing::info!(kind = kind.kind, object, action, "installation");
            let result = match action {
                "apply" => writer.apply(kind, wanted).await,
                _ => writer.remove(kind, wanted).await,
            };
            match result {
                Err(error) if kind.optional && error.is_gone() => {}
                Err(error) => {
                    let why = chain(&error);
                    tracing::warn!(error = why, "installation failed");
                    failure.get_or_insert(why);
                }
                Ok(()) => {}
            }
        }
        if let (true, Some(object)) = (plan.release, object) {
            release(object, writer).await?;
        }
        Ok(failure)
    }
}

/// Takes our finalizer off.
async fn release(object: &KubeVirt, writer: &Writer) -> Result<(), WriteError> {
    let mut released = object.clone();
    released.finalizers_mut().retain(|name| name != FINALIZER);
    writer.patch(object, &released).await.map(drop)
}

fn name(object: &KubeVirt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

fn state(
    object: &KubeVirt,
    plan: &Plan,
    certified: bool,
    failure: Option<String>,
    live: &[Value],
) -> State {
    if let Some(why) = failure {
        return State::Failed(why);
    }
    if is_leaving(Some(object)) {
        return State::Leaving { blocked_by: plan.blocked_by };
    }
    if !certified {
        return State::Waiting;
    }
    if plan.apply.is_empty() { State::Complete(Rollout::of(live)) } else { State::Applied }
}

fn target(source: Source<'_>) -> Target {
    let launcher = &source.settings.launcher_image;
    Target {
        id: deployment_id(source),
        registry: launcher
            .rsplit_once('/')
            .map(|(registry, _)| registry)
            .unwrap_or_default()
            .to_owned(),
        version: given(&source.spec.image_tag).unwrap_or(VERSION).to_owned(),
    }
}

/// Everything that is there and carries our label.
async fn live(client: &Client, namespace: &str) -> Result<Vec<Value>, InstallError> {
    let mut live = Vec::new();
    for kind in KINDS {
        live.extend(live_of(client, namespace, kind).await?);
    }
    Ok(live)
}

async fn live_of(
    client: &Client,
    namespace: &str,
    kind: &ObjectKind,
) -> Result<Vec<Value>, InstallError> {
    let api: Api<DynamicObject> = if kind.namespaced {
        Api::namespaced_with(client.clone(), namespace, &kind.resource())
    } else {
        Api::all_with(client.clone(), &kind.resource())
    };
    let list = match api.list(&ListParams::default().labels(&label())).await {
        Ok(list) => list,
        Err(kube::Error::Api(status)) if kind.optional && matches!(status.code, 403 | 404) => {
            return Ok(Vec::new());
        }
        Err(source) => return Err(InstallError::Observe { what: kind.plural, source }),
    };
    let objects = list.items.into_iter().filter_map(|mut object| {
        object.managed_fields_mut().clear();
        let mut value = serde_json::to_value(object).ok()?;
        // Members of lists do not say what they are.
        value["apiVersion"] = json!(kind.api_version);
        value["kind"] = json!(kind.kind);
        Some(value)
    });
    Ok(objects.collect())
}

/// How many VirtualMachineInstances there are.
async fn machines(client: &Client) -> Result<i64, InstallError> {
    let api: Api<VirtualMachineInstance> = Api::all(client.clone());
    match api.list_metadata(&ListParams::default().limit(1)).await {
        Ok(list) => {
            let first = i64::from(!list.items.is_empty());
            Ok(first.saturating_add(list.metadata.remaining_item_count.unwrap_or(0)))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(0),
        Err(source) => Err(InstallError::Observe { what: "virtualmachineinstances", source }),
    }
}
