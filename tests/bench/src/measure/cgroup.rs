//! A control group of its own for each VMM: all memory that the kernel charges to it, its own included.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

const ROOT: &str = "/sys/fs/cgroup";
/// The last of a process's memory is given back some time after its end.
const EMPTY_LIMIT: Duration = Duration::from_secs(30);

/// An empty group below the root. It goes when it is dropped, after its processes.
#[derive(Debug)]
pub(crate) struct Cgroup {
    directory: PathBuf,
}

/// What was charged, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Charged {
    /// All of it.
    pub(crate) current: u64,
    /// Some of it, by the names of memory.stat.
    pub(crate) stat: BTreeMap<String, u64>,
}

impl Cgroup {
    pub(crate) fn new() -> Result<Self> {
        let root = Path::new(ROOT);
        ensure!(root.join("cgroup.controllers").is_file(), "{ROOT} is no cgroup v2");
        fs::write(root.join("cgroup.subtree_control"), "+memory")
            .context("cannot have the kernel charge memory to groups")?;
        let directory = root.join(format!("corten-bench-{}", std::process::id()));
        fs::create_dir(&directory).context("cannot make a control group")?;
        Ok(Self { directory })
    }

    /// Calls `start` while this process is in the group, so that whatever it starts is in it from the first page on.
    pub(crate) fn start_in<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        self.enter(&self.directory)?;
        let started = start();
        self.enter(Path::new(ROOT))?;
        started
    }

    fn enter(&self, group: &Path) -> Result<()> {
        fs::write(group.join("cgroup.procs"), "0")
            .with_context(|| format!("cannot enter {}", group.display()))
    }

    pub(crate) fn charged(&self) -> Result<Charged> {
        let read = |name: &str| {
            fs::read_to_string(self.directory.join(name))
                .with_context(|| format!("cannot read {name}"))
        };
        let current = read("memory.current")?.trim().parse().context("memory.current")?;
        Ok(Charged { current, stat: stat_of(&read("memory.stat")?) })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + EMPTY_LIMIT;
        while fs::remove_dir(&self.directory).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Charged {
    pub(crate) fn of(&self, name: &str) -> u64 {
        self.stat.get(name).copied().unwrap_or(0)
    }
}

/// Lines `NAME NUMBER`.
fn stat_of(text: &str) -> BTreeMap<String, u64> {
    let entry = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_found_by_name() {
        let stat = stat_of("anon 4096\nfile 0\nsec_pagetables 12288\nnonsense\n");
        let charged = Charged { current: 20_000, stat };
        assert_eq!((charged.of("anon"), charged.of("sec_pagetables")), (4096, 12_288));
        assert_eq!((charged.of("swapcached"), charged.stat.len()), (0, 3));
    }
}
