//! What a launcher tells by itself: how its guest is, what it heeds, what was last on the console.

use anyhow::{Result, bail, ensure};
use corten_link::launcher::{Answer, Sign, State, ToAgent, ToLauncher};
use corten_link::{EndReason, RunState};
use corten_resources::spec_hash;
use serde_json::{Map, Value, json};

use crate::rig::{Agent, Launcher, UID, vmi};
use crate::{FOR_EVER, LONG_GRACE, POWER_OFF, ended_with};

fn vm(state: RunState) -> ToAgent {
    ToAgent::Vm { state, cause: String::new() }
}

fn ended(agent: &Agent) -> Result<String> {
    loop {
        match agent.next()? {
            ToAgent::Ended { console, .. } => return Ok(console),
            ToAgent::State { .. } | ToAgent::Vm { .. } | ToAgent::Applied { .. } => {}
            other => bail!("{other:?}"),
        }
    }
}

#[test]
fn pause_is_told_to_this_agent_and_to_the_next() -> Result<()> {
    let launcher = Launcher::start()?;
    let mut agent = launcher.running(FOR_EVER, LONG_GRACE)?;
    ensure!(agent.ask(|id| ToLauncher::Pause { id })? == Answer::Done);
    ensure!(agent.next()? == vm(RunState::Paused));
    drop(agent);
    let (mut next, _) = launcher.agent()?;
    ensure!(next.next()? == vm(RunState::Paused));
    ensure!(next.ask(|id| ToLauncher::Resume { id })? == Answer::Done);
    ensure!(next.next()? == vm(RunState::Running));
    Ok(())
}

#[test]
fn guest_that_is_to_start_paused_does_nothing_until_it_is_resumed() -> Result<()> {
    let launcher = Launcher::start()?;
    let (mut agent, _) = launcher.agent()?;
    let mut vmi = vmi(UID, FOR_EVER);
    vmi["spec"]["startStrategy"] = "Paused".into();
    agent.begin(vmi, LONG_GRACE)?;
    ensure!(agent.next()? == ToAgent::State { state: State::Running });
    ensure!(agent.next()? == vm(RunState::Paused));
    ensure!(matches!(agent.next()?, ToAgent::Applied { .. }));
    let Answer::Info { info } = agent.ask(|id| ToLauncher::Info { id })? else { bail!("no info") };
    ensure!(info.state == RunState::Paused);
    ensure!(launcher.console().is_empty(), "{}", launcher.console());
    ensure!(agent.ask(|id| ToLauncher::Resume { id })? == Answer::Done);
    ensure!(agent.next()? == vm(RunState::Running));
    launcher.wait_for_console("microguest")
}

#[test]
fn paused_guest_goes_on_to_heed_its_power_button() -> Result<()> {
    let launcher = Launcher::start()?;
    let mut agent = launcher.running(POWER_OFF_SOON, LONG_GRACE)?;
    ensure!(agent.ask(|id| ToLauncher::Pause { id })? == Answer::Done);
    launcher.terminate()?;
    ended_with(&launcher.end()?, EndReason::PoweredOff)?;
    Ok(())
}

/// Powers off by itself, but not before it was paused.
const POWER_OFF_SOON: &str = crate::POWER_OFF_LATER;

fn apply(vmi: &Map<String, Value>) -> impl FnOnce(u64) -> ToLauncher {
    let vmi = vmi.clone();
    move |id| ToLauncher::Apply { id, vmi, grace_seconds: 1 }
}

