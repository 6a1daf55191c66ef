//! The launcher with the VM process that is shipped and the microguest in it, on this machine's KVM.
//!
//! `CORTEN_VMM` names the program of the VM process.

mod closed;
mod locked;
mod recorded;
mod rig;
mod told;
mod volumes;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use corten_link::launcher::{Answer, State, ToAgent, ToLauncher};
use corten_link::{EndReason, RunState};
use nix::sys::signal::{Signal, kill};
use rig::{Ended, Launcher, UID, start, vmi};
use serde_json::Map;

const FOR_EVER: &str = "loop";
const POWER_OFF: &str = "doorbell port=0x600 size=1 value=0x34";
/// Powers off by itself, a while after it has started.
const POWER_OFF_LATER: &str = "timer count=600 ticks=3000000 doorbell port=0x600 size=1 value=0x34";
const OTHER_UID: &str = "ffffffff-89ab-cdef-0123-456789abcdef";
const LONG_GRACE: u32 = 600;

fn ended_with(ended: &Ended, reason: EndReason) -> Result<String> {
    let log = &ended.log;
    ensure!(ended.status == Some(reason.exit_status().into()), "{:?}: {log}", ended.status);
    ensure!(ended.termination["reason"] == serde_json::to_value(reason)?, "{}", ended.termination);
    ensure!(ended.termination["text"] == reason.text(), "{}", ended.termination);
    ensure!(log.contains(reason.text()), "{log}");
    Ok(ended.termination["detail"].as_str().unwrap_or_default().into())
}

#[test]
fn guest_that_powers_off_ends_the_launcher_with_success() -> Result<()> {
    let launcher = Launcher::start()?;
    let (mut agent, hello) = launcher.agent()?;
    let waiting =
        matches!(&hello, ToAgent::Hello { state: State::Waiting, vmi: None, version: 1, .. });
    ensure!(waiting, "{hello:?}");
    let id = agent.start(vmi(UID, POWER_OFF), LONG_GRACE)?;
    ensure!(agent.next()? == ToAgent::Reply { id, reply: Answer::Done });
    ensure!(agent.next()? == ToAgent::State { state: State::Preparing });
    // Whether it is seen running depends on how quick it is.
    let mut last = agent.next()?;
    while !matches!(last, ToAgent::Ended { .. }) {
        last = agent.next()?;
    }
    let detail = String::new();
    ensure!(
        matches!(&last, ToAgent::Ended { reason: EndReason::PoweredOff, detail: told, .. } if *told == detail),
        "{last:?}"
    );
    ensure!(agent.is_closed()?);
    let ended = launcher.end()?;
    ended_with(&ended, EndReason::PoweredOff)?;
    ensure!(ended.console.contains("microguest by PVH entry"), "{}", ended.console);
    Ok(())
}

#[test]
fn agent_learns_how_the_vm_is_and_kills_it() -> Result<()> {
    let launcher = Launcher::start()?;
    let mut agent = launcher.running(FOR_EVER, LONG_GRACE)?;
    launcher.wait_for_console("microguest")?;
    let Answer::Info { info } = agent.ask(|id| ToLauncher::Info { id })? else {
        anyhow::bail!("no info")
    };
    ensure!((info.vcpus, info.memory, info.state) == (1, 32 << 20, RunState::Running), "{info:?}");
    ensure!(agent.ask(|id| ToLauncher::PowerButton { id })? == Answer::Done);
    ensure!(agent.ask(|id| ToLauncher::Kill { id })? == Answer::Done);
    let last = agent.next()?;
    ensure!(matches!(last, ToAgent::Ended { reason: EndReason::Killed, .. }), "{last:?}");
    ended_with(&launcher.end()?, EndReason::Killed)?;
    Ok(())
}

#[test]
fn terminated_launcher_kills_a_deaf_guest_when_its_grace_is_over() -> Result<()> {
    let launcher = Launcher::start()?;
    let _agent = launcher.running(FOR_EVER, 1)?;
    let before = Instant::now();
    launcher.terminate()?;
    launcher.terminate()?;
    let ended = launcher.end()?;
    ensure!(before.elapsed() >= Duration::from_secs(1), "after {:?}", before.elapsed());
    let detail = ended_with(&ended, EndReason::Killed)?;
    let unnoticed = "the guest did not power off within 1 s of the power button; nothing in it has taken notice";
    ensure!(detail.starts_with(unnoticed), "{detail}");
    Ok(())
}

