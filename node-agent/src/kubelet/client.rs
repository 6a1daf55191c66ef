//! Calls to kubelet.

use std::path::{Path, PathBuf};
use std::time::Duration;

use prost::Message;
use thiserror::Error;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

/// kubelet answers from memory; if it takes this long, it is not well.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Why a call came to nothing.
#[derive(Debug, Error)]
pub enum RpcError {
    /// Nobody listens there.
    #[error("cannot connect to {socket}")]
    Connect {
        /// kubelet's socket.
        socket: PathBuf,
        /// Why.
        #[source]
        source: tonic::transport::Error,
    },
    /// Somebody else has just asked.
    #[error("kubelet did not answer a moment ago")]
    Before,
    /// It was refused.
    #[error("{method} failed")]
    Call {
        /// Which call.
        method: &'static str,
        /// What kubelet said.
        #[source]
        source: Box<Status>,
    },
}

/// A connection to one of kubelet's sockets.
pub(super) async fn connect(socket: &Path) -> Result<Channel, RpcError> {
    let failed = |source| RpcError::Connect { socket: socket.into(), source };
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).map_err(failed)?;
    endpoint.timeout(TIME_LIMIT).connect_timeout(TIME_LIMIT).connect().await.map_err(failed)
}

/// Calls `method`, a full path such as `/v1.PodResourcesLister/List`.
pub(super) async fn call<Q, A>(
    channel: &Channel,
    method: &'static str,
    question: Q,
) -> Result<A, RpcError>
where
    Q: Message + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
{
    let failed = |source: Status| RpcError::Call { method, source: Box::new(source) };
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| failed(Status::unavailable(error.to_string())))?;
    let path = PathAndQuery::from_static(method);
    let codec: ProstCodec<Q, A> = ProstCodec::default();
    let answer = grpc.unary(Request::new(question), path, codec).await.map_err(failed)?;
    Ok(answer.into_inner())
}
