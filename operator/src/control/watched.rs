//! One watch of a kind for the whole process: a store that all controllers read, and streams that wake them.
//!
//! kube's own shared streams leave out objects that were deleted, of which the controller of an owner must know, and lose
//! a wake-up when one is deleted before it is looked at (`ReflectHandle::poll_next` of kube-runtime 5.0).

use crate::failure::chain;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{FutureExt, Stream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{Controller, WatchStreamExt, controller, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::future::{Future, ready};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Objects of a kind that are served at a time. Where a thousand were, the Lease was lost meanwhile: its renewal is one more
/// request among all of theirs (docs/operator-serving.md has what it is like with this limit).
const AT_ONCE: u16 = 16;

/// An object, unless it is one that our types cannot read: such a one must not keep the others from being served.
pub type Guarded<K> = DeserializeGuard<K>;

/// A kind of objects that is watched.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// All objects of a kind. Clones share one store.
pub struct Watched<K: Kind> {
    store: Store<Guarded<K>>,
    feed: Arc<Mutex<Feed<K>>>,
}

impl<K: Kind> Clone for Watched<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), feed: Arc::clone(&self.feed) }
    }
}

/// What fills the store and wakes those who listen. One lock for both: who begins to listen misses nothing.
struct Feed<K: Kind> {
    writer: Writer<Guarded<K>>,
    listeners: Vec<UnboundedSender<Touched<K>>>,
}

/// Something has become of an object.
struct Touched<K: Kind> {
    object: Arc<Guarded<K>>,
    deleted: bool,
}

impl<K: Kind> Clone for Touched<K> {
    fn clone(&self) -> Self {
        Self { object: Arc::clone(&self.object), deleted: self.deleted }
    }
}

impl<K: Kind> Default for Watched<K> {
    fn default() -> Self {
        let writer = Writer::new(());
        let store = writer.as_reader();
        Self { store, feed: Arc::new(Mutex::new(Feed { writer, listeners: Vec::new() })) }
    }
}

impl<K: Kind> Watched<K> {
    /// Watches until `stop`. To be run once, beside the controllers.
    pub async fn keep(
        &self,
        client: Client,
        config: watcher::Config,
        stop: impl Future<Output = ()> + Send,
    ) {
        watcher(Api::<Guarded<K>>::all(client), config)
            .default_backoff()
            // Of no use here, and half of an object's size.
            .modify(|object| object.managed_fields_mut().clear())
            .take_until(Box::pin(stop))
            .for_each(|event| {
                match event {
                    Ok(event) => self.note(&event),
                    Err(error) => {
                        tracing::warn!(kind = %K::kind(&()), error = chain(&error), "watch failed");
                    }
                }
                ready(())
            })
            .await;
        // Streams end, and with them the controllers that have nothing else to wait for.
        self.feed.lock().unwrap_or_else(PoisonError::into_inner).listeners.clear();
    }

    /// What is there, as of the last event.
    pub fn store(&self) -> &Store<Guarded<K>> {
        &self.store
    }

    /// The object of this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Guarded<K>>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }

    /// How long to wait if the first list has not arrived: until then, what is there would look as if it were not.
    pub fn not_ready(&self) -> Option<Duration> {
        let ready = self.store.wait_until_ready().now_or_never();
        ready.is_none().then_some(Duration::from_millis(100))
    }

    /// A controller of this kind, woken by its objects.
    pub fn controller(&self) -> Controller<Guarded<K>> {
        let applied = self.listen().filter(|touched| ready(!touched.deleted));
        Controller::for_shared_stream(applied.map(|touched| touched.object), self.store.clone())
            .with_config(controller::Config::default().concurrency(AT_ONCE))
    }

    /// Every object as it comes, changes and goes; first all that are there.
    pub fn touched(&self) -> impl Stream<Item = Arc<Guarded<K>>> + Send + use<K> {
        self.listen().map(|touched| touched.object)
    }

    /// The same, with whether the object is gone.
    pub fn changes(&self) -> impl Stream<Item = (Arc<Guarded<K>>, bool)> + Send + use<K> {
        self.listen().map(|touched| (touched.object, touched.deleted))
    }

