//! The device plugin as kubelet calls it. Calls that the plugin's options rule out are not implemented.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::{self, BoxStream, StreamExt};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tracing::error;

use super::DevicePlugin;
use super::api::{
    AllocateRequest, AllocateResponse, DevicePluginOptions, Empty, ListAndWatchResponse,
};

/// The gRPC service of a plugin.
#[derive(Clone)]
pub(super) struct PluginService(pub(super) Arc<dyn DevicePlugin>);

impl Service<http::Request<Body>> for PluginService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let plugin = Arc::clone(&self.0);
        match request.uri().path() {
            "/v1beta1.DevicePlugin/GetDevicePluginOptions" => {
                Box::pin(async move { Ok(grpc().unary(Options, request).await) })
            }
            "/v1beta1.DevicePlugin/ListAndWatch" => {
                Box::pin(
                    async move { Ok(grpc().server_streaming(ListAndWatch(plugin), request).await) },
                )
            }
            "/v1beta1.DevicePlugin/Allocate" => {
                Box::pin(async move { Ok(grpc().unary(Allocate(plugin), request).await) })
            }
            _ => Box::pin(async { Ok(Status::unimplemented("").into_http()) }),
        }
    }
}

fn grpc<Q, A>() -> Grpc<ProstCodec<A, Q>>
where
    Q: prost::Message + Default + Send + 'static,
    A: prost::Message + Send + 'static,
{
    Grpc::new(ProstCodec::default())
}

struct Options;

impl UnaryService<Empty> for Options {
    type Response = DevicePluginOptions;
    type Future = BoxFuture<Response<Self::Response>, Status>;

    fn call(&mut self, _: Request<Empty>) -> Self::Future {
        Box::pin(async { Ok(Response::new(DevicePluginOptions::default())) })
    }
}

struct Allocate(Arc<dyn DevicePlugin>);

impl UnaryService<AllocateRequest> for Allocate {
    type Response = AllocateResponse;
    type Future = BoxFuture<Response<Self::Response>, Status>;

    fn call(&mut self, request: Request<AllocateRequest>) -> Self::Future {
        let plugin = Arc::clone(&self.0);
        Box::pin(async move {
            let allocated = plugin.allocate(request.get_ref());
            allocated.map(Response::new).map_err(|failure| {
                let cause = anyhow::Error::from(failure);
                error!("a device was not given out: {cause:#}");
                Status::internal(format!("{cause:#}"))
            })
        })
    }
}

struct ListAndWatch(Arc<dyn DevicePlugin>);

impl ServerStreamingService<Empty> for ListAndWatch {
    type Response = ListAndWatchResponse;
    type ResponseStream = BoxStream<'static, Result<Self::Response, Status>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, _: Request<Empty>) -> Self::Future {
        let plugin = Arc::clone(&self.0);
        let mut health = plugin.health();
        // The first list at once, then one for each change, for as long as kubelet listens.
        health.mark_changed();
        let lists = stream::unfold((plugin, health), async |(plugin, mut health)| {
            health.changed().await.ok()?;
            let usable = *health.borrow_and_update();
            let list = plugin.devices(usable);
            Some((Ok(list), (plugin, health)))
        });
        Box::pin(async move { Ok(Response::new(lists.boxed())) })
    }
}
