//! Corten's operator: serves webhooks, health and metrics, and runs the controllers while it leads, until SIGTERM.
//!
//! ```text
//!   SIGTERM --> not ready any more --> controllers end --> Lease given back --> connections drained --> exit 0
//!   Lease lost --> controllers dropped where they are --> the Lease is waited for again; webhooks are served all along
//! ```

#![forbid(unsafe_code)]

use anyhow::Context;
use clap::Parser;
use corten_operator::admission::Admission;
use corten_operator::certs::{Bundle, Keeper};
use corten_operator::control::Stores;
use corten_operator::install::{Followed, Installer, follow, served_names};
use corten_operator::lease::{self, Election, Leadership, Lost, Terms};
use corten_operator::metrics::{self, CountRequests};
use corten_operator::serve::{health, tls, webhook};
use corten_operator::write::Writer;
use corten_operator::{Config, Stop, Stopper, install, migration, replicaset, vm, vmi};
use corten_serving::port::{Limits, Port, serve};
use kube::Client;
use kube::client::ClientBuilder;
use std::future::ready;
use std::io::stderr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing_subscriber::EnvFilter;

/// How long controllers may take to end what is under way.
const END: Duration = Duration::from_secs(5);

/// Corten's operator
#[derive(Parser)]
#[command(version)]
struct Options {
    #[command(flatten)]
    config: Config,
    /// What is logged, as tracing's filters say it
    #[arg(long, env = "CORTEN_LOG", default_value = "info")]
    log: String,
    /// Name of the Pod, for events and for the Lease
    #[arg(long, env = "POD_NAME")]
    pod_name: Option<String>,
    /// Namespace of the operator, and of what it installs for itself
    #[arg(long, env = "POD_NAMESPACE", default_value = corten_resources::names::SYSTEM_NAMESPACE)]
    namespace: String,
    /// Image of the node agents; the launcher's neighbour if not given
    #[arg(long, env = "CORTEN_NODE_AGENT_IMAGE")]
    node_agent_image: Option<String>,
    /// Address that is listened on; all of the host's if not given
    #[arg(long)]
    address: Option<IpAddr>,
    /// Port of webhooks
    #[arg(long, default_value_t = 8443)]
    webhook_port: u16,
    /// Port of health and metrics
    #[arg(long, default_value_t = 8080)]
    health_port: u16,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let filter = EnvFilter::try_new(&options.log)
        .with_context(|| format!("{:?} is no log filter", options.log))?;
    let logs = tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter);
    // Every line names its object: what it was reconciled for would only say it again.
    logs.with_current_span(false).with_span_list(false).with_writer(stderr).init();
    // Before anything else: the first process of a container has no default action for signals.
    let (stopper, stop) = Stopper::new();
    let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(stop_on(signals, stopper));
    // Fails if there is a provider already, which is then as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cluster = kube::Config::infer()
        .await
        .context("cannot find the cluster: neither a service account nor a kubeconfig")?;
    let client = ClientBuilder::try_from(cluster)
        .context("cannot make a client for the cluster")?
        .with_layer(&CountRequests)
        .build();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        launcher = options.config.launcher_image,
        "started"
    );
    run(client, options, stop).await
}

async fn run(client: Client, options: Options, stop: Stop) -> anyhow::Result<()> {
    metrics::leading(false);
    let followed = follow(client.clone(), options.config.clone());
    let names = served_names(&options.namespace);
    let keeper = Keeper::new(client.clone(), &options.namespace, names, followed.settings.clone());
    let bundle = keeper.bundle();
    let (end_serving, serving_ends) = Stopper::new();
    let ports = start_serving(&client, &options, &keeper, &stop, &serving_ends).await?;
    let certificates = tokio::spawn(keeper.run());
    let result = tokio::select! {
        result = lead(client, &options, followed, bundle, stop) => result,
        _ = certificates => Err(anyhow::anyhow!("the certificates are no longer kept")),
    };
    metrics::leading(false);
    end_serving.stop();
    ports.join_all().await;
    tracing::info!("ended");
    result
}

/// Serves webhooks, health and metrics until `end`. From `stop` on it is no longer ready.
async fn start_serving(
    client: &Client,
    options: &Options,
    keeper: &Keeper,
    stop: &Stop,
    end: &Stop,
) -> anyhow::Result<JoinSet<()>> {
    let admission = Arc::new(Admission::new(client.clone()));
    let limits = Limits::default();
    let mut ports = JoinSet::new();
    let listener = listen(options.address, options.webhook_port).await?;
    let tls = tls(keeper.serving()).context("cannot set up TLS")?;
    let answer = move |request| webhook(Arc::clone(&admission), request);
    let opened = Some(metrics::connections as fn(usize));
    ports.spawn(serve(Port { listener, tls: Some(tls), limits, opened }, answer, end.told()));
    let listener = listen(options.address, options.health_port).await?;
    let (serving, told) = (keeper.serving(), stop.clone());
    let answer =
        move |request: hyper::Request<_>| ready(health(request.uri().path(), &serving, &told));
    let limits = Limits { connections: 64, ..limits };
    let port = Port { listener, tls: None, limits, opened: None };
    ports.spawn(serve(port, answer, end.told()));
    Ok(ports)
}

