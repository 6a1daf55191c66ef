//! Debian packages on the machine.
//!
//! apt-get refuses to start while another one runs, be it another lab's or the machine's own: then it is tried again.

use std::process::{Command, Output};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long another apt-get may take.
const LOCK_PATIENCE: Duration = Duration::from_secs(300);

/// Installs what is missing of `packages`.
pub fn ensure(packages: &[&str]) -> Result<()> {
    let missing: Vec<&str> =
        packages.iter().copied().filter(|package| !is_installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !nix::unistd::geteuid().is_root() {
        bail!("Debian packages are missing ({names}): run this as root, or install them first");
    }
    update()?;
    eprintln!("lab: installing {names}");
    let mut install = Command::new("apt-get");
    install.args(["install", "-y", "-q", "--no-install-recommends"]).args(&missing);
    run(&mut install).with_context(|| {
        format!(
            "cannot install {names}: check the network and apt's sources, or install them by hand"
        )
    })
}

/// Reads the package lists anew, once in a process: on a fresh machine there are none.
pub fn update() -> Result<()> {
    static OUTCOME: OnceLock<Result<(), String>> = OnceLock::new();
    let outcome = OUTCOME.get_or_init(|| {
        let update = run(Command::new("apt-get").args(["update", "-q"]));
        update.map_err(|error| format!("{error:#}"))
    });
    outcome
        .clone()
        .map_err(anyhow::Error::msg)
        .context("cannot read Debian's package lists: check the network and apt's sources")
}

fn is_installed(package: &str) -> bool {
    let query = ["-W", "-f", "${Status}", package];
    let output = Command::new("dpkg-query").args(query).output();
    output.is_ok_and(|output| output.stdout == b"install ok installed")
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C.UTF-8");
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        let output = command.output().with_context(|| {
            format!("{name} is missing (the lab needs Debian or a relative of it)")
        })?;
        // apt-get update calls an unreachable mirror a warning and succeeds.
        if output.status.success() && !unreachable(&output) {
            return Ok(());
        }
        if !is_locked(&output) || Instant::now() > deadline {
            bail!("{name}: {}", last_complaint(&output));
        }
        sleep(Duration::from_millis(500));
    }
}

fn is_locked(output: &Output) -> bool {
    let text = String::from_utf8_lossy(&output.stderr);
    ["Could not get lock", "Unable to lock", "Unable to acquire"]
        .iter()
        .any(|words| text.contains(words))
}

/// Something could not be fetched, and nothing was.
fn unreachable(output: &Output) -> bool {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    let any = |starts: [&str; 2]| {
        text.lines().any(|line| starts.iter().any(|start| line.starts_with(start)))
    };
    any(["W: Failed to fetch", "Err:"]) && !any(["Get:", "Hit:"])
}

fn last_complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let complaint = lines.clone().rfind(|line| line.starts_with("E: ") || line.starts_with("W: "));
    complaint.or_else(|| lines.next_back()).unwrap_or("no message").to_owned()
}
