//! The background process of a cluster: it holds the control plane and the nodes, and all ends with it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corten_lab::assets::Assets;
use corten_lab::background;
use corten_lab::cache::Cache;
use corten_lab::lab;
use corten_lab::node::Node;
use corten_lab::packages;
use corten_lab::relay::{self, NodePorts};
use nix::fcntl::Flock;

use crate::assets::RECIPES;
use crate::control_plane::{ControlPlane, Places};
use crate::credentials::Credentials;
use crate::door::Door;
use crate::kubectl::Kubectl;
use crate::logs;
use crate::node::{self, JoiningNode, NodeKind};
use crate::options::Options;
use crate::programs::Programs;
use crate::state::{self, NAME, State};
use crate::{answer, manifests, network, nfs, storage};

/// Both nodes are ready within 40 s on a quiet machine, three minutes on a busy one.
const NODES_LIMIT: Duration = Duration::from_secs(480);

fn timeout() -> String {
    format!("--timeout={}s", NODES_LIMIT.as_secs())
}

/// A running cluster. Dropping it ends it.
#[derive(Debug)]
pub struct Cluster {
    /// Real nodes, from number 1; none where one was killed.
    pub nodes: Vec<Option<Node>>,
    /// The ports clients run commands over.
    pub ports: NodePorts,
    /// Programs on the machine.
    pub control_plane: ControlPlane,
    /// What tests run beside it.
    pub programs: Programs,
    /// The NFS server, where there are nodes to mount from it.
    pub nfs: Option<nfs::Server>,
    /// Where things are.
    pub places: Places,
    /// What clients are told.
    pub state: State,
    kind: Option<NodeKind>,
    taps: Vec<std::os::fd::OwnedFd>,
    credentials: Credentials,
    started: Instant,
    _run: RunDirectory,
}

/// The directory of this run, which is ours while the lock is held and goes with this value.
#[derive(Debug)]
struct RunDirectory {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Starts a cluster, says so, and serves clients until it is to end.
pub fn serve(options: &Options) -> Result<()> {
    let cache = Cache::open()?;
    let cluster = Cluster::start(&cache, options)?;
    let socket = background::socket_path(&cache, NAME);
    let requests = relay::listen(&socket, cluster.ports.clone())?;
    cluster.state.save(&cluster.places.run)?;
    cluster.say("up");
    background::say_up(&cluster.places.logs.join("cluster.log"))?;
    answer::answer(cluster, &requests);
    Ok(())
}

impl Cluster {
    fn start(cache: &Cache, options: &Options) -> Result<Self> {
        let started = Instant::now();
        let (path, lock) =
            lab::claim(cache, NAME).context("one cluster at a time can be up or starting")?;
        let run = RunDirectory { path, _lock: lock };
        state::record_holder(&run.path)?;
        packages::ensure(&["iproute2"])?;
        let assets = Assets::with(cache.clone(), RECIPES)?;
        let nodes = options.real_nodes();
        let kind = if nodes > 0 { Some(NodeKind::ensure(&assets)?) } else { None };
        let places = places(&assets, &run.path, options)?;
        load_images(&assets, &places)?;

        let door = Door::reserve()?;
        let outside = format!("https://{}", door.address()?);
        let credentials = Credentials::make(&run.path.join("pki"), &outside)?;
        network::enter()?;
        door.open()?;
        let control_plane = ControlPlane::start(&places, &credentials)?;
        let state = State {
            process: std::process::id(),
            nodes,
            version: options.version(&assets)?,
            kubectl: places.kubernetes.join("kubectl"),
            kubeconfig: credentials.directory().join("outside.conf"),
            inside_kubeconfig: credentials.directory().join("admin.conf"),
            registry: places.registry.join("registry"),
            registry_storage: places.registry_storage(),
            logs: places.logs.clone(),
        };
        let mut cluster = Self {
            nodes: Vec::new(),
            ports: NodePorts::default(),
            control_plane,
            programs: Programs::default(),
            nfs: None,
            places,
            state,
            kind,
            taps: Vec::new(),
            credentials,
            started,
            _run: run,
        };
        cluster.say("control plane started");
        if let Some(root) = &cluster.places.nfs {
            cluster.nfs = Some(nfs::Server::start(root, &cluster.places)?);
        }
        if nodes > 0 {
            cluster.start_nodes(nodes)?;
        }
        cluster.complete(options)?;
        Ok(cluster)
    }

