//! Disks that a launcher may not open: it shows them, waits, and opens them itself.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, bail, ensure};
use corten_link::launcher::{Answer, State, ToAgent, ToLauncher};
use corten_link::{EndReason, Grant, Role};
use serde_json::{Map, Value, json};

use crate::rig::{Agent, Launcher, UID, vmi};
use crate::{FOR_EVER, LONG_GRACE, ended_with};

/// A launcher whose VMI has a claim with a disk of somebody else's.
fn with_closed_disk() -> Result<(Launcher, Map<String, Value>)> {
    let launcher = Launcher::start()?;
    let disk = launcher.volume("data/disk.img");
    fs::create_dir_all(disk.parent().context("it is in a directory")?)?;
    fs::write(&disk, [0; 1 << 20])?;
    fs::set_permissions(&disk, fs::Permissions::from_mode(0o000))?;
    let mut vmi = vmi(UID, FOR_EVER);
    vmi["spec"]["volumes"] =
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "any"}}]);
    Ok((launcher, vmi))
}

fn shown(agent: &Agent) -> Result<(u64, Grant)> {
    match agent.next_with()? {
        (ToAgent::Unopenable { ticket, .. }, places) => Ok((ticket, places)),
        (other, _) => bail!("{other:?} shows no disk"),
    }
}

#[test]
fn disk_that_the_agent_opens_up_is_opened_by_the_launcher_itself() -> Result<()> {
    let (launcher, vmi) = with_closed_disk()?;
    let (mut agent, _) = launcher.agent()?;
    agent.begin(vmi, LONG_GRACE)?;
    let (ticket, places) = shown(&agent)?;
    // It serves meanwhile.
    let refused = agent.ask(|id| ToLauncher::Info { id })?;
    ensure!(matches!(refused, Answer::Refused { .. }), "{refused:?}");
    let place = places.get(&Role::disk("data")?).context("no disk")?;
    let by_descriptor = format!("/proc/self/fd/{}", place.as_raw_fd());
    ensure!(fs::read_link(&by_descriptor)? == launcher.volume("data/disk.img").canonicalize()?);
    ensure!(fs::File::from(place.try_clone()?).set_len(0).is_err(), "it is open for writing");
    fs::set_permissions(by_descriptor, fs::Permissions::from_mode(0o600))?;
    agent.send(&ToLauncher::OpenedUp { ticket, refused: None })?;
    ensure!(agent.next()? == ToAgent::State { state: State::Running }, "{}", launcher.log());
    Ok(())
}

#[test]
fn next_agent_is_asked_again_and_its_refusal_names_the_volume() -> Result<()> {
    let (launcher, vmi) = with_closed_disk()?;
    let (mut first, _) = launcher.agent()?;
    first.begin(vmi, LONG_GRACE)?;
    let (before, _) = shown(&first)?;
    drop(first);
    let (second, hello) = launcher.agent()?;
    ensure!(matches!(hello, ToAgent::Hello { state: State::Preparing, .. }), "{hello:?}");
    let (ticket, places) = shown(&second)?;
    ensure!(ticket != before && places.len() == 1);
    // An answer to what the other one was asked does not count.
    second.send(&ToLauncher::OpenedUp { ticket: before, refused: Some("too late".into()) })?;
    let reason = "it is no file of a claim".to_owned();
    second.send(&ToLauncher::OpenedUp { ticket, refused: Some(reason) })?;
    let last = second.next()?;
    ensure!(matches!(last, ToAgent::Ended { reason: EndReason::NotStarted, .. }), "{last:?}");
    let detail = ended_with(&launcher.end()?, EndReason::NotStarted)?;
    ensure!(detail.contains("volume data (") && detail.contains("no file of a claim"), "{detail}");
    Ok(())
}

#[test]
fn disk_that_stays_closed_is_said_with_its_field() -> Result<()> {
    let (launcher, vmi) = with_closed_disk()?;
    let (mut agent, _) = launcher.agent()?;
    agent.begin(vmi, LONG_GRACE)?;
    let (ticket, _) = shown(&agent)?;
    agent.send(&ToLauncher::OpenedUp { ticket, refused: None })?;
    let last = agent.next()?;
    ensure!(matches!(last, ToAgent::Ended { reason: EndReason::NotStarted, .. }), "{last:?}");
    let detail = ended_with(&launcher.end()?, EndReason::NotStarted)?;
    for part in
        ["spec.volumes[0].persistentVolumeClaim: volume data", "disk.img", "Permission denied"]
    {
        ensure!(detail.contains(part), "{detail}");
    }
    Ok(())
}
