//! The `corten` command, given as its users give it.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::process::VMM;

/// The environment variable with the program.
pub const CORTEN: &str = "CORTEN";
/// A boot takes 5 s in a quiet emulated node.
const PATIENCE: Duration = Duration::from_secs(180);

/// Images of the examples, and the environment variables that name the directories of their archives.
const IMAGES: [(&str, &str); 3] = [
    ("corten.test/kernel-boot-6.12:1", "CORTEN_ASSET_KERNEL_BOOT_6_12"),
    ("corten.test/container-disk-tiny:1", "CORTEN_ASSET_CONTAINER_DISK_TINY"),
    ("corten.test/container-disk-debian:1", "CORTEN_ASSET_CONTAINER_DISK_DEBIAN"),
];

/// A place for VMs that nobody else has.
pub struct Rig {
    directory: tempfile::TempDir,
    /// What the machine had before.
    links: Vec<String>,
    tables: String,
}

/// What came of a command.
#[derive(Debug)]
pub struct Ended {
    /// With which status it ended.
    pub status: Option<i32>,
    /// What came on standard output.
    pub stdout: String,
    /// What came on standard error.
    pub stderr: String,
}

impl Ended {
    /// It ended with this status.
    pub fn with(self, status: i32) -> Result<Self> {
        let Self { status: found, stdout, stderr } = &self;
        ensure!(*found == Some(status), "status {found:?}, not {status}:\n{stdout}\n{stderr}");
        Ok(self)
    }

    /// It said this on standard error.
    pub fn said(self, text: &str) -> Result<Self> {
        ensure!(self.stderr.contains(text), "no {text:?} in:\n{}", self.stderr);
        Ok(self)
    }

    /// The guest said this, at the start of a line.
    pub fn has_line(self, start: &str) -> Result<Self> {
        let found = self.stdout.lines().any(|line| line.starts_with(start));
        ensure!(found, "no {start:?} in:\n{}\n{}", self.stdout, self.stderr);
        Ok(self)
    }
}

/// The environment variable with the directory of the package whose tests run. Not what it was for the compiler: Cargo takes
/// what another checkout has built into the same directory.
pub const PACKAGE: &str = "CARGO_MANIFEST_DIR";

/// An example of this repository.
pub fn example(name: &str) -> String {
    let package = std::env::var(PACKAGE).unwrap_or_else(|_| ".".into());
    format!("{package}/../resources/examples/{name}.yaml")
}

/// Those images of the examples that are there, for `--image`.
pub fn images() -> Vec<String> {
    let archive = |(image, variable): (&str, &str)| {
        Some(format!("{image}={}/image.tar", std::env::var(variable).ok()?))
    };
    IMAGES.into_iter().filter_map(archive).collect()
}

impl Rig {
    /// Looks at what the machine has, so that it can be compared.
    pub fn new() -> Result<Self> {
        Ok(Self { directory: tempfile::tempdir()?, links: links()?, tables: tables()? })
    }

    /// A path in its own directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a command.
    pub fn start(&self, arguments: &[&str]) -> Result<Running> {
        Running::start(self.command(arguments)?)
    }

    /// A command that is not started yet.
    pub fn command(&self, arguments: &[&str]) -> Result<Command> {
        let program = std::env::var_os(CORTEN)
            .with_context(|| format!("{CORTEN} is not set: run this by `scripts/test vm`"))?;
        let vmm = std::env::var_os(VMM).with_context(|| format!("{VMM} is not set"))?;
        let mut command = Command::new(program);
        command.env_clear().env(VMM, vmm).env("CORTEN_RUNTIME", self.path("run"));
        command.env("TMPDIR", self.directory.path());
        // Unpacked once for all tests of a node.
        command.env("CORTEN_IMAGE_CACHE", std::env::temp_dir().join("corten-images"));
        command.current_dir(self.directory.path()).args(arguments);
        Ok(command)
    }

    /// Gives a command without input, and waits for its end.
    pub fn corten(&self, arguments: &[&str]) -> Result<Ended> {
        let mut running = self.start(arguments)?;
        running.close_input();
        running.end()
    }

    /// Starts `corten run` of an example, with more arguments.
    pub fn run(&self, name: &str, more: &[&str]) -> Result<Running> {
        self.run_file(&example(name), more)
    }

    /// Starts `corten run` of a file, with more arguments.
    pub fn run_file(&self, file: &str, more: &[&str]) -> Result<Running> {
        let images = images();
        let images = images.iter().flat_map(|image| ["--image", image.as_str()]);
        let arguments: Vec<&str> =
            ["run", file].into_iter().chain(images).chain(more.iter().copied()).collect();
        self.start(&arguments)
    }

    /// Runs an example to its end, without input.
    pub fn run_through(&self, name: &str, more: &[&str]) -> Result<Ended> {
        let mut running = self.run(name, more)?;
        running.close_input();
        running.end()
    }

