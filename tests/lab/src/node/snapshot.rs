//! Nodes are booted once, saved, and restored for each use.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::{Node, RunDirectory};
use crate::assets::hex;
use crate::cache::{self, Cache, Scratch};
use crate::qemu::{self, Configuration, Files, Memory, Wiring};

/// A saved node: device state, and the memory in a file beside it or inside the state.
#[derive(Clone, Debug)]
pub struct Snapshot {
    directory: PathBuf,
    memory_in_file: bool,
}

/// What is done to a freshly booted node before it is saved.
#[derive(Clone, Copy)]
pub struct Preparation<'a> {
    /// What such nodes are for.
    pub purpose: &'a str,
    /// Hash of everything that `prepare` depends on, the content of `disk` included.
    pub key: &'a str,
    /// A raw disk, which stays as it is: the node writes to a layer above it.
    pub disk: &'a Path,
    /// Does it.
    pub prepare: &'a dyn Fn(&Node) -> Result<()>,
}

const DISK: &str = "disk.qcow2";

/// Starts the names of saved nodes that can be made again.
const FRESH: &str = "fresh-";

/// How often a node is booted before the lab gives up.
const TRIES: u32 = 3;

/// Saved states that no run has used for this long go when the next one is made.
const KEEP: Duration = Duration::from_hours(72);

impl Snapshot {
    /// The snapshot of a freshly booted node; it is made where it is missing.
    pub fn fresh(cache: &Cache, files: &Files, configuration: &Configuration) -> Result<Self> {
        Self::ensure(cache, files, configuration, None)
    }

    /// The snapshot of a node that was booted and prepared; it is made where it is missing.
    pub fn prepared(
        cache: &Cache,
        files: &Files,
        configuration: &Configuration,
        preparation: &Preparation<'_>,
    ) -> Result<Self> {
        Self::ensure(cache, files, configuration, Some(preparation))
    }

    fn ensure(
        cache: &Cache,
        files: &Files,
        configuration: &Configuration,
        preparation: Option<&Preparation<'_>>,
    ) -> Result<Self> {
        let key = fingerprint(files, configuration);
        let name = match preparation {
            Some(Preparation { purpose, key: own, .. }) => format!("{FRESH}{purpose}-{key}-{own}"),
            None => format!("{FRESH}{key}"),
        };
        let snapshot = Self { directory: cache.snapshots().join(name), memory_in_file: true };
        if !snapshot.state().exists() {
            let _lock = cache::lock(&cache::beside(&snapshot.directory, ".lock"))?;
            if !snapshot.state().exists() {
                drop_unused(cache);
                snapshot.make(cache, files, configuration, preparation)?;
            }
        }
        // Its age is that of its last use.
        let _ =
            fs::File::open(snapshot.state()).and_then(|file| file.set_modified(SystemTime::now()));
        Ok(snapshot)
    }

    /// A node that was saved under `name`, with whatever ran in it.
    pub fn named(
        cache: &Cache,
        name: &str,
        files: &Files,
        configuration: &Configuration,
    ) -> Result<Self> {
        let directory = named_directory(cache, name)?;
        let saved = fs::read_to_string(directory.join("fingerprint"))
            .with_context(|| format!("no node was saved as {name:?}"))?;
        if saved != fingerprint(files, configuration) {
            bail!(
                "{name:?} was saved from another kind of node (image, kernel, CPU or memory): save it anew"
            );
        }
        Ok(Self { directory, memory_in_file: false })
    }

    /// Removes what was saved under `name`.
    pub fn forget(cache: &Cache, name: &str) -> Result<()> {
        fs::remove_dir_all(named_directory(cache, name)?)
            .with_context(|| format!("no node was saved as {name:?}"))
    }

    /// Where the device state lies.
    pub fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// Whether the state is without the memory.
    pub fn memory_in_file(&self) -> bool {
        self.memory_in_file
    }

    /// What a QEMU that restores it maps.
    pub fn memory(&self) -> Option<PathBuf> {
        self.memory_in_file.then(|| self.directory.join("memory"))
    }

