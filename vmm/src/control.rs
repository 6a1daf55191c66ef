//! The control link of a VM process.
//!
//! One thread receives requests and sends replies, another one tells events. When the peer goes, so does the VM: whoever
//! could account for it is gone.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use corten_link::{Event, Grant, Link, LinkError, Message, MessageError, Reply, Request, Role};
use thiserror::Error;

use crate::machine::{Asked, Descriptors, End, Hosts, Input, Owner, OwnerError, chain};
use crate::sandbox::{self, ThreadKind};

/// Events that wait for a peer to read.
const EVENTS: usize = 64;
/// How long a process that ends waits for its peer to take the last reply and the last event.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why a VM process ends before its VM began.
#[derive(Debug, Error)]
pub enum ControlError {
    /// The link failed.
    #[error("the control link failed")]
    Link(#[from] LinkError),
    /// The peer did not begin as it should.
    #[error("the control peer sent {0} before boot, load or restore")]
    Unexpected(String),
    /// No thread to receive requests.
    #[error("cannot start the control thread")]
    Thread(#[source] std::io::Error),
    /// A descriptor that every VM needs was not granted.
    #[error("the descriptor {0} was not granted")]
    NotGranted(Role),
    /// The VM.
    #[error(transparent)]
    Owner(#[from] OwnerError),
}

/// Takes the grant and the first request from `link` and runs the VM to its end.
pub fn serve(link: Link) -> Result<End, ControlError> {
    let mut grant = link.receive_grant()?;
    let link = Arc::new(link);
    let (id, request, granted) = first_request(&link)?;
    grant.extend(granted);
    let descriptors = descriptors(grant)?;
    let (sender, inputs) = channel();
    let teller = Teller::start(&link)?;
    let owner = Owner::new(descriptors, (sender.clone(), inputs), teller.ear());
    // Accepted, not done: how it went is told by what comes next, or by the end.
    reply(&link, id, Reply::Done, &[])?;
    let receiver = Arc::clone(&link);
    let replying = Arc::new(Mutex::new(()));
    let busy = Arc::clone(&replying);
    let control = std::thread::Builder::new().name("control".into());
    let receive = move || {
        sandbox::enter(ThreadKind::Control);
        receive(&receiver, &sender, &busy);
    };
    control.spawn(receive).map_err(ControlError::Thread)?;
    let end = match request {
        Request::Boot { machine, paused } => owner.boot(&machine, paused),
        Request::Load { disks, networks, entropy } => {
            owner.load(&Hosts { disks, networks, entropy })
        }
        Request::Restore { how } => owner.restore(&how),
        other => return Err(ControlError::Unexpected(format!("{other:?}"))),
    };
    let (end, fault) = match end {
        Ok(end) => (end, None),
        Err(error) => {
            let reason = corten_link::EndReason::NotStarted;
            (End { reason, detail: chain(&error) }, error.fault())
        }
    };
    // The reply to the request that ended it may still be on its way: the process must not end before it is.
    let deadline = Instant::now() + LAST_WORDS;
    while replying.try_lock().is_err() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    teller.finish(Event::Ended { reason: end.reason, detail: end.detail.clone(), fault });
    Ok(end)
}

/// Tells events, from a thread of its own: a peer that does not read must not hold up the owner.
struct Teller {
    queue: SyncSender<Event>,
    done: Receiver<()>,
}

impl Teller {
    fn start(link: &Arc<Link>) -> Result<Self, ControlError> {
        let (queue, events) = sync_channel(EVENTS);
        let (sender, done) = channel();
        let link = Arc::clone(link);
        let tell = move || {
            sandbox::enter(ThreadKind::Events);
            while let Ok(event) = events.recv() {
                // A peer that is gone is noticed by the thread that receives.
                let _ = link.send(&Message::Event { event }, &[]);
            }
            let _ = sender.send(());
        };
        let thread = std::thread::Builder::new().name("events".into());
        thread.spawn(tell).map_err(ControlError::Thread)?;
        Ok(Self { queue, done })
    }

    /// Where the owner says what to tell. False if that is lost: the peer has not read what came before.
    fn ear(&self) -> Box<dyn Fn(Event) -> bool + Send> {
        let queue = self.queue.clone();
        Box::new(move |event| queue.try_send(event).is_ok())
    }

    /// Tells the last event, and waits a while until it is told.
    fn finish(self, last: Event) {
        let deadline = Instant::now() + LAST_WORDS;
        let mut last = Some(last);
        while let Some(event) = last.take() {
            match self.queue.try_send(event) {
                Err(TrySendError::Full(event)) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                    last = Some(event);
                }
                _ => {}
            }
        }
        drop(self.queue);
        let _ = self.done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

fn descriptors(mut grant: Grant) -> Result<Descriptors, ControlError> {
    let kvm = grant.remove(&Role::kvm()).ok_or_else(|| ControlError::NotGranted(Role::kvm()))?;
    let mut file = |role: Role| grant.remove(&role).map(File::from);
    Ok(Descriptors {
        kvm,
        kernel: file(Role::kernel()),
        initrd: file(Role::initrd()),
        ram: file(Role::ram()),
        records: file(Role::records()),
        snapshot_memory: file(Role::snapshot_memory()),
        snapshot_records: file(Role::snapshot_records()),
        userfaultfd: grant.remove(&Role::userfaultfd()),
        console: grant.remove(&Role::console()),
        console_input: grant.remove(&Role::console_input()),
        devices: grant,
    })
}

fn first_request(link: &Link) -> Result<(u64, Request, Grant), ControlError> {
    match link.receive()? {
        (
            Message::Request {
                id,
                request:
                    request @ (Request::Boot { .. } | Request::Load { .. } | Request::Restore { .. }),
                ..
            },
            granted,
        ) => Ok((id, request, granted)),
        (other, _) => Err(ControlError::Unexpected(format!("{other:?}"))),
    }
}

/// Passes requests on, one at a time, until the peer is gone. `busy` is held from the request to its reply.
fn receive(link: &Link, owner: &Sender<Input>, busy: &Mutex<()>) {
    loop {
        let (id, request, granted) = match link.receive() {
            Ok((Message::Request { id, request, .. }, granted)) => (id, request, granted),
            Ok(_) => continue,
            Err(LinkError::Message(error)) => {
                if let MessageError::UnknownRequest { id, .. } = error {
                    let _ = reply(link, id, Reply::Refused { reason: chain(&error) }, &[]);
                }
                // Nothing can be said about the rest, and nothing was lost by it.
                continue;
            }
            Err(_) => break,
        };
        let _busy = busy.lock().unwrap_or_else(PoisonError::into_inner);
        let (sender, answer) = channel();
        if owner.send(Input::Request(Asked { request, granted, reply: sender })).is_err() {
            return;
        }
        let Ok((answer, given)) = answer.recv() else { return };
        if reply(link, id, answer, &given).is_err() {
            break;
        }
    }
    let (sender, _) = channel();
    let kill = Asked { request: Request::Kill, granted: Grant::new(), reply: sender };
    let _ = owner.send(Input::Request(kill));
}

fn reply(link: &Link, id: u64, reply: Reply, given: &[(Role, OwnedFd)]) -> Result<(), LinkError> {
    let roles = given.iter().map(|(role, _)| role.clone()).collect();
    let raw: Vec<RawFd> = given.iter().map(|(_, fd)| fd.as_raw_fd()).collect();
    link.send(&Message::Reply { id, reply, roles }, &raw)
}