/// Both families of addresses, or the one that the host has.
async fn listen(address: Option<IpAddr>, port: u16) -> anyhow::Result<TcpListener> {
    let any = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    let first = TcpListener::bind((address.unwrap_or(any[0]), port)).await;
    let listener = match (first, address) {
        (Err(_), None) => TcpListener::bind((any[1], port)).await,
        (first, _) => first,
    };
    listener.with_context(|| format!("cannot listen on port {port}"))
}

/// Waits for the Lease and runs the controllers as long as it is this replica's, again after each loss, until the stop.
/// What is served needs no Lease: a leader that lost it goes on serving.
async fn lead(
    client: Client,
    options: &Options,
    followed: Followed,
    bundle: watch::Receiver<Bundle>,
    stop: Stop,
) -> anyhow::Result<()> {
    let pod = options.pod_name.as_deref().unwrap_or("corten-operator");
    let me = lease::identity(pod);
    let terms = Terms::default();
    let (namespace, name) = (&options.namespace, lease::NAME);
    loop {
        let election = Election::new(client.clone(), namespace, name, me.clone(), terms);
        let leadership = tokio::select! {
            () = stop.told() => return Ok(()),
            leadership = election.win() => leadership,
        };
        tracing::info!(identity = me, "leading");
        metrics::leading(true);
        let (client, bundle) = (client.clone(), bundle.clone());
        let work = controllers(client, options, followed.clone(), bundle, stop.clone());
        let lost = hold(leadership, work, &stop).await?;
        metrics::leading(false);
        metrics::population().forget_all();
        match lost {
            Some(lost) => {
                let error = format!("{:#}", anyhow::Error::from(lost));
                tracing::warn!(error, "this replica no longer leads, and waits for the Lease");
            }
            None => return Ok(()),
        }
    }
}

/// Does the `work` of the leader to its end, and then gives the Lease back; or up to the loss of the Lease, which is told.
async fn hold(
    leadership: Leadership,
    work: impl Future<Output = ()>,
    stop: &Stop,
) -> anyhow::Result<Option<Lost>> {
    let (release, released) = Stopper::new();
    let mut keeping = tokio::spawn(leadership.keep(released.told()));
    tokio::select! {
        // Whatever the controllers are doing, another replica may be about to do it too.
        lost = &mut keeping => return Ok(lost.context("the Lease is no longer kept")?.err()),
        () = work => anyhow::ensure!(stop.is_told(), "the controllers ended by themselves"),
        () = overdue(stop) => tracing::warn!("controllers were dropped that did not end"),
    }
    release.stop();
    // Gives up by itself.
    let _ = timeout(END, keeping).await;
    Ok(None)
}

/// Ends some time after the stop.
async fn overdue(stop: &Stop) {
    stop.told().await;
    sleep(END).await;
}

/// Every controller, until told to stop.
async fn controllers(
    client: Client,
    options: &Options,
    followed: Followed,
    bundle: watch::Receiver<Bundle>,
    stop: Stop,
) {
    // Until then the settings are not those that were asked for.
    tokio::select! {
        () = followed.known() => {}
        () = stop.told() => return,
    }
    let writer = Arc::new(Writer::new(client.clone(), options.pod_name.clone()));
    let settings = followed.settings.clone();
    let stores = Stores::default();
    let installer = Installer {
        namespace: options.namespace.clone(),
        agent_image: options.node_agent_image.clone(),
        followed,
        bundle,
    };
    let writes = || Arc::clone(&writer);
    tokio::join!(
        stores.keep(client.clone(), stop.told()),
        metrics::follow(&stores),
        install::run(client.clone(), installer, writes(), stop.clone()),
        vmi::run(client.clone(), settings, writes(), &stores, stop.told()),
        vm::run(client.clone(), writes(), &stores, stop.told()),
        replicaset::run(client.clone(), writes(), &stores, stop.told()),
        migration::run(client, writes(), &stores, stop.told()),
    );
    tracing::info!(writes = %writer.counts(), "controllers ended");
}

async fn stop_on((mut terminate, mut interrupt): (Signal, Signal), stopper: Stopper) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    stopper.stop();
    // Its end would be a stop as well; this one is to be the only one.
    std::future::pending::<()>().await;
}