#[test]
fn terminated_launcher_lets_a_guest_power_off_within_its_grace() -> Result<()> {
    let launcher = Launcher::start()?;
    let _agent = launcher.running(POWER_OFF_LATER, LONG_GRACE)?;
    launcher.terminate()?;
    let ended = launcher.end()?;
    let detail = ended_with(&ended, EndReason::PoweredOff)?;
    ensure!(detail == "it was asked to by its power button", "{detail}");
    ensure!(ended.log.contains("power button is pressed"), "{}", ended.log);
    Ok(())
}

#[test]
fn launcher_that_waits_ends_when_terminated() -> Result<()> {
    let launcher = Launcher::start()?;
    let (_agent, _) = launcher.agent()?;
    launcher.terminate()?;
    let detail = ended_with(&launcher.end()?, EndReason::Killed)?;
    ensure!(detail.contains("before a VM was started"), "{detail}");
    Ok(())
}

#[test]
fn dismissed_launcher_ends_as_not_started_with_the_reason() -> Result<()> {
    let launcher = Launcher::start()?;
    let (agent, _) = launcher.agent()?;
    agent.send(&ToLauncher::Dismiss { reason: "it was started before".into() })?;
    let last = agent.next()?;
    ensure!(matches!(last, ToAgent::Ended { reason: EndReason::NotStarted, .. }), "{last:?}");
    let ended = launcher.end()?;
    let detail = ended_with(&ended, EndReason::NotStarted)?;
    ensure!(detail == "it was started before", "{detail}");
    ensure!(ended.termination["fault"] == "dismissed", "{}", ended.termination);
    Ok(())
}

#[test]
fn launcher_that_was_started_is_not_dismissed() -> Result<()> {
    let mut launcher = Launcher::start()?;
    let mut agent = launcher.running(FOR_EVER, LONG_GRACE)?;
    agent.send(&ToLauncher::Dismiss { reason: "it was started before".into() })?;
    ensure!(matches!(agent.ask(|id| ToLauncher::Info { id })?, Answer::Info { .. }));
    ensure!(launcher.is_alive()?);
    Ok(())
}

#[test]
fn second_launcher_of_a_container_ends_and_the_first_one_goes_on() -> Result<()> {
    let launcher = Launcher::start()?;
    let mut agent = launcher.running(FOR_EVER, LONG_GRACE)?;
    let second = launcher.second()?;
    let log = String::from_utf8(second.stderr)?;
    let status = i32::from(EndReason::NotStarted.exit_status());
    ensure!(second.status.code() == Some(status), "{:?}: {log}", second.status);
    ensure!(log.contains("a launcher runs already"), "{log}");
    // The first one has not even noticed.
    ensure!(matches!(agent.ask(|id| ToLauncher::Info { id })?, Answer::Info { .. }));
    ensure!(agent.ask(|id| ToLauncher::Kill { id })? == Answer::Done);
    ended_with(&launcher.end()?, EndReason::Killed)?;
    Ok(())
}

#[test]
fn new_agent_finds_the_vm_as_the_old_one_left_it() -> Result<()> {
    let mut launcher = Launcher::start()?;
    drop(launcher.running(FOR_EVER, LONG_GRACE)?);
    let (mut second, hello) = launcher.agent()?;
    let found = matches!(&hello, ToAgent::Hello { state: State::Running, vmi: Some(uid), .. } if uid == UID);
    ensure!(found, "{hello:?}");
    ensure!(second.next()? == ToAgent::Vm { state: RunState::Running, cause: String::new() });
    let id = second.start(vmi(UID, FOR_EVER), LONG_GRACE)?;
    let reply = Answer::Started { state: State::Running };
    ensure!(second.next()? == ToAgent::Reply { id, reply });
    ensure!(launcher.is_alive()?);
    launcher.vmm()?;
    ensure!(launcher.log().matches("the VM process is ").count() == 1, "{}", launcher.log());
    Ok(())
}

#[test]
fn new_agent_replaces_the_old_one() -> Result<()> {
    let launcher = Launcher::start()?;
    let old = launcher.running(FOR_EVER, LONG_GRACE)?;
    let mut new = launcher.next_agent()?;
    ensure!(old.is_closed()?);
    ensure!(matches!(new.ask(|id| ToLauncher::Info { id })?, Answer::Info { .. }));
    Ok(())
}

