//! The agent's side of a door against the launcher and the VM process that are shipped, with the microguest, on this
//! machine's KVM.
//!
//! `CORTEN_LAUNCHER` and `CORTEN_VMM` name the two programs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corten_link::EndReason;
use corten_link::launcher::{State, ToAgent};
use corten_node_agent::door::{
    ConnectError, Greeting, Handover, HandoverError, Session, SessionError, connect,
};
use corten_node_agent::doors::{DeviceId, Doors};
use corten_node_agent::grant::Devices;
use corten_node_agent::ledger::{Entry, Ledger};
use corten_node_agent::networks::Connected;
use corten_resources::types::VirtualMachineInstance;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

/// Long, for a machine under load.
const SOON: Duration = Duration::from_secs(60);
const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

fn vmi(uid: &str) -> Result<VirtualMachineInstance> {
    let container = json!({"image": "microguest", "kernelPath": "kernel"});
    Ok(serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": "first", "uid": uid},
        "spec": {"terminationGracePeriodSeconds": 0, "domain": {
            "memory": {"guest": "32Mi"},
            "firmware": {"kernelBoot": {"kernelArgs": "loop", "container": container}},
        }},
    }))?)
}

/// A launcher behind the door of a device.
struct Launcher {
    directory: tempfile::TempDir,
    child: Child,
}

impl Launcher {
    fn start() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = |name: &str| directory.path().join(name);
        let doors = Doors::new(&path("doors"), 1, nix::unistd::getuid().as_raw());
        doors.prepare(&DeviceId::new(0))?;
        fs::create_dir(path("image"))?;
        fs::write(path("image/kernel"), corten_microguest::ELF)?;
        File::create(path("termination-log"))?;
        let child = Self::child(directory.path())?;
        Ok(Self { directory, child })
    }

    fn child(directory: &Path) -> Result<Child> {
        let program = |name: &str| {
            std::env::var_os(name).with_context(|| format!("{name} does not name a program"))
        };
        let path = |name: &str| directory.join(name);
        let child = Command::new(program("CORTEN_LAUNCHER")?)
            .arg("--door")
            .arg(path("doors/kvm-0"))
            .arg("--kernel-boot")
            .arg(path("image"))
            .arg("--termination-log")
            .arg(path("termination-log"))
            .arg("--vmm")
            .arg(program("CORTEN_VMM")?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(child)
    }

    /// As kubelet does it when the container has ended and its Pod has not.
    fn restart(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.child = Self::child(self.directory.path())?;
        Ok(())
    }

    /// What an agent has that has just started.
    fn ledger(&self) -> Result<Ledger> {
        Ok(Ledger::open(&self.directory.path().join("ledger"))?)
    }

    /// How it ended: its exit status and termination message.
    fn end(&mut self) -> Result<(Option<i32>, Value)> {
        let status = self.child.wait()?.code();
        let message = fs::read(self.directory.path().join("termination-log"))?;
        Ok((status, serde_json::from_slice(&message)?))
    }

    fn door(&self) -> std::path::PathBuf {
        self.directory.path().join("doors/kvm-0")
    }

    fn terminate(&self) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.child.id())?), Signal::SIGTERM)?)
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn visit(door: &Path) -> Result<(Session, Greeting)> {
    let link = loop {
        match connect(door) {
            Err(ConnectError::NotThere(_)) => sleep(Duration::from_millis(5)).await,
            other => break other?,
        }
    };
    Ok(Session::begin(link).await?)
}

/// Does what an agent does with a launcher that waits.
async fn hand_over(
    launcher: &Launcher,
    vmi: &VirtualMachineInstance,
) -> Result<Result<Session, HandoverError>> {
    let devices = Devices { kvm: "/dev/kvm".into(), userfaultfd: "/dev/userfaultfd".into() };
    let (session, greeting) = timeout(SOON, visit(&launcher.door())).await??;
    ensure!(greeting.state == State::Waiting);
    let entry = Entry {
        pod_uid: "pod-1".into(),
        vmi_namespace: vmi.metadata.namespace.clone(),
        vmi_name: vmi.metadata.name.clone(),
        vmi_uid: vmi.metadata.uid.clone(),
    };
    let (device, ledger) = (DeviceId::new(0), launcher.ledger()?);
    let handover = Handover { device: &device, ledger: &ledger, devices: &devices };
    Ok(handover.start(session, vmi, &entry, Connected::default()).await)
}

