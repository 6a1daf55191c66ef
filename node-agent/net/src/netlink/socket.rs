//! The socket: it numbers requests and gathers their answers.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::{ReceiveTimeout, SndBuf, SndBufForce};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};

use super::message::{HEADER, attributes};
use super::{Message, NetlinkError, text};

const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const DUMP: u16 = 0x300;
/// The dump's data changed while it was read.
const INTERRUPTED: u16 = 0x10;
/// An answer leaves out the request it is about.
const CAPPED: u16 = 0x100;
/// An answer has attributes behind.
const HAS_ATTRIBUTES: u16 = 0x200;
/// The kernel's words on what is wrong.
const WORDS: u16 = 1;

const ERROR: u16 = 2;
const DONE: u16 = 3;

/// The kernel sends at most 32 KiB of a dump at once.
const BUFFER: usize = 1 << 16;
/// The kernel answers at once, unless it loads a module first.
const PATIENCE: i64 = 30;
/// What every socket takes at once.
const USUAL: usize = 1 << 17;
/// What the kernel counts besides the bytes that are sent.
const MARGIN: usize = 1 << 12;
/// A dump that is interrupted is made again, so often.
const ATTEMPTS: usize = 8;

/// Which part of the kernel is spoken with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    /// Links, addresses, routes.
    Route,
    /// nf_tables.
    Netfilter,
}

/// A message of the kernel's, without its header.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// What follows the header.
    pub(crate) body: Vec<u8>,
}

/// A socket in the network namespace of the thread that opened it, wherever it is used.
#[derive(Debug)]
pub(crate) struct Socket {
    descriptor: OwnedFd,
    sequence: u32,
}

/// What an answer says of a request.
struct Answer {
    sequence: u32,
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Socket {
    pub(crate) fn open(protocol: Protocol) -> Result<Self, NetlinkError> {
        let protocol = match protocol {
            Protocol::Route => SockProtocol::NetlinkRoute,
            Protocol::Netfilter => SockProtocol::NetlinkNetFilter,
        };
        let flags = SockFlag::SOCK_CLOEXEC;
        let descriptor = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)
            .map_err(NetlinkError::Open)?;
        setsockopt(&descriptor, ReceiveTimeout, &TimeVal::seconds(PATIENCE))
            .map_err(NetlinkError::Open)?;
        want_words(&descriptor).map_err(NetlinkError::Open)?;
        Ok(Self { descriptor, sequence: 0 })
    }

    /// Sends a request and waits for the kernel's yes.
    pub(crate) fn acknowledged(&mut self, message: Message) -> Result<(), NetlinkError> {
        let sequence = self.next();
        self.send(&message.finish(REQUEST | ACKNOWLEDGE, sequence))?;
        loop {
            for answer in self.receive()? {
                if answer.sequence == sequence && answer.kind == ERROR {
                    return answer.verdict();
                }
            }
        }
    }

    /// Everything the kernel has of what `message` asks for. It is a whole: none of it changed while it was read.
    pub(crate) fn dump(&mut self, message: &Message) -> Result<Vec<Reply>, NetlinkError> {
        for _ in 0..ATTEMPTS {
            if let Some(replies) = self.dump_once(message.clone())? {
                return Ok(replies);
            }
        }
        Err(NetlinkError::Io(Errno::EINTR))
    }

    fn dump_once(&mut self, message: Message) -> Result<Option<Vec<Reply>>, NetlinkError> {
        let sequence = self.next();
        self.send(&message.finish(REQUEST | DUMP, sequence))?;
        let mut replies = Vec::new();
        let mut whole = true;
        loop {
            for answer in self.receive()?.into_iter().filter(|one| one.sequence == sequence) {
                whole &= answer.flags & INTERRUPTED == 0;
                match answer.kind {
                    ERROR => answer.verdict()?,
                    DONE => return Ok(whole.then_some(replies)),
                    _ => replies.push(Reply { body: answer.body }),
                }
            }
        }
    }

    /// Sends `messages` between `begin` and `end` in one piece; the kernel does all of them or none.
    pub(crate) fn transaction(
        &mut self,
        begin: Message,
        messages: Vec<Message>,
        end: Message,
    ) -> Result<(), NetlinkError> {
        let first = self.next();
        let mut bytes = begin.finish(REQUEST, first);
        let count = messages.len();
        let mut last = first;
        for (number, message) in messages.into_iter().enumerate() {
            last = self.next();
            // Errors are always told; the last one's yes says that the kernel is through.
            let flags = if number + 1 == count { REQUEST | ACKNOWLEDGE } else { REQUEST };
            bytes.extend(message.finish(flags, last));
        }
        bytes.extend(end.finish(REQUEST, self.next()));
        self.make_room(bytes.len());
        self.send(&bytes)?;

        let mut outcome = Ok(());
        loop {
            for answer in self.receive()?.into_iter().filter(|one| one.kind == ERROR) {
                if !(first..=last).contains(&answer.sequence) {
                    continue;
                }
                let sequence = answer.sequence;
                outcome = outcome.and(answer.verdict());
                // An error of the whole is told by the number of its beginning.
                if sequence == last || sequence == first {
                    return outcome;
                }
            }
        }
    }

