//! Answers that are there as a whole when they are given.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

/// A whole answer.
pub type Answer = Response<Full<Bytes>>;

/// Words for people.
pub fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    with_type(status, text, "text/plain; charset=utf-8")
}

/// Numbers for Prometheus.
pub fn metrics(text: String) -> Answer {
    with_type(StatusCode::OK, text, "text/plain; version=0.0.4; charset=utf-8")
}

/// A body of that type.
pub fn with_type(status: StatusCode, body: impl Into<Bytes>, kind: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
