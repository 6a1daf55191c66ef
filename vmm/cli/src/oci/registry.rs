//! Images of a registry (OCI distribution specification, the part for pulling).
//!
//! A small client of our own, so that all it reads has a bound, a blob goes on where it was cut off, and it is certain which
//! host is sent a password. A login is sent to the registry itself and to the token service that it names, never along a
//! redirect to another host, and never in the clear to one that is reached by TLS.

mod challenge;
mod download;
mod http;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_RANGE, RANGE, WWW_AUTHENTICATE};
use hyper::{StatusCode, Uri};
use serde::Deserialize;
use thiserror::Error;

use self::challenge::Challenge;
use self::download::Download;
use self::http::{Http, Response};
use super::credentials::Credentials;
use super::digest::ContentDigest;
use super::document::{Descriptor, INDEX_TYPES, MANIFEST_TYPES, MAX_DOCUMENT};
use super::reference::ImageReference;

pub use self::http::TransportError;

/// An answer of a token service.
const MAX_TOKEN: u64 = 64 << 10;

/// How often a blob is tried again without a byte more having come.
const ATTEMPTS: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// How registries are spoken to.
#[derive(Clone, Debug, Default)]
pub struct RegistryOptions {
    /// Registries that do not have TLS. Those on this machine's loopback are taken not to.
    pub plain_http: Vec<String>,
    /// Registries that do have it, although they are on the loopback.
    pub tls: Vec<String>,
    /// Files of certificates (PEM) that are trusted beside the system's.
    pub certificates: Vec<PathBuf>,
    /// Who one is.
    pub credentials: Credentials,
}

/// Why something is not to be had from a registry.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// It cannot be reached, or the connection broke.
    #[error("cannot get {url}")]
    Transport {
        /// What was asked for.
        url: String,
        /// Why not.
        #[source]
        source: TransportError,
    },
    /// It does not have it.
    #[error("{url} does not exist; check the image's name and tag")]
    NotFound {
        /// What was asked for.
        url: String,
    },
    /// It does not give it to us.
    #[error("{registry} does not give it to {who}: log in, or check that the image exists")]
    Forbidden {
        /// The registry.
        registry: String,
        /// `anybody`, or the user of the login.
        who: String,
    },
    /// It answered with something unexpected.
    #[error("{url}: the registry answered {status}")]
    Status {
        /// What was asked for.
        url: String,
        /// Its answer.
        status: StatusCode,
    },
    /// An answer that is not what it should be.
    #[error("{url}: {what}")]
    Answer {
        /// What was asked for.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// Another content than the digest says.
    #[error("{url} has another content than its digest says")]
    Digest {
        /// What was asked for.
        url: String,
    },
    /// The staged file.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Certificates that cannot be read.
    #[error("cannot use the certificates of {path}: {what}")]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl RegistryError {
    /// Whether it may go better the next time.
    fn may_pass(&self) -> bool {
        match self {
            Self::Transport { source, .. } => {
                !matches!(source, TransportError::Redirect(_) | TransportError::Request(_))
            }
            Self::Status { status, .. } => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
            _ => false,
        }
    }
}

/// A client of registries.
#[derive(Clone)]
pub(super) struct Registry {
    options: Arc<RegistryOptions>,
    http: Http,
    /// The last `Authorization` that worked, by repository.
    authorization: Arc<Mutex<Option<(String, String)>>>,
}