#[test]
fn other_vmi_is_refused_and_the_first_goes_on() -> Result<()> {
    let launcher = Launcher::start()?;
    let mut agent = launcher.running(FOR_EVER, LONG_GRACE)?;
    agent.start(vmi(OTHER_UID, POWER_OFF), LONG_GRACE)?;
    let ToAgent::Reply { reply: Answer::Refused { reason }, .. } = agent.next()? else {
        anyhow::bail!("not refused")
    };
    ensure!(reason.contains(UID), "{reason}");
    ensure!(matches!(agent.ask(|id| ToLauncher::Info { id })?, Answer::Info { .. }));
    Ok(())
}

#[test]
fn agent_that_says_no_hello_is_let_go_and_the_next_is_served() -> Result<()> {
    let launcher = Launcher::start()?;
    let mute = launcher.connect()?;
    ensure!(matches!(mute.next()?, ToAgent::Hello { .. }));
    mute.send(&ToLauncher::Kill { id: 1 })?;
    ensure!(mute.is_closed()?);
    launcher.running(FOR_EVER, LONG_GRACE)?;
    Ok(())
}

#[test]
fn start_that_lacks_something_is_refused_and_can_be_repeated() -> Result<()> {
    let launcher = Launcher::start()?;
    let (mut agent, _) = launcher.agent()?;
    let refused = agent.ask(|id| ToLauncher::Info { id })?;
    ensure!(matches!(refused, Answer::Refused { .. }), "{refused:?}");
    let without_kvm = |id| start(id, vmi(UID, FOR_EVER), 1, Vec::new());
    let refused = agent.ask(without_kvm)?;
    ensure!(
        matches!(&refused, Answer::Refused { reason } if reason.contains("kvm")),
        "{refused:?}"
    );
    let no_vmi = |id| start(id, Map::new(), 1, Vec::new());
    let refused = agent.ask(no_vmi)?;
    ensure!(matches!(&refused, Answer::Refused { .. }), "{refused:?}");
    launcher.running(FOR_EVER, LONG_GRACE)?;
    Ok(())
}

fn not_started(launcher: Launcher, fault: Option<&str>) -> Result<String> {
    let (mut agent, _) = launcher.agent()?;
    let id = agent.start(vmi(UID, FOR_EVER), LONG_GRACE)?;
    ensure!(agent.next()? == ToAgent::Reply { id, reply: Answer::Done });
    ensure!(agent.next()? == ToAgent::State { state: State::Preparing });
    let last = agent.next()?;
    ensure!(matches!(last, ToAgent::Ended { reason: EndReason::NotStarted, .. }), "{last:?}");
    let ended = launcher.end()?;
    ensure!(ended.termination["fault"].as_str() == fault, "{}", ended.termination);
    ended_with(&ended, EndReason::NotStarted)
}

#[test]
fn missing_kernel_is_said_with_field_and_path() -> Result<()> {
    let launcher = Launcher::start()?;
    std::fs::remove_file(launcher.image("boot/kernel"))?;
    let detail = not_started(launcher, Some("kernel-missing"))?;
    for part in ["default/first", "kernelBoot.container.kernelPath", "/boot/kernel", "ENOENT"] {
        ensure!(detail.contains(part), "{detail}");
    }
    Ok(())
}

#[test]
fn kernel_that_is_none_is_said_by_the_vm_process() -> Result<()> {
    let launcher = Launcher::start()?;
    std::fs::write(launcher.image("boot/kernel"), "")?;
    let detail = not_started(launcher, Some("kernel-unusable"))?;
    ensure!(detail.contains("the file is empty"), "{detail}");
    Ok(())
}

#[test]
fn missing_vm_process_is_said_with_its_path() -> Result<()> {
    let detail = not_started(Launcher::start_with(Path::new("/nonexistent/corten-vmm"))?, None)?;
    ensure!(detail.contains("cannot start /nonexistent/corten-vmm"), "{detail}");
    Ok(())
}

#[test]
fn vm_process_that_dies_is_an_internal_error() -> Result<()> {
    let launcher = Launcher::start()?;
    let agent = launcher.running(FOR_EVER, LONG_GRACE)?;
    kill(launcher.vmm()?, Signal::SIGKILL)?;
    let last = agent.next()?;
    ensure!(matches!(last, ToAgent::Ended { reason: EndReason::InternalError, .. }), "{last:?}");
    let detail = ended_with(&launcher.end()?, EndReason::InternalError)?;
    ensure!(detail.contains("SIGKILL"), "{detail}");
    Ok(())
}
