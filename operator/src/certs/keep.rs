//! Keeps the Secret as it should be, and what is served as it is.

use super::kept::{Kept, all_new, with_new_authority, with_new_server};
use super::make::MakeError;
use super::{Lifetimes, SECRET, Verdict, judge};
use crate::Settings;
use crate::failure::chain;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// How long to wait before trying again what failed.
const RETRY: Duration = Duration::from_secs(2);
/// How long to sleep at most: a clock that was set is noticed by then.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);

/// The certificate that TLS serves at present.
#[derive(Default)]
pub struct ServingCertificate(RwLock<Option<Arc<CertifiedKey>>>);

impl ServingCertificate {
    /// There is one.
    pub fn is_there(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn set(&self, certified: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(certified);
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCertificate").field("is_there", &self.is_there()).finish()
    }
}

/// Authorities that clients are to trust, as PEM. Nothing until the Secret was read.
pub type Bundle = Option<Arc<str>>;

/// Keeps the Secret of one namespace.
pub struct Keeper {
    api: Api<Secret>,
    names: Vec<String>,
    settings: watch::Receiver<Arc<Settings>>,
    serving: Arc<ServingCertificate>,
    bundle: watch::Sender<Bundle>,
}

impl Keeper {
    /// For certificates with these names.
    pub fn new(
        client: Client,
        namespace: &str,
        names: Vec<String>,
        settings: watch::Receiver<Arc<Settings>>,
    ) -> Self {
        let api = Api::namespaced(client, namespace);
        let (bundle, _) = watch::channel(None);
        Self { api, names, settings, serving: Arc::default(), bundle }
    }

    /// What TLS serves.
    pub fn serving(&self) -> Arc<ServingCertificate> {
        Arc::clone(&self.serving)
    }

    /// What clients are to trust.
    pub fn bundle(&self) -> watch::Receiver<Bundle> {
        self.bundle.subscribe()
    }

