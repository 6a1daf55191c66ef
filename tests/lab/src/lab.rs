//! A lab: one or more nodes, chosen and wired for one purpose.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::fcntl::Flock;

use crate::assets::{Assets, Kernel};
use crate::cache::{self, Cache};
use crate::nesting;
use crate::node::{Node, Outside, RunDirectory, Snapshot};
use crate::probe;
use crate::qemu::{Accelerator, Configuration, Files, Link, SHARE_TAGS};
use crate::switch;
use crate::wire::Share;

const DEFAULT_MEMORY: u32 = 4096;
const NODE_CPUS: u8 = 2;

/// What nodes are wanted.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Wanted {
    /// How many nodes; they reach each other as 10.99.0.N, fd99::N and nodeN
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub nodes: u8,
    /// CPU model in QEMU's words, e.g. EPYC,-rdrand
    #[arg(long)]
    pub cpu: Option<String>,
    /// Memory of each node in MiB
    #[arg(long, value_parser = clap::value_parser!(u32).range(512..=65536))]
    pub memory: Option<u32>,
    /// Debian kernel of the nodes
    #[arg(long)]
    pub kernel: Option<Kernel>,
    /// Rate of each node's link in Mbit/s, both ways
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: Option<u32>,
    /// Raw disk image for every node (/dev/sda, /dev/sdb, ...); FILE:rw lets them write to it
    #[arg(long, value_name = "FILE[:rw]")]
    pub disk: Vec<String>,
    /// Further host directory, seen at its own path; DIR:rw lets nodes write to it
    #[arg(long, value_name = "DIR[:rw]")]
    pub share: Vec<String>,
    /// Start from a node that `save` has saved, with what runs in it
    #[arg(long, value_name = "NAME")]
    pub from: Option<String>,
    /// A node VM even where the machine's own KVM would do
    #[arg(long)]
    pub isolated: bool,
}

impl Wanted {
    fn needs_vm(&self) -> bool {
        self.isolated
            || self.nodes > 1
            || self.cpu.is_some()
            || self.memory.is_some()
            || self.kernel.is_some()
            || self.rate.is_some()
            || self.from.is_some()
            || !self.disk.is_empty()
    }

    fn configuration(&self, accelerator: Accelerator) -> Configuration {
        Configuration {
            accelerator,
            kernel: self.kernel.unwrap_or(Kernel::V6_12),
            cpu: self.cpu.clone(),
            memory: self.memory.unwrap_or(DEFAULT_MEMORY),
            cpus: NODE_CPUS,
        }
    }
}

/// Running nodes; they end when it is dropped, and when the process ends in whatever way.
#[derive(Debug)]
pub struct Lab {
    /// The nodes, the first being number 1.
    pub nodes: Vec<Node>,
    /// What kind of nodes these are and why.
    pub choice: String,
    /// Files of this run.
    pub directory: PathBuf,
    kind: Option<(Files, Configuration)>,
    shares: Vec<Share>,
    assets: Assets,
    _lock: Flock<File>,
}

impl Lab {
    /// Starts the nodes under `name`, which no running lab has.
    pub fn start(wanted: &Wanted, name: &str) -> Result<Self> {
        if !nix::unistd::geteuid().is_root() {
            bail!("the lab makes namespaces, TAPs and node VMs: run it as root");
        }
        let cache = Cache::open()?;
        let assets = Assets::new(cache.clone())?;
        let (directory, lock) = claim(&cache, name)?;
        let mut lab = Self {
            nodes: Vec::new(),
            choice: String::new(),
            directory,
            kind: None,
            shares: Vec::new(),
            assets,
            _lock: lock,
        };
        if wanted.rate.is_some() && wanted.nodes < 2 {
            bail!("--rate is that of the links between nodes: it needs --nodes 2 or more");
        }
        let shares = lab.shares(wanted)?;
        lab.shares.clone_from(&shares);
        match (probe::try_kvm(), wanted.needs_vm()) {
            (Ok(()), false) => lab.start_direct(&shares)?,
            (Ok(()), true) if nesting::may_work(&cache) => lab.start_nested(wanted, &shares)?,
            (Ok(()), true) => {
                lab.start_emulated(wanted, &shares, "this machine's KVM does not nest")?;
            }
            (Err(reason), _) => lab.start_emulated(wanted, &shares, &reason.to_string())?,
        }
        Ok(lab)
    }

    /// Saves node 1 under `name`. Afterwards the lab is of no more use; if it fails, all is as it was.
    pub fn save(&mut self, name: &str) -> Result<()> {
        let Some((files, configuration)) = &self.kind else {
            bail!("only a VM node can be saved: start it with --isolated");
        };
        let [node] = &mut self.nodes[..] else { bail!("only a lab of one node can be saved") };
        let outcome = node.save_as(name, self.assets.cache(), files, configuration);
        if outcome.is_err() {
            node.set_up(&self.shares, false)?;
        }
        outcome
    }

    /// The assets its nodes can see.
    pub fn assets(&self) -> &Assets {
        &self.assets
    }

    fn start_direct(&mut self, shares: &[Share]) -> Result<()> {
        let run = RunDirectory::at(&self.directory);
        let node = Node::direct(self.assets.agent(), &run, shares)?;
        node.set_up(&[], false)?;
        self.nodes.push(node);
        self.choice = "this machine itself (its KVM runs ordinary guests)".into();
        Ok(())
    }

    fn start_emulated(&mut self, wanted: &Wanted, shares: &[Share], why: &str) -> Result<()> {
        if let Some(reason) = self.start_vms(wanted, Accelerator::Emulation, shares)? {
            bail!("the emulated node is of no use: {reason}");
        }
        self.choice = format!("emulated node ({why})");
        Ok(())
    }