#[test]
fn change_that_can_be_heeded_is_known_by_its_hash() -> Result<()> {
    let launcher = Launcher::start()?;
    let mut vmi = vmi(UID, FOR_EVER);
    let (mut agent, _) = launcher.agent()?;
    agent.begin(vmi.clone(), LONG_GRACE)?;
    ensure!(agent.next()? == ToAgent::State { state: State::Running });
    ensure!(agent.next()? == vm(RunState::Running));
    ensure!(agent.next()? == ToAgent::Applied { hash: spec_hash(&vmi["spec"]) });
    vmi["spec"]["terminationGracePeriodSeconds"] = 1.into();
    vmi["spec"]["readinessProbe"] = json!({"tcpSocket": {"port": 22}});
    ensure!(agent.ask(apply(&vmi))? == Answer::Done);
    let hash = spec_hash(&vmi["spec"]);
    ensure!(agent.next()? == ToAgent::Applied { hash: hash.clone() });
    let (_next, hello) = launcher.agent()?;
    let found = matches!(&hello, ToAgent::Hello { applied: Some(found), .. } if *found == hash);
    ensure!(found, "{hello:?}");
    // The new grace period is the one that counts: the guest is deaf.
    launcher.terminate()?;
    let detail = ended_with(&launcher.end()?, EndReason::Killed)?;
    ensure!(detail.contains("within 1 s"), "{detail}");
    Ok(())
}

#[test]
fn change_of_the_machine_is_refused_by_its_path_and_nothing_changes() -> Result<()> {
    let launcher = Launcher::start()?;
    let mut agent = launcher.running(FOR_EVER, LONG_GRACE)?;
    let mut other = vmi(UID, FOR_EVER);
    other["spec"]["domain"]["memory"]["guest"] = "64Mi".into();
    other["spec"]["terminationGracePeriodSeconds"] = 1.into();
    let Answer::Refused { reason } = agent.ask(apply(&other))? else { bail!("not refused") };
    ensure!(reason.contains(": spec.domain.memory.guest;"), "{reason}");
    let Answer::Refused { reason } = agent.ask(apply(&vmi("other", FOR_EVER)))? else {
        bail!("not refused")
    };
    ensure!(reason.contains(UID), "{reason}");
    let (_next, hello) = launcher.agent()?;
    let hash = spec_hash(&vmi(UID, FOR_EVER)["spec"]);
    let found = matches!(&hello, ToAgent::Hello { applied: Some(found), .. } if *found == hash);
    ensure!(found, "{hello:?}");
    Ok(())
}

#[test]
fn last_lines_of_the_console_are_kept_with_the_end() -> Result<()> {
    let launcher = Launcher::start()?;
    let (mut agent, _) = launcher.agent()?;
    agent.begin(vmi(UID, POWER_OFF), LONG_GRACE)?;
    let console = ended(&agent)?;
    ensure!(console.contains("microguest by PVH entry"), "{console}");
    let ended = launcher.end()?;
    ensure!(ended.termination["console"] == console.as_str(), "{}", ended.termination);
    ensure!(ended.console.contains(&console), "{}", ended.console);
    Ok(())
}

#[test]
fn console_that_is_not_to_be_logged_is_nowhere() -> Result<()> {
    let launcher = Launcher::start()?;
    let (mut agent, _) = launcher.agent()?;
    let mut vmi = vmi(UID, POWER_OFF);
    vmi["spec"]["domain"]["devices"] = json!({"logSerialConsole": false});
    agent.begin(vmi, LONG_GRACE)?;
    ensure!(ended(&agent)?.is_empty());
    let ended = launcher.end()?;
    ensure!(ended.console.is_empty() && ended.termination.get("console").is_none());
    Ok(())
}

#[test]
fn power_button_and_whether_it_was_noticed_are_told_to_this_agent_and_to_the_next() -> Result<()> {
    let launcher = Launcher::start()?;
    let agent = launcher.running(FOR_EVER, LONG_GRACE)?;
    launcher.terminate()?;
    let told = |noticed| ToAgent::Sign { sign: Sign::PowerButton { noticed } };
    ensure!(agent.next()? == told(None));
    // This guest knows no power button.
    ensure!(agent.next()? == told(Some(false)));
    let (mut next, _) = launcher.agent()?;
    ensure!(next.next()? == vm(RunState::Running));
    ensure!(next.next()? == told(Some(false)));
    ensure!(next.ask(|id| ToLauncher::Kill { id })? == Answer::Done);
    ended_with(&launcher.end()?, EndReason::Killed)?;
    Ok(())
}
