//! Images, kernels and guests: made once by recipes, kept under a content key.
//!
//! An asset is a directory `NAME-KEY` in the cache. KEY is a hash of the recipe, of the files handed to it and of
//! the keys of its inputs, so a changed recipe makes a new asset and an old checkout still finds its own. Versions of
//! Debian packages are those of the day it was made; `packages` in the directory lists them.

mod build;
mod table;

use std::path::PathBuf;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::cache::Cache;

pub use table::{Kernel, names};

/// How one asset is made.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// Name of the asset.
    name: &'static str,
    /// The bash program that fills `$OUT`.
    script: &'static str,
    /// Environment variables for it.
    parameters: &'static [(&'static str, &'static str)],
    /// Other assets: environment variable (after `IN_`) and name.
    inputs: &'static [(&'static str, &'static str)],
    /// Debian packages the program needs on the machine.
    packages: &'static [&'static str],
    /// Files of the source tree it finds in `$FILES`.
    files: &'static [(&'static str, &'static [u8])],
    /// Whether it also finds the agent's binary there.
    agent: bool,
    /// What is left to do in a node after the script, with the disk `disk.raw` attached.
    in_node: Option<&'static str>,
    /// Free space it takes to make it.
    mebibytes: u64,
}

/// The shelf of assets in a cache.
#[derive(Clone, Debug)]
pub struct Assets {
    cache: Cache,
    agent: PathBuf,
}

impl Assets {
    /// Assets in `cache`, with the node agent's binary that stands beside this program.
    pub fn new(cache: Cache) -> Result<Self> {
        let own = std::env::current_exe().context("cannot find this program")?;
        Ok(Self { cache, agent: own.with_file_name("corten-lab-node") })
    }

    /// The asset's directory; it is made first, inputs and all, where it is missing.
    pub fn ensure(&self, name: &str) -> Result<PathBuf> {
        let recipe = table::find(name)?;
        let directory = self.directory(recipe)?;
        if !directory.exists() {
            build::build(self, recipe, &directory)
                .with_context(|| format!("cannot make {name}"))?;
        }
        Ok(directory)
    }

    /// Path of the node agent's binary.
    pub fn agent(&self) -> &std::path::Path {
        &self.agent
    }

    /// The cache it lies in.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    fn directory(&self, recipe: &Recipe) -> Result<PathBuf> {
        Ok(self.cache.assets().join(format!("{}-{}", recipe.name, self.key(recipe)?)))
    }

    fn key(&self, recipe: &Recipe) -> Result<String> {
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            // With its length, so that two parts cannot trade bytes.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        add(build::PRELUDE.as_bytes());
        add(recipe.name.as_bytes());
        add(recipe.script.as_bytes());
        add(recipe.in_node.unwrap_or_default().as_bytes());
        for (name, value) in recipe.parameters {
            add(name.as_bytes());
            add(value.as_bytes());
        }
        for (name, content) in recipe.files {
            add(name.as_bytes());
            add(content);
        }
        if recipe.agent {
            let agent = self.agent.display();
            add(&std::fs::read(&self.agent).with_context(|| format!("{agent} is not built"))?);
        }
        for (variable, name) in recipe.inputs {
            add(variable.as_bytes());
            add(self.key(table::find(name)?)?.as_bytes());
        }
        Ok(hex(&hash.finalize()[..8]))
    }
}

/// Bytes as hexadecimal text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
