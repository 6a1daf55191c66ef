//! The KubeVirt objects as they change, and the settings that follow from the one that counts. In every replica.

use super::plan::elected;
use crate::failure::chain;
use crate::{Config, Settings};
use corten_resources::cluster::KubeVirt;
use futures::StreamExt;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_objects};
use kube::{Api, Client, ResourceExt};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::watch;

/// What is known of the KubeVirt objects.
#[derive(Clone, Debug)]
pub struct Followed {
    /// All of them. Nothing until they were read for the first time.
    pub objects: watch::Receiver<Option<Arc<Vec<KubeVirt>>>>,
    /// What follows from the one that counts.
    pub settings: watch::Receiver<Arc<Settings>>,
}

impl Followed {
    /// Waits until the objects were read: only then the settings are those that were asked for.
    pub async fn known(&self) {
        // Ends only with the process.
        let _ = self.objects.clone().wait_for(Option::is_some).await;
    }
}

/// Follows the objects in a task of its own, for ever.
pub fn follow(client: Client, config: Config) -> Followed {
    let (objects, objects_receiver) = watch::channel(None);
    let (settings, settings_receiver) = watch::channel(Arc::new(Settings::new(&config)));
    tokio::spawn(async move {
        let mut known = Known::default();
        let api = Api::<DeserializeGuard<KubeVirt>>::all(client);
        let mut events = pin!(watch_objects(api, watcher::Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    if !known.take(event) {
                        continue;
                    }
                }
                Err(error) if is_missing(&error) => {
                    tracing::warn!("the definition of KubeVirt objects is missing: defaults apply");
                    known = Known::default();
                }
                Err(error) => {
                    tracing::warn!(error = chain(&error), "cannot watch KubeVirt objects");
                    continue;
                }
            }
            let all: Vec<_> = known.objects.values().cloned().collect();
            let wanted = elected(&all)
                .map_or_else(|| Settings::new(&config), |it| Settings::of(&config, &it.spec));
            settings.send_if_modified(|present| {
                let changed = **present != wanted;
                if changed {
                    tracing::info!(settings = ?wanted, "settings changed");
                    *present = Arc::new(wanted);
                }
                changed
            });
            objects.send_replace(Some(Arc::new(all)));
        }
    });
    Followed { objects: objects_receiver, settings: settings_receiver }
}

/// The kind is not served.
fn is_missing(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

/// Objects by namespace and name.
#[derive(Default)]
struct Known {
    objects: BTreeMap<(String, String), KubeVirt>,
    listed: BTreeMap<(String, String), KubeVirt>,
}

impl Known {
    /// Takes an event. Says whether the objects are whole, as they are not while a list arrives.
    fn take(&mut self, event: Event<DeserializeGuard<KubeVirt>>) -> bool {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => self.listed.extend(readable(object)),
            Event::InitDone => {
                self.objects = std::mem::take(&mut self.listed);
                return true;
            }
            // One that cannot be read any more stays as it was.
            Event::Apply(object) => {
                self.objects.extend(readable(object));
                return true;
            }
            Event::Delete(object) => {
                self.objects.remove(&key(&object));
                return true;
            }
        }
        false
    }
}

fn key(object: &impl ResourceExt) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn readable(object: DeserializeGuard<KubeVirt>) -> Option<((String, String), KubeVirt)> {
    let key = key(&object);
    match object.0 {
        Ok(object) => Some((key, object)),
        Err(error) => {
            tracing::warn!(kubevirt = format!("{}/{}", key.0, key.1), %error, "the object cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, tag: &serde_json::Value) -> DeserializeGuard<KubeVirt> {
        serde_json::from_value(
            json!({ "metadata": { "name": name, "namespace": "n" }, "spec": { "imageTag": tag } }),
        )
        .unwrap()
    }

    fn names(known: &Known) -> Vec<String> {
        known
            .objects
            .values()
            .map(|it| {
                format!("{}:{}", it.name_any(), it.spec.image_tag.as_deref().unwrap_or_default())
            })
            .collect()
    }

    #[test]
    fn objects_are_whole_once_a_list_has_arrived() {
        let mut known = Known::default();
        assert!(!known.take(Event::Init));
        assert!(!known.take(Event::InitApply(object("a", &json!("1")))));
        assert_eq!(names(&known), Vec::<String>::new());
        assert!(known.take(Event::InitDone));
        assert!(known.take(Event::Apply(object("b", &json!("2")))));
        assert_eq!(names(&known), ["a:1", "b:2"]);
        // A list that comes later replaces all.
        assert!(
            !known.take(Event::Init) && !known.take(Event::InitApply(object("b", &json!("3"))))
        );
        assert_eq!(names(&known), ["a:1", "b:2"]);
        assert!(known.take(Event::InitDone));
        assert_eq!(names(&known), ["b:3"]);
        assert!(known.take(Event::Delete(object("b", &json!("3")))));
        assert_eq!(names(&known), Vec::<String>::new());
    }

    #[test]
    fn an_object_that_cannot_be_read_stays_as_it_was() {
        let mut known = Known::default();
        known.take(Event::Apply(object("a", &json!("1"))));
        assert!(known.take(Event::Apply(object("a", &json!({ "no": "text" })))));
        assert_eq!(names(&known), ["a:1"]);
    }
}
