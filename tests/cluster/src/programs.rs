//! Programs that run beside the control plane, in its network: what tests put there. They end with the cluster.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use corten_lab::qemu::Process;
use serde::{Deserialize, Serialize};

/// A program that is to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// What it is called here; its log has that name too.
    pub name: String,
    /// The program with its arguments.
    pub argv: Vec<OsString>,
}

/// Those that were started, by name.
#[derive(Debug, Default)]
pub struct Programs(BTreeMap<String, Process>);

impl Programs {
    /// Starts one, unless one of that name runs; returns its log. To be called on the thread that holds the cluster: they
    /// end with it.
    pub fn start(&mut self, program: &Program, logs: &Path) -> Result<PathBuf> {
        let Program { name, argv } = program;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        ensure!(
            !name.is_empty() && name.chars().all(plain),
            "{name:?}: letters, digits and dashes only"
        );
        let running = self.0.get_mut(name).is_some_and(Process::is_running);
        ensure!(!running, "{name} runs already: end it by `stop {name}`");
        let (path, arguments) = argv.split_first().context("no program")?;
        let log = next_log(logs, name).context("too many logs")?;
        let process = Process::start(Path::new(path), arguments, &[], &log)?;
        self.0.insert(name.clone(), process);
        Ok(log)
    }

    /// Kills one. It need not run.
    pub fn stop(&mut self, name: &str) -> Result<()> {
        let process = self.0.remove(name);
        drop(process.with_context(|| format!("no program was started as {name}"))?);
        Ok(())
    }

    /// Name, whether it runs, and process id of each.
    pub fn list(&mut self) -> impl Iterator<Item = (&str, bool, u32)> {
        self.0.iter_mut().map(|(name, process)| (name.as_str(), process.is_running(), process.id()))
    }
}

/// A log for each time it is started: what the last one said before it was killed is what a test asks for.
fn next_log(logs: &Path, name: &str) -> Option<PathBuf> {
    let log = |number: u32| logs.join(format!("{name}.{number}.log"));
    (1..10_000).map(log).find(|log| !log.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(name: &str) -> Program {
        Program { name: name.into(), argv: vec!["/bin/sleep".into(), "1000".into()] }
    }

    #[test]
    fn program_runs_until_it_is_stopped_and_can_be_started_again() {
        let logs = tempfile::tempdir().unwrap();
        let mut programs = Programs::default();
        let first = programs.start(&sleeper("one"), logs.path()).unwrap();
        assert!(programs.start(&sleeper("one"), logs.path()).is_err());
        let listed: Vec<_> =
            programs.list().map(|(name, runs, _)| (name.to_owned(), runs)).collect();
        assert_eq!(listed, [("one".to_owned(), true)]);
        programs.stop("one").unwrap();
        assert!(programs.stop("one").is_err());
        let second = programs.start(&sleeper("one"), logs.path()).unwrap();
        assert_ne!(first, second);
    }

    #[test]
    fn name_that_would_lead_elsewhere_is_refused() {
        let logs = tempfile::tempdir().unwrap();
        for name in ["", "../one", "a b"] {
            assert!(Programs::default().start(&sleeper(name), logs.path()).is_err(), "{name:?}");
        }
    }
}
