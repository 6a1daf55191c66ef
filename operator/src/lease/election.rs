//! Waits for the Lease, keeps it, gives it back.

use super::decide::{claimed, released};
use super::{Step, Terms, decide};
use crate::failure::chain;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

/// How long to wait before trying again what failed.
const RETRY: Duration = Duration::from_secs(1);
/// How long giving it back may take: the successor would get it anyway.
const RELEASE: Duration = Duration::from_secs(3);

/// A name that no other process has, nor this Pod's earlier container: the Pod's, and chance.
pub fn identity(pod: &str) -> String {
    format!("{pod}_{:016x}", chance())
}

/// Enough to tell processes apart, and to keep them from doing things at the same time.
fn chance() -> u64 {
    RandomState::new().hash_one(0)
}

/// Up to a fifth less, by chance.
fn jitter(time: Duration) -> Duration {
    let fifth = u64::try_from(time.as_millis()).unwrap_or(u64::MAX) / 5;
    time.saturating_sub(Duration::from_millis(chance() % fifth.max(1)))
}

/// A replica that wants to lead.
pub struct Election {
    api: Api<Lease>,
    name: String,
    me: String,
    terms: Terms,
}

/// A replica that leads, as long as it keeps the Lease.
pub struct Leadership {
    api: Api<Lease>,
    lease: Lease,
    me: String,
    terms: Terms,
    renewed: Instant,
}

/// The Lease is no longer this replica's.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Another took it.
    #[error("the Lease {0} was taken by another replica")]
    Taken(String),
    /// It could not be renewed in time.
    #[error("the Lease {0} could not be renewed in time: is the API server reachable?")]
    NotRenewed(String),
}

impl Election {
    /// For the Lease of this name.
    pub fn new(client: Client, namespace: &str, name: &str, me: String, terms: Terms) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), me, terms }
    }

    /// Waits until the Lease is this replica's.
    pub async fn win(&self) -> Leadership {
        let mut events =
            pin!(watcher::watch_object(self.api.clone(), &self.name).default_backoff());
        let mut lease: Option<Lease> = None;
        let mut seen = Instant::now();
        // Not before the first answer: what is not known yet is not free.
        let mut next = None;
        loop {
            let wake = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(found)) => {
                        if lease.is_none() || version(found.as_ref()) != version(lease.as_ref()) {
                            seen = Instant::now();
                        }
                        lease = found;
                    }
                    Some(Err(error)) => {
                        tracing::warn!(error = chain(&error), "cannot watch the Lease");
                        continue;
                    }
                    None => sleep(RETRY).await,
                },
                () = wake => {}
            }
            match decide(lease.as_ref(), seen.elapsed(), &self.me, false) {
                Step::Wait(time) => next = Some(Instant::now() + time),
                Step::Acquire | Step::Renew | Step::Lost => {
                    if let Some(leadership) = self.try_to_take(lease.as_ref()).await {
                        return leadership;
                    }
                    next = Some(Instant::now() + jitter(RETRY));
                }
            }
        }
    }

    async fn try_to_take(&self, lease: Option<&Lease>) -> Option<Leadership> {
        // Counted from before it was asked for: the answer may have taken its time.
        let renewed = Instant::now();
        let wanted = claimed(lease, &self.name, &self.me, self.terms.duration, Timestamp::now());
        let parameters = PostParams::default();
        let write = async {
            match lease {
                None => self.api.create(&parameters, &wanted).await,
                Some(_) => self.api.replace(&self.name, &parameters, &wanted).await,
            }
        };
        match timeout(self.terms.deadline, write).await {
            Ok(Ok(lease)) => {
                let (api, me) = (self.api.clone(), self.me.clone());
                Some(Leadership { api, lease, me, terms: self.terms, renewed })
            }
            // Another was faster. The watch tells.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => None,
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&error), "cannot take the Lease");
                None
            }
            Err(_) => {
                tracing::warn!("cannot take the Lease: no answer");
                None
            }
        }
    }
}

fn version(lease: Option<&Lease>) -> Option<String> {
    lease.and_then(ResourceExt::resource_version)
}

impl Leadership {
    /// Renews the Lease until `end`, then gives it back. Fails as soon as it is lost.
    pub async fn keep(mut self, end: impl Future<Output = ()>) -> Result<(), Lost> {
        let mut end = pin!(end);
        let mut pause = jitter(self.terms.renewal);
        loop {
            tokio::select! {
                () = &mut end => {
                    self.release().await;
                    return Ok(());
                }
                () = sleep(pause) => {}
            }
            let deadline = self.renewed + self.terms.deadline;
            pause = match timeout_at(deadline, self.renew()).await {
                Ok(Ok(true)) => jitter(self.terms.renewal),
                Ok(Ok(false)) => return Err(Lost::Taken(self.lease.name_any())),
                Ok(Err(error)) if Instant::now() < deadline => {
                    tracing::warn!(error = chain(&error), "cannot renew the Lease");
                    RETRY.min(deadline - Instant::now())
                }
                _ => return Err(Lost::NotRenewed(self.lease.name_any())),
            };
        }
    }

