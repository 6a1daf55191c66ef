//! `corten save`.

use std::fs::{self, DirBuilder, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use corten_link::Role;

use crate::client::Client;
use crate::failure::Failure;
use crate::options::Save;
use crate::place::Runtime;
use crate::protocol::{Question, State};
use crate::sparse;
use crate::supervisor::{SAVED_JOB, SAVED_MEMORY, SAVED_RECORDS, saved_name};

/// Guest memory goes to a disk.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Writes a VM to a directory, all of it or nothing.
pub(super) fn save(runtime: &Runtime, options: &Save) -> Result<u8, Failure> {
    let mut client = Client::connect(runtime, &options.name)?;
    let directory = Directory::make(&options.directory)?;
    let memory = directory.file(SAVED_MEMORY)?;
    let records = directory.file(SAVED_RECORDS)?;
    let was_paused = client.status(false)?.state == State::Paused;
    client.must(Question::Pause { hold: true })?;
    let given =
        [(Role::snapshot_memory(), memory.as_fd()), (Role::snapshot_records(), records.as_fd())];
    client.answer_with(Question::Snapshot, &given, PATIENCE)?;
    let (_, mut belongings) = client.answer(Question::Belongings)?;
    if let Some(job) = belongings.remove(&Role::records()) {
        directory.copy(&File::from(job), SAVED_JOB)?;
    }
    for (role, file) in belongings {
        directory.copy(&File::from(file), &saved_name(&role))?;
    }
    directory.finish()?;
    match (options.keep_running, was_paused) {
        (false, _) => drop(super::change::awaited(&mut client, Question::EndSaved)?),
        (true, false) => client.must(Question::Resume)?,
        (true, true) => client.must(Question::Pause { hold: false })?,
    }
    let (name, directory) = (&options.name, options.directory.display());
    super::say(&format!("{name}: saved; `corten restore {directory}` goes on with it"));
    Ok(0)
}

/// A directory that is removed unless it is finished.
struct Directory<'a> {
    path: &'a Path,
    finished: bool,
}

impl<'a> Directory<'a> {
    fn make(path: &'a Path) -> Result<Self, Failure> {
        let made = DirBuilder::new().mode(0o700).create(path);
        made.map_err(|source| Failure::Write { path: path.into(), source })?;
        Ok(Self { path, finished: false })
    }

    fn file(&self, name: &str) -> Result<File, Failure> {
        let path = self.path.join(name);
        let made = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
        made.map_err(|source| Failure::Write { path, source })
    }

    fn copy(&self, from: &File, name: &str) -> Result<(), Failure> {
        let file = self.file(name)?;
        let copied = sparse::copy(from, &file).and_then(|()| file.sync_all());
        copied.map_err(|source| Failure::Write { path: self.path.join(name), source })
    }

    /// All names are on the disk.
    fn finish(mut self) -> Result<(), Failure> {
        let synced = File::open(self.path).and_then(|directory| directory.sync_all());
        synced.map_err(|source| Failure::Write { path: self.path.into(), source })?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Directory<'_> {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_dir_all(self.path);
        }
    }
}
