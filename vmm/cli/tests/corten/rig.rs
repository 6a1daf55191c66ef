//! The `corten` that is built, with a directory of its own for everything it leaves.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Long, for a machine under load.
pub(crate) const SOON: Duration = Duration::from_secs(90);

pub(crate) const FOR_EVER: &str = "loop";
pub(crate) const POWER_OFF: &str = "doorbell port=0x600 size=1 value=0x34";
/// Powers off by itself, a while after it has started.
pub(crate) const POWER_OFF_LATER: &str =
    "timer count=600 ticks=3000000 doorbell port=0x600 size=1 value=0x34";
pub(crate) const POWER_OFF_WHEN_TYPED: &str = "typed doorbell port=0x600 size=1 value=0x34";

/// A place for VMs that nobody else has.
pub(crate) struct Rig {
    directory: tempfile::TempDir,
}

/// What came of a command.
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// It ended with this status.
    pub(crate) fn with(self, status: i32) -> Result<Self> {
        let Self { status: found, stdout, stderr } = &self;
        ensure!(*found == Some(status), "status {found:?}, not {status}:\n{stdout}\n{stderr}");
        Ok(self)
    }

    /// It said this on standard error.
    pub(crate) fn said(self, text: &str) -> Result<Self> {
        ensure!(self.stderr.contains(text), "no {text:?} in:\n{}", self.stderr);
        Ok(self)
    }
}

/// What a test that failed has left running is ended: whoever keeps a VM has a directory named after it.
impl Drop for Rig {
    fn drop(&mut self) {
        let left = fs::read_dir(self.path("run")).into_iter().flatten().flatten();
        for name in left.filter_map(|entry| entry.file_name().into_string().ok()) {
            let _ = self.corten(&["kill", &name]);
        }
    }
}

impl Rig {
    pub(crate) fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        fs::create_dir_all(directory.path().join("image/boot"))?;
        fs::write(directory.path().join("image/boot/kernel"), corten_microguest::ELF)?;
        Ok(Self { directory })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A VMI that boots the microguest with these commands.
    pub(crate) fn vmi(name: &str, commands: &str) -> Value {
        let container = json!({"image": "microguest", "kernelPath": "/boot/kernel"});
        json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "domain": {
                    "memory": {"guest": "32Mi"},
                    "devices": {"autoattachPodInterface": false},
                    "firmware": {"kernelBoot": {"kernelArgs": commands, "container": container}},
                },
            },
        })
    }

    /// A file with this text.
    pub(crate) fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    pub(crate) fn command(&self) -> Result<Command> {
        let vmm = std::env::var_os("CORTEN_VMM")
            .context("CORTEN_VMM does not name the program of the VM process")?;
        let program =
            std::env::var_os("CORTEN").unwrap_or_else(|| env!("CARGO_BIN_EXE_corten").into());
        let mut command = Command::new(program);
        command.env_clear().env("CORTEN_VMM", vmm).env("CORTEN_RUNTIME", self.path("run"));
        command.current_dir(self.directory.path());
        Ok(command)
    }

    /// Starts a command, and gives it what a test types.
    pub(crate) fn start(&self, arguments: &[&str]) -> Result<Running> {
        let mut command = self.command()?;
        command.args(arguments);
        Running::start(command)
    }

    /// Runs a command to its end, without input.
    pub(crate) fn corten(&self, arguments: &[&str]) -> Result<Ended> {
        let mut running = self.start(arguments)?;
        running.close_input();
        running.end()
    }

    /// Arguments of `corten run` for this VMI.
    pub(crate) fn run_arguments(&self, vmi: &Value) -> Result<Vec<String>> {
        // Names that are none have separators.
        let name = vmi["metadata"]["name"].to_string().replace(['/', '"'], "");
        let file = self.file(&format!("{name}.yaml"), &vmi.to_string())?;
        let image = format!("microguest={}", self.path("image").display());
        let file = file.display().to_string();
        Ok(["run", &file, "--image", &image, "--any-kvm"].map(String::from).to_vec())
    }

    /// Starts `corten run` with more arguments.
    pub(crate) fn run(&self, vmi: &Value, more: &[&str]) -> Result<Running> {
        let arguments = self.run_arguments(vmi)?;
        let arguments: Vec<&str> =
            arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        self.start(&arguments)
    }

    /// Starts a VM in the background.
    pub(crate) fn detached(&self, name: &str, commands: &str) -> Result<()> {
        let mut running = self.run(&Self::vmi(name, commands), &["--detach"])?;
        running.close_input();
        let ended = running.end()?.with(0)?;
        ensure!(ended.stdout == format!("{name}\n"), "{}", ended.stdout);
        Ok(())
    }

    /// `corten info --json`.
    pub(crate) fn info(&self, name: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.corten(&["info", name, "--json"])?.with(0)?.stdout)?)
    }

    /// Processes of a VM: its supervisor, and itself.
    pub(crate) fn processes(&self, name: &str) -> Result<(Pid, Pid)> {
        let info = self.info(name)?;
        let pid = |field: &str| -> Result<Pid> {
            let number = info[field].as_i64().with_context(|| format!("no {field} in {info}"))?;
            Ok(Pid::from_raw(i32::try_from(number)?))
        };
        Ok((pid("supervisor")?, pid("process")?))
    }

    /// Waits until neither a process nor a run directory is left.
    pub(crate) fn is_clean(&self, processes: &[Pid]) -> Result<()> {
        for process in processes {
            wait_until(|| !is_alive(*process)).with_context(|| format!("{process} is left"))?;
        }
        let run = self.path("run");
        let left = || fs::read_dir(&run).map_or(0, Iterator::count);
        wait_until(|| left() == 0).context("a run directory is left")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        ensure!(!mounts.contains(&run.display().to_string()), "a mount is left: {mounts}");
        Ok(())
    }
}

