//! What a cluster that is up tells its clients, in a file of its run directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use corten_lab::cache::{self, Cache};
use serde::{Deserialize, Serialize};

use crate::kubectl::Kubectl;

/// Name of the run directory: a user has one cluster at a time.
pub const NAME: &str = "cluster";

/// A cluster that is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The process that holds it, in whose network namespace it is.
    pub process: u32,
    /// Number of real nodes; none in a cluster of the control plane only.
    pub nodes: u8,
    /// Hash of the programs and images it was started with.
    pub version: String,
    /// kubectl.
    pub kubectl: PathBuf,
    /// For clients in a plain shell.
    pub kubeconfig: PathBuf,
    /// For clients in its network namespace.
    pub inside_kubeconfig: PathBuf,
    /// The registry's program.
    pub registry: PathBuf,
    /// The registry's images.
    pub registry_storage: PathBuf,
    /// Logs of this run.
    pub logs: PathBuf,
}

impl State {
    /// Writes it, whole or not at all: it says that the cluster is up.
    pub fn save(&self, run: &Path) -> Result<()> {
        let half = run.join("state.json.new");
        fs::write(&half, serde_json::to_vec_pretty(self)?)?;
        fs::rename(half, file(run)).context("cannot write the cluster's state")
    }

    /// The user's cluster, if one is up.
    pub fn find(cache: &Cache) -> Result<Option<Self>> {
        let run = cache.runs().join(NAME);
        let Ok(bytes) = fs::read(file(&run)) else { return Ok(None) };
        // Its process may have been killed; the directory goes when the next one starts.
        if cache::is_abandoned(&run)? {
            return Ok(None);
        }
        let state = serde_json::from_slice(&bytes);
        state.map(Some).with_context(|| format!("{} is of another version", file(&run).display()))
    }

    /// The user's cluster, which has to be up.
    pub fn required(cache: &Cache) -> Result<Self> {
        match Self::find(cache)? {
            Some(state) => Ok(state),
            None => bail!("no cluster is up: start it with `scripts/cluster up`"),
        }
    }

    /// kubectl for a plain shell.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl { program: self.kubectl.clone(), kubeconfig: self.kubeconfig.clone() }
    }
}

/// Says which process holds the run directory, from its first moment on.
pub fn record_holder(run: &Path) -> Result<()> {
    fs::write(run.join("process"), std::process::id().to_string()).context("cannot write to it")
}

/// The process that holds the run directory.
pub fn holder(run: &Path) -> Result<u32> {
    let text = fs::read_to_string(run.join("process")).context("it does not say who holds it")?;
    text.parse().with_context(|| format!("{text:?} is no process"))
}

fn file(run: &Path) -> PathBuf {
    run.join("state.json")
}
