//! `corten console` and `corten logs`.

use std::fs;
use std::io::ErrorKind;

use crate::client::attach::{Outcome, Session, attach};
use crate::client::progress::Progress;
use crate::client::{Client, terminal};
use crate::failure::Failure;
use crate::options::{Console, Logs};
use crate::place::{PlaceError, Runtime};
use crate::protocol::Keyboard;
use crate::supervisor::{CONSOLE_LOG, aside};

/// The console of a VM, until the user leaves it or the VM ends.
pub(super) fn console(runtime: &Runtime, options: &Console) -> Result<u8, Failure> {
    let keyboard = if options.take { Keyboard::Take } else { Keyboard::IfFree };
    follow(runtime, &options.name, keyboard)
}

fn follow(runtime: &Runtime, name: &str, keyboard: Keyboard) -> Result<u8, Failure> {
    terminal::restore_on_panic();
    let mut client = Client::connect(runtime, name)?;
    let session = Session { keyboard, stops: false, until_running: false };
    let mut progress = Progress::new(name, true);
    match attach(&mut client, session, &mut progress, &mut Vec::new())? {
        Outcome::Left => {}
        Outcome::Ended(end) => progress.note(&end.text()),
    }
    Ok(0)
}

/// What a VM said.
pub(super) fn logs(runtime: &Runtime, options: &Logs) -> Result<u8, Failure> {
    let directory = runtime.of(&options.name)?;
    if !runtime.is_running(&options.name) {
        return Err(PlaceError::NotRunning(options.name.clone()).into());
    }
    let path = directory.join(CONSOLE_LOG);
    if !path.exists() {
        let name = &options.name;
        return Err(Failure::Said(format!(
            "the console of {name} is not logged, as logSerialConsole of its manifest says; `corten console {name}` shows it"
        )));
    }
    if options.follow {
        return follow(runtime, &options.name, Keyboard::No);
    }
    for path in [aside(&path), path] {
        // It is bounded: a long one is put aside.
        match fs::read(&path) {
            Ok(said) => super::write(&said)?,
            // Nothing was put aside yet.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(source) => return Err(Failure::Read { path, source }),
        }
    }
    Ok(0)
}
