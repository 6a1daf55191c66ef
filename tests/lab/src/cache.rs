//! What is slow to make is kept outside the checkout.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statvfs::statvfs;
use tempfile::TempDir;

const SCRATCH: &str = "making-";
/// Nothing takes longer to make.
const LONGEST_MAKING: Duration = Duration::from_hours(6);

/// The cache directory: `CORTEN_CACHE`, else `corten` in the user's cache directory.
#[derive(Clone, Debug)]
pub struct Cache(PathBuf);

impl Cache {
    /// Opens it, making the directories it lacks.
    pub fn open() -> Result<Self> {
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let user = || std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
        let root = std::env::var_os("CORTEN_CACHE")
            .map(PathBuf::from)
            .or_else(|| user().map(|cache| cache.join("corten")))
            .context("no HOME: set CORTEN_CACHE to a directory for the lab's files")?;
        let cache = Self(std::path::absolute(root)?);
        for directory in [cache.assets(), cache.snapshots(), cache.runs()] {
            fs::create_dir_all(&directory).with_context(|| {
                format!(
                    "cannot create {}: set CORTEN_CACHE to a writable directory",
                    directory.display()
                )
            })?;
        }
        Ok(cache)
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Built assets, each named by its content key.
    pub fn assets(&self) -> PathBuf {
        self.0.join("assets")
    }

    /// Saved nodes.
    pub fn snapshots(&self) -> PathBuf {
        self.0.join("snapshots")
    }

    /// One directory for each lab that runs.
    pub fn runs(&self) -> PathBuf {
        self.0.join("run")
    }

    /// Fails unless that much can be written.
    pub fn require_space(&self, mebibytes: u64) -> Result<()> {
        let status = statvfs(&self.0).context("cannot look at the cache's file system")?;
        let free = status.blocks_available().saturating_mul(status.fragment_size()) >> 20;
        if free < mebibytes {
            bail!(
                "only {free} MiB are free at {} and {mebibytes} MiB are needed: free some space, or set CORTEN_CACHE",
                self.0.display()
            );
        }
        Ok(())
    }
}

/// A directory to make something in, which is removed with the returned value. What a killed maker left in `parent` goes
/// first.
pub fn scratch(parent: &Path) -> Result<TempDir> {
    for entry in fs::read_dir(parent)?.flatten() {
        let made = entry.metadata().and_then(|metadata| metadata.modified());
        let old = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > LONGEST_MAKING));
        if old && entry.file_name().to_string_lossy().starts_with(SCRATCH) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    tempfile::Builder::new()
        .prefix(SCRATCH)
        .tempdir_in(parent)
        .with_context(|| format!("cannot make a directory in {}", parent.display()))
}

/// The path with `suffix` after it; names hold dots, so [`Path::with_extension`] would cut them.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Waits for the lock file at `path`; it is held until the returned value is dropped or the process ends.
pub fn lock(path: &Path) -> Result<Flock<File>> {
    let file = open_lock(path)?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, error)| error)
        .with_context(|| format!("cannot lock {}", path.display()))
}

/// Takes the lock only if nobody holds it.
pub fn try_lock(path: &Path) -> Result<Option<Flock<File>>> {
    match Flock::lock(open_lock(path)?, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

fn open_lock(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}
