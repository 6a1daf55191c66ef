//! `corten restore`.

use std::fs::File;

use super::report::{Outcome, Report};
use super::run::absolute;
use super::start;
use crate::failure::Failure;
use crate::job::{self, Job};
use crate::options::Restore;
use crate::phase;
use crate::place::{PlaceError, Runtime};
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
    let path = directory.join(SAVED_JOB);
    let file = File::open(&path).map_err(|source| Failure::Read { path, source })?;
    let saved = Job::from_file(file)?;
    report.name.clone_from(options.name.as_ref().unwrap_or(&saved.name));
    let how = &options.how;
    if how.exit_status && !saved.exit_status {
        return Err(Failure::Said(
            "--exit-status: the VM was run without it before it was saved, so its guest has no stream to tell a status by".into(),
        ));
    }
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