    /// Progress, with the time it took.
    pub fn say(&self, what: &str) {
        eprintln!("cluster: {:5.1} s  {what}", self.started.elapsed().as_secs_f32());
    }

    /// kubectl in the cluster's network namespace.
    pub fn kubectl(&self) -> Kubectl {
        let program = self.state.kubectl.clone();
        Kubectl { program, kubeconfig: self.state.inside_kubeconfig.clone() }
    }

    fn start_nodes(&mut self, count: u8) -> Result<()> {
        let disk = File::create(self.shared_disk())?;
        disk.set_len(storage::SHARED_DISK_BYTES)?;
        for number in 1..=count {
            let tap = network::attach(number)?;
            self.taps.push(tap);
            let node = self.restore(number)?;
            self.nodes.push(Some(node));
        }
        self.ports = NodePorts::new(self.nodes.iter().flatten().map(|node| node.mux.clone()));
        let choice = self.kind.as_ref().map_or("", |kind| &kind.choice);
        self.say(&format!("{count} nodes restored ({choice})"));
        let joining: Vec<JoiningNode> =
            (1..=count).filter_map(|number| self.joining(number)).collect();
        let (credentials, logs) = (&self.credentials, &self.places.logs);
        std::thread::scope(|scope| {
            let joins: Vec<_> = joining
                .iter()
                .map(|node| scope.spawn(move || node::join(node, credentials, count, logs)))
                .collect();
            joins.into_iter().try_for_each(|join| match join.join() {
                Ok(outcome) => outcome,
                Err(_) => bail!("a thread of this program ended"),
            })
        })?;
        self.say("kubelets started");
        Ok(())
    }

    fn joining(&self, number: u8) -> Option<JoiningNode> {
        let node = self.nodes.get(usize::from(number) - 1)?.as_ref()?;
        Some(JoiningNode { number, mux: node.mux.clone() })
    }

    /// A restored node with its name, addresses, clock and the shared disk.
    fn restore(&self, number: u8) -> Result<Node> {
        let kind = self.kind.as_ref().context("this cluster has no real nodes")?;
        let tap = self.taps.get(usize::from(number) - 1).context("no such node")?;
        let mut node = kind.restore(number, &self.places.run, tap)?;
        node.add_disk(&self.shared_disk(), true)?;
        if let Some(reason) = node.set_up(&[], true)? {
            bail!("the KVM of node {number} is of no use: {reason}");
        }
        Ok(node)
    }

    fn shared_disk(&self) -> PathBuf {
        self.places.run.join("shared-disk.raw")
    }

    /// Waits for the API server and the nodes, and gives the cluster what every cluster has.
    fn complete(&mut self, options: &Options) -> Result<()> {
        let kubectl = self.kubectl();
        self.control_plane.complete(&self.places, &self.credentials, &kubectl)?;
        self.say("API server ready");
        let nodes = options.real_nodes();
        if nodes == 0 {
            kubectl.apply(&manifests::simulated_nodes(options.nodes).to_string())?;
        } else {
            kubectl.apply(&manifests::coredns(nodes))?;
            kubectl.apply(&storage::manifests(nodes).to_string())?;
        }
        self.wait_for_nodes(&kubectl, options.nodes)?;
        self.say("nodes ready");
        if nodes > 0 {
            let rollout = ["-n", "kube-system", "rollout", "status", "deployment/coredns"];
            kubectl.run(&[&rollout[..], &[&timeout()]].concat()).context("no DNS")?;
            self.say("DNS ready");
        }
        self.control_plane.check(&self.places)
    }