    fn listen(&self) -> UnboundedReceiver<Touched<K>> {
        let (sender, receiver) = unbounded();
        let mut feed = self.feed.lock().unwrap_or_else(PoisonError::into_inner);
        for object in self.store.state() {
            // The other end is in our hands.
            let _ = sender.unbounded_send(Touched { object, deleted: false });
        }
        feed.listeners.push(sender);
        receiver
    }

    fn note(&self, event: &Event<Guarded<K>>) {
        let mut feed = self.feed.lock().unwrap_or_else(PoisonError::into_inner);
        let before = if matches!(event, Event::InitDone) { self.store.state() } else { Vec::new() };
        feed.writer.apply_watcher_event(event);
        let touched: Vec<_> = match event {
            Event::Apply(object) => {
                let stored = self.store.get(&ObjectRef::from_obj(object));
                stored.map(|object| Touched { object, deleted: false }).into_iter().collect()
            }
            Event::Delete(object) => {
                vec![Touched { object: Arc::new(object.clone()), deleted: true }]
            }
            // A new list after the watch was lost: what went meanwhile is told as well.
            Event::InitDone => {
                let gone = before
                    .into_iter()
                    .filter(|object| self.store.get(&ObjectRef::from_obj(&**object)).is_none());
                let gone = gone.map(|object| Touched { object, deleted: true });
                let there = self.store.state().into_iter();
                gone.chain(there.map(|object| Touched { object, deleted: false })).collect()
            }
            Event::Init | Event::InitApply(_) => Vec::new(),
        };
        feed.listeners.retain(|listener| {
            touched.iter().all(|touched| listener.unbounded_send(touched.clone()).is_ok())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::minimal_vmi;
    use corten_resources::cluster::VirtualMachineInstance;

    fn vmi(name: &str) -> Guarded<VirtualMachineInstance> {
        DeserializeGuard(Ok(minimal_vmi(|vmi| vmi["metadata"]["name"] = name.into())))
    }

    fn listed(watched: &Watched<VirtualMachineInstance>, names: &[&str]) {
        watched.note(&Event::Init);
        for name in names {
            watched.note(&Event::InitApply(vmi(name)));
        }
        watched.note(&Event::InitDone);
    }

    fn woken(
        stream: &mut (impl Stream<Item = Arc<Guarded<VirtualMachineInstance>>> + Unpin),
    ) -> Vec<String> {
        let mut names: Vec<_> = std::iter::from_fn(|| stream.next().now_or_never().flatten())
            .map(|object| object.name_any())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn every_listener_hears_of_what_comes_changes_and_goes() {
        let watched = Watched::default();
        let (mut one, mut two) = (watched.touched(), watched.touched());
        listed(&watched, &["a", "b"]);
        assert_eq!(woken(&mut one), ["a", "b"]);
        watched.note(&Event::Apply(vmi("c")));
        watched.note(&Event::Delete(vmi("a")));
        assert_eq!(woken(&mut one), ["a", "c"]);
        assert_eq!(woken(&mut two), ["a", "a", "b", "c"]);
        assert!(watched.get("guests", "a").is_none() && watched.get("guests", "c").is_some());
    }

    #[test]
    fn who_listens_late_hears_of_what_is_there() {
        let watched = Watched::default();
        listed(&watched, &["a"]);
        assert_eq!(woken(&mut watched.touched()), ["a"]);
    }

    #[test]
    fn what_went_while_the_watch_was_lost_is_told_with_the_next_list() {
        let watched = Watched::default();
        listed(&watched, &["a", "b"]);
        let mut stream = watched.touched();
        woken(&mut stream);
        listed(&watched, &["b"]);
        assert_eq!(woken(&mut stream), ["a", "b"]);
    }

    #[test]
    fn it_is_ready_with_the_first_list() {
        let watched = Watched::<VirtualMachineInstance>::default();
        assert!(watched.not_ready().is_some());
        listed(&watched, &[]);
        assert!(watched.not_ready().is_none());
    }
}
