//! What the operator answers: webhooks by HTTPS, health and metrics by HTTP. Every replica does, whoever leads.
//!
//! | port | path | answers |
//! |---|---|---|
//! | 8443, HTTPS | `/mutate/..`, `/validate/..` | the API server's admission reviews |
//! | 8080, HTTP | `/healthz` | that the process lives |
//! | 8080, HTTP | `/readyz` | whether there is a certificate to serve webhooks with, and no stop was asked for |
//! | 8080, HTTP | `/metrics` | numbers, see `docs/metrics.md` |
//!
//! Anybody in the cluster can connect, so everything is bounded: connections, time of a handshake, of a header, of a
//! request, length of a body, and how many long bodies are held at a time.

mod body;

use crate::admission::{Admission, Reply};
use crate::certs::ServingCertificate;
use crate::{Stop, metrics};
use body::BodyError;
use corten_serving::answer::{self, Answer, text, with_type};
use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, Request, StatusCode};
use rustls::ServerConfig;
use std::sync::Arc;

/// TLS as it is served: 1.2 and later, with the certificate of the moment.
pub fn tls(serving: Arc<ServingCertificate>) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(serving);
    // API servers ask webhooks by HTTP/1.1, so that replicas share the load.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Answers a webhook's request.
pub async fn webhook(admission: Arc<Admission>, request: Request<Incoming>) -> Answer {
    if request.method() != Method::POST {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "POST an AdmissionReview");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return answer;
    }
    let path = request.uri().path().to_owned();
    let body = match body::read(request.into_body()).await {
        Ok(body) => body,
        Err(error @ BodyError::TooLong) => {
            return text(StatusCode::PAYLOAD_TOO_LARGE, error.to_string());
        }
        Err(error) => return text(StatusCode::BAD_REQUEST, error.to_string()),
    };
    let Reply { code, body } = admission.answer(&path, body.bytes()).await;
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if status == StatusCode::OK {
        return with_type(status, body, "application/json");
    }
    with_type(status, body, "text/plain; charset=utf-8")
}

/// Answers a request for health or metrics.
pub fn health(path: &str, serving: &ServingCertificate, stop: &Stop) -> Answer {
    let ready = if stop.is_told() {
        Err("stopping")
    } else if !serving.is_there() {
        Err("there is no certificate yet to serve webhooks with")
    } else {
        Ok(())
    };
    match path {
        "/healthz" | "/livez" => text(StatusCode::OK, "ok"),
        "/readyz" => match ready {
            Ok(()) => text(StatusCode::OK, "ok"),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, why),
        },
        "/metrics" => answer::metrics(metrics::text(ready.is_ok())),
        _ => text(StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics"),
    }
}

#[cfg(test)]
mod tests;