    /// Writes it once more. Says whether it is still ours.
    async fn renew(&mut self) -> Result<bool, kube::Error> {
        let name = self.lease.name_any();
        loop {
            let asked = Instant::now();
            let wanted =
                claimed(Some(&self.lease), &name, &self.me, self.terms.duration, Timestamp::now());
            match self.api.replace(&name, &PostParams::default(), &wanted).await {
                Ok(lease) => {
                    self.lease = lease;
                    self.renewed = asked;
                    return Ok(true);
                }
                // Somebody changed it, be it only a label; or a renewal came through whose answer did not.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                    let found = self.api.get_opt(&name).await?;
                    match (decide(found.as_ref(), Duration::ZERO, &self.me, true), found) {
                        (Step::Renew, Some(lease)) => self.lease = lease,
                        _ => return Ok(false),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn release(&self) {
        let wanted = released(&self.lease, Timestamp::now());
        let name = self.lease.name_any();
        match timeout(RELEASE, self.api.replace(&name, &PostParams::default(), &wanted)).await {
            Ok(Ok(_)) => tracing::info!("gave the Lease back"),
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&error), "cannot give the Lease back");
            }
            Err(_) => tracing::warn!("cannot give the Lease back: no answer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stopper;
    use crate::testing::FakeApi;
    use serde_json::json;

    const QUICK: Terms = Terms {
        duration: Duration::from_secs(1),
        renewal: Duration::from_millis(100),
        deadline: Duration::from_millis(500),
    };
    const SOON: Duration = Duration::from_secs(5);

    fn replica(api: &FakeApi, me: &str) -> Election {
        Election::new(api.client(), "kubevirt", "it", me.to_owned(), QUICK)
    }

    fn holder(api: &FakeApi) -> String {
        api.object("it").unwrap()["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn one_leads_and_the_next_follows_as_soon_as_it_is_given_back() {
        let api = FakeApi::new();
        let (first, second) = (replica(&api, "first"), replica(&api, "second"));
        let leadership = timeout(SOON, first.win()).await.unwrap();
        let (stopper, stop) = Stopper::new();
        let keeping = tokio::spawn(leadership.keep(stop.told()));
        // Longer than the Lease holds: it is renewed.
        assert!(timeout(Duration::from_millis(1500), second.win()).await.is_err());
        assert_eq!(holder(&api), "first");
        stopper.stop();
        keeping.await.unwrap().unwrap();
        assert_eq!(holder(&api), "");
        timeout(Duration::from_millis(500), second.win()).await.expect("it was not given at once");
        assert_eq!(holder(&api), "second");
    }

    #[tokio::test]
    async fn one_that_died_is_followed_when_its_lease_is_over() {
        let api = FakeApi::new();
        drop(timeout(SOON, replica(&api, "first").win()).await.unwrap());
        let began = Instant::now();
        timeout(SOON, replica(&api, "second").win()).await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
        assert_eq!(holder(&api), "second");
    }

    #[tokio::test]
    async fn a_leader_notices_that_another_has_taken_over() {
        let api = FakeApi::new();
        let leadership = timeout(SOON, replica(&api, "first").win()).await.unwrap();
        api.put("it", json!({ "spec": { "holderIdentity": "other", "leaseDurationSeconds": 9 } }));
        let lost = timeout(SOON, leadership.keep(std::future::pending())).await.unwrap();
        assert!(matches!(lost, Err(Lost::Taken(_))), "{lost:?}");
        assert_eq!(holder(&api), "other");
    }

    #[tokio::test]
    async fn a_leader_keeps_a_lease_on_which_somebody_wrote_a_label() {
        let api = FakeApi::new();
        let leadership = timeout(SOON, replica(&api, "first").win()).await.unwrap();
        let mut labelled = api.object("it").unwrap();
        labelled["metadata"]["labels"] = json!({ "a": "b" });
        api.put("it", labelled);
        let kept = timeout(Duration::from_secs(1), leadership.keep(std::future::pending())).await;
        assert!(kept.is_err(), "{kept:?}");
        assert_eq!(api.object("it").unwrap()["metadata"]["labels"], json!({ "a": "b" }));
    }

    #[tokio::test]
    async fn a_leader_without_answers_stops_before_its_lease_is_over() {
        let api = FakeApi::new();
        let began = Instant::now();
        let leadership = timeout(SOON, replica(&api, "first").win()).await.unwrap();
        api.fall_silent();
        let lost = timeout(SOON, leadership.keep(std::future::pending())).await.unwrap();
        assert!(matches!(lost, Err(Lost::NotRenewed(_))), "{lost:?}");
        assert!(began.elapsed() < QUICK.duration, "{:?}", began.elapsed());
    }

    #[test]
    fn two_processes_of_a_pod_have_two_identities() {
        assert_ne!(identity("pod-a"), identity("pod-a"));
        assert!(identity("pod-a").starts_with("pod-a_"));
    }

    #[test]
    fn jitter_takes_away_a_fifth_at_most() {
        let time = Terms::default().renewal;
        for _ in 0..1000 {
            assert!(jitter(time) <= time && jitter(time) >= time * 4 / 5);
        }
    }
}
