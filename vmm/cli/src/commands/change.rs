//! `corten stop`, `kill`, `pause` and `resume`.

use corten_link::EndReason;

use crate::client::{Client, ClientError};
use crate::failure::Failure;
use crate::place::Runtime;
use crate::protocol::{Ended, Question};

/// Asks for something and waits until it is done.
pub(super) fn change(runtime: &Runtime, name: &str, question: Question) -> Result<u8, Failure> {
    Client::connect(runtime, name)?.must(question)?;
    Ok(0)
}

/// Asks for the end, waits for it and says how it was.
pub(super) fn end(runtime: &Runtime, name: &str, question: Question) -> Result<u8, Failure> {
    let end = awaited(&mut Client::connect(runtime, name)?, question)?;
    super::say(&format!("{name}: {}", end.text()));
    // That it ended is what was wanted, however it did; that it crashed is not.
    match end.reason {
        EndReason::PoweredOff | EndReason::Killed => Ok(0),
        reason => Ok(reason.exit_status()),
    }
}

/// Asks for the end and waits for it.
pub(super) fn awaited(client: &mut Client, question: Question) -> Result<Ended, Failure> {
    match client.must(question).and_then(|()| client.wait()) {
        Ok(end) => Ok(end),
        // It was quicker than the answer.
        Err(ClientError::Ended { end, .. }) => Ok(*end),
        Err(error) => Err(error.into()),
    }
}

/// Has the guest's agent freeze or thaw file systems.
pub(super) fn file_systems(
    runtime: &Runtime,
    name: &str,
    question: Question,
) -> Result<u8, Failure> {
    let count = Client::connect(runtime, name)?.order(question)?;
    let frozen = matches!(question, Question::Freeze { .. });
    super::say(&format!("{name}: {}", told(frozen, count)));
    Ok(0)
}

fn told(frozen: bool, count: u64) -> String {
    match (frozen, count) {
        (true, 0) => "file systems were frozen already; their time begins anew".into(),
        (false, 0) => "no file system was frozen".into(),
        (true, 1) => "1 file system is frozen".into(),
        (true, _) => format!("{count} file systems are frozen"),
        (false, 1) => "1 file system goes on".into(),
        (false, _) => format!("{count} file systems go on"),
    }
}