    /// `corten info --json`.
    pub fn info(&self, name: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.corten(&["info", name, "--json"])?.with(0)?.stdout)?)
    }

    /// Waits until `corten info --json` says so.
    pub fn wait_for_info(&self, name: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut info = Value::Null;
        let found = wait_until(|| {
            info = self.info(name).unwrap_or_default();
            is_so(&info)
        });
        found.with_context(|| format!("{info:#}"))?;
        Ok(info)
    }

    /// Waits until a VM in the background has said this.
    pub fn wait_for_log(&self, name: &str, wanted: &str) -> Result<()> {
        let mut said = String::new();
        let found = wait_until(|| {
            said = self.corten(&["logs", name]).map(|ended| ended.stdout).unwrap_or_default();
            said.contains(wanted)
        });
        found.with_context(|| format!("no {wanted:?} in:\n{said}"))
    }

    /// Waits until nothing of its VMs is left: no process, run directory, file, link or rule.
    pub fn is_clean(&self, expected_files: &[&str]) -> Result<()> {
        let run = self.path("run");
        wait_until(|| fs::read_dir(&run).map_or(0, Iterator::count) == 0)
            .context("a run directory is left")?;
        wait_until(|| processes_of(&run).is_empty())
            .with_context(|| format!("processes {:?} are left", processes_of(&run)))?;
        for entry in fs::read_dir(self.directory.path())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let expected = name == "run" || expected_files.contains(&name.as_str());
            ensure!(expected, "{name} is left in the scratch directory");
        }
        // A network namespace goes some time after its last process.
        wait_until(|| links().is_ok_and(|links| links == self.links))
            .with_context(|| format!("before {:?}, now {:?}", self.links, links()))?;
        ensure!(tables()? == self.tables, "rules are left:\n{}", tables()?);
        Ok(())
    }
}

impl Drop for Rig {
    /// A test that failed has left its VMs running.
    fn drop(&mut self) {
        for entry in fs::read_dir(self.path("run")).into_iter().flatten().flatten() {
            let _ = self.corten(&["kill", &entry.file_name().to_string_lossy()]);
        }
    }
}

/// Names of the machine's links.
fn links() -> Result<Vec<String>> {
    let entries = fs::read_dir("/sys/class/net")?;
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Tables of the machine's rules.
fn tables() -> Result<String> {
    let output = Command::new("nft").args(["list", "tables"]).output().context("cannot run nft")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Processes that have this directory among their arguments, or were started by one that has.
fn processes_of(directory: &Path) -> Vec<String> {
    let wanted = directory.display().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(&wanted) || line.starts_with("corten-vmm")).collect()
}

/// A field of /proc/PID/status.
pub fn status_field(pid: i64, field: &str) -> Result<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    Ok(line.with_context(|| format!("no {field} in {status}"))?.trim().to_owned())
}

type Text = Arc<Mutex<Vec<u8>>>;

/// A command that runs.
pub struct Running {
    child: Child,
    stdout: Text,
    stderr: Text,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start corten")?;
        let (stdout, stderr) = (Text::default(), Text::default());
        let readers = vec![
            collect(child.stdout.take().context("no standard output")?, &stdout),
            collect(child.stderr.take().context("no standard error")?, &stderr),
        ];
        Ok(Self { child, stdout, stderr, readers })
    }

    /// Types into it.
    pub fn write(&mut self, text: &str) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("its input is closed")?;
        Ok(stdin.write_all(text.as_bytes())?)
    }

    /// There is no more input.
    pub fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits until the guest has said this.
    pub fn wait_for(&self, wanted: &str) -> Result<()> {
        wait_until(|| text(&self.stdout).contains(wanted)).with_context(|| {
            format!("no {wanted:?} in:\n{}\n{}", text(&self.stdout), text(&self.stderr))
        })
    }

    /// Waits for its end.
    pub fn end(self) -> Result<Ended> {
        self.end_within(PATIENCE)
    }

    /// Waits for its end, for so long.
    pub fn end_within(mut self, patience: Duration) -> Result<Ended> {
        let child = &mut self.child;
        let ended = wait_for(patience, || !matches!(child.try_wait(), Ok(None)));
        ended.with_context(|| {
            format!("it stays:\n{}\n{}", text(&self.stdout), text(&self.stderr))
        })?;
        let status = self.child.wait()?.code();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        Ok(Ended { status, stdout: text(&self.stdout), stderr: text(&self.stderr) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut from: impl Read + Send + 'static, into: &Text) -> JoinHandle<()> {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            into.lock().unwrap_or_else(PoisonError::into_inner).extend(&bytes[..length]);
        }
    })
}

fn text(of: &Text) -> String {
    let bytes = of.lock().unwrap_or_else(PoisonError::into_inner);
    // A serial console ends lines in its own way.
    String::from_utf8_lossy(&bytes).replace('\r', "")
}

fn wait_until(is_so: impl FnMut() -> bool) -> Result<()> {
    wait_for(PATIENCE, is_so)
}

fn wait_for(patience: Duration, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + patience;
    while !is_so() {
        ensure!(Instant::now() < deadline, "it did not come in time");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