async fn until_running(session: &mut Session) -> Result<()> {
    while session.next().await?.0 != (ToAgent::State { state: State::Running }) {}
    Ok(())
}

#[tokio::test]
async fn vmi_is_handed_over_and_found_again_after_a_restart_of_the_agent() -> Result<()> {
    let launcher = Launcher::start()?;
    let devices = Devices { kvm: "/dev/kvm".into(), userfaultfd: "/dev/userfaultfd".into() };
    let (mut first, greeting) = timeout(SOON, visit(&launcher.door())).await??;
    ensure!((greeting.state, greeting.vmi) == (State::Waiting, None));
    first.start(&vmi(UID)?, &BTreeMap::new(), &devices.open()?).await?;
    timeout(SOON, until_running(&mut first)).await??;
    drop(first);

    let (mut second, greeting) = timeout(SOON, visit(&launcher.door())).await??;
    ensure!((greeting.state, greeting.vmi.as_deref()) == (State::Running, Some(UID)));
    second.start(&vmi(UID)?, &BTreeMap::new(), &devices.open()?).await?;
    let other = vmi("ffffffff-89ab-cdef-0123-456789abcdef")?;
    let refused = second.start(&other, &BTreeMap::new(), &devices.open()?).await;
    ensure!(matches!(refused, Err(SessionError::Refused(_))), "{refused:?}");

    launcher.terminate()?;
    let last = timeout(SOON, async {
        loop {
            match second.next().await?.0 {
                ToAgent::Vm { .. } | ToAgent::Sign { .. } => {}
                other => return anyhow::Ok(other),
            }
        }
    });
    let last = last.await??;
    ensure!(matches!(last, ToAgent::Ended { reason: EndReason::Killed, .. }), "{last:?}");
    Ok(())
}

#[tokio::test]
async fn pod_that_was_started_is_not_started_again_by_any_agent() -> Result<()> {
    let mut launcher = Launcher::start()?;
    let mut session = hand_over(&launcher, &vmi(UID)?).await??;
    timeout(SOON, until_running(&mut session)).await??;
    // kubelet may have said for a moment that nobody has the device.
    launcher.ledger()?.forget(&DeviceId::new(0))?;
    launcher.restart()?;

    let second = hand_over(&launcher, &vmi(UID)?).await?;
    ensure!(matches!(second, Err(HandoverError::Dismissed(_))), "{second:?}");
    let (status, message) = launcher.end()?;
    ensure!(status == Some(EndReason::NotStarted.exit_status().into()), "{status:?}");
    let detail = message["detail"].as_str().unwrap_or_default();
    ensure!(detail.contains("never run twice"), "{message}");
    Ok(())
}

#[tokio::test]
async fn long_annotation_is_no_hindrance_and_a_long_spec_ends_the_launcher_with_the_reason()
-> Result<()> {
    let mut annotated = vmi(UID)?;
    annotated.metadata.annotations.insert("notes".into(), "x".repeat(70_000));
    let launcher = Launcher::start()?;
    let mut session = hand_over(&launcher, &annotated).await??;
    timeout(SOON, until_running(&mut session)).await??;

    let mut large = vmi(UID)?;
    large.spec.other.insert("large".into(), "x".repeat(70_000).into());
    let mut launcher = Launcher::start()?;
    let refused = hand_over(&launcher, &large).await?;
    ensure!(matches!(refused, Err(HandoverError::Dismissed(_))), "{refused:?}");
    let (status, message) = launcher.end()?;
    ensure!(status == Some(EndReason::NotStarted.exit_status().into()), "{status:?}");
    let detail = message["detail"].as_str().unwrap_or_default();
    ensure!(detail.contains("too large to be handed over"), "{message}");
    Ok(())
}
