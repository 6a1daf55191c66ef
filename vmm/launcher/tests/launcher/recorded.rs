//! Conversations as they were once recorded, with the launcher that is built now: it outlives many agents, and is of another release
//! than most of them.
//!
//! Each line of a recording is one message, behind who says it. The launcher may say more in a message than was recorded, never less
//! and nothing else.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, ensure};
use corten_link::{EndReason, MAX_MESSAGE};
use nix::sys::socket::{ControlMessage, MsgFlags, recvmsg, sendmsg};
use serde_json::Value;

use crate::ended_with;
use crate::rig::{Agent, Launcher, kvm};

fn say(agent: &Agent, line: &str) -> Result<()> {
    let message: Value = serde_json::from_str(line)?;
    let kvm = kvm()?;
    let count = message["roles"].as_array().map_or(0, Vec::len);
    let descriptors = vec![kvm.as_raw_fd(); count];
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let with = if count == 0 { &[][..] } else { &rights[..] };
    let socket = agent.socket().as_raw_fd();
    sendmsg::<()>(socket, &[IoSlice::new(line.as_bytes())], with, MsgFlags::empty(), None)?;
    Ok(())
}

fn hear(agent: &Agent) -> Result<Value> {
    agent.wait()?;
    let mut bytes = vec![0; MAX_MESSAGE];
    let mut buffer = [IoSliceMut::new(&mut bytes)];
    let socket = agent.socket().as_raw_fd();
    let length = recvmsg::<()>(socket, &mut buffer, None, MsgFlags::empty())?.bytes;
    Ok(serde_json::from_slice(&bytes[..length])?)
}

/// Whether all that was recorded is there.
fn has(said: &Value, recorded: &Value) -> bool {
    match (said, recorded) {
        (Value::Object(said), Value::Object(recorded)) => {
            recorded.iter().all(|(name, value)| said.get(name).is_some_and(|said| has(said, value)))
        }
        (said, recorded) => said == recorded,
    }
}

fn replay(recording: &str) -> Result<()> {
    let launcher = Launcher::start()?;
    let agent = launcher.connect()?;
    for (number, line) in recording.lines().enumerate() {
        let (who, message) = line.split_once(' ').context("a line without a message")?;
        if who == "agent" {
            say(&agent, message)?;
            continue;
        }
        let said = hear(&agent).with_context(|| format!("{number}: {}", launcher.log()))?;
        ensure!(has(&said, &serde_json::from_str(message)?), "{number}: {said} is not {message}");
    }
    ensure!(agent.is_closed()?);
    ended_with(&launcher.end()?, EndReason::Killed)?;
    Ok(())
}

#[test]
fn version_1_is_spoken_as_it_was_recorded() -> Result<()> {
    replay(include_str!("recorded/version-1.txt"))
}

#[test]
fn later_agent_with_fields_that_nobody_knows_is_served() -> Result<()> {
    replay(include_str!("recorded/later.txt"))
}

#[test]
fn launcher_that_was_dismissed_in_version_1_ends() -> Result<()> {
    let launcher = Launcher::start()?;
    let agent = launcher.connect()?;
    for line in include_str!("recorded/dismissed.txt").lines() {
        let (who, message) = line.split_once(' ').context("a line without a message")?;
        match who {
            "agent" => say(&agent, message)?,
            _ => ensure!(has(&hear(&agent)?, &serde_json::from_str(message)?), "{message}"),
        }
    }
    ended_with(&launcher.end()?, EndReason::NotStarted)?;
    Ok(())
}
