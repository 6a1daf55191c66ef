//! The plugin and the client against a kubelet that only has the edges: its sockets and its calls.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::stream;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::client::Grpc as Client;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, UnaryService};
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::api::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerDevices,
    ContainerResources, DevicePluginOptions, Empty, ListAndWatchResponse, ListPodResourcesRequest,
    ListPodResourcesResponse, PodResourcesEntry, RegisterRequest,
};
use super::client::{RpcError, call, connect};
use super::{NodePlugin, Plugin, PodResources, RESOURCE, serve};
use crate::doors::{DeviceId, Doors};
use crate::identity::PodName;
use crate::ledger::Ledger;

/// Long, for a machine under load.
const SOON: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct Kubelet {
    registrations: mpsc::UnboundedSender<RegisterRequest>,
}

impl Kubelet {
    /// Listens on `socket` until the task is aborted.
    fn start(self, socket: &Path) -> JoinHandle<()> {
        let listener = UnixListener::bind(socket).unwrap();
        let incoming = stream::unfold(listener, async |listener| {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        tokio::spawn(async { Server::builder().serve_with_incoming(self, incoming).await.unwrap() })
    }
}

impl Service<http::Request<Body>> for Kubelet {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let kubelet = self.clone();
        match request.uri().path() {
            "/v1beta1.Registration/Register" => Box::pin(async move {
                Ok(Grpc::new(ProstCodec::default()).unary(Register(kubelet), request).await)
            }),
            "/v1.PodResourcesLister/List" => {
                Box::pin(
                    async move { Ok(Grpc::new(ProstCodec::default()).unary(List, request).await) },
                )
            }
            other => panic!("nobody calls {other}"),
        }
    }
}

struct Register(Kubelet);

impl UnaryService<RegisterRequest> for Register {
    type Response = Empty;
    type Future = BoxFuture<Response<Empty>, Status>;

    fn call(&mut self, request: Request<RegisterRequest>) -> Self::Future {
        self.0.registrations.send(request.into_inner()).unwrap();
        Box::pin(async { Ok(Response::new(Empty {})) })
    }
}

struct List;

impl UnaryService<ListPodResourcesRequest> for List {
    type Response = ListPodResourcesResponse;
    type Future = BoxFuture<Response<Self::Response>, Status>;

    fn call(&mut self, _: Request<ListPodResourcesRequest>) -> Self::Future {
        let devices =
            ContainerDevices { resource_name: RESOURCE.into(), device_ids: vec!["kvm-1".into()] };
        let container = ContainerResources { name: "compute".into(), devices: vec![devices] };
        let pod = PodResourcesEntry {
            name: "virt-launcher-a".into(),
            namespace: "default".into(),
            containers: vec![container],
        };
        Box::pin(async { Ok(Response::new(ListPodResourcesResponse { pod_resources: vec![pod] })) })
    }
}

/// A node with the plugin on it.
struct Node {
    directory: tempfile::TempDir,
    usable: watch::Sender<bool>,
    kubelet: Kubelet,
    registrations: mpsc::UnboundedReceiver<RegisterRequest>,
    plugin: JoinHandle<()>,
}

impl Node {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let usable = watch::Sender::new(true);
        let owner = nix::unistd::getuid().as_raw();
        let doors = Arc::new(Doors::new(&directory.path().join("doors"), 2, owner));
        let ledger = Ledger::open(&directory.path().join("ledger")).unwrap();
        let plugin = Plugin::new(doors, ledger, Path::new("/dev/kvm"), usable.subscribe());
        let plugins = directory.path().join("plugins");
        fs::create_dir(&plugins).unwrap();
        let (sender, registrations) = mpsc::unbounded_channel();
        let plugin = tokio::spawn(async move { serve(Arc::new(plugin), &plugins).await });
        let kubelet = Kubelet { registrations: sender };
        Self { directory, usable, kubelet, registrations, plugin }
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.directory.path().join("plugins").join(name)
    }

    /// Waits for a registration and connects to the plugin, as kubelet does then.
    async fn registered(&mut self) -> (RegisterRequest, Channel) {
        let request = timeout(SOON, self.registrations.recv()).await.unwrap().unwrap();
        let channel = connect(&self.socket(&request.endpoint)).await.unwrap();
        (request, channel)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.plugin.abort();
    }
}

async fn list_and_watch(channel: &Channel) -> Streaming<ListAndWatchResponse> {
    let mut client = Client::new(channel.clone());
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/v1beta1.DevicePlugin/ListAndWatch");
    let codec: ProstCodec<Empty, ListAndWatchResponse> = ProstCodec::default();
    client.server_streaming(Request::new(Empty {}), path, codec).await.unwrap().into_inner()
}

async fn next_list(lists: &mut Streaming<ListAndWatchResponse>) -> Vec<(String, String)> {
    let list = timeout(SOON, lists.message()).await.unwrap().unwrap().unwrap();
    list.devices.into_iter().map(|device| (device.id, device.health)).collect()
}

fn all(health: &str) -> Vec<(String, String)> {
    ["kvm-0", "kvm-1"].map(|id| (id.to_owned(), health.to_owned())).into()
}