    fn start_nested(&mut self, wanted: &Wanted, shares: &[Share]) -> Result<()> {
        let Some(reason) = self.start_vms(wanted, Accelerator::Kvm, shares)? else {
            self.choice = "node VM on this machine's KVM".into();
            return Ok(());
        };
        eprintln!("lab: in a node on this machine's KVM {reason}; emulating one");
        self.nodes.clear();
        nesting::remember_failure(self.assets.cache())?;
        self.start_emulated(wanted, shares, "this machine's KVM does not nest")
    }

    /// Starts the nodes; says why their KVM is unusable, if it is.
    fn start_vms(
        &mut self,
        wanted: &Wanted,
        accelerator: Accelerator,
        shares: &[Share],
    ) -> Result<Option<String>> {
        let configuration = wanted.configuration(accelerator);
        let files = Files::ensure(&self.assets, configuration.kernel)?;
        let cache = self.assets.cache();
        let snapshot = match &wanted.from {
            Some(name) => Snapshot::named(cache, name, &files, &configuration)?,
            None => Snapshot::fresh(cache, &files, &configuration)?,
        };
        let ends: Vec<OwnedFd> = if wanted.nodes > 1 {
            let rate = wanted.rate.map(|rate| u64::from(rate) * 1_000_000);
            switch::connect(usize::from(wanted.nodes), rate)?
        } else {
            Vec::new()
        };
        for index in 1..=wanted.nodes {
            let run = RunDirectory::at(&self.directory.join(format!("node{index}")));
            let network = ends.get(usize::from(index) - 1).map(Link::Socket);
            let outside = Outside { network, shares, disk: None };
            let mut node =
                Node::restore(&files, &configuration, &snapshot, &run, (index, &outside))?;
            for disk in &wanted.disk {
                let (path, writable) = writable_suffix(disk);
                node.add_disk(&std::path::absolute(path)?, writable)?;
            }
            self.nodes.push(node);
        }
        self.kind = Some((files, configuration));
        for node in &self.nodes {
            if let Some(reason) = node.set_up(shares, wanted.nodes > 1)? {
                return Ok(Some(reason));
            }
        }
        Ok(None)
    }

    /// The checkout, the build output, the cache and what was asked for, each at its own path.
    fn shares(&self, wanted: &Wanted) -> Result<Vec<Share>> {
        let checkout = match std::env::var_os("CORTEN_CHECKOUT") {
            Some(checkout) => PathBuf::from(checkout),
            None => std::env::current_dir()?,
        };
        let mut paths = vec![(checkout, false)];
        paths.extend(build_output(self.assets.agent()).map(|output| (output.to_owned(), false)));
        paths.push((self.assets.cache().root().to_owned(), false));
        for share in &wanted.share {
            let (path, writable) = writable_suffix(share);
            paths.push((path.into(), writable));
        }
        let mut shares: Vec<Share> = Vec::new();
        for (path, writable) in paths {
            let path = fs::canonicalize(&path)
                .with_context(|| format!("cannot share {}", path.display()))?;
            if !path.is_dir() {
                bail!("cannot share {}: it is not a directory", path.display());
            }
            let covered = |share: &Share| !writable && path.starts_with(&share.path);
            if path != Path::new("/") && !shares.iter().any(covered) {
                let tag = SHARE_TAGS.get(shares.len()).context("too many --share")?;
                let path = path.to_string_lossy().into_owned();
                shares.push(Share { tag: (*tag).into(), path, writable });
            }
        }
        // A directory inside another is mounted after it, or the other would hide it.
        shares.sort_by_key(|share| share.path.len());
        for (share, tag) in shares.iter_mut().zip(SHARE_TAGS) {
            share.tag = tag.into();
        }
        Ok(shares)
    }
}

/// Where the programs under test were built, by each profile: target/TRIPLE of target/TRIPLE/PROFILE/corten-lab-node. A lab
/// that was put elsewhere, as in /usr/local/bin, has nothing around it that a node should see.
fn build_output(agent: &Path) -> Option<&Path> {
    let profile = agent.parent()?;
    // Which cargo makes in each.
    profile.join(".cargo-lock").exists().then(|| profile.parent()).flatten()
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.nodes.clear();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Makes the run directory `name` ours, and clears away those whose lab was killed.
pub fn claim(cache: &Cache, name: &str) -> Result<(PathBuf, Flock<File>)> {
    cache::check_name(name, "lab")?;
    let _all = cache::lock(&cache.runs().join(".lock"))?;
    for entry in fs::read_dir(cache.runs())?.flatten() {
        if entry.path().is_dir() && cache::is_abandoned(&entry.path())? {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let directory = cache.runs().join(name);
    if directory.exists() {
        bail!("a lab named {name:?} is running: end it with `down`, or choose another --name");
    }
    fs::create_dir(&directory)?;
    let lock = cache::lock(&directory.join("lock"))?;
    Ok((directory, lock))
}

/// A name that no other lab has, also where process ids are numbered apart.
pub fn unique_name(purpose: &str) -> String {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    format!("{purpose}-{}-{now:x}", std::process::id())
}

fn writable_suffix(text: &str) -> (&str, bool) {
    match text.strip_suffix(":rw") {
        Some(path) => (path, true),
        None => (text, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_build_output_around_the_program_is_shared() {
        let directory = tempfile::tempdir().unwrap();
        let triple = directory.path().join("target/triple");
        let agent = triple.join("release/corten-lab-node");
        fs::create_dir_all(triple.join("release")).unwrap();
        assert_eq!(build_output(&agent), None);
        fs::write(triple.join("release/.cargo-lock"), "").unwrap();
        assert_eq!(build_output(&agent), Some(triple.as_path()));
    }
}
