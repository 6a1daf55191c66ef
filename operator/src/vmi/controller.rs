//! Joins watches, plan and writes, until told to stop.

use super::apply::apply;
use super::observe::observe;
use super::plan::{Notice, plan};
use crate::Config;
use crate::control::{Failures, name};
use crate::failure::chain;
use crate::write::{WriteError, Writer};
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::{APP_LABEL, LAUNCHER};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::core::DeserializeGuard;
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

/// One that our types cannot read does not keep the others from being served.
type Guarded = DeserializeGuard<VirtualMachineInstance>;

/// What every reconciliation works with.
struct Context {
    client: Client,
    config: Config,
    pods: Store<Pod>,
    writer: Writer,
    failures: Failures,
}

/// What keeps an object from being reconciled.
#[derive(Debug, thiserror::Error)]
enum ReconcileError {
    #[error("cannot read the Pod of {object}")]
    Observe {
        object: String,
        #[source]
        source: kube::Error,
    },
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Serves VirtualMachineInstances until `stop`, then ends what is under way.
pub async fn run(
    client: Client,
    config: Config,
    instance: Option<String>,
    stop: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let (pods, pod_writer) = reflector::store();
    let launcher_pods = watcher::Config::default().labels(&format!("{APP_LABEL}={LAUNCHER}"));
    let pod_events = watcher(Api::<Pod>::all(client.clone()), launcher_pods)
        .default_backoff()
        // Of no use here, and half of a Pod's size.
        .modify(|pod| pod.managed_fields_mut().clear())
        .reflect(pod_writer)
        .touched_objects();
    let context = Arc::new(Context {
        writer: Writer::new(client.clone(), instance),
        client: client.clone(),
        config,
        pods,
        failures: Failures::default(),
    });
    Controller::new(Api::<Guarded>::all(client), watcher::Config::default())
        .owns_stream(pod_events)
        .graceful_shutdown_on(stop)
        .run(
            reconcile,
            |object, _, context| Action::requeue(context.failures.pause(&name(&*object))),
            Arc::clone(&context),
        )
        .for_each(|result| {
            match result {
                // Its Pod outlived it, as it does for a moment.
                Ok(_) | Err(controller::Error::ObjectNotFound(_)) => {}
                Err(error) => tracing::warn!(error = chain(&error), "reconciliation failed"),
            }
            ready(())
        })
        .await;
    tracing::info!(writes = %context.writer.counts(), "ended");
}

async fn reconcile(object: Arc<Guarded>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let vmi = match &object.0 {
        Ok(vmi) => vmi,
        Err(unreadable) => {
            let message = format!("the object cannot be read: {unreadable}; correct the field");
            context.writer.tell(&*object, &Notice::warning("SyncFailed", message)).await?;
            return Ok(Action::await_change());
        }
    };
    // Before the first list of Pods has arrived, one that is there would look as if it were gone.
    if context.pods.wait_until_ready().now_or_never().is_none() {
        return Ok(Action::requeue(Duration::from_millis(100)));
    }
    let object = name(vmi);
    let observed = observe(vmi, &context.pods, &context.client)
        .await
        .map_err(|source| ReconcileError::Observe { object: object.clone(), source })?;
    let now = Timestamp::now();
    let plan = plan(vmi, &observed, &context.config, now);
    if let Some(wanted) = &plan.vmi {
        tracing::info!(vmi = object, from = ?vmi.status.phase, to = ?wanted.status.phase, "patch");
    }
    if let Some(pod) = &plan.create {
        tracing::info!(vmi = object, pod = pod.name_any(), "create Pod");
    }
    for pod in &plan.delete {
        tracing::info!(vmi = object, pod = pod.name_any(), "delete Pod");
    }
    let again = match apply(vmi, &plan, &context.writer, now).await {
        Ok(again) => again,
        // What the other one wrote arrives by the watch. Should it have been seen already, the pause is what helps.
        Err(error) if error.is_conflict() => return Ok(Action::requeue(Duration::from_secs(1))),
        // It is gone: there is nothing left to do for it.
        Err(error) if error.is_gone() => {
            context.failures.forget(&object);
            return Ok(Action::await_change());
        }
        Err(error) => return Err(error.into()),
    };
    context.failures.forget(&object);
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_cannot_be_read_keeps_its_name() {
        let object = serde_json::json!({ "metadata": { "name": "a", "namespace": "b" }, "spec": { "tolerations": 3 } });
        let guarded: Guarded = serde_json::from_value(object).unwrap();
        assert_eq!(guarded.name_any(), "a");
        assert!(guarded.0.is_err());
    }
}
