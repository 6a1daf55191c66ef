//! Runs things in lab nodes.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::command::{CORTEN, PACKAGE};
use crate::process::VMM;

/// The environment variable with the lab's program.
pub const LAB: &str = "CORTEN_LAB";

/// How a command of the lab ended.
#[derive(Debug)]
pub struct Outcome {
    /// Exit status; 125 is the lab's own.
    pub status: i32,
    /// What came on standard output.
    pub stdout: String,
    /// What came on standard error.
    pub stderr: String,
}

impl Outcome {
    /// Standard output, if all went well.
    pub fn success(self) -> Result<String> {
        ensure!(
            self.status == 0,
            "status {}\n--- stdout\n{}--- stderr\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        Ok(self.stdout)
    }
}

/// The lab's program, not yet started.
pub fn command(arguments: &[&str]) -> Result<Command> {
    let program = std::env::var_os(LAB)
        .with_context(|| format!("{LAB} is not set: run this by `scripts/test vm`"))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    Ok(command)
}

/// Runs `scripts/lab` with these arguments.
pub fn lab(arguments: &[&str]) -> Result<Outcome> {
    let output = command(arguments)?.output().context("cannot start the lab")?;
    Ok(Outcome {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Runs a shell command in a fresh node that `options` describe.
pub fn in_node(options: &[&str], script: &str) -> Result<Outcome> {
    lab(&[&["run", "--quiet"], options, &["--", "bash", "-euc", script]].concat())
}

/// Runs those of this program's own tests whose names have one of `filters` in them in a fresh node.
pub fn own_tests_in_node(options: &[&str], filters: &[&str]) -> Result<String> {
    let program = std::env::current_exe()?.to_string_lossy().into_owned();
    // One at a time: with a guest on each of its two CPUs, an emulated node now and then kills one of them.
    let mut test = vec![program.as_str(), "--test-threads=1"];
    test.extend(filters);
    // Whoever wants those that take long names them.
    if !filters.iter().any(|filter| filter.contains("long_")) {
        test.push("--skip=::long_");
    }
    let variables: Vec<String> = [VMM, CORTEN, PACKAGE]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok().map(|path| format!("--env={name}={path}")))
        .collect();
    let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
    let output =
        lab(&[&["run", "--quiet"], options, &variables, &["--"], &test].concat())?.success()?;
    let passed = output.lines().rfind(|line| line.starts_with("test result: ok."));
    let passed = passed.context("no test result in the output")?;
    ensure!(!passed.contains(" 0 passed"), "no test ran: {passed}");
    Ok(output)
}

/// The names of this program's own tests that begin so.
pub fn own_tests(beginning: &str) -> Result<Vec<String>> {
    let listed = Command::new(std::env::current_exe()?)
        .args(["--list", "--format=terse", beginning])
        .output()
        .context("cannot list this program's own tests")?;
    let listed = String::from_utf8(listed.stdout)?;
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.filter(|name| name.starts_with(beginning)).map(str::to_owned).collect())
}