    fn next(&mut self) -> u32 {
        self.sequence += 1;
        self.sequence
    }

    /// Lets the socket take that much at once. The usual 208 KiB hold the rules of three guests with a thousand ports each.
    fn make_room(&self, length: usize) {
        let wanted = length + MARGIN;
        if length <= USUAL || setsockopt(&self.descriptor, SndBufForce, &wanted).is_ok() {
            return;
        }
        // Within a user namespace only as much as everybody gets. What does not fit then, sending says.
        let _ = setsockopt(&self.descriptor, SndBuf, &wanted);
    }

    fn send(&self, bytes: &[u8]) -> Result<(), NetlinkError> {
        let sent = send(self.descriptor.as_raw_fd(), bytes, MsgFlags::empty())
            .map_err(NetlinkError::Io)?;
        if sent == bytes.len() { Ok(()) } else { Err(NetlinkError::Io(Errno::EMSGSIZE)) }
    }

    fn receive(&self) -> Result<Vec<Answer>, NetlinkError> {
        let mut buffer = vec![0; BUFFER];
        let length = loop {
            // With MSG_TRUNC the length is the message's own, also where it did not fit.
            match recv(self.descriptor.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC) {
                Err(Errno::EINTR) => {}
                Err(source) => return Err(NetlinkError::Io(source)),
                Ok(length) => break length,
            }
        };
        let mut bytes = buffer.get(..length).ok_or(NetlinkError::Malformed)?;
        let mut answers = Vec::new();
        while !bytes.is_empty() {
            let (answer, length) = Answer::parse(bytes).ok_or(NetlinkError::Malformed)?;
            answers.push(answer);
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(answers)
    }
}

impl Answer {
    fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let number = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let length = usize::try_from(number(0)?).ok()?;
        let body = bytes.get(HEADER..length)?.to_vec();
        Some((Self { sequence: number(8)?, kind: half(4)?, flags: half(6)?, body }, length))
    }

    /// The yes or no in an answer of kind ERROR: a negative errno, the request or its header, then attributes.
    fn verdict(&self) -> Result<(), NetlinkError> {
        let number = self.body.get(..4).ok_or(NetlinkError::Malformed)?;
        let number = i32::from_ne_bytes(number.try_into().map_err(|_| NetlinkError::Malformed)?);
        if number == 0 {
            return Ok(());
        }
        let errno = Errno::from_raw(number.saturating_neg());
        let message = match self.words() {
            Some(words) => format!("{words} ({})", errno.desc()),
            None => errno.desc().to_owned(),
        };
        Err(NetlinkError::Refused { errno, message })
    }

    fn words(&self) -> Option<&str> {
        if self.flags & HAS_ATTRIBUTES == 0 {
            return None;
        }
        let request = u32::from_ne_bytes(self.body.get(4..8)?.try_into().ok()?);
        let request = match self.flags & CAPPED {
            0 => usize::try_from(request).ok()?.next_multiple_of(4),
            _ => HEADER,
        };
        let mut attributes = attributes(self.body.get(4 + request..)?);
        attributes.find(|(kind, _)| *kind == WORDS).and_then(|(_, value)| text(value))
    }
}

/// Has the kernel explain its refusals.
fn want_words(socket: &OwnedFd) -> Result<(), Errno> {
    let on: libc::c_int = 1;
    let size = libc::socklen_t::try_from(size_of_val(&on)).expect("an int has four bytes");
    // SAFETY: the descriptor is open, and the option's value is an int that lives over the call, of the size given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_NETLINK,
            libc::NETLINK_EXT_ACK,
            (&raw const on).cast(),
            size,
        )
    };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(flags: u16, body: &[u8]) -> Answer {
        Answer { sequence: 1, kind: ERROR, flags, body: body.to_vec() }
    }

    #[test]
    fn refusal_carries_the_kernels_words() {
        let mut body = (-17_i32).to_ne_bytes().to_vec();
        body.extend(20_u32.to_ne_bytes());
        body.extend([0; 12]);
        body.extend([9, 0, 1, 0]);
        body.extend(b"busy\0");
        let error = answer(CAPPED | HAS_ATTRIBUTES, &body).verdict().unwrap_err();
        assert!(error.is(Errno::EEXIST));
        assert_eq!(error.to_string(), "busy (File exists)");
    }

    #[test]
    fn answers_that_are_cut_are_malformed() {
        assert!(matches!(answer(0, &[0, 0]).verdict(), Err(NetlinkError::Malformed)));
        assert!(Answer::parse(&[20, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).is_none());
        assert!(Answer::parse(&[8, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).is_none());
    }

    #[test]
    fn unknown_link_is_refused_by_its_number() {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let mut fixed = [0_u8; 16];
        fixed[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        let error = socket.acknowledged(Message::new(libc::RTM_DELLINK, 0, &fixed)).unwrap_err();
        assert!(matches!(error, NetlinkError::Refused { .. }), "{error:?}");
    }
}
