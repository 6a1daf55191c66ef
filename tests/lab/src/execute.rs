//! Runs one command in nodes: output streams out, signals and input go in, the exit status comes back.

use std::io::{IsTerminal, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

use crate::node::{Channel, ChannelSender, Mux, Window};
use crate::wire::{Kind, PIECE, Start};

/// Exit status for a failure of the lab itself, not of the command.
pub const LAB_FAILED: i32 = 125;
/// A node has this long to end a command by itself before the lab calls it hung.
const MARGIN: Duration = Duration::from_secs(60);

mod terminal {
    nix::ioctl_read_bad!(window_size, nix::libc::TIOCGWINSZ, nix::pty::Winsize);
}

#[derive(Debug)]
enum Event {
    /// The command in one node ended, or the node did.
    Ended(Option<i32>),
    Signal(Signal),
}

/// The signals that a lab deals with itself.
#[derive(Debug)]
pub struct Signals {
    /// Who hears of them, once a command runs; before that they end the lab at once, and the kernel all it started.
    listener: Arc<Mutex<Option<Sender<Event>>>>,
}

impl Signals {
    /// Takes them over. To be called before any other thread is started.
    pub fn watch() -> Result<Self> {
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGWINCH] {
            signals.add(signal);
        }
        signals.thread_block().context("cannot block signals")?;
        let listener = Arc::new(Mutex::new(None::<Sender<Event>>));
        let heard = Arc::clone(&listener);
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            while let Ok(signal) = signals.wait() {
                let listener = heard.lock().unwrap_or_else(PoisonError::into_inner);
                match &*listener {
                    Some(events) => drop(events.send(Event::Signal(signal))),
                    None if signal == Signal::SIGWINCH => {}
                    None => end_now(signal),
                }
            }
        })?;
        Ok(Self { listener })
    }

    fn tell(&self, events: Option<Sender<Event>>) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = events;
    }
}

#[expect(clippy::exit, reason = "the main thread is busy starting nodes and cannot be called off")]
fn end_now(signal: Signal) {
    std::process::exit(128 + signal as i32);
}

/// Runs `start` in each of `nodes` at once; the first status that is not 0 is the result. None: a node was lost.
pub fn execute(nodes: &[&Mux], start: &Start, signals: &Signals) -> Result<Option<i32>> {
    let (events, received) = channel();
    let raw = start.terminal.map(|_| RawTerminal::enter()).transpose()?;
    let mut senders = Vec::new();
    for (at, mux) in nodes.iter().enumerate() {
        let number = u8::try_from(at + 1)?;
        let mut start = start.clone();
        start.node = if nodes.len() > 1 { number } else { start.node };
        start.env.push(("CORTEN_NODE".into(), start.node.to_string()));
        start.env.push(("CORTEN_NODES".into(), nodes.len().to_string()));
        let channel = mux.start(&start)?;
        senders.push(channel.sender());
        let prefix = (nodes.len() > 1).then(|| format!("node{number}| "));
        let window = Arc::new(Window::default());
        if nodes.len() == 1 {
            send_stdin(channel.sender(), Arc::clone(&window))?;
        }
        let events = events.clone();
        std::thread::Builder::new().name("output".into()).spawn(move || {
            let status = copy_output(&channel, prefix.as_deref(), &window);
            let _ = events.send(Event::Ended(status));
        })?;
    }
    signals.tell(Some(events));
    let status = collect(&received, &senders, start.time_limit.map(|limit| limit + MARGIN));
    signals.tell(None);
    drop(raw);
    Ok(status)
}

