//! Keeps the plugin known to kubelet.
//!
//! kubelet forgets its plugins when it restarts, and removes their sockets. So the plugin looks, once a second, whether
//! its own socket and kubelet's are still those of the registration; if not, it begins anew. A look costs two system
//! calls, and unlike a notification it cannot be missed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use thiserror::Error;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::sleep;
use tonic::transport::Server;
use tracing::{info, warn};

use super::DevicePlugin;
use super::api::{DevicePluginOptions, Empty, RegisterRequest, VERSION};
use super::client::{RpcError, call, connect};
use super::service::PluginService;

/// Name of kubelet's own socket.
const KUBELET: &str = "kubelet.sock";
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Why kubelet does not know the plugin.
#[derive(Debug, Error)]
pub enum RegistrationError {
    /// The plugin cannot listen.
    #[error("cannot listen on {path}")]
    Listen {
        /// The plugin's socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// kubelet did not take it.
    #[error("kubelet does not take the plugin")]
    Register(#[from] RpcError),
    /// The server ended.
    #[error("the device plugin's server failed")]
    Server(#[from] tonic::transport::Error),
}

/// Serves the plugin in kubelet's directory `plugins`, registered whenever kubelet is there, without end.
pub async fn serve(plugin: Arc<dyn DevicePlugin>, plugins: &Path) {
    let resource = plugin.resource();
    loop {
        match serve_once(&plugin, plugins).await {
            Ok(()) => info!(resource, "kubelet has restarted: the device plugin registers anew"),
            Err(error) => warn!(resource, "{:#}; trying again", anyhow::Error::from(error)),
        }
        sleep(LOOK_AGAIN_AFTER).await;
    }
}

/// Registers once; returns when that registration is no longer valid.
async fn serve_once(
    plugin: &Arc<dyn DevicePlugin>,
    plugins: &Path,
) -> Result<(), RegistrationError> {
    let path = plugins.join(plugin.endpoint());
    let failed = |source| RegistrationError::Listen { path: path.clone(), source };
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(failed)?;
    let incoming = stream::unfold(listener, async |listener| {
        let accepted: io::Result<UnixStream> = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    let server = Server::builder().serve_with_incoming(PluginService(Arc::clone(plugin)), incoming);
    // The server is dropped with its connections when the registration is over.
    tokio::select! {
        ended = server => Ok(ended?),
        outcome = register_and_watch(plugin.as_ref(), plugins, &path) => outcome,
    }
}

async fn register_and_watch(
    plugin: &dyn DevicePlugin,
    plugins: &Path,
    own: &Path,
) -> Result<(), RegistrationError> {
    let kubelet = plugins.join(KUBELET);
    let registered = (identity(own), identity(&kubelet));
    let request = RegisterRequest {
        version: VERSION.into(),
        endpoint: plugin.endpoint().into(),
        resource_name: plugin.resource().into(),
        options: Some(DevicePluginOptions::default()),
    };
    let channel = connect(&kubelet).await?;
    let Empty {} = call(&channel, "/v1beta1.Registration/Register", request).await?;
    info!(resource = plugin.resource(), "registered with kubelet");
    while (identity(own), identity(&kubelet)) == registered {
        sleep(LOOK_AGAIN_AFTER).await;
    }
    Ok(())
}

/// What tells a file from another one that came in its place: an inode's number may be used again at once, its time
/// of change is not.
fn identity(path: &Path) -> Option<(u64, i64, i64)> {
    let metadata = fs::symlink_metadata(path).ok()?;
    Some((metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
}
