//! HTTP as registries need it: GET, redirects, a bound for what is read and a deadline for each step.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HeaderName, LOCATION, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::time::timeout;

use super::RegistryError;

const AGENT: &str = concat!("corten/", env!("CARGO_PKG_VERSION"));

/// From the request to the head of the answer; a registry may have to fetch a blob itself first.
const HEAD: Duration = Duration::from_secs(60);
/// Between two parts of a body.
const PART: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(30);

/// Registries redirect to where their blobs are stored, once.
const MAX_REDIRECTS: usize = 5;

/// Why an answer did not come, or not all of it.
#[derive(Debug, Error)]
pub enum TransportError {
    /// The connection could not be made, or broke before an answer.
    #[error("no connection")]
    Connection(#[source] hyper_util::client::legacy::Error),
    /// It broke in the middle.
    #[error("the connection broke")]
    Broke(#[source] hyper::Error),
    /// Nothing for a while.
    #[error("nothing came for {} s", .0.as_secs())]
    Silent(Duration),
    /// More than is allowed.
    #[error("the answer is longer than {0} bytes")]
    TooLong(u64),
    /// A redirect to nowhere, in a circle, or from TLS to none.
    #[error("it redirects to {0:?}, which is not followed")]
    Redirect(String),
    /// A request that cannot be made.
    #[error("the request cannot be made")]
    Request(#[source] hyper::http::Error),
}

/// A client that keeps its connections.
#[derive(Clone)]
pub(super) struct Http(Client<HttpsConnector<HttpConnector>, Empty<Bytes>>);

impl Http {
    /// One that trusts the system's certificates and those in these files.
    pub(super) fn new(certificates: &[PathBuf]) -> Result<Self, RegistryError> {
        let mut roots = RootCertStore::empty();
        // A system without certificates can still use registries without TLS; a connection says what it misses.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        for path in certificates {
            let failed = |what: String| RegistryError::Certificates { path: path.clone(), what };
            let list =
                CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
            for certificate in list {
                let certificate = certificate.map_err(|error| failed(error.to_string()))?;
                roots.add(certificate).map_err(|error| failed(error.to_string()))?;
            }
        }
        // Said here, so that it does not matter whether a process has a default.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| RegistryError::Certificates {
                path: "TLS".into(),
                what: error.to_string(),
            })?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        Ok(Self(Client::builder(TokioExecutor::new()).build(connector)))
    }

    /// Asks, and follows redirects. Who one is goes to the first host only.
    pub(super) async fn get(
        &self,
        url: &Uri,
        headers: &[(HeaderName, String)],
    ) -> Result<Response, TransportError> {
        let mut url = url.clone();
        let first = origin(&url);
        for _ in 0..=MAX_REDIRECTS {
            let mut request = Request::get(&url).header(USER_AGENT, AGENT);
            for (name, value) in headers {
                if *name != AUTHORIZATION || origin(&url) == first {
                    request = request.header(name, value);
                }
            }
            let request = request.body(Empty::new()).map_err(TransportError::Request)?;
            let response = timeout(HEAD, self.0.request(request)).await;
            let response = response.map_err(|_| TransportError::Silent(HEAD))?;
            let response = Response(response.map_err(TransportError::Connection)?);
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let location = response.header(&LOCATION).unwrap_or_default();
            let next = redirected(&url, &location);
            url =
                next.ok_or_else(|| TransportError::Redirect(location.chars().take(200).collect()))?;
        }
        Err(TransportError::Redirect(url.to_string()))
    }
}

fn origin(url: &Uri) -> (Option<String>, Option<String>) {
    (url.scheme_str().map(Into::into), url.authority().map(|authority| authority.to_string()))
}

/// Where a redirect leads: to a whole address or to a path of the same host, and never from TLS to none.
fn redirected(from: &Uri, location: &str) -> Option<Uri> {
    let to: Uri = match location.starts_with('/') && !location.starts_with("//") {
        true => format!("{}://{}{location}", from.scheme_str()?, from.authority()?).parse().ok()?,
        false => location.parse().ok()?,
    };
    let secure = to.scheme_str() == Some("https");
    let allowed = secure || (to.scheme_str() == Some("http") && from.scheme_str() == Some("http"));
    (allowed && to.authority().is_some()).then_some(to)
}

/// The head of an answer.
#[derive(Debug)]
pub(super) struct Response(hyper::Response<Incoming>);

impl Response {
    pub(super) fn status(&self) -> StatusCode {
        self.0.status()
    }

    pub(super) fn header(&self, name: &HeaderName) -> Option<String> {
        self.0.headers().get(name)?.to_str().ok().map(Into::into)
    }

    /// All values of a header that occurs several times.
    pub(super) fn headers(&self, name: &HeaderName) -> Vec<String> {
        let values = self.0.headers().get_all(name).iter();
        values.filter_map(|value| value.to_str().ok().map(Into::into)).collect()
    }

    pub(super) fn into_body(self) -> Body {
        Body(self.0.into_body())
    }

    /// The whole body, if it is not longer.
    pub(super) async fn body(self, most: u64) -> Result<Vec<u8>, TransportError> {
        let mut body = self.into_body();
        let mut all = Vec::new();
        while let Some(bytes) = body.next().await? {
            if (all.len() + bytes.len()) as u64 > most {
                return Err(TransportError::TooLong(most));
            }
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    }
}

/// What comes after it.
#[derive(Debug)]
pub(super) struct Body(Incoming);

impl Body {
    /// The next part.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, TransportError> {
        loop {
            let frame = timeout(PART, self.0.frame()).await;
            let Some(frame) = frame.map_err(|_| TransportError::Silent(PART))? else {
                return Ok(None);
            };
            // Trailers say nothing here.
            if let Ok(bytes) = frame.map_err(TransportError::Broke)?.into_data() {
                return Ok(Some(bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_go_to_hosts_and_paths_but_never_out_of_tls() {
        let secure: Uri = "https://a.example/v2/".parse().unwrap();
        let plain: Uri = "http://127.0.0.1:5000/v2/".parse().unwrap();
        let to = |from, location| redirected(from, location).map(|url| url.to_string());
        assert_eq!(to(&secure, "/blob?x=1").as_deref(), Some("https://a.example/blob?x=1"));
        assert_eq!(to(&secure, "https://b.example/c").as_deref(), Some("https://b.example/c"));
        assert_eq!(to(&plain, "http://b.example/").as_deref(), Some("http://b.example/"));
        for location in
            ["http://b.example/", "ftp://b/", "//b.example/", "", "relative", "file:///etc"]
        {
            assert_eq!(to(&secure, location), None, "{location}");
        }
    }
}
