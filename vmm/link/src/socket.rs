//! One end of a link.
//!
//! nix and not vmm-sys-util's `ScmSocket`, which receives without MSG_CMSG_CLOEXEC (so a descriptor could leak into
//! a child that another thread starts) and hides the flags that tell of a cut message.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, getsockopt,
    recvmsg, sendmsg, socketpair, sockopt,
};
use thiserror::Error;

use crate::message::{MAX_DESCRIPTORS, MAX_MESSAGE, VERSION};
use crate::{Message, MessageError, Request, Role};

/// The kernel's own limit (SCM_MAX_FD). With room for all of them no descriptor is ever cut off, which would leak the
/// others; what is over our limit is refused by count.
const KERNEL_MAX_DESCRIPTORS: usize = 253;

/// One end of a SOCK_SEQPACKET connection between two of our processes.
#[derive(Debug)]
pub struct Link(OwnedFd);

/// Descriptors by role, as they were granted.
pub type Grant = BTreeMap<Role, OwnedFd>;

/// Why nothing was sent or received.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The descriptor is no seqpacket socket.
    #[error("descriptor {0} is not a SOCK_SEQPACKET socket")]
    NotALink(RawFd),
    /// The system call failed.
    #[error("cannot {what} over the link")]
    Io {
        /// "send", "receive" or "open a pair".
        what: &'static str,
        /// Its error.
        #[source]
        source: Errno,
    },
    /// The peer is gone.
    #[error("the peer closed the link")]
    Closed,
    /// Another message than the one that has to come now.
    #[error("the peer sent {0:?} before its grant")]
    Unexpected(Box<Message>),
    /// The message is not acceptable.
    #[error("message refused")]
    Message(#[from] MessageError),
}

impl AsRawFd for Link {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Link {
    /// Two connected ends, both closed on exec.
    pub fn pair() -> Result<(Self, Self), LinkError> {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .map_err(|source| LinkError::Io { what: "open a pair", source })?;
        Ok((Self(ours), Self(theirs)))
    }

    /// Takes a descriptor that was inherited or received, once it has proved to be a seqpacket socket.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, LinkError> {
        match getsockopt(&fd, sockopt::SockType) {
            Ok(SockType::SeqPacket) => Ok(Self(fd)),
            _ => Err(LinkError::NotALink(fd.as_raw_fd())),
        }
    }

