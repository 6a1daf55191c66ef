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
use crate::diagnosis::{self, Cases};
use crate::door::{Keeper, Surroundings};
use crate::doors::Doors;
use crate::grant::Devices;
use crate::huge_pages;
use crate::kubelet::{self, Plugin, PodResources};
use crate::ledger::Ledger;
use crate::node;
use crate::options::Options;
use crate::seccomp;

const LOOK_AT_KVM_EACH: Duration = Duration::from_secs(5);
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
    let plugin =
        Arc::new(Plugin::new(Arc::clone(&doors), ledger.clone(), &options.kvm, usable.subscribe()));
    let around = Surroundings {
        doors: Arc::clone(&doors),
        ledger: ledger.clone(),
        pod_resources: Arc::clone(&pod_resources),
        cluster: cluster.clone(),
        devices: devices.clone(),
        cases: cases.clone(),
    };
    for device in doors.ids() {
        parts.spawn(Keeper::new(device.clone(), around.clone()).run());
    }
    // After the profile is installed, above.
    parts.spawn(node::tell(client, options.node_name.clone(), usable.subscribe()));
    parts.spawn(watch_kvm(devices, usable));
    parts.spawn(follow_kubelet(doors, ledger, pod_resources, cluster.clone()));
    parts.spawn(diagnosis::tell(cases, cluster.clone()));
    let (pods, vmis) = (cluster.clone(), cluster);
    parts.spawn(async move { pods.watch_pods().await });
    parts.spawn(async move { vmis.watch_vmis().await });
    let plugins = options.plugins();
    parts.spawn(async move { kubelet::serve(plugin, &plugins).await });
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

/// Tells kubelet, through the plugin, whether KVM can be used.
async fn watch_kvm(devices: Devices, usable: watch::Sender<bool>) {
    let mut ticks = interval(LOOK_AT_KVM_EACH);
    loop {
        ticks.tick().await;
        let now = devices.are_usable();
        let changed = usable.send_if_modified(|before| std::mem::replace(before, now) != now);
        if changed {
            warn!(usable = now, path = %devices.kvm.display(), "KVM has changed");
        }
    }
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
            let there: BTreeSet<&str> = pods.values().map(String::as_str).collect();
            if let Err(error) = ledger.forget_starts(|uid| there.contains(uid), doors.ids()) {
                warn!("{:#}", anyhow::Error::from(error));
            }
        }
    }
}
