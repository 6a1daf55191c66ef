//! `corten restore`.

use std::path::Path;

use corten_launcher::log::chain;

use super::report::{Outcome, Report};
use super::run::absolute;
use super::start;
use crate::failure::Failure;
use crate::job::{self, Job};
use crate::options::Restore;
use crate::phase;
use crate::place::{PlaceError, Runtime};
use crate::regular;
use crate::supervisor::SAVED_JOB;

/// Goes on with a saved VM.
pub(super) fn restore(
    runtime: impl FnOnce() -> Result<Runtime, PlaceError>,
    options: &Restore,
) -> Result<u8, Failure> {
    let begun = phase::now();
    let mut report = Report::open(options.how.junit.as_deref(), &options.directory, begun)?;
    let outcome = runtime()
        .map_err(Into::into)
        .and_then(|runtime| restore_reported(&runtime, options, begun, &mut report));
    report.finish(outcome)
}

fn restore_reported(
    runtime: &Runtime,
    options: &Restore,
    begun: u64,
    report: &mut Report,
) -> Result<Outcome, Failure> {
    let directory = absolute(&options.directory)?;
    let saved = read_saved(&directory)?;
    report.name.clone_from(options.name.as_ref().unwrap_or(&saved.name));
    let how = &options.how;
    if how.exit_status && !saved.exit_status {
        return Err(Failure::Said(
            "--exit-status: the VM was run without it before it was saved, so its guest has no stream to tell a status by".into(),
        ));
    }
    check_disks(&options.force_disks, &saved)?;
    let job = Job {
        name: options.name.clone().unwrap_or(saved.name),
        network: start::network(how)?,
        scratch: start::scratch(how)?,
        vmm: start::ready(how)?,
        seccomp_log: start::seccomp_log(how),
        timeout: how.timeout,
        log: start::log(how)?,
        begun,
        restore: Some(job::Restore {
            directory,
            paused: options.paused,
            force_disks: options.force_disks.clone(),
        }),
        ..saved
    };
    runtime.of(&job.name)?;
    start::start(runtime, &job, how, report)
}

/// The job beside a saved VM. Most often it is the wrong directory that has none.
fn read_saved(directory: &Path) -> Result<Job, Failure> {
    if let Err(source) = directory.read_dir() {
        return Err(Failure::Read { path: directory.into(), source });
    }
    let no_saved_vm = |why: &dyn std::error::Error| Failure::NotSaved {
        directory: directory.into(),
        why: chain(why),
    };
    match regular::open(&directory.join(SAVED_JOB)) {
        Err(error) => Err(no_saved_vm(&error)),
        Ok(file) => Job::from_file(file).map_err(|error| no_saved_vm(&error)),
    }
}

/// A name that is none of the VM's is most often mistyped, and the disk that is meant would be refused later.
fn check_disks(named: &[String], saved: &Job) -> Result<(), Failure> {
    let volumes = || saved.vmi.spec.volumes.iter().map(|volume| volume.name.as_str());
    let Some(unknown) = named.iter().find(|name| !volumes().any(|volume| volume == *name)) else {
        return Ok(());
    };
    let there: Vec<&str> = volumes().collect();
    let there = match there.as_slice() {
        [] => "it has none".into(),
        there => format!("it has {}", there.join(", ")),
    };
    Err(Failure::Said(format!(
        "--force-disk {unknown}: the VM has no volume of that name; {there}"
    )))
}