    fn wait_for_nodes(&mut self, kubectl: &Kubectl, count: u16) -> Result<()> {
        let names: Vec<String> = match self.nodes.len() {
            0 => manifests::simulated_names(count).collect(),
            real => (1..=real).map(|number| format!("node/node{number}")).collect(),
        };
        // `kubectl wait` knows only what is there; a kubelet registers itself in its own time.
        let deadline = Instant::now() + NODES_LIMIT;
        loop {
            let there = kubectl.run(&["get", "nodes", "-o", "name"])?;
            if names.iter().all(|name| there.lines().any(|line| line == name)) {
                break;
            }
            self.control_plane.check(&self.places)?;
            if Instant::now() > deadline {
                bail!("only these nodes have registered: {there}{}", self.consoles());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let condition = ["wait", "--for=condition=Ready", &timeout(), "node", "--all"];
        kubectl.run(&condition).map(|_| ()).with_context(|| self.consoles())
    }

    /// What there is to say when nodes do not come up.
    fn consoles(&self) -> String {
        let consoles: String = self.nodes.iter().flatten().map(Node::console_tail).collect();
        format!("the nodes' logs are in {}\n{consoles}", self.places.logs.display())
    }

    /// Ends node `number` as a loss of power would.
    pub fn kill_node(&mut self, number: u8) -> Result<()> {
        let place = usize::from(number).checked_sub(1).and_then(|at| self.nodes.get_mut(at));
        let node = place.with_context(|| format!("there is no node {number}"))?;
        ensure!(node.take().is_some(), "node {number} was killed before");
        Ok(())
    }

    /// Connects node `number` again; one that was killed, or whose kernel crashed, is started anew, with nothing of what it
    /// had.
    pub fn heal_node(&mut self, number: u8) -> Result<()> {
        self.check_number(number)?;
        network::connect(number, true)?;
        let at = usize::from(number) - 1;
        if self.nodes[at].as_mut().is_some_and(Node::is_running) {
            return Ok(());
        }
        self.nodes[at] = None;
        let node = self.restore(number)?;
        self.ports.replace(number, node.mux.clone());
        self.nodes[at] = Some(node);
        let joining = self.joining(number).context("it was just restored")?;
        node::join(&joining, &self.credentials, self.state.nodes, &self.places.logs)
    }

    /// Takes node `number` off the network.
    pub fn cut_node(&mut self, number: u8) -> Result<()> {
        self.check_number(number)?;
        network::connect(number, false)
    }

    fn check_number(&self, number: u8) -> Result<()> {
        ensure!((1..=self.state.nodes).contains(&number), "there is no node {number}");
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Nodes first: their kubelets would only complain.
        self.nodes.clear();
    }
}

fn places(assets: &Assets, run: &Path, options: &Options) -> Result<Places> {
    let simulated = options.real_nodes() == 0;
    Ok(Places {
        kubernetes: assets.ensure("kubernetes")?,
        etcd: assets.ensure("etcd")?,
        registry: assets.ensure("registry")?,
        kwok: simulated.then(|| assets.ensure("kwok")).transpose()?,
        nfs: (!simulated).then(|| assets.ensure("nfs-ganesha")).transpose()?,
        run: run.to_owned(),
        logs: logs::directory(assets.cache())?,
    })
}

/// Fills the registry, whose storage is this run's own.
fn load_images(assets: &Assets, places: &Places) -> Result<()> {
    let mut archives = Vec::new();
    for entry in fs::read_dir(assets.ensure("cluster-images")?.join("images"))? {
        archives.push(entry?.path());
    }
    load(&places.registry.join("registry"), &places.registry_storage(), &archives).map(|_| ())
}

/// Puts OCI archives into a registry's storage; returns the names of the images.
pub fn load(registry: &Path, storage: &Path, archives: &[PathBuf]) -> Result<Vec<String>> {
    fs::create_dir_all(storage)?;
    let output = Command::new(registry)
        .arg("load")
        .arg(storage)
        .args(archives)
        .output()
        .with_context(|| format!("cannot run {}", registry.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the registry does not take it: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(Into::into).collect())
}
