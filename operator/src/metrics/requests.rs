//! Counts requests to the API server where they are sent, so that none is left out.

use super::{REQUEST_LATENCY, REQUESTS, WRITES};
use futures::future::BoxFuture;
use hyper::{Request, Response};
use std::task::{Context, Poll};
use std::time::Instant;
use tower::{Layer, Service};

/// Counts what passes through a client.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountRequests;

impl<S> Layer<S> for CountRequests {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted(inner)
    }
}

/// A client whose requests are counted.
#[derive(Clone, Debug)]
pub struct Counted<S>(S);

impl<S, In, Out> Service<Request<In>> for Counted<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let method = request.method().to_string();
        let uri = request.uri();
        let resource = resource(uri.path()).to_owned();
        let verb = verb(&method, uri.query().unwrap_or_default());
        let sent = Instant::now();
        let answer = self.0.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer.as_ref().map_or_else(
                |_| "<error>".to_owned(),
                |response| response.status().as_u16().to_string(),
            );
            REQUESTS.add(&[&code, &method, &resource, verb]);
            if matches!(verb, "create" | "update" | "patch" | "delete") {
                WRITES.add(&[&resource, verb]);
            }
            if verb != "watch" {
                REQUEST_LATENCY.observe(&[verb], sent.elapsed().as_secs_f64());
            }
            answer
        })
    }
}

/// The plural of the kind that a path of the API server is about.
fn resource(path: &str) -> &str {
    let mut parts = path.trim_start_matches('/').split('/');
    let rest: Vec<_> = match parts.next() {
        Some("api") => parts.skip(1).collect(),
        Some("apis") => parts.skip(2).collect(),
        _ => return "",
    };
    match rest.as_slice() {
        ["namespaces", _, resource, ..] | [resource, ..] => resource,
        [] => "",
    }
}

fn verb(method: &str, query: &str) -> &'static str {
    match method {
        "GET"
            if query.split('&').any(|part| part.starts_with("watch=") && part != "watch=false") =>
        {
            "watch"
        }
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_of_resources() {
        let cases = [
            ("/api/v1/namespaces/a/pods/b", "pods"),
            ("/api/v1/namespaces/a/pods/b/status", "pods"),
            ("/api/v1/pods", "pods"),
            ("/api/v1/namespaces/a", "namespaces"),
            (
                "/apis/kubevirt.io/v1/namespaces/a/virtualmachineinstances",
                "virtualmachineinstances",
            ),
            ("/apis/kubevirt.io/v1/kubevirts", "kubevirts"),
            ("/apis/kubevirt.io/v1", ""),
            ("/version", ""),
            ("", ""),
        ];
        for (path, expected) in cases {
            assert_eq!(resource(path), expected, "{path}");
        }
    }

    #[test]
    fn verbs_are_those_of_kubernetes() {
        assert_eq!(verb("GET", "watch=true&resourceVersion=3"), "watch");
        assert_eq!(verb("GET", "limit=1"), "get");
        assert_eq!(verb("PATCH", ""), "patch");
        assert_eq!(verb("OPTIONS", ""), "other");
    }
}
