//! Images, kernels and guests: made once by recipes, kept under a content key.
//!
//! An asset is a directory `NAME-KEY` in the cache. KEY is a hash of the recipe, of the files handed to it and of
//! the keys of its inputs, so a changed recipe makes a new asset and an old checkout still finds its own. Versions of
//! Debian packages are those of the day it was made; `packages` in the directory lists them.

mod build;
mod table;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::cache::Cache;

pub use table::{Kernel, names};

use table::TABLE;

/// Hexadecimal digits of a content key.
const KEY_LENGTH: usize = 16;
/// Makes of an asset that nothing has used for this long go when the next one is made.
const KEEP: Duration = Duration::from_hours(72);

/// How one asset is made.
#[derive(Debug)]
pub struct Recipe {
    /// Name of the asset.
    pub name: &'static str,
    /// The bash program that fills `$OUT`.
    pub script: &'static str,
    /// Environment variables for it.
    pub parameters: &'static [(&'static str, &'static str)],
    /// Other assets: environment variable (after `IN_`) and name.
    pub inputs: &'static [(&'static str, &'static str)],
    /// Debian packages the program needs on the machine.
    pub packages: &'static [&'static str],
    /// Whether it fetches more of them itself, by apt's lists.
    pub fetches: bool,
    /// Files of the source tree it finds in `$FILES`.
    pub files: &'static [(&'static str, &'static [u8])],
    /// Whether it also finds the agent's binary there.
    pub agent: bool,
    /// What is left to do in a node after the script, with the disk `disk.raw` attached.
    pub in_node: Option<&'static str>,
    /// Free space it takes to make it.
    pub mebibytes: u64,
}

impl Recipe {
    /// A recipe of nothing, to be filled in.
    pub const EMPTY: Self = Self {
        name: "",
        script: "",
        parameters: &[],
        inputs: &[],
        packages: &[],
        fetches: false,
        files: &[],
        agent: false,
        in_node: None,
        mebibytes: 1024,
    };
}

/// The shelf of assets in a cache.
#[derive(Clone, Debug)]
pub struct Assets {
    cache: Cache,
    agent: PathBuf,
    /// Recipes besides the lab's own.
    further: &'static [Recipe],
}

impl Assets {
    /// Assets in `cache`, with the node agent's binary that stands beside this program.
    pub fn new(cache: Cache) -> Result<Self> {
        Self::with(cache, &[])
    }

    /// The same, and `further` recipes, which may take the lab's assets as inputs.
    pub fn with(cache: Cache, further: &'static [Recipe]) -> Result<Self> {
        let own = std::env::current_exe().context("cannot find this program")?;
        Ok(Self { cache, agent: own.with_file_name("corten-lab-node"), further })
    }

    /// The asset's directory; it is made first, inputs and all, where it is missing.
    pub fn ensure(&self, name: &str) -> Result<PathBuf> {
        let recipe = self.find(name)?;
        let directory = self.directory(recipe)?;
        if !directory.exists() {
            build::build(self, recipe, &directory)
                .with_context(|| format!("cannot make {name}"))?;
            self.drop_unused(recipe, &directory);
        }
        // Its age is that of its last use.
        let _ = File::open(&directory).and_then(|file| file.set_modified(SystemTime::now()));
        Ok(directory)
    }

    fn find(&self, name: &str) -> Result<&'static Recipe> {
        let mut recipes = TABLE.iter().chain(self.further);
        recipes.clone().find(|recipe| recipe.name == name).with_context(|| {
            let names: Vec<&str> = recipes.by_ref().map(|recipe| recipe.name).collect();
            format!("there is no asset {name:?}; there are {}", names.join(", "))
        })
    }

    /// Content key of an asset, for what is made of it elsewhere.
    pub fn key_of(&self, name: &str) -> Result<String> {
        self.key(self.find(name)?)
    }

    /// Path of the node agent's binary.
    pub fn agent(&self) -> &Path {
        &self.agent
    }

    /// The cache it lies in.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Removes older makes of an asset that no checkout has used for long.
    fn drop_unused(&self, recipe: &Recipe, current: &Path) {
        let Ok(entries) = fs::read_dir(self.cache.assets()) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let key = name.strip_prefix(recipe.name).and_then(|rest| rest.strip_prefix('-'));
            let is_make = key.is_some_and(|key| {
                key.len() == KEY_LENGTH && key.bytes().all(|byte| byte.is_ascii_hexdigit())
            });
            let used = entry.metadata().and_then(|metadata| metadata.modified());
            let old = used.is_ok_and(|used| used.elapsed().is_ok_and(|age| age > KEEP));
            if is_make && old && entry.path() != current {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
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
            add(&fs::read(&self.agent).with_context(|| format!("{agent} is not built"))?);
        }
        for (variable, name) in recipe.inputs {
            add(variable.as_bytes());
            add(self.key(self.find(name)?)?.as_bytes());
        }
        Ok(hex(&hash.finalize()[..KEY_LENGTH / 2]))
    }
}

/// Bytes as hexadecimal text.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
