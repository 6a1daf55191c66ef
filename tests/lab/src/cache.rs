//! What is slow to make is kept outside the checkout.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statvfs::statvfs;
use tempfile::TempDir;

const SCRATCH: &str = "making-";

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

/// Fails unless `name` can name a file: it may come from a user.
pub fn check_name(name: &str, of: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) || name.starts_with('.') {
        bail!("{name:?} cannot name a {of}: use letters, digits, '-', '_' and '.'");
    }
    Ok(())
}

/// A directory to make something in. It is removed with this value, or by the next maker if this process is killed.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
    _lock: Flock<File>,
}

impl Scratch {
    /// A new directory in `parent`. Those that killed makers left there go first.
    pub fn new(parent: &Path) -> Result<Self> {
        // Between its making and its locking a directory looks like one that was left.
        let _all = lock(&parent.join(".scratch.lock"))?;
        for entry in fs::read_dir(parent)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(SCRATCH)
                && is_abandoned(&entry.path())?
            {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let directory = tempfile::Builder::new().prefix(SCRATCH).tempdir_in(parent);
        let directory = directory
            .with_context(|| format!("cannot make a directory in {}", parent.display()))?;
        let lock = lock(&directory.path().join("lock"))?;
        Ok(Self { directory, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Whether nobody holds the lock in `directory`, or nobody ever will: it is being removed.
pub fn is_abandoned(directory: &Path) -> Result<bool> {
    match File::options().write(true).open(directory.join("lock")) {
        Ok(file) => match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(_) => Ok(true),
            Err((_, Errno::EWOULDBLOCK)) => Ok(false),
            Err((_, error)) => Err(error).context("cannot test a lock"),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context("cannot test a lock"),
    }
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

fn open_lock(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}