    /// The disk of a prepared node. A restored one writes to a layer of its own above it.
    pub fn disk(&self) -> PathBuf {
        self.directory.join(DISK)
    }

    fn make(
        &self,
        cache: &Cache,
        files: &Files,
        configuration: &Configuration,
        preparation: Option<&Preparation<'_>>,
    ) -> Result<()> {
        cache.require_space(u64::from(configuration.memory) / 4 + 512)?;
        eprintln!("lab: booting a node once, to save it ...");
        let work = Scratch::new(&cache.snapshots())?;
        let memory = work.path().join("memory");
        let run = RunDirectory::at(work.path());
        let base = preparation.map(|preparation| (preparation.disk, "raw"));
        let disk = base.map(|base| qemu::layer(base, &work.path().join(DISK))).transpose()?;
        let boot = || {
            let _ = fs::remove_file(&memory);
            Node::boot(files, configuration, (Memory::Shared(&memory), disk.as_deref()), &run)
        };
        let mut tries = 1;
        let mut started = Instant::now();
        // On a machine under load an emulated CPU now and then loses its timer while it comes up, and waits for ever.
        let mut node = loop {
            match boot() {
                Err(error) if tries < TRIES => {
                    eprintln!("lab: the node did not come up, trying again ({error:.60})");
                    tries += 1;
                    started = Instant::now();
                }
                outcome => break outcome?,
            }
        };
        if let Some(preparation) = preparation {
            (preparation.prepare)(&node)
                .with_context(|| format!("cannot prepare a node for {}", preparation.purpose))?;
        }
        let ready = started.elapsed();
        node.write_state(&work.path().join("state"), true)?;
        drop(node);
        let _ = fs::remove_dir_all(&self.directory);
        fs::create_dir(&self.directory)?;
        fs::rename(&memory, self.directory.join("memory"))?;
        if let Some(disk) = disk {
            fs::rename(disk, self.disk())?;
        }
        fs::rename(work.path().join("state"), self.state())?;
        eprintln!("lab: node booted in {:.1} s and saved", ready.as_secs_f32());
        Ok(())
    }
}

/// Saves `node` as `name`, replacing what had that name.
pub(super) fn save_as(
    node: &mut Node,
    name: &str,
    cache: &Cache,
    (files, configuration): (&Files, &Configuration),
) -> Result<()> {
    cache.require_space(u64::from(configuration.memory) + 512)?;
    let directory = named_directory(cache, name)?;
    let work = Scratch::new(&cache.snapshots())?;
    let made = work.path().join("made");
    fs::create_dir(&made)?;
    node.write_state(&made.join("state"), false)?;
    fs::write(made.join("fingerprint"), fingerprint(files, configuration))?;
    let _ = fs::remove_dir_all(&directory);
    fs::rename(made, directory).context("cannot put the saved node in place")
}

fn named_directory(cache: &Cache, name: &str) -> Result<PathBuf> {
    cache::check_name(name, "saved node")?;
    Ok(cache.snapshots().join(format!("saved-{name}")))
}

/// Everything a saved state depends on: QEMU, its arguments, and the image files, whose paths hold content keys.
fn fingerprint(files: &Files, configuration: &Configuration) -> String {
    let nowhere = Path::new("/");
    let shares = vec![(nowhere.to_owned(), false); qemu::SHARE_TAGS.len()];
    let wiring =
        Wiring { qmp: 0, port: 0, network: None, console: nowhere, shares: &shares, disk: None };
    let (program, arguments) =
        qemu::command_line(files, configuration, Memory::Private(nowhere), &wiring);
    hex(&Sha256::digest(format!("{program:?} {arguments:?}"))[..8])
}

fn drop_unused(cache: &Cache) {
    let Ok(entries) = fs::read_dir(cache.snapshots()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let used = fs::metadata(entry.path().join("state")).and_then(|state| state.modified());
        let old = used.is_ok_and(|used| used.elapsed().is_ok_and(|age| age > KEEP));
        // A QEMU that still uses it keeps the files alive.
        if name.starts_with(FRESH) && old {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
