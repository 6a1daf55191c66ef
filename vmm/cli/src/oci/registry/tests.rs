//! A registry in a few lines, on the loopback, that asks for tokens, redirects and breaks connections as it is told to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::*;
use crate::oci::testing::{TestImage, layer};
use crate::oci::{ImageError, ImageHandle, ImageStore, PullPolicy, Sources};

/// What it does.
#[derive(Clone, Default)]
struct Habits {
    /// It wants a token, which this login gets.
    token_for: Option<&'static str>,
    /// It wants this login itself.
    login: Option<&'static str>,
    /// Blobs are at another port.
    blobs_at: Option<u16>,
    /// It breaks off in the middle of a blob this often.
    breaks: Arc<AtomicUsize>,
    /// It does not know ranges.
    ignores_ranges: bool,
}

struct TestRegistry {
    port: u16,
    /// Request lines, each with its authorization.
    seen: Arc<Mutex<Vec<String>>>,
}

impl TestRegistry {
    fn start(image: &TestImage, habits: Habits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut served: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for (hex, bytes) in &image.blobs {
            served.insert(format!("/v2/a/b/blobs/sha256:{hex}"), bytes.clone());
            served.insert(format!("/v2/a/b/manifests/sha256:{hex}"), bytes.clone());
        }
        let digest = image.manifest["digest"].as_str().unwrap().to_owned();
        let manifest = served[&format!("/v2/a/b/manifests/{digest}")].clone();
        served.insert("/v2/a/b/manifests/1".into(), manifest);
        let log = Arc::clone(&seen);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = serve(&stream.unwrap(), port, &served, &habits, &log);
            }
        });
        Self { port, seen }
    }

    fn name(&self, version: &str) -> ImageReference {
        format!("127.0.0.1:{}/a/b{version}", self.port).parse().unwrap()
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn serve(
    stream: &TcpStream,
    port: u16,
    served: &BTreeMap<String, Vec<u8>>,
    habits: &Habits,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap()?;
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let path = request.split(' ').nth(1).unwrap().to_owned();
    let authorization = headers.get("authorization").cloned().unwrap_or_default();
    log.lock().unwrap().push(format!("{path} {authorization}").trim().to_owned());
    let answer = |head: &str, body: &[u8]| {
        let head = format!(
            "HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        (&*stream).write_all(head.as_bytes())?;
        let one_less = |left: usize| left.checked_sub(1).filter(|_| path.contains("/blobs/"));
        let breaks =
            habits.breaks.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok();
        let sent = if breaks { body.len().min(400_000) } else { body.len() };
        (&*stream).write_all(&body[..sent])
    };
    if path.starts_with("/token?") {
        let good = habits.token_for.is_some_and(|login| authorization == login);
        return match good && path == "/token?service=the%20service&scope=repository:a/b:pull" {
            true => answer("200 OK", br#"{"token": "T"}"#),
            false => answer("401 Unauthorized", b""),
        };
    }
    if habits.token_for.is_some() && authorization != "Bearer T" {
        let challenge = format!(
            "401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"http://127.0.0.1:{port}/token\",service=\"the service\""
        );
        return answer(&challenge, b"");
    }
    if habits.login.is_some_and(|login| authorization != login) {
        return answer("401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"", b"");
    }
    if let Some(other) = habits.blobs_at.filter(|_| path.contains("/blobs/")) {
        return answer(
            &format!("307 Temporary Redirect\r\nLocation: http://127.0.0.1:{other}{path}"),
            b"",
        );
    }
    let Some(bytes) = served.get(&path) else { return answer("404 Not Found", b"") };
    let range = headers.get("range").filter(|_| !habits.ignores_ranges);
    let from = range
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    match from {
        Some(from) => {
            let head = format!(
                "206 Partial Content\r\nContent-Range: bytes {from}-{}/{}",
                bytes.len() - 1,
                bytes.len()
            );
            answer(&head, &bytes[from..])
        }
        None => answer("200 OK", bytes),
    }
}

struct Scene {
    directory: tempfile::TempDir,
    image: TestImage,
}

impl Scene {
    fn new() -> Self {
        let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let image = TestImage::new(&[layer(&[("disk/a", &content)])]);
        Self { directory: tempfile::tempdir().unwrap(), image }
    }

    fn store(&self, options: RegistryOptions) -> ImageStore {
        ImageStore::new(self.directory.path().join("cache"), options).unwrap()
    }

    fn logged_in(&self, registry: &TestRegistry) -> RegistryOptions {
        let path = self.directory.path().join("config.json");
        let config =
            json!({ "auths": { format!("127.0.0.1:{}", registry.port): { "auth": "dTpw" } } });
        std::fs::write(&path, config.to_string()).unwrap();
        RegistryOptions {
            credentials: Credentials::read(&path).unwrap(),
            ..RegistryOptions::default()
        }
    }
}

async fn resolve(
    store: &ImageStore,
    name: &ImageReference,
    policy: PullPolicy,
) -> Result<ImageHandle, ImageError> {
    store.resolve(name, policy, &Sources::default()).await
}

#[tokio::test]
async fn image_is_pulled_once_and_known_afterwards() {
    let scene = Scene::new();
    let registry = TestRegistry::start(&scene.image, Habits::default());
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let store = scene.store(RegistryOptions::default());
    let store =
        store.with_progress(Arc::new(move |have, total| tell.lock().unwrap().push((have, total))));
    let name = registry.name(":1");
    let handle = resolve(&store, &name, PullPolicy::IfNotPresent).await.unwrap();
    let disk = handle.disk(None).await.unwrap();
    assert_eq!(std::fs::metadata(&disk).unwrap().len(), 1_200_000);
    let total = told.lock().unwrap().last().unwrap().1;
    assert_eq!(told.lock().unwrap().last(), Some(&(total, total)));
    assert_eq!(registry.seen().len(), 2);
    // Neither is anything asked, nor is a layer left.
    let handle = resolve(&store, &name, PullPolicy::Never).await.unwrap();
    assert_eq!(handle.disk(None).await.unwrap(), disk);
    assert_eq!(registry.seen().len(), 0);
    assert!(!disk.parent().unwrap().parent().unwrap().join("blobs").exists());
    // With Always it is asked what the name means now.
    resolve(&store, &name, PullPolicy::Always).await.unwrap().disk(None).await.unwrap();
    assert_eq!(registry.seen(), ["/v2/a/b/manifests/1"]);
    // By digest.
    let digest = format!("@{}", scene.image.manifest["digest"].as_str().unwrap());
    let handle = resolve(&store, &registry.name(&digest), PullPolicy::Always).await.unwrap();
    assert_eq!(handle.disk(None).await.unwrap(), disk);
}

#[tokio::test]
async fn token_is_fetched_with_the_login_and_used() {
    let scene = Scene::new();
    let registry = TestRegistry::start(
        &scene.image,
        Habits { token_for: Some("Basic dTpw"), ..Habits::default() },
    );
    let store = scene.store(scene.logged_in(&registry));
    let handle = resolve(&store, &registry.name(":1"), PullPolicy::Always).await.unwrap();
    handle.disk(None).await.unwrap();
    let seen = registry.seen();
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert_eq!(seen[0], "/v2/a/b/manifests/1");
    assert_eq!(seen[1], "/token?service=the%20service&scope=repository:a/b:pull Basic dTpw");
    assert_eq!(seen[2], "/v2/a/b/manifests/1 Bearer T");
    assert!(seen[3].ends_with(" Bearer T"), "{seen:?}");
}

#[tokio::test]
async fn anonymous_is_told_to_log_in() {
    let scene = Scene::new();
    for habits in [
        Habits { token_for: Some("Basic dTpw"), ..Habits::default() },
        Habits { login: Some("Basic dTpw"), ..Habits::default() },
    ] {
        let registry = TestRegistry::start(&scene.image, habits);
        let store = scene.store(RegistryOptions::default());
        let error = resolve(&store, &registry.name(":1"), PullPolicy::Always).await.err().unwrap();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("does not give it to anybody: log in"), "{source}");
        let store = scene.store(scene.logged_in(&registry));
        resolve(&store, &registry.name(":1"), PullPolicy::Always).await.unwrap();
    }
}

#[tokio::test]
async fn login_does_not_follow_a_redirect_to_another_host() {
    let scene = Scene::new();
    let storage = TestRegistry::start(&scene.image, Habits::default());
    let habits =
        Habits { login: Some("Basic dTpw"), blobs_at: Some(storage.port), ..Habits::default() };
    let registry = TestRegistry::start(&scene.image, habits);
    let store = scene.store(scene.logged_in(&registry));
    let handle = resolve(&store, &registry.name(":1"), PullPolicy::Always).await.unwrap();
    handle.disk(None).await.unwrap();
    assert!(registry.seen().last().unwrap().ends_with("Basic dTpw"));
    let seen = storage.seen();
    assert!(seen.len() == 1 && !seen[0].contains("Basic"), "{seen:?}");
}

#[tokio::test]
async fn broken_download_goes_on_where_it_ended() {
    for ignores_ranges in [false, true] {
        let scene = Scene::new();
        let habits =
            Habits { breaks: Arc::new(AtomicUsize::new(2)), ignores_ranges, ..Habits::default() };
        let registry = TestRegistry::start(&scene.image, habits);
        let store = scene.store(RegistryOptions::default());
        let handle = resolve(&store, &registry.name(":1"), PullPolicy::Always).await.unwrap();
        handle.disk(None).await.unwrap();
        assert_eq!(registry.seen().len(), 1 + 3);
    }
}

#[tokio::test]
async fn wrong_content_and_wrong_length_are_refused() {
    let scene = Scene::new();
    let mut other = TestImage::new(&[]);
    other.blobs.clone_from(&scene.image.blobs);
    other.manifest.clone_from(&scene.image.manifest);
    let blob = other.blobs.values_mut().find(|blob| blob.len() > 100_000).unwrap();
    blob[1000] ^= 1;
    let registry = TestRegistry::start(&other, Habits::default());
    let store = scene.store(RegistryOptions::default());
    let handle = resolve(&store, &registry.name(":1"), PullPolicy::Always).await.unwrap();
    let error = handle.disk(None).await.unwrap_err();
    assert!(
        matches!(error, ImageError::Pull { source: RegistryError::Digest { .. }, .. }),
        "{error:?}"
    );
    other.blobs.values_mut().find(|blob| blob.len() > 100_000).unwrap().push(0);
    let registry = TestRegistry::start(&other, Habits::default());
    let handle = resolve(&store, &registry.name(":1"), PullPolicy::Always).await.unwrap();
    let error = handle.disk(None).await.unwrap_err();
    assert!(
        matches!(error, ImageError::Pull { source: RegistryError::Answer { .. }, .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn what_does_not_exist_is_said() {
    let scene = Scene::new();
    let registry = TestRegistry::start(&scene.image, Habits::default());
    let store = scene.store(RegistryOptions::default());
    let error = resolve(&store, &registry.name(":2"), PullPolicy::Always).await.err().unwrap();
    assert!(
        matches!(error, ImageError::Pull { source: RegistryError::NotFound { .. }, .. }),
        "{error:?}"
    );
    let error = resolve(&store, &registry.name(":1"), PullPolicy::Never).await.err().unwrap();
    assert!(matches!(error, ImageError::NotCached { .. }), "{error:?}");
}

/// A server of TLS with a certificate of its own that answers one request.
fn tls_registry(image: &TestImage, directory: &Path) -> u16 {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(directory.join("ca.pem"), made.cert.pem()).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let manifest =
        image.blobs[&image.manifest["digest"].as_str().unwrap()["sha256:".len()..]].clone();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream.unwrap());
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                request.push(byte[0]);
            }
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", manifest.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&manifest));
            let _ = stream.flush();
        }
    });
    port
}

#[tokio::test]
async fn tls_is_trusted_with_its_certificate_only() {
    let scene = Scene::new();
    let port = tls_registry(&scene.image, scene.directory.path());
    let name: ImageReference = format!("localhost:{port}/a/b:1").parse().unwrap();
    let tls = vec![format!("localhost:{port}")];
    let without = RegistryOptions { tls, ..RegistryOptions::default() };
    let with = RegistryOptions {
        certificates: vec![scene.directory.path().join("ca.pem")],
        ..without.clone()
    };
    let error = resolve(&scene.store(without), &name, PullPolicy::Always).await.err().unwrap();
    assert!(
        matches!(error, ImageError::Pull { source: RegistryError::Transport { .. }, .. }),
        "{error:?}"
    );
    resolve(&scene.store(with), &name, PullPolicy::Always).await.unwrap();
}

#[test]
fn loopback_is_known() {
    for registry in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000"] {
        assert!(is_loopback(registry), "{registry}");
    }
    for registry in ["quay.io", "localhost.example", "10.0.0.1:5000", "[fe80::1]"] {
        assert!(!is_loopback(registry), "{registry}");
    }
}