#[tokio::test]
async fn plugin_registers_and_its_devices_are_as_healthy_as_kvm() {
    let mut node = Node::start();
    let _kubelet = node.kubelet.clone().start(&node.socket("kubelet.sock"));
    let (request, channel) = node.registered().await;
    assert_eq!(
        (request.version.as_str(), request.resource_name.as_str()),
        ("v1beta1", "devices.kubevirt.io/kvm")
    );
    let options: DevicePluginOptions =
        call(&channel, "/v1beta1.DevicePlugin/GetDevicePluginOptions", Empty {}).await.unwrap();
    assert_eq!(options, DevicePluginOptions::default());

    let mut lists = list_and_watch(&channel).await;
    assert_eq!(next_list(&mut lists).await, all("Healthy"));
    node.usable.send_replace(false);
    assert_eq!(next_list(&mut lists).await, all("Unhealthy"));
}

#[tokio::test]
async fn devices_are_given_out_over_the_socket_and_unknown_ones_refused() {
    let mut node = Node::start();
    let _kubelet = node.kubelet.clone().start(&node.socket("kubelet.sock"));
    let (_, channel) = node.registered().await;
    let allocate = "/v1beta1.DevicePlugin/Allocate";
    let request = |id: &str| AllocateRequest {
        container_requests: vec![ContainerAllocateRequest { devices_ids: vec![id.into()] }],
    };
    let response: AllocateResponse = call(&channel, allocate, request("kvm-1")).await.unwrap();
    let mount = &response.container_responses[0].mounts[0];
    assert_eq!(mount.host_path, node.directory.path().join("doors/kvm-1").display().to_string());
    let refused = call::<_, AllocateResponse>(&channel, allocate, request("kvm-7")).await;
    let text = format!("{:#}", anyhow::Error::from(refused.unwrap_err()));
    assert!(text.contains("kvm-7") && text.contains("is no device of this node"), "{text}");
    let unknown = "/v1beta1.DevicePlugin/PreStartContainer";
    assert!(call::<_, Empty>(&channel, unknown, Empty {}).await.is_err());
}

#[tokio::test]
async fn plugin_registers_again_with_a_kubelet_that_restarted() {
    let mut node = Node::start();
    let own = node.socket("kubelet.sock");
    let first = node.kubelet.clone().start(&own);
    let (request, _) = node.registered().await;
    // What kubelet does when it starts: all sockets in the directory go.
    first.abort();
    fs::remove_file(&own).unwrap();
    fs::remove_file(node.socket(&request.endpoint)).unwrap();
    let _second = node.kubelet.clone().start(&own);
    let (_, channel) = node.registered().await;
    assert_eq!(next_list(&mut list_and_watch(&channel).await).await, all("Healthy"));
}

#[tokio::test]
async fn plugin_waits_for_a_kubelet_that_is_not_there_yet() {
    let mut node = Node::start();
    let early = timeout(Duration::from_millis(50), node.registrations.recv()).await;
    assert!(early.is_err(), "nobody was there to register with");
    let _kubelet = node.kubelet.clone().start(&node.socket("kubelet.sock"));
    node.registered().await;
}

#[tokio::test]
async fn device_file_is_offered_under_its_own_name_and_again_to_the_next_kubelet() {
    let directory = tempfile::tempdir().unwrap();
    let (sender, mut registrations) = mpsc::unbounded_channel();
    let kubelet = Kubelet { registrations: sender };
    let usable = watch::Sender::new(false);
    let plugin = NodePlugin::vhost_net(Path::new("/dev/vhost-net"), usable.subscribe());
    let plugins = directory.path().to_owned();
    let serving = tokio::spawn(async move { serve(Arc::new(plugin), &plugins).await });
    let socket = directory.path().join("kubelet.sock");
    for _ in 0..2 {
        let running = kubelet.clone().start(&socket);
        let request = timeout(SOON, registrations.recv()).await.unwrap().unwrap();
        assert_eq!(request.resource_name, "devices.kubevirt.io/vhost-net");
        let channel = connect(&directory.path().join(&request.endpoint)).await.unwrap();
        let mut lists = list_and_watch(&channel).await;
        let list = next_list(&mut lists).await;
        assert_eq!(list[0], ("vhost-net-0".to_owned(), "Unhealthy".to_owned()));
        usable.send_replace(true);
        assert_eq!(next_list(&mut lists).await[0].1, "Healthy");
        usable.send_replace(false);
        running.abort();
        let _ = running.await;
        fs::remove_file(&socket).unwrap();
        fs::remove_file(directory.path().join(&request.endpoint)).unwrap();
    }
    serving.abort();
}

#[tokio::test]
async fn kubelet_that_does_not_answer_is_not_asked_by_each_door_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    let client = PodResources::new(&directory.path().join("kubelet.sock"));
    let before = Instant::now();
    assert!(matches!(client.allocations(before).await, Err(RpcError::Connect { .. })));
    assert!(matches!(client.allocations(before).await, Err(RpcError::Before)));
    // Whoever came later wants to know what is so now.
    let later = client.allocations(Instant::now()).await;
    assert!(matches!(later, Err(RpcError::Connect { .. })));
}

#[tokio::test]
async fn pod_of_a_device_is_asked_of_kubelet_and_again_of_the_next_kubelet() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kubelet.sock");
    let client = PodResources::new(&socket);
    assert!(client.allocations(Instant::now()).await.is_err());
    let kubelet = Kubelet { registrations: mpsc::unbounded_channel().0 };
    let name = PodName { namespace: "default".into(), name: "virt-launcher-a".into() };
    for _ in 0..2 {
        let running = kubelet.clone().start(&socket);
        let list = client.allocations(Instant::now()).await.unwrap();
        assert_eq!(list, [(DeviceId::new(1), vec![name.clone()])].into());
        running.abort();
        let _ = running.await;
        fs::remove_file(&socket).unwrap();
    }
}
