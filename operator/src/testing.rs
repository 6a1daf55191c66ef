//! An API server of one kind, in memory: lists, watches, compares versions. For what talks to one in a loop.

use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Future, pending, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::sync::watch;

/// The objects, and how to reach them.
#[derive(Clone)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    version: u64,
    silent: bool,
    writes: usize,
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl FakeApi {
    pub(crate) fn new() -> Self {
        Self { state: Arc::default(), changes: watch::Sender::new(0) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    pub(crate) fn object(&self, name: &str) -> Option<Value> {
        self.state.lock().unwrap().objects.get(name).cloned()
    }

    /// How many writes were asked for and granted.
    pub(crate) fn writes(&self) -> usize {
        self.state.lock().unwrap().writes
    }

    /// From now on no request is answered.
    pub(crate) fn fall_silent(&self) {
        self.state.lock().unwrap().silent = true;
    }

    /// Somebody else writes an object.
    pub(crate) fn put(&self, name: &str, mut object: Value) {
        let mut state = self.state.lock().unwrap();
        state.version += 1;
        object["metadata"]["name"] = json!(name);
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.objects.insert(name.to_owned(), object);
        self.changes.send_replace(state.version);
    }

    fn answer(&self, method: &Method, name: Option<&str>, query: &str, body: Value) -> Answer {
        let sent = |object: &Value, path: &str| {
            object.pointer(path).and_then(Value::as_str).map(str::to_owned)
        };
        if method == Method::GET && query.contains("watch=true") {
            let from = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
            return self.watched(from.and_then(|from| from.parse().ok()).unwrap_or(0));
        }
        if method == Method::GET {
            let state = self.state.lock().unwrap();
            let items: Vec<_> = state.objects.values().cloned().collect();
            return match name.map(|name| state.objects.get(name)) {
                Some(Some(object)) => whole(200, object),
                Some(None) => refused(404),
                None => whole(
                    200,
                    &json!({ "metadata": { "resourceVersion": state.version.to_string() }, "items": items }),
                ),
            };
        }
        let name = name.map(str::to_owned).or_else(|| sent(&body, "/metadata/name")).unwrap();
        let present = self.object(&name);
        let same = present.as_ref().map(|it| sent(it, "/metadata/resourceVersion"))
            == Some(sent(&body, "/metadata/resourceVersion"));
        match (method.as_str(), present.is_some()) {
            ("POST", true) => refused(409),
            ("PUT", false) => refused(404),
            ("PUT", true) if !same => refused(409),
            _ => {
                self.put(&name, body);
                self.state.lock().unwrap().writes += 1;
                whole(200, &self.object(&name).unwrap())
            }
        }
    }

    /// Every change after a version.
    fn watched(&self, from: u64) -> Answer {
        let mut receiver = self.changes.subscribe();
        if *receiver.borrow() > from {
            receiver.mark_changed();
        }
        let state = Arc::clone(&self.state);
        let events = futures::stream::unfold(receiver, move |mut receiver| {
            let state = Arc::clone(&state);
            async move {
                receiver.changed().await.ok()?;
                let objects: Vec<_> = state.lock().unwrap().objects.values().cloned().collect();
                let lines = objects
                    .iter()
                    .map(|it| format!("{}\n", json!({ "type": "MODIFIED", "object": it })));
                Some((lines.collect::<String>(), receiver))
            }
        });
        let frames = events.map(|lines| Ok(Frame::data(Bytes::from(lines))));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }
}

fn whole(code: u16, body: &Value) -> Answer {
    let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

fn refused(code: u16) -> Answer {
    whole(
        code,
        &json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no", "reason": "No" }),
    )
}

impl tower::Service<Request<Body>> for FakeApi {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if self.state.lock().unwrap().silent {
            return Box::pin(pending());
        }
        let api = self.clone();
        let (head, body) = request.into_parts();
        // The last part of a path is a name if it follows a plural, and what the tests ask for has a namespace.
        let path: Vec<_> =
            head.uri.path().trim_matches('/').split('/').map(str::to_owned).collect();
        let at = path.iter().position(|part| part == "namespaces").unwrap();
        let name = path.get(at + 3).cloned();
        Box::pin(async move {
            let body = body.collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let query = head.uri.query().unwrap_or_default();
            ready(Ok(api.answer(&head.method, name.as_deref(), query, body))).await
        })
    }
}