/// Told how many bytes there are so far, and in all.
pub type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Registry {
    pub(super) fn new(options: RegistryOptions) -> Result<Self, RegistryError> {
        let http = Http::new(&options.certificates)?;
        Ok(Self { options: Arc::new(options), http, authorization: Arc::default() })
    }

    /// The manifest or index of that name, and its digest.
    pub(super) async fn manifest(
        &self,
        image: &ImageReference,
        version: &str,
    ) -> Result<(ContentDigest, Vec<u8>), RegistryError> {
        let url = self.url(image, &format!("manifests/{version}"))?;
        let accept = [MANIFEST_TYPES, INDEX_TYPES].concat().join(", ");
        let response = self.get(image, &url, &[(ACCEPT, accept)]).await?;
        let response = accepted(image, &url, response)?;
        let failed = |source| RegistryError::Transport { url: url.to_string(), source };
        let bytes = response.body(MAX_DOCUMENT).await.map_err(failed)?;
        let digest = ContentDigest::of(&bytes);
        match version.parse::<ContentDigest>() {
            Ok(wanted) if wanted != digest => Err(RegistryError::Digest { url: url.to_string() }),
            _ => Ok((digest, bytes)),
        }
    }

    /// Gets a blob into a file, from where the file ends, and checks it.
    pub(super) async fn blob(
        &self,
        image: &ImageReference,
        blob: &Descriptor,
        path: &Path,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<(), RegistryError> {
        let url = self.url(image, &format!("blobs/{}", blob.digest))?;
        let mut download = Download::open(path, blob.size).await?;
        let (mut attempt, mut wait) = (0, FIRST_WAIT);
        while download.have() < blob.size {
            let before = download.have();
            let ended = self.stream(image, &url, blob, &mut download, progress).await;
            download.keep().await;
            if download.have() > before {
                (attempt, wait) = (0, FIRST_WAIT);
            }
            attempt += 1;
            match ended {
                Ok(()) if download.have() == blob.size => break,
                Ok(()) if attempt >= ATTEMPTS => {
                    let what = format!("it has {} bytes and not {}", download.have(), blob.size);
                    return Err(RegistryError::Answer { url: url.to_string(), what });
                }
                Err(error) if attempt >= ATTEMPTS || !error.may_pass() => return Err(error),
                _ => {}
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        if download.finish().await? != blob.digest {
            download::discard(path).await;
            return Err(RegistryError::Digest { url: url.to_string() });
        }
        Ok(())
    }

    /// One request for what is left of a blob.
    async fn stream(
        &self,
        image: &ImageReference,
        url: &Uri,
        blob: &Descriptor,
        download: &mut Download,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<(), RegistryError> {
        let have = download.have();
        let range = (have > 0).then(|| (RANGE, format!("bytes={have}-")));
        let range: Vec<_> = range.into_iter().collect();
        let response = accepted(image, url, self.get(image, url, &range).await?)?;
        let begins = response
            .header(&CONTENT_RANGE)
            .and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse::<u64>().ok());
        let goes_on = response.status() == StatusCode::PARTIAL_CONTENT && begins == Some(have);
        if have > 0 && !goes_on {
            // It sends all of it again.
            download.restart().await?;
        }
        let mut body = response.into_body();
        let failed = |source| RegistryError::Transport { url: url.to_string(), source };
        while let Some(bytes) = body.next().await.map_err(failed)? {
            if download.have() + bytes.len() as u64 > blob.size {
                let what = format!("it has more than its {} bytes", blob.size);
                return Err(RegistryError::Answer { url: url.to_string(), what });
            }
            download.append(&bytes).await?;
            progress(download.have());
        }
        Ok(())
    }

    fn url(&self, image: &ImageReference, what: &str) -> Result<Uri, RegistryError> {
        let host = match image.registry() {
            "docker.io" => "registry-1.docker.io",
            host => host,
        };
        let scheme = if self.is_plain(image.registry()) { "http" } else { "https" };
        let text = format!("{scheme}://{host}/v2/{}/{what}", image.repository());
        let wrong = |error: hyper::http::uri::InvalidUri| RegistryError::Answer {
            url: text.clone(),
            what: error.to_string(),
        };
        text.parse().map_err(wrong)
    }

    fn is_plain(&self, registry: &str) -> bool {
        let listed = |list: &[String]| list.iter().any(|other| other == registry);
        listed(&self.options.plain_http) || (is_loopback(registry) && !listed(&self.options.tls))
    }

    /// Asks, and asks again with a token or a login if the registry wants one.
    async fn get(
        &self,
        image: &ImageReference,
        url: &Uri,
        headers: &[(hyper::header::HeaderName, String)],
    ) -> Result<Response, RegistryError> {
        let failed = |source| RegistryError::Transport { url: url.to_string(), source };
        let scope = format!("{}/{}", image.registry(), image.repository());
        let known = {
            let known = self.authorization.lock().unwrap_or_else(PoisonError::into_inner);
            known.as_ref().filter(|(of, _)| *of == scope).map(|(_, value)| value.clone())
        };
        let with = |authorization: Option<String>| {
            let authorization = authorization.map(|value| (AUTHORIZATION, value));
            headers.iter().cloned().chain(authorization).collect::<Vec<_>>()
        };
        let response = self.http.get(url, &with(known)).await.map_err(failed)?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let challenges = response.headers(&WWW_AUTHENTICATE);
        let authorization = self.authorize(image, url, &challenges).await?;
        let response =
            self.http.get(url, &with(Some(authorization.clone()))).await.map_err(failed)?;
        if response.status().is_success() {
            let mut known = self.authorization.lock().unwrap_or_else(PoisonError::into_inner);
            *known = Some((scope, authorization));
        }
        Ok(response)
    }

    /// What to answer a registry that wants to know who asks.
    async fn authorize(
        &self,
        image: &ImageReference,
        url: &Uri,
        challenges: &[String],
    ) -> Result<String, RegistryError> {
        let login = self.options.credentials.for_image(image);
        let forbidden = || forbidden(image, login.map(|login| login.user.as_str()));
        let challenge =
            challenges.iter().find_map(|text| Challenge::parse(text)).ok_or_else(forbidden)?;
        let Challenge::Bearer { realm, service } = challenge else {
            return login.map(|login| login.basic()).ok_or_else(forbidden);
        };
        let answer = |what: &str| RegistryError::Answer { url: url.to_string(), what: what.into() };
        let scope = format!("repository:{}:pull", image.repository());
        let separator = if realm.contains('?') { '&' } else { '?' };
        let service = service.map(|service| format!("service={}&", challenge::encoded(&service)));
        let text = format!(
            "{realm}{separator}{}scope={}",
            service.unwrap_or_default(),
            challenge::encoded(&scope)
        );
        let realm: Uri =
            text.parse().map_err(|_| answer("its token service has no valid address"))?;
        let plain = realm.scheme_str() != Some("https");
        if plain && (url.scheme_str() == Some("https") || realm.scheme_str() != Some("http")) {
            return Err(answer("its token service is not reached by TLS"));
        }
        let basic: Vec<_> = login.map(|login| (AUTHORIZATION, login.basic())).into_iter().collect();
        let failed = |source| RegistryError::Transport { url: realm.to_string(), source };
        let response = self.http.get(&realm, &basic).await.map_err(failed)?;
        match response.status() {
            status if status.is_success() => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(forbidden()),
            status => return Err(RegistryError::Status { url: realm.to_string(), status }),
        }
        let bytes = response.body(MAX_TOKEN).await.map_err(failed)?;
        let token: Option<Token> = serde_json::from_slice(&bytes).ok();
        let token = token.and_then(|token| token.token.or(token.access_token));
        let printable = |token: &String| token.bytes().all(|byte| byte.is_ascii_graphic());
        let token =
            token.filter(printable).ok_or_else(|| answer("its token service gave no token"))?;
        Ok(format!("Bearer {token}"))
    }
}

fn forbidden(image: &ImageReference, user: Option<&str>) -> RegistryError {
    let who = user.unwrap_or("anybody").to_owned();
    RegistryError::Forbidden { registry: image.registry().into(), who }
}

/// An answer with what was asked for.
fn accepted(
    image: &ImageReference,
    url: &Uri,
    response: Response,
) -> Result<Response, RegistryError> {
    match response.status() {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(response),
        StatusCode::NOT_FOUND => Err(RegistryError::NotFound { url: url.to_string() }),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(forbidden(image, None)),
        status => Err(RegistryError::Status { url: url.to_string(), status }),
    }
}

/// Whether a registry is this machine.
fn is_loopback(registry: &str) -> bool {
    let host = match registry.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => registry.split(':').next().unwrap_or_default(),
    };
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
