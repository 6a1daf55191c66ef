//! A node of the cluster: saved with everything in it that is the same for all, and made itself when it is restored.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use corten_lab::assets::{Assets, Kernel, hex};
use corten_lab::node::{self, Mux, Node, Outside, Preparation, RunDirectory, Snapshot};
use corten_lab::qemu::{self, Accelerator, Configuration, Files, Link};
use corten_lab::wire::{Kind, Start};
use corten_lab::{nesting, probe};
use sha2::{Digest, Sha256};

use crate::addresses::{self, MACHINE, REGISTRY_PORT};
use crate::credentials::Credentials;
use crate::network;
use crate::node_files;
use crate::storage::{VOLUME_SIZE, VOLUMES_PER_NODE};

const MEMORY_MIB: u32 = 6144;
const CPUS: u8 = 2;

const PREPARE: &str = include_str!("../node/prepare");
const JOIN: &str = include_str!("../node/join");

/// Importing images takes a minute on a quiet machine.
const PREPARE_LIMIT: Duration = Duration::from_secs(900);
/// A second on a quiet machine.
const JOIN_LIMIT: Duration = Duration::from_secs(60);

/// What every node of a cluster is restored from.
#[derive(Debug)]
pub struct NodeKind {
    files: Files,
    configuration: Configuration,
    snapshot: Snapshot,
    /// What runs the nodes and why.
    pub choice: String,
}

impl NodeKind {
    /// Finds the saved node, or makes it.
    pub fn ensure(assets: &Assets) -> Result<Self> {
        let cache = assets.cache();
        match probe::try_kvm() {
            Ok(()) if nesting::may_work(cache) => {
                match Self::saved(assets, Accelerator::Kvm, "nodes on this machine's KVM")? {
                    Ok(kind) => return Ok(kind),
                    Err(reason) => {
                        eprintln!("cluster: in a node on this machine's KVM {reason}");
                        nesting::remember_failure(cache)?;
                    }
                }
            }
            _ => {}
        }
        match Self::saved(assets, Accelerator::Emulation, "emulated nodes")? {
            Ok(kind) => Ok(kind),
            Err(reason) => bail!("the emulated node is of no use: {reason}"),
        }
    }

    /// The saved node; or why its KVM is unusable.
    fn saved(
        assets: &Assets,
        accelerator: Accelerator,
        choice: &str,
    ) -> Result<Result<Self, String>> {
        let configuration = Configuration {
            accelerator,
            kernel: Kernel::V6_12,
            cpu: None,
            memory: MEMORY_MIB,
            cpus: CPUS,
        };
        let files = Files::ensure(assets, configuration.kernel)?;
        let disk = assets.ensure(DISK_ASSET)?.join("disk.ext4");
        let unusable = std::cell::RefCell::new(None);
        let prepare = |node: &Node| {
            unusable.replace(node.set_up(&[], false)?);
            eprintln!("cluster: preparing a node (once, about a minute) ...");
            node.mux.run(&preparation(), &[]).map(|_| ())
        };
        let preparation = Preparation {
            purpose: "cluster",
            key: &hex(&preparation_key(&assets.key_of(DISK_ASSET)?)[..8]),
            disk: &disk,
            prepare: &prepare,
        };
        let cache = assets.cache();
        let snapshot = Snapshot::prepared(cache, &files, &configuration, &preparation)?;
        if let Some(reason) = unusable.into_inner() {
            return Ok(Err(reason));
        }
        Ok(Ok(Self { files, configuration, snapshot, choice: choice.into() }))
    }

    /// Restores it as node `number`. To be called on the main thread: the kernel ends the node with the thread.
    pub fn restore(&self, number: u8, run: &Path, tap: &std::os::fd::OwnedFd) -> Result<Node> {
        let directory = run.join(addresses::node_name(number));
        std::fs::create_dir_all(&directory)?;
        let layer = directory.join("disk.qcow2");
        let _ = std::fs::remove_file(&layer);
        let disk = qemu::layer((&self.snapshot.disk(), "qcow2"), &layer)?;
        let outside = Outside { network: Some(Link::Tap(tap)), shares: &[], disk: Some(&disk) };
        let run = RunDirectory::at(&directory);
        Node::restore(&self.files, &self.configuration, &self.snapshot, &run, (number, &outside))
    }
}

const DISK_ASSET: &str = "cluster-node-disk";

fn preparation() -> Start {
    let mut start = node::command(PREPARE, &[], PREPARE_LIMIT);
    start.env = vec![
        ("REGISTRY".into(), format!("{MACHINE}:{REGISTRY_PORT}")),
        ("VOLUMES".into(), VOLUMES_PER_NODE.to_string()),
        ("VOLUME_SIZE".into(), VOLUME_SIZE.into()),
    ];
    start
}

fn preparation_key(disk: &str) -> Vec<u8> {
    Sha256::digest(format!("{:?} {disk}", preparation())).to_vec()
}

/// What programs of Go are spared in an emulated node, as its containerd is: signals that interrupt goroutines cost more there
/// than they gain, and memory is plenty.
const GO: &str = "GODEBUG=asyncpreemptoff=1 GOGC=400";

/// Gives a restored node its identity and starts its kubelet and kube-proxy, whose output goes to `logs`.
pub fn join(node: &JoiningNode, credentials: &Credentials, nodes: u8, logs: &Path) -> Result<()> {
    let number = node.number;
    let name = addresses::node_name(number);
    let others = (1..=nodes).filter(|other| *other != number).map(network::routes);
    let routes = network::default_routes() + &others.collect::<String>();
    let files = node_files::archive(number, credentials, &routes)?;
    node.mux
        .run(&node::command(JOIN, &[], JOIN_LIMIT), &files)
        .with_context(|| format!("{name} does not take its files"))?;
    let addresses = format!("{},{}", addresses::node(number), addresses::node_6(number));
    let programs: [(&str, String); 3] = [
        ("containerd", "exec tail -n +1 -F /var/log/containerd.log".into()),
        (
            "kubelet",
            format!(
                "exec env {GO} keep kubelet --config=/etc/kubernetes/kubelet.json \
                 --housekeeping-interval=1m \
                 --kubeconfig=/etc/kubernetes/kubelet.conf --hostname-override={name} \
                 --node-ip={addresses}"
            ),
        ),
        (
            "kube-proxy",
            format!(
                "exec env {GO} keep kube-proxy --config=/etc/kubernetes/kube-proxy.json \
                 --hostname-override={name}"
            ),
        ),
    ];
    for (program, script) in programs {
        follow(&node.mux, &script, &logs.join(format!("{name}-{program}.log")))?;
    }
    Ok(())
}

/// What joining takes of a node, so that several can join at a time.
#[derive(Clone, Debug)]
pub struct JoiningNode {
    /// Its number, from 1.
    pub number: u8,
    /// Its port.
    pub mux: Mux,
}

/// Runs a program in the node for as long as both last, with its output in a file of the machine: so it is there also
/// when the node is not.
fn follow(mux: &Mux, script: &str, log: &PathBuf) -> Result<()> {
    let mut start = node::command(script, &[], Duration::ZERO);
    start.time_limit = None;
    let channel = mux.start(&start)?;
    let mut log = File::options()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("cannot write {}", log.display()))?;
    std::thread::Builder::new().name("follow".into()).spawn(move || {
        for frame in &channel.frames {
            if matches!(frame.kind, Kind::Stdout | Kind::Stderr) {
                // A full disk costs the rest of a log, not the cluster.
                let _ = log.write_all(&frame.payload);
            }
        }
    })?;
    Ok(())
}
