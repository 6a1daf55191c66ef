//! `corten restore`.

use std::fs::File;

use super::run::absolute;
use super::start;
use crate::failure::Failure;
use crate::job::{self, Job};
use crate::options::Restore;
use crate::phase;
use crate::place::Runtime;
use crate::supervisor::SAVED_JOB;

/// Goes on with a saved VM.
pub(super) fn restore(runtime: &Runtime, options: &Restore) -> Result<u8, Failure> {
    let begun = phase::now();
    let directory = absolute(&options.directory)?;
    let path = directory.join(SAVED_JOB);
    let file = File::open(&path).map_err(|source| Failure::Read { path, source })?;
    let saved = Job::from_file(file)?;
    let how = &options.how;
    if how.exit_status && !saved.exit_status {
        return Err(Failure::Said(
            "--exit-status: the VM was run without it before it was saved, so its guest has no stream to tell a status by".into(),
        ));
    }
    let job = Job {
        name: options.name.clone().unwrap_or(saved.name),
        network: start::network(how),
        scratch: start::scratch(how)?,
        vmm: start::ready(how)?,
        seccomp_log: start::seccomp_log(how),
        timeout: how.timeout,
        log: how.log.as_deref().map(absolute).transpose()?,
        begun,
        restore: Some(job::Restore {
            directory,
            paused: options.paused,
            force_disks: options.force_disks.clone(),
        }),
        ..saved
    };
    runtime.of(&job.name)?;
    start::start(runtime, &job, how)
}
