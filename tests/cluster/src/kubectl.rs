//! kubectl, for what the cluster's own program asks of the API server.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// kubectl with a kubeconfig.
#[derive(Clone, Debug)]
pub struct Kubectl {
    /// The program.
    pub program: PathBuf,
    /// Whom it speaks for, and to which server.
    pub kubeconfig: PathBuf,
}

impl Kubectl {
    /// Its program with the kubeconfig named; one in the environment does not count.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// Runs it and returns what it printed.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        self.feed(arguments, "")
    }

    /// Runs it with that input.
    pub fn feed(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut child = self
            .command()
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        let mut stdin = child.stdin.take();
        // Beside the reading of its output, or both sides could wait for each other.
        let output = std::thread::scope(|scope| {
            scope.spawn(|| stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes())));
            child.wait_with_output()
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("kubectl {}: {}", arguments.join(" "), said.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Applies manifests, JSON or YAML.
    pub fn apply(&self, manifests: &str) -> Result<()> {
        // Server-side: spares it the download of all schemas. Whoever wrote a field before has it no longer.
        let arguments =
            ["apply", "--server-side", "--force-conflicts", "--validate=false", "-f", "-"];
        self.feed(&arguments, manifests).map(|_| ())
    }
}
