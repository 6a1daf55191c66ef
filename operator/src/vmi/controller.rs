//! Joins watches, plan and writes, until told to stop.

use super::apply::apply;
use super::notice::Notice;
use super::observe::{Stores, observe};
use super::orphans::sweep;
use super::plan::plan;
use super::streams::{self, Guarded};
use super::unreadable;
use crate::Settings;
use crate::control::{self, Failures, name};
use crate::failure::chain;
use crate::metrics::{self, Outcome};
use crate::write::{WriteError, Writer};
use corten_resources::cluster::VirtualMachineInstance;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use kube::core::Resource;
use kube::runtime::controller::{self, Action};
use kube::{Api, Client, ResourceExt};
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long an object that has not ended is left alone. Nothing relies on it: what matters is watched.
const AT_THE_LATEST: Duration = Duration::from_secs(300);

/// What every reconciliation works with.
struct Context {
    client: Client,
    settings: watch::Receiver<Arc<Settings>>,
    stores: Stores,
    writer: Arc<Writer>,
    failures: Failures,
}

/// What keeps an object from being reconciled.
#[derive(Debug, thiserror::Error)]
enum ReconcileError {
    #[error("cannot read what there is of {object}")]
    Observe {
        object: String,
        #[source]
        source: kube::Error,
    },
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Serves VirtualMachineInstances until `stop`, then ends what is under way. New settings hold for Pods that are made
/// from then on.
pub async fn run(
    client: Client,
    settings: watch::Receiver<Arc<Settings>>,
    writer: Arc<Writer>,
    watched: &control::Stores,
    stop: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let vmis = watched.instances.store().clone();
    let (pods, pod_events) = streams::pods(&client);
    let (nodes, node_events) = streams::nodes(&client);
    let (claims, claim_events) = streams::claims(&client);
    let context = Arc::new(Context {
        writer,
        client: client.clone(),
        settings,
        stores: Stores { pods, nodes, claims },
        failures: Failures::default(),
    });
    let (of_nodes, of_claims) = (vmis.clone(), vmis.clone());
    let served = watched
        .instances
        .controller()
        .owns_stream(pod_events)
        .watches_stream(node_events, move |node| streams::on_node(&node, &of_nodes))
        .watches_stream(claim_events, move |claim| streams::using(&claim, &of_claims))
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
        });
    tokio::select! {
        () = served => {}
        () = sweep(&context.stores, &vmis, &client, &context.writer) => {}
    }
}

async fn reconcile(object: Arc<Guarded>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    // Before the first lists have arrived, what is there would look as if it were gone.
    let Stores { pods, nodes, claims } = &context.stores;
    let lists = [
        pods.wait_until_ready().now_or_never().is_some(),
        nodes.wait_until_ready().now_or_never().is_some(),
        claims.wait_until_ready().now_or_never().is_some(),
    ];
    if lists.contains(&false) {
        return Ok(Action::requeue(Duration::from_millis(100)));
    }
    let began = Instant::now();
    let result = match &object.0 {
        Ok(vmi) => serve(vmi, &context).await,
        Err(error) => {
            let message = format!("the object cannot be read: {error}; correct the field");
            tell_unreadable(&object, &message, &context).await
        }
    };
    let outcome = if result.is_ok() { Outcome::Done } else { Outcome::Failed };
    metrics::reconciled("virtualmachineinstance", outcome, began.elapsed());
    result
}

async fn serve(vmi: &VirtualMachineInstance, context: &Context) -> Result<Action, ReconcileError> {
    let object = name(vmi);
    let now = Timestamp::now();
    let observed = observe(vmi, &context.stores, &context.client, now)
        .await
        .map_err(|source| ReconcileError::Observe { object: object.clone(), source })?;
    let settings = Arc::clone(&context.settings.borrow());
    let plan = plan(vmi, &observed, &settings, now);
    if let Some(wanted) = &plan.vmi {
        tracing::info!(vmi = object, from = ?vmi.status.phase, to = ?wanted.status.phase, "patch");
    }
    if let Some(pod) = &plan.create {
        tracing::info!(vmi = object, pod = pod.name_any(), "create Pod");
    }
    for pod in &plan.release {
        tracing::info!(vmi = object, pod = pod.name_any(), "let Pod go");
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
    let is_over = vmi.status.phase.is_final() && vmi.metadata.deletion_timestamp.is_none();
    Ok(match again {
        Some(again) => Action::requeue(again),
        None if is_over => Action::await_change(),
        None => Action::requeue(AT_THE_LATEST),
    })
}

/// Says on an object that it cannot be read, once. It can be deleted all the same.
async fn tell_unreadable(
    object: &Guarded,
    message: &str,
    context: &Context,
) -> Result<Action, ReconcileError> {
    if object.meta().deletion_timestamp.is_some() {
        return serve(&unreadable::remains(object.meta().clone()), context).await;
    }
    let kind = ApiResource::erase::<VirtualMachineInstance>(&());
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), &namespace, &kind);
    let failed = |source| ReconcileError::Observe { object: name(object), source };
    let Some(raw) = api.get_opt(&object.name_any()).await.map_err(failed)? else {
        return Ok(Action::await_change());
    };
    let raw = serde_json::to_value(raw).unwrap_or_default();
    let message = unreadable::why(&raw).unwrap_or_else(|| message.to_owned());
    if let Some(patch) = unreadable::patch(&raw, &message, Timestamp::now()) {
        match context.writer.patch_raw(object, patch).await {
            Err(error) if error.is_conflict() => {
                return Ok(Action::requeue(Duration::from_secs(1)));
            }
            result => result?,
        }
        context.writer.tell(object, &Notice::warning("SyncFailed", message)).await?;
    }
    Ok(Action::await_change())
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
