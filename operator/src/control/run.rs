//! The loop of a controller.

use super::unreadable::tell_unreadable;
use super::{Failures, Guarded, Kind, ToldAs, name};
use crate::failure::chain;
use crate::metrics::{self, Outcome};
use crate::write::{WriteError, Writer};
use futures::StreamExt;
use kube::Client;
use kube::runtime::Controller;
use kube::runtime::controller::{self, Action};
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Serves the objects of a kind, one at a time.
pub trait Reconcile: Send + Sync + 'static {
    /// The kind.
    type Kind: Kind;

    /// Its name in metrics.
    const NAME: &'static str;

    /// How it is told of an object that cannot be read.
    const UNREADABLE: ToldAs;

    /// Observes, plans, applies. Says when to look again although nothing changed.
    fn reconcile(
        &self,
        object: &Self::Kind,
    ) -> impl Future<Output = Result<Option<Duration>, ReconcileError>> + Send;
}

/// What keeps an object from being reconciled.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// What belongs to it could not be read.
    #[error("cannot read {what} of {object}")]
    Observe {
        /// What was to be read.
        what: &'static str,
        /// The object it belongs to.
        object: String,
        /// Why not.
        #[source]
        source: kube::Error,
    },
    /// A write failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What every turn of the loop works with.
struct Context<R> {
    reconciler: R,
    client: Client,
    writer: Arc<Writer>,
    failures: Failures,
}

/// Runs a controller until `stop`, then ends what is under way.
pub async fn run<R: Reconcile>(
    controller: Controller<Guarded<R::Kind>>,
    reconciler: R,
    client: Client,
    writer: Arc<Writer>,
    stop: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let context = Arc::new(Context { reconciler, client, writer, failures: Failures::default() });
    let forgetful = Arc::clone(&context);
    controller
        .graceful_shutdown_on(stop)
        .run(
            turn,
            |object, _, context: Arc<Context<R>>| {
                Action::requeue(context.failures.pause(&name(&*object)))
            },
            context,
        )
        .for_each(|result| {
            match result {
                Ok(_) => {}
                // What belonged to it outlived it, as it does for a moment.
                Err(controller::Error::ObjectNotFound(gone)) => {
                    let namespace = gone.namespace.unwrap_or_default();
                    forgetful.failures.forget(&format!("{namespace}/{}", gone.name));
                }
                Err(error) => tracing::warn!(error = chain(&error), "reconciliation failed"),
            }
            ready(())
        })
        .await;
}

async fn turn<R: Reconcile>(
    object: Arc<Guarded<R::Kind>>,
    context: Arc<Context<R>>,
) -> Result<Action, ReconcileError> {
    let Context { reconciler, client, writer, failures } = &*context;
    let key = name(&*object);
    let began = Instant::now();
    let result = match &object.0 {
        Ok(readable) => reconciler.reconcile(readable).await,
        Err(unreadable) => {
            let told = R::UNREADABLE;
            tell_unreadable::<R::Kind>(&object, unreadable, told, client, writer).await
        }
    };
    let outcome = match &result {
        Ok(_) => Outcome::Done,
        Err(ReconcileError::Write(error)) if error.is_conflict() => Outcome::Conflict,
        Err(ReconcileError::Write(error)) if error.is_gone() => Outcome::Done,
        Err(_) => Outcome::Failed,
    };
    metrics::reconciled(R::NAME, outcome, began.elapsed());
    let again = match result {
        // What the other one wrote arrives by the watch. Should it have been seen already, the pause is what helps.
        Err(ReconcileError::Write(error)) if error.is_conflict() => {
            return Ok(Action::requeue(Duration::from_secs(1)));
        }
        // It is gone: there is nothing left to do for it.
        Err(ReconcileError::Write(error)) if error.is_gone() => None,
        result => result?,
    };
    failures.forget(&key);
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}