    /// Keeps it for ever.
    pub async fn run(mut self) {
        let mut events = pin!(watcher::watch_object(self.api.clone(), SECRET).default_backoff());
        // Not known yet, not there, or there.
        let mut secret: Option<Option<Secret>> = None;
        let mut pause = LONGEST_SLEEP;
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(found)) => secret = Some(found),
                    Some(Err(error)) => {
                        tracing::warn!(error = chain(&error), secret = SECRET, "cannot watch");
                    }
                    None => sleep(RETRY).await,
                },
                changed = self.settings.changed() => if changed.is_err() { return },
                () = sleep(pause) => {}
            }
            let Some(known) = secret.as_mut() else { continue };
            pause = match self.look(known).await {
                Ok(until) => {
                    let left = until.duration_since(Timestamp::now());
                    Duration::try_from(left).unwrap_or_default().clamp(RETRY, LONGEST_SLEEP)
                }
                Err(error) => {
                    tracing::warn!(error = chain(&error), secret = SECRET, "cannot renew");
                    RETRY
                }
            };
        }
    }

    /// Takes over what is in the Secret, and changes it if it is time. Says when to look again.
    async fn look(&self, secret: &mut Option<Secret>) -> Result<Timestamp, KeepError> {
        let lifetimes = self.settings.borrow().lifetimes;
        loop {
            let kept = secret.as_ref().and_then(Kept::read);
            if let Some(kept) = &kept {
                self.take_over(kept);
            }
            let now = Timestamp::now();
            let facts = kept.map(|kept| kept.facts(&self.names));
            let verdict = judge(facts.as_ref(), now, &lifetimes);
            if let Verdict::Keep(until) = verdict {
                return Ok(until);
            }
            match self.write(secret.as_ref(), verdict, &lifetimes, now).await? {
                Some(written) => *secret = Some(written),
                // Another replica was faster.
                None => *secret = self.api.get_opt(SECRET).await?,
            }
        }
    }

    async fn write(
        &self,
        old: Option<&Secret>,
        verdict: Verdict,
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<Option<Secret>, KeepError> {
        let wanted = match (verdict, old) {
            (Verdict::RotateAuthority, Some(old)) => with_new_authority(Some(old), lifetimes, now)?,
            (Verdict::RenewServer, Some(old)) => with_new_server(old, &self.names, lifetimes, now)?,
            _ => all_new(old, &self.names, lifetimes, now)?,
        };
        let result = match old {
            None => self.api.create(&PostParams::default(), &wanted).await,
            Some(_) => self.api.replace(SECRET, &PostParams::default(), &wanted).await,
        };
        match result {
            Ok(written) => {
                tracing::info!(secret = SECRET, done = ?verdict, "certificates renewed");
                Ok(Some(written))
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn take_over(&self, kept: &Kept) {
        self.serving.set(Arc::clone(&kept.certified));
        crate::metrics::certificate_expires(kept.expires());
        self.bundle.send_if_modified(|bundle| {
            let changed = bundle.as_deref() != Some(&kept.bundle);
            if changed {
                *bundle = Some(kept.bundle.as_str().into());
            }
            changed
        });
    }
}

/// What keeps the certificates from being renewed.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    Make(#[from] MakeError),
    #[error("cannot write the Secret {SECRET}")]
    Write(#[from] kube::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::testing::FakeApi;
    use tokio::time::timeout;

    fn settings() -> (watch::Sender<Arc<Settings>>, watch::Receiver<Arc<Settings>>) {
        watch::channel(Arc::new(Settings::new(&Config {
            launcher_image: "corten.test/launcher:1".to_owned(),
            launcher_pull_policy: "IfNotPresent".to_owned(),
        })))
    }

    async fn bundle(receiver: &mut watch::Receiver<Bundle>) -> Arc<str> {
        let known = timeout(Duration::from_secs(10), receiver.wait_for(Option::is_some)).await;
        let known = known.expect("no bundle").unwrap().clone().unwrap();
        receiver.mark_unchanged();
        known
    }

    #[tokio::test]
    async fn replicas_that_start_together_serve_the_same_and_follow_what_changes() {
        let api = FakeApi::new();
        let (sender, receiver) = settings();
        let names = vec!["corten-operator.kubevirt.svc".to_owned()];
        let keepers = [(); 2]
            .map(|()| Keeper::new(api.client(), "kubevirt", names.clone(), receiver.clone()));
        let mut bundles = keepers.each_ref().map(Keeper::bundle);
        let serving = keepers.each_ref().map(Keeper::serving);
        assert!(!serving[0].is_there());
        let tasks = keepers.map(|keeper| tokio::spawn(keeper.run()));
        let first = bundle(&mut bundles[0]).await;
        assert_eq!(bundle(&mut bundles[1]).await, first);
        assert!(serving.iter().all(|it| it.is_there()));
        assert_eq!(api.writes(), 1);
        // Shorter lives are wanted: one of them rotates, both take it over, and the earlier authority stays.
        sender.send_modify(|settings| {
            let mut changed = (**settings).clone();
            changed.lifetimes.authority.duration = jiff::SignedDuration::from_hours(24);
            *settings = Arc::new(changed);
        });
        for receiver in &mut bundles {
            timeout(Duration::from_secs(10), receiver.changed())
                .await
                .expect("not rotated")
                .unwrap();
        }
        let second = bundle(&mut bundles[0]).await;
        assert_eq!(bundle(&mut bundles[1]).await, second);
        assert!(second.ends_with(&*first) && second.len() > first.len());
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn a_damaged_secret_is_made_anew() {
        let api = FakeApi::new();
        api.put(SECRET, serde_json::json!({ "data": { "tls.crt": "cnViYmlzaA==" } }));
        let (_sender, receiver) = settings();
        let keeper = Keeper::new(api.client(), "kubevirt", vec!["a.b.svc".to_owned()], receiver);
        let (mut bundles, serving) = (keeper.bundle(), keeper.serving());
        let task = tokio::spawn(keeper.run());
        bundle(&mut bundles).await;
        assert!(serving.is_there());
        task.abort();
    }
}
