//! Runs a recipe.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use super::{Assets, Recipe};
use crate::cache::Scratch;
use crate::lab::{self, Lab, Wanted};
use crate::{cache, node, packages};

/// Stands before every recipe: progress goes to descriptor 9, all else to the log.
pub(super) const PRELUDE: &str = r#"
set -euo pipefail
exec 9>&2 >"$LOG" 2>&1
say() { echo "lab:   $*" >&9; }
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 SOURCE_DATE_EPOCH=1700000000 TZ=UTC
umask 022
set -x
"#;

/// An emulated update-grub takes half a minute on a quiet machine.
const FINISH_LIMIT: Duration = Duration::from_secs(600);

/// Makes `recipe`'s asset at `directory`, unless somebody else does so at the same time.
pub(super) fn build(assets: &Assets, recipe: &Recipe, directory: &Path) -> Result<()> {
    let mut inputs = Vec::new();
    for (variable, name) in recipe.inputs {
        inputs.push((format!("IN_{variable}"), assets.ensure(name)?));
    }
    let _lock = cache::lock(&cache::beside(directory, ".lock"))?;
    if directory.exists() {
        return Ok(());
    }
    if !nix::unistd::geteuid().is_root() {
        bail!("images are built as root (Debian's package tools want it): run this as root");
    }
    assets.cache.require_space(recipe.mebibytes)?;
    packages::ensure(recipe.packages)?;
    if recipe.fetches {
        packages::update()?;
    }
    let started = Instant::now();
    eprintln!("lab: making {} ...", recipe.name);
    let scratch = Scratch::new(&assets.cache.assets())?;
    let (out, files, work) =
        (scratch.path().join("out"), scratch.path().join("files"), scratch.path().join("work"));
    for path in [&out, &files, &work] {
        fs::create_dir(path)?;
    }
    for (name, content) in recipe.files {
        fs::write(files.join(name), content)?;
    }
    if recipe.agent {
        fs::copy(&assets.agent, files.join("corten-lab-node"))?;
    }
    let log = cache::beside(directory, ".log");
    let mut command = Command::new("unshare");
    // A PID namespace, whose processes all end with its first, which ends with us: a recipe starts many programs.
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"]);
    let die_with_the_lab = || {
        set_pdeathsig(Signal::SIGKILL)?;
        Ok(())
    };
    // SAFETY: between fork and exec one system call is made, which is allowed there.
    unsafe { command.pre_exec(die_with_the_lab) };
    let status = command
        .arg(format!("{PRELUDE}\n{}", recipe.script))
        .current_dir(&work)
        .env("OUT", &out)
        .env("FILES", &files)
        .env("LOG", &log)
        .env("LAB", std::env::current_exe()?)
        .env("TMPDIR", &work)
        .envs(recipe.parameters.iter().copied())
        .envs(inputs)
        .stdin(Stdio::null())
        .status()
        .context("cannot run unshare")?;
    if !status.success() {
        bail!("its recipe failed; the end of {} is:\n{}", log.display(), tail(&log));
    }
    if let Some(script) = recipe.in_node {
        finish_in_node(script, &out)?;
    }
    File::open(&out)?.sync_all()?;
    fs::rename(&out, directory).context("cannot put it in place")?;
    eprintln!("lab: made {} in {:.0} s", recipe.name, started.elapsed().as_secs_f32());
    Ok(())
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// Runs what needs a real block device as root in a node, with the asset's disk attached.
fn finish_in_node(script: &str, out: &Path) -> Result<()> {
    let wanted = Wanted {
        nodes: 1,
        isolated: true,
        disk: vec![format!("{}:rw", out.join("disk.raw").display())],
        ..Wanted::default()
    };
    let lab = Lab::start(&wanted, &lab::unique_name("making"))?;
    let command = node::command(script, &["/dev/sda"], FINISH_LIMIT);
    lab.nodes[0].mux.run(&command, &[]).context("its part in a node failed")?;
    Ok(())
}
