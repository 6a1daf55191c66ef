//! What a host and its guest say to each other in rounds that begin again whenever their connection is gone.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use corten_microguest::Tally;
use corten_tests::lives::Lives;

/// The host's side of it.
pub(super) struct Talk {
    /// What each round is about.
    messages: Vec<Vec<u8>>,
    /// Rounds that came to their end.
    finished: Mutex<BTreeSet<u32>>,
    /// What was not as it must be.
    faults: Mutex<Vec<String>>,
}

impl Talk {
    pub(super) fn new(messages: Vec<Vec<u8>>) -> Self {
        Self { messages, finished: Mutex::default(), faults: Mutex::default() }
    }

    /// What a round is about, if that has as many bytes.
    pub(super) fn message(&self, round: u32, length: u32) -> Option<&[u8]> {
        let message = self.messages.get(usize::try_from(round).ok()?)?;
        (usize::try_from(length) == Ok(message.len())).then_some(message)
    }

    /// A round came to its end; perhaps not for the first time.
    pub(super) fn finish(&self, round: u32) {
        lock(&self.finished).insert(round);
    }

    /// Something is not as it must be.
    pub(super) fn fault(&self, what: String) {
        lock(&self.faults).push(what);
    }

    /// All rounds came to their end, on both sides: what the guest says of them.
    pub(super) fn check(&self, command: &str, lives: &Lives) -> Result<Tally> {
        let faults = lock(&self.faults);
        ensure!(faults.is_empty(), "{faults:?}");
        let tally = Tally::of(command, &lives.console).with_context(|| format!("{lives:?}"))?;
        let finished = lock(&self.finished);
        let all = self.messages.len() as u64;
        ensure!(tally.rounds == all && finished.len() as u64 == all, "{finished:?}, {tally:?}");
        Ok(tally)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