/// Whether a process is there and no zombie.
fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes().first().copied());
    state.flatten().is_some_and(|state| state != b'Z')
}

type Text = Arc<Mutex<Vec<u8>>>;

/// A command that runs.
pub(crate) struct Running {
    child: Child,
    stdout: Text,
    stderr: Text,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (stdout, stderr) = (Text::default(), Text::default());
        let readers = vec![
            collect(child.stdout.take().context("no standard output")?, &stdout),
            collect(child.stderr.take().context("no standard error")?, &stderr),
        ];
        Ok(Self { child, stdout, stderr, readers })
    }

    pub(crate) fn pid(&self) -> Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.child.id())?))
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(self.pid()?, signal)?)
    }

    /// Types into it.
    pub(crate) fn write(&mut self, text: &str) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("its input is closed")?;
        Ok(stdin.write_all(text.as_bytes())?)
    }

    pub(crate) fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits until it has said this.
    pub(crate) fn wait_for(&self, text_wanted: &str) -> Result<()> {
        wait_until(|| text(&self.stdout).contains(text_wanted)).with_context(|| {
            format!("no {text_wanted:?} in:\n{}\n{}", text(&self.stdout), text(&self.stderr))
        })
    }

    /// Waits until it has said this on standard error.
    pub(crate) fn wait_for_word(&self, wanted: &str) -> Result<()> {
        wait_until(|| text(&self.stderr).contains(wanted)).with_context(|| {
            format!("no {wanted:?} in:\n{}\n{}", text(&self.stdout), text(&self.stderr))
        })
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Result<Ended> {
        let child = &mut self.child;
        let ended = wait_until(|| !matches!(child.try_wait(), Ok(None)));
        let said = || format!("it stays:\n{}\n{}", text(&self.stdout), text(&self.stderr));
        ended.with_context(said)?;
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
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + SOON;
    while !is_so() {
        ensure!(Instant::now() < deadline, "it did not come in time");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A field of /proc/PID/status.
pub(crate) fn status_field(pid: Pid, field: &str) -> Result<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    Ok(line.with_context(|| format!("no {field} in {status}"))?.trim().to_owned())
}

/// Whether this machine's KVM runs ordinary guests.
pub(crate) fn kvm_is_good() -> bool {
    corten_probe::try_kvm().is_ok()
}

pub(crate) fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}