fn collect(
    events: &Receiver<Event>,
    senders: &[ChannelSender],
    limit: Option<Duration>,
) -> Option<i32> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut running = senders.len();
    let mut result = 0;
    let mut asked = false;
    while running > 0 {
        let wait =
            deadline.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        match events.recv_timeout(wait) {
            Ok(Event::Ended(Some(status))) => {
                running -= 1;
                result = if result == 0 { status } else { result };
            }
            Ok(Event::Ended(None)) => return None,
            Ok(Event::Signal(Signal::SIGWINCH)) => {
                let (rows, columns) = terminal_size();
                let size = [rows.to_le_bytes(), columns.to_le_bytes()].concat();
                senders.iter().for_each(|sender| drop(sender.send(Kind::Resize, &size)));
            }
            // The second one is meant: the node goes, and the command with it.
            Ok(Event::Signal(signal)) if asked => return Some(128 + signal as i32),
            Ok(Event::Signal(signal)) => {
                asked = true;
                let number = [u8::try_from(signal as i32).unwrap_or(15)];
                senders.iter().for_each(|sender| drop(sender.send(Kind::Signal, &number)));
            }
            Err(RecvTimeoutError::Timeout) => {
                eprintln!("lab: the node does not end the command");
                return None;
            }
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    Some(result)
}

fn copy_output(channel: &Channel, prefix: Option<&str>, window: &Window) -> Option<i32> {
    let mut outputs = [Output::new(prefix), Output::new(prefix)];
    for frame in &channel.frames {
        match frame.kind {
            Kind::Stdout => outputs[0].write(&mut std::io::stdout().lock(), &frame.payload),
            Kind::Stderr => outputs[1].write(&mut std::io::stderr().lock(), &frame.payload),
            Kind::Credit => {
                let credit =
                    frame.payload.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                window.refill(credit as usize);
            }
            Kind::Exit => {
                let [stdout, stderr] = &mut outputs;
                stdout.finish(&mut std::io::stdout().lock());
                stderr.finish(&mut std::io::stderr().lock());
                return frame.payload.first_chunk().map(|bytes| i32::from_le_bytes(*bytes));
            }
            _ => {}
        }
    }
    None
}

/// One stream of output; with a prefix it comes out in whole lines.
struct Output {
    prefix: Option<String>,
    line: Vec<u8>,
}

impl Output {
    fn new(prefix: Option<&str>) -> Self {
        Self { prefix: prefix.map(Into::into), line: Vec::new() }
    }

    /// Errors are dropped: if nobody reads, the command still runs to its end.
    fn write(&mut self, to: &mut impl Write, bytes: &[u8]) {
        let Some(prefix) = &self.prefix else {
            let _ = to.write_all(bytes).and_then(|()| to.flush());
            return;
        };
        for byte in bytes {
            self.line.push(*byte);
            if *byte == b'\n' {
                let _ = to.write_all(prefix.as_bytes()).and_then(|()| to.write_all(&self.line));
                self.line.clear();
            }
        }
        let _ = to.flush();
    }

    fn finish(&mut self, to: &mut impl Write) {
        if !self.line.is_empty() {
            self.write(to, b"\n");
        }
    }
}

fn send_stdin(sender: ChannelSender, window: Arc<Window>) -> Result<()> {
    // Ends with the process: a read from a terminal cannot be called off.
    std::thread::Builder::new().name("input".into()).spawn(move || {
        let mut bytes = vec![0; PIECE];
        loop {
            let room = window.available().min(PIECE);
            let length = std::io::stdin().lock().read(&mut bytes[..room]).unwrap_or(0);
            window.spend(length);
            if sender.send(Kind::Stdin, &bytes[..length]).is_err() || length == 0 {
                return;
            }
        }
    })?;
    Ok(())
}

/// Rows and columns of our terminal.
pub fn terminal_size() -> (u16, u16) {
    let mut size = nix::pty::Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `size` is valid for the write of exactly this structure.
    let _ = unsafe { terminal::window_size(nix::libc::STDOUT_FILENO, &raw mut size) };
    (size.ws_row, size.ws_col)
}

/// Whether a command can have a terminal.
pub fn has_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Our terminal while the command's terminal does the work.
struct RawTerminal(Termios);

impl RawTerminal {
    fn enter() -> Result<Self> {
        let before = tcgetattr(std::io::stdin()).context("standard input is no terminal")?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(std::io::stdin(), SetArg::TCSANOW, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), SetArg::TCSANOW, &self.0);
    }
}
