//! The parts put together.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use corten_link::launcher::SOCKET;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::cluster::Cluster;
use crate::device_file;
use crate::diagnosis::{self, Cases};
use crate::door::{Keeper, Launchers, OpenUp, Surroundings};
use crate::doors::Doors;
use crate::grant::Devices;
use crate::huge_pages;
use crate::kubelet::{self, DevicePlugin, NodePlugin, Plugin, PodResources};
use crate::ledger::Ledger;
use crate::metrics::{self, Scraper};
use crate::node;
use crate::options::Options;
use crate::seccomp;
use crate::status::Reports;

const ASK_KUBELET_EACH: Duration = Duration::from_secs(10);

/// Runs the agent; it ends only by an error. What it keeps in touch with goes on without it.
pub async fn run(options: Options, client: Client) -> Result<()> {
    seccomp::install(&options.seccomp_profile())?;
    match huge_pages::allow(Path::new(huge_pages::SETTING)) {
        Ok(true) => info!(setting = huge_pages::SETTING, "huge pages are allowed to guests"),
        Ok(false) => {}
        // VMs run without them, only slower.
        Err(error) => warn!(setting = huge_pages::SETTING, %error, "no huge pages for guests"),
    }
    let ledger = Ledger::open(&options.ledger())?;
    let doors = Arc::new(Doors::new(&options.doors(), options.devices, options.launcher_user));
    let pod_resources = Arc::new(PodResources::new(&options.pod_resources()));
    let cluster = Cluster::new(client.clone(), &options.node_name);
    let cases = Cases::default();
    let devices = Devices { kvm: options.kvm.clone(), userfaultfd: options.userfaultfd.clone() };
    find_again(&doors, &ledger);

    // None of these ever ends by itself.
    let mut parts = JoinSet::new();
    let usable = watch::Sender::new(devices.are_usable());
    let plugin: Arc<dyn DevicePlugin> =
        Arc::new(Plugin::new(Arc::clone(&doors), ledger.clone(), &options.kvm, usable.subscribe()));
    let around = Surroundings {
        doors: Arc::clone(&doors),
        ledger: ledger.clone(),
        pod_resources: Arc::clone(&pod_resources),
        cluster: cluster.clone(),
        devices: devices.clone(),
        cases: cases.clone(),
        launchers: Launchers::default(),
        reports: Reports::new(cluster.clone()),
        open_up: OpenUp::new(options.launcher_user),
    };
    let (node, ready) = (options.node_name.as_str(), usable.subscribe());
    let scraper = Scraper::new(node, cluster.clone(), around.launchers.clone(), ready);
    parts.spawn(metrics::serve(scraper, options.metrics_address, options.metrics_port));
    for device in doors.ids() {
        parts.spawn(Keeper::new(device.clone(), around.clone()).run());
    }
    // After the profile is installed, above.
    let (name, kvm) = (options.node_name.clone(), options.kvm.clone());
    parts.spawn(node::tell(client, name, kvm, usable.subscribe()));
    let is_usable = move |_: &Path| devices.are_usable();
    parts.spawn(device_file::follow(options.kvm.clone(), is_usable, usable));
    parts.spawn(follow_kubelet(doors, ledger, pod_resources, cluster.clone()));
    parts.spawn(diagnosis::tell(cases, cluster.clone()));
    let (pods, vmis) = (cluster.clone(), cluster);
    parts.spawn(async move { pods.watch_pods().await });
    parts.spawn(async move { vmis.watch_vmis().await });
    for plugin in [plugin, tun(&options, &mut parts), vhost_net(&options, &mut parts)] {
        let plugins = options.plugins();
        parts.spawn(async move { kubelet::serve(plugin, &plugins).await });
    }
    match parts.join_next().await {
        Some(ended) => {
            ended.context("a part of the agent failed")?;
            bail!("a part of the agent has ended, which none should")
        }
        None => bail!("the agent has no parts"),
    }
}

/// After a restart, before kubelet has said anything: whoever was there is likely still there.
fn find_again(doors: &Doors, ledger: &Ledger) {
    let entries = ledger.entries(doors.ids());
    let listens = |path: &Path| path.join(SOCKET).symlink_metadata().is_ok();
    doors.reconcile(
        |device| entries.contains_key(device) || listens(&doors.path(device)),
        Instant::now(),
    );
    info!(recorded = entries.len(), "devices that were given out before");
}

fn tun(options: &Options, parts: &mut JoinSet<()>) -> Arc<dyn DevicePlugin> {
    Arc::new(NodePlugin::tun(&options.tun, followed(&options.tun, parts)))
}

fn vhost_net(options: &Options, parts: &mut JoinSet<()>) -> Arc<dyn DevicePlugin> {
    Arc::new(NodePlugin::vhost_net(&options.vhost_net, followed(&options.vhost_net, parts)))
}

/// Whether there is such a device file, from now on.
fn followed(path: &Path, parts: &mut JoinSet<()>) -> watch::Receiver<bool> {
    let usable = watch::Sender::new(device_file::is_there(path));
    let told = usable.subscribe();
    parts.spawn(device_file::follow(path.into(), device_file::is_there, usable));
    told
}

/// Lets go of devices that no Pod has any more, and finds those that the agent missed.
async fn follow_kubelet(
    doors: Arc<Doors>,
    ledger: Ledger,
    pod_resources: Arc<PodResources>,
    cluster: Cluster,
) {
    let mut ticks = interval(ASK_KUBELET_EACH);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = Instant::now();
        let allocations = match pod_resources.allocations(now).await {
            Ok(allocations) => allocations,
            Err(error) => {
                warn!("{:#}", anyhow::Error::from(error));
                continue;
            }
        };
        for device in doors.reconcile(|device| allocations.contains_key(device), now) {
            info!(%device, "no Pod has the device any more");
            if let Err(error) = ledger.forget(&device) {
                warn!("{:#}", anyhow::Error::from(error));
            }
        }
        let pods = cluster.known().borrow().pods.clone();
        // Without any, they are not listed yet.
        if !pods.is_empty() {
            let there: BTreeSet<&str> = pods.values().map(|pod| pod.uid.as_str()).collect();
            if let Err(error) = ledger.forget_starts(|uid| there.contains(uid), doors.ids()) {
                warn!("{:#}", anyhow::Error::from(error));
            }
        }
    }
}
