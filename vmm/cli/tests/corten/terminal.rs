//! `corten` on a terminal: one line for all phases, keys that are not the guest's, and a terminal as it was before.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::{Pid, setsid};
use serde_json::Value;

use crate::rig::{FOR_EVER, POWER_OFF_WHEN_TYPED, Rig, wait_until};

const LEAVE: &[u8] = b"\x1d";
const INTERRUPT: &[u8] = b"\x03";

/// A command with a terminal of its own.
struct OnTerminal {
    child: Child,
    keys: File,
    /// The terminal itself, to look at.
    terminal: OwnedFd,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    fn start(mut command: Command) -> Result<Self> {
        let pty = openpty(None, None)?;
        let terminal = pty.slave;
        let [input, output, errors] =
            [terminal.try_clone()?, terminal.try_clone()?, terminal.try_clone()?];
        command.stdin(input).stdout(output).stderr(errors);
        let lead = || {
            setsid()?;
            // SAFETY: the request takes a number; standard input is the terminal.
            match unsafe { nix::libc::ioctl(0, nix::libc::TIOCSCTTY, 0) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: between fork and exec only system calls are made, which is allowed there.
        unsafe { command.pre_exec(lead) };
        let child = command.spawn()?;
        let mut master = File::from(pty.master);
        let keys = master.try_clone()?;
        let screen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = master.read(&mut bytes) {
                sink.lock().unwrap_or_else(PoisonError::into_inner).extend(&bytes[..length]);
            }
        });
        Ok(Self { child, keys, terminal, screen })
    }

    fn run(rig: &Rig, vmi: &Value) -> Result<Self> {
        let mut command = rig.command()?;
        command.args(rig.run_arguments(vmi)?);
        Self::start(command)
    }

    fn screen(&self) -> String {
        let bytes = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn wait_for(&self, text: &str) -> Result<()> {
        wait_until(|| self.screen().contains(text))
            .with_context(|| format!("no {text:?} on the screen:\n{}", self.screen()))
    }

    fn press(&mut self, keys: &[u8]) -> Result<()> {
        Ok(self.keys.write_all(keys)?)
    }

    fn is_raw(&self) -> Result<bool> {
        let flags = tcgetattr(self.terminal.as_fd())?.local_flags;
        Ok(!flags.intersects(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG))
    }

    fn end(&mut self) -> Result<Option<i32>> {
        let child = &mut self.child;
        wait_until(|| !matches!(child.try_wait(), Ok(None)))
            .with_context(|| format!("it stays:\n{}", self.screen()))?;
        ensure!(!self.is_raw()?, "the terminal is not as it was");
        Ok(self.child.wait()?.code())
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn console_is_left_by_its_key_and_the_vm_goes_on() -> Result<()> {
    let rig = Rig::new()?;
    let mut terminal = OnTerminal::run(&rig, &Rig::vmi("first", POWER_OFF_WHEN_TYPED))?;
    terminal.wait_for("microguest")?;
    wait_until(|| terminal.is_raw().unwrap_or(false))?;
    // One line for all phases, written over and over.
    ensure!(terminal.screen().contains("\r\x1b[Kfirst: "), "{}", terminal.screen());
    terminal.press(b"abc")?;
    terminal.wait_for("abc")?;
    terminal.press(LEAVE)?;
    ensure!(terminal.end()? == Some(0));
    terminal.wait_for("left; `corten console first` comes back")?;
    ensure!(rig.info("first")?["state"] == "running");
    let mut command = rig.command()?;
    command.args(["console", "first"]);
    let mut again = OnTerminal::start(command)?;
    again.wait_for("abc")?;
    // Not this command's key: it is the guest's.
    again.press(INTERRUPT)?;
    again.press(b"\n")?;
    ensure!(again.end()? == Some(0));
    again.wait_for("first: the guest powered off")?;
    rig.is_clean(&[])
}

#[test]
fn notes_leave_the_lines_of_the_guest_whole() -> Result<()> {
    let rig = Rig::new()?;
    let mut vmi = Rig::vmi("first", "");
    vmi["spec"]["domain"]["firmware"] = serde_json::json!({});
    let mut terminal = OnTerminal::run(&rig, &vmi)?;
    terminal.wait_for("first: no disk has anything to boot")?;
    terminal
        .wait_for("no kernel was given to this machine, and none was found on its disks.\r\n")?;
    terminal.press(INTERRUPT)?;
    ensure!(terminal.end()? == Some(0));
    // A line that the guest does not end is not waited for: what is told has one of its own.
    let mut terminal = OnTerminal::run(&rig, &Rig::vmi("first", POWER_OFF_WHEN_TYPED))?;
    terminal.wait_for("microguest")?;
    wait_until(|| terminal.is_raw().unwrap_or(false))?;
    terminal.press(b"abc")?;
    terminal.wait_for("abc")?;
    rig.corten(&["stop", "first"])?.with(0)?;
    terminal.end()?;
    terminal.wait_for("abc\r\nfirst: its power button was pressed\r\n")?;
    rig.is_clean(&[])
}

#[test]
fn interrupt_key_asks_and_then_kills() -> Result<()> {
    let rig = Rig::new()?;
    let mut vmi = Rig::vmi("first", FOR_EVER);
    vmi["spec"]["terminationGracePeriodSeconds"] = 600.into();
    let mut terminal = OnTerminal::run(&rig, &vmi)?;
    terminal.wait_for("microguest")?;
    terminal.press(INTERRUPT)?;
    terminal.wait_for("power button was pressed")?;
    terminal.press(INTERRUPT)?;
    ensure!(terminal.end()? == Some(80));
    rig.is_clean(&[])
}

#[test]
fn interrupt_keys_that_come_at_once_count_each() -> Result<()> {
    let rig = Rig::new()?;
    let mut vmi = Rig::vmi("first", FOR_EVER);
    vmi["spec"]["terminationGracePeriodSeconds"] = 600.into();
    let mut terminal = OnTerminal::run(&rig, &vmi)?;
    terminal.wait_for("microguest")?;
    wait_until(|| terminal.is_raw().unwrap_or(false))?;
    terminal.press(&[INTERRUPT, INTERRUPT].concat())?;
    ensure!(terminal.end()? == Some(80));
    rig.is_clean(&[])
}

#[test]
fn terminal_is_put_back_when_a_signal_ends_the_session() -> Result<()> {
    let rig = Rig::new()?;
    rig.detached("first", FOR_EVER)?;
    let mut command = rig.command()?;
    command.args(["console", "first"]);
    let mut terminal = OnTerminal::start(command)?;
    terminal.wait_for("microguest")?;
    wait_until(|| terminal.is_raw().unwrap_or(false))?;
    kill(Pid::from_raw(i32::try_from(terminal.child.id())?), Signal::SIGTERM)?;
    ensure!(terminal.end()? == Some(0));
    ensure!(rig.info("first")?["state"] == "running");
    rig.corten(&["kill", "first"])?.with(0)?;
    rig.is_clean(&[])
}
