//! Corten's VM process with a saved machine whose plan was changed by somebody: each part of it in turn is something that it
//! cannot be, or could be. The machine is refused, or runs as what it says. The process itself never fails.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corten_devices::testing::in_new_network;
use corten_link::{
    BalloonDescription, ConsoleDescription, EndReason, EntropyHost, Grant, NetworkDescription,
    NetworkHost, Reply, Request, Role, VsockDescription,
};
use corten_net::Tap;
use corten_tests::process::{VmProcess, disk, grants_of, machine};
use corten_tests::vmm::microguest;
use corten_vmm::machine::Hosts;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde_json::{Value, json};

/// Long, for a machine in an emulator under load.
const SOON: Duration = Duration::from_secs(60);
const MEMORY: u64 = 32 << 20;
const PAIRS: u16 = 2;
/// Counts for ever.
const ON: &str = "timer count=1000000 ticks=100000";
/// One change of so many is tried: all of them take four times as long, and most are of a kind.
const EVERY: usize = 4;

fn file_of(bytes: &[u8]) -> Result<File> {
    let file = File::from(memfd_create("saved", MFdFlags::MFD_CLOEXEC)?);
    file.write_all_at(bytes, 0)?;
    Ok(file)
}

fn bytes_of(file: &File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len())?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// What the devices of every machine here are on.
struct Surroundings {
    disk: File,
    taps: Vec<OwnedFd>,
    terminal: OwnedFd,
    stream: UnixStream,
}

impl Surroundings {
    fn new() -> Result<Self> {
        let disk = file_of(&[0; 1 << 20])?;
        let taps = Tap::create("tap0", PAIRS)?.into_queues().into_iter().collect();
        let terminal = file_of(&[])?.into();
        Ok(Self { disk, taps, terminal, stream: UnixStream::pair()?.0 })
    }

    fn grants(&self) -> Result<Vec<(Role, OwnedFd)>> {
        let mut grants = grants_of(&[("data", &self.disk)])?;
        for (number, tap) in (0..).zip(&self.taps) {
            grants.push((Role::tap("wire", number)?, tap.try_clone()?));
        }
        grants.push((Role::terminal(), self.terminal.try_clone()?));
        grants.push((Role::port(1), self.stream.try_clone()?.into()));
        Ok(grants)
    }
}

/// A machine with a device of every kind, as it was saved.
struct Saved {
    memory: Vec<u8>,
    records: Value,
    kernel: OwnedFd,
}

impl Saved {
    fn new(surroundings: &Surroundings) -> Result<Self> {
        let mut machine = machine(2, MEMORY);
        machine.disks = vec![disk("data")];
        machine.networks = vec![NetworkDescription {
            name: "wire".into(),
            mac: [2, 0, 0, 0, 0, 1],
            mtu: Some(1500),
            pairs: PAIRS,
            host: NetworkHost::default(),
        }];
        machine.console = Some(ConsoleDescription { streams: vec!["stream".into()] });
        machine.entropy = Some(EntropyHost::default());
        machine.balloon = Some(BalloonDescription { deflate_on_oom: true, reporting: true });
        machine.vsock = Some(VsockDescription { guest_cid: 3 });
        let grants = surroundings.grants()?;
        let mut process = VmProcess::boot_granted(machine, microguest(ON)?, grants)?;
        process.must(Request::Pause)?;
        let mut saved: Grant = process.must(Request::Save)?;
        let mut take = |role: Role| saved.remove(&role).context("not saved");
        let memory = bytes_of(&take(Role::ram())?.into())?;
        let records = serde_json::from_slice(&bytes_of(&take(Role::records())?.into())?)?;
        Ok(Self { memory, records, kernel: take(Role::kernel())? })
    }

    fn load(&self, records: &Value, surroundings: &Surroundings) -> Result<VmProcess> {
        let records = file_of(&serde_json::to_vec(records)?)?.into();
        let saved = [
            (Role::kernel(), self.kernel.try_clone()?),
            (Role::ram(), file_of(&self.memory)?.into()),
            (Role::records(), records),
        ];
        VmProcess::load_granted(saved.into(), surroundings.grants()?, Hosts::default())
    }
}

/// Where everything in a value is.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(parts) => {
            parts.iter().for_each(|(name, part)| places(part, &format!("{at}/{name}"), found));
        }
        Value::Array(parts) => {
            (0..).zip(parts).for_each(|(number, part): (usize, _)| {
                places(part, &format!("{at}/{number}"), found);
            });
        }
        _ => {}
    }
}

/// What may stand there instead.
fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => vec![json!(0), json!(true), json!({})],
        Value::Bool(value) => vec![json!(!value)],
        Value::Number(number) => {
            let near = number.as_u64().unwrap_or_default() ^ 0x80;
            vec![json!(0), json!(1), json!(near), json!(255), json!(u16::MAX), json!(u64::MAX)]
        }
        Value::String(_) => vec![json!(""), json!("../x"), json!("x".repeat(300))],
        Value::Array(parts) => {
            let repeated: Vec<_> = parts.iter().cycle().take(300 * parts.len().min(1)).collect();
            let reversed: Vec<_> = parts.iter().rev().collect();
            vec![json!([]), json!(repeated), json!(reversed), json!(parts.get(1..))]
        }
        Value::Object(_) => vec![json!({})],
    }
}

/// Whether it runs. A guest whose machine is another one may come to its end; a process must not.
fn runs(mut process: VmProcess) -> Result<bool> {
    let resumed = process.ask(Request::Resume);
    if let Ok((Reply::Refused { .. }, _)) = resumed {
        return Ok(false);
    }
    let is_resumed = resumed.is_ok();
    let paused = resumed.and_then(|_| process.ask(Request::Pause));
    // What it said is in the error.
    let Err(said) = paused else { return Ok(true) };
    let (status, _) = process.end(SOON)?;
    let reason = EndReason::from_exit_status(status);
    let is_fine =
        reason.is_some_and(|reason| !matches!(reason, EndReason::Crashed | EndReason::Forbidden));
    ensure!(is_fine, "it ended with status {status}: {said:#}");
    Ok(is_resumed)
}

fn changed_plans() -> Result<()> {
    let surroundings = Surroundings::new()?;
    let saved = Saved::new(&surroundings)?;
    ensure!(runs(saved.load(&saved.records, &surroundings)?)?, "it does not run as it was");
    let mut changes = Vec::new();
    for part in ["/blueprint/pci", "/blueprint/slots"] {
        let mut found = Vec::new();
        places(saved.records.pointer(part).context("no such part")?, part, &mut found);
        for place in found {
            let value = saved.records.pointer(&place).context("it was there")?;
            let others = others(value).into_iter().filter(|other| other != value);
            changes.extend(others.map(|other| (place.clone(), other)));
        }
    }
    let (mut ran, mut refused) = (0, 0);
    for (place, other) in changes.into_iter().step_by(EVERY) {
        let mut records = saved.records.clone();
        let what = format!("{place} is {:.60}", other.to_string());
        *records.pointer_mut(&place).context("it was there")? = other;
        let outcome = saved.load(&records, &surroundings).and_then(runs);
        if outcome.with_context(|| what)? { ran += 1 } else { refused += 1 }
    }
    ensure!(ran > 0 && refused > ran, "{ran} ran, {refused} were refused");
    eprintln!("{ran} ran, {refused} were refused");
    Ok(())
}

#[test]
fn machine_with_a_changed_plan_is_refused_or_runs() {
    in_new_network(|| changed_plans().expect("the process goes on"));
}