    /// The socket itself, for a child that is to inherit this end.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Sends the grant of `descriptors`, which stay open here.
    pub fn send_grant(&self, descriptors: &[(Role, BorrowedFd<'_>)]) -> Result<(), LinkError> {
        let (roles, raw) = apart(descriptors);
        self.send(&Message::Grant { version: VERSION, roles }, &raw)
    }

    /// Sends a request with its descriptors, which stay open here.
    pub fn send_request(
        &self,
        id: u64,
        request: Request,
        descriptors: &[(Role, BorrowedFd<'_>)],
    ) -> Result<(), LinkError> {
        let (roles, raw) = apart(descriptors);
        self.send(&Message::Request { id, request, roles }, &raw)
    }

    /// Waits for the first message and gives back what it grants.
    pub fn receive_grant(&self) -> Result<Grant, LinkError> {
        match self.receive()? {
            (Message::Grant { .. }, grant) => Ok(grant),
            (other, _) => Err(LinkError::Unexpected(Box::new(other))),
        }
    }

    /// Sends a message with its descriptors, which stay open here.
    pub fn send(&self, message: &Message, descriptors: &[RawFd]) -> Result<(), LinkError> {
        let roles = message.roles().len();
        if roles != descriptors.len() {
            let descriptors = descriptors.len();
            return Err(MessageError::Unpaired { roles, descriptors }.into());
        }
        self.send_raw(&message.encode()?, descriptors)
    }

    fn send_raw(&self, bytes: &[u8], descriptors: &[RawFd]) -> Result<(), LinkError> {
        send_on(self.0.as_raw_fd(), bytes, descriptors, MsgFlags::empty())
    }

    /// Waits for one message. Its descriptors are closed on exec, and closed at once if it is refused.
    pub fn receive(&self) -> Result<(Message, Grant), LinkError> {
        let (bytes, descriptors) = receive_on(self.0.as_raw_fd(), MsgFlags::empty())?;
        let message = Message::decode(&bytes, descriptors.len())?;
        let grant = message.roles().iter().cloned().zip(descriptors).collect();
        Ok((message, grant))
    }
}

fn apart(descriptors: &[(Role, BorrowedFd<'_>)]) -> (Vec<Role>, Vec<RawFd>) {
    descriptors.iter().map(|(role, fd)| (role.clone(), fd.as_raw_fd())).unzip()
}

/// Sends one message with its descriptors.
pub(crate) fn send_on(
    socket: RawFd,
    bytes: &[u8],
    descriptors: &[RawFd],
    flags: MsgFlags,
) -> Result<(), LinkError> {
    let rights = [ControlMessage::ScmRights(descriptors)];
    let control = if descriptors.is_empty() { &[][..] } else { &rights[..] };
    let flags = flags | MsgFlags::MSG_NOSIGNAL;
    loop {
        match sendmsg::<()>(socket, &[IoSlice::new(bytes)], control, flags, None) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(LinkError::Closed),
            Err(source) => return Err(LinkError::Io { what: "send", source }),
        }
    }
}

/// Receives one message, within the limits of every link. What came with a refused one is closed.
pub(crate) fn receive_on(
    socket: RawFd,
    flags: MsgFlags,
) -> Result<(Vec<u8>, Vec<OwnedFd>), LinkError> {
    let mut bytes = vec![0_u8; MAX_MESSAGE];
    let mut control = cmsg_space!([RawFd; KERNEL_MAX_DESCRIPTORS]);
    // MSG_TRUNC: the length is the message's own, also where the buffer was too short for it.
    let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_TRUNC;
    let failed = |source| match source {
        Errno::ECONNRESET => LinkError::Closed,
        source => LinkError::Io { what: "receive", source },
    };
    let mut buffer = [IoSliceMut::new(&mut bytes)];
    let mut was_reset = false;
    let received = loop {
        match recvmsg::<()>(socket, &mut buffer, Some(&mut control), flags) {
            Err(Errno::EINTR) => {}
            // Told once, and before what the peer said last: it went without reading all that it was sent.
            Err(Errno::ECONNRESET) if !was_reset => was_reset = true,
            other => break other.map_err(failed)?,
        }
    };
    let mut descriptors = Vec::new();
    for message in received.cmsgs().map_err(failed)? {
        if let ControlMessageOwned::ScmRights(raw) = message {
            // SAFETY: the kernel has just installed these descriptors for us; nobody else owns them.
            descriptors.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    let length = received.bytes;
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(MessageError::TooManyDescriptors(descriptors.len()).into());
    }
    if length > bytes.len() {
        return Err(MessageError::TooLong(length).into());
    }
    if length == 0 {
        return Err(LinkError::Closed);
    }
    bytes.truncate(length);
    Ok((bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn open_descriptors() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    #[test]
    fn granted_file_is_the_same_file() {
        let (ours, theirs) = Link::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"by descriptor").unwrap();
        ours.send_grant(&[(Role::kvm(), file.as_fd())]).unwrap();

        let mut grant = theirs.receive_grant().unwrap();
        let mut granted = File::from(grant.remove(&Role::kvm()).unwrap());
        let mut text = String::new();
        granted.rewind().unwrap();
        granted.read_to_string(&mut text).unwrap();
        assert_eq!(text, "by descriptor");
    }

    #[test]
    fn granted_descriptors_close_on_exec() {
        let (ours, theirs) = Link::pair().unwrap();
        ours.send_grant(&[(Role::kvm(), std::io::stdin().as_fd())]).unwrap();
        let grant = theirs.receive_grant().unwrap();
        let flags = nix::fcntl::fcntl(&grant[&Role::kvm()], nix::fcntl::F_GETFD).unwrap();
        assert_eq!(flags & nix::libc::FD_CLOEXEC, nix::libc::FD_CLOEXEC);
    }

    #[test]
    fn message_outlives_its_sender() {
        let (ours, theirs) = Link::pair().unwrap();
        ours.send_grant(&[]).unwrap();
        drop(ours);
        assert!(theirs.receive_grant().unwrap().is_empty());
        assert!(matches!(theirs.receive_grant(), Err(LinkError::Closed)));
    }

    #[test]
    fn message_outlives_a_sender_that_did_not_read() {
        let (ours, theirs) = Link::pair().unwrap();
        theirs.send_grant(&[]).unwrap();
        ours.send_grant(&[]).unwrap();
        drop(ours);
        assert!(theirs.receive_grant().unwrap().is_empty());
        assert!(matches!(theirs.receive_grant(), Err(LinkError::Closed)));
        let (ours, theirs) = Link::pair().unwrap();
        theirs.send_grant(&[]).unwrap();
        drop(ours);
        assert!(matches!(theirs.receive_grant(), Err(LinkError::Closed)));
    }

    #[test]
    fn other_sockets_and_files_are_no_links() {
        let (stream, _peer) = UnixStream::pair().unwrap();
        assert!(matches!(Link::from_fd(stream.into()), Err(LinkError::NotALink(_))));
        let file = tempfile::tempfile().unwrap();
        assert!(matches!(Link::from_fd(file.into()), Err(LinkError::NotALink(_))));
    }

    #[test]
    fn refused_messages_leave_no_descriptor_open() {
        let (ours, theirs) = Link::pair().unwrap();
        let before = open_descriptors();
        for _ in 0..50 {
            ours.send_raw(b"no message", &[0, 1, 2]).unwrap();
            assert!(matches!(theirs.receive_grant(), Err(LinkError::Message(_))));
        }
        assert!(open_descriptors() < before + 40, "descriptors leak");
    }

    #[test]
    fn message_over_the_limit_is_refused_not_cut() {
        let (ours, theirs) = Link::pair().unwrap();
        let mut bytes = br#"{"kind":"grant","version":1,"roles":[]}"#.to_vec();
        bytes.resize(MAX_MESSAGE + 100, b' ');
        ours.send_raw(&bytes, &[]).unwrap();
        let error = theirs.receive_grant().unwrap_err();
        assert!(matches!(error, LinkError::Message(MessageError::TooLong(_))), "{error}");
    }

    #[test]
    fn more_descriptors_than_allowed_are_refused_by_count() {
        let (ours, theirs) = Link::pair().unwrap();
        let many = vec![0; MAX_DESCRIPTORS + 1];
        ours.send_raw(b"{}", &many).unwrap();
        let error = theirs.receive_grant().unwrap_err();
        assert!(matches!(error, LinkError::Message(MessageError::TooManyDescriptors(129))));
    }
}
