//! One end of the link between agent and launcher.
//!
//! It never blocks. The launcher is the first process of its container and has one loop: an agent that stops reading
//! must cost it nothing but that agent. The agent waits for readiness in its own way.

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::MsgFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ToAgent, ToLauncher};
use crate::message::check_roles;
use crate::socket::{receive_on, send_on};
use crate::{Grant, Link, LinkError, MAX_MESSAGE, MessageError, Role};

/// A message with the roles of its descriptors.
pub trait Wire: Serialize + DeserializeOwned {
    /// One role for each descriptor that belongs to it.
    fn roles(&self) -> &[Role];
}

/// One end: sends `S`, receives `R`.
#[derive(Debug)]
pub struct Channel<S, R> {
    socket: OwnedFd,
    messages: PhantomData<fn(S) -> R>,
}

/// The agent's end.
pub type AgentEnd = Channel<ToLauncher, ToAgent>;
/// The launcher's end.
pub type LauncherEnd = Channel<ToAgent, ToLauncher>;

impl<S, R> AsFd for Channel<S, R> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<S, R> AsRawFd for Channel<S, R> {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl<S: Wire, R: Wire> Channel<S, R> {
    /// Takes a connected socket, once it has proved to be a seqpacket one.
    pub fn from_fd(socket: OwnedFd) -> Result<Self, LinkError> {
        let socket = Link::from_fd(socket)?.into_fd();
        Ok(Self { socket, messages: PhantomData })
    }

    /// Sends a message with its descriptors, which stay open here. A peer that does not keep up is EAGAIN.
    pub fn send(&self, message: &S, descriptors: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        let roles = message.roles().len();
        if roles != descriptors.len() {
            let descriptors = descriptors.len();
            return Err(MessageError::Unpaired { roles, descriptors }.into());
        }
        let bytes = encode(message)?;
        let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        send_on(self.socket.as_raw_fd(), &bytes, &raw, MsgFlags::MSG_DONTWAIT)
    }

    /// The next message, if one is there. Its descriptors are closed on exec, and closed at once if it is refused.
    pub fn receive(&self) -> Result<Option<(R, Grant)>, LinkError> {
        let (bytes, descriptors) = match receive_on(self.socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT)
        {
            Err(LinkError::Io { source: Errno::EAGAIN, .. }) => return Ok(None),
            received => received?,
        };
        let message: R = decode(&bytes, descriptors.len())?;
        let grant = message.roles().iter().cloned().zip(descriptors).collect();
        Ok(Some((message, grant)))
    }
}

/// The message as it goes over the link.
pub(super) fn encode<M: Wire>(message: &M) -> Result<Vec<u8>, MessageError> {
    check_roles(message.roles())?;
    let bytes = serde_json::to_vec(message).map_err(MessageError::Malformed)?;
    match bytes.len() {
        length if length > MAX_MESSAGE => Err(MessageError::TooLong(length)),
        _ => Ok(bytes),
    }
}

/// Reads a message that came with `descriptors` descriptors.
pub(super) fn decode<M: Wire>(bytes: &[u8], descriptors: usize) -> Result<M, MessageError> {
    let message: M = serde_json::from_slice(bytes).map_err(MessageError::Malformed)?;
    check_roles(message.roles())?;
    let roles = message.roles().len();
    if roles != descriptors {
        return Err(MessageError::Unpaired { roles, descriptors });
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::net::UnixStream;

    use serde_json::Map;

    use super::*;

    fn pair() -> (AgentEnd, LauncherEnd) {
        let (agent, launcher) = Link::pair().unwrap();
        (Channel::from_fd(agent.into_fd()).unwrap(), Channel::from_fd(launcher.into_fd()).unwrap())
    }

    fn start(vmi: Map<String, serde_json::Value>, roles: Vec<Role>) -> ToLauncher {
        ToLauncher::Start {
            id: 1,
            vmi,
            grace_seconds: 1,
            interfaces: BTreeMap::new(),
            capacities: BTreeMap::new(),
            node: None,
            roles,
        }
    }

    #[test]
    fn descriptors_arrive_under_their_roles() {
        let (agent, launcher) = pair();
        let stdin = std::io::stdin();
        let message = start(Map::new(), vec![Role::kvm()]);
        agent.send(&message, &[stdin.as_fd()]).unwrap();
        let (received, grant) = launcher.receive().unwrap().unwrap();
        assert_eq!(received, message);
        assert_eq!(grant.keys().collect::<Vec<_>>(), [&Role::kvm()]);
    }

    #[test]
    fn nothing_there_is_none_and_a_gone_peer_is_closed() {
        let (agent, launcher) = pair();
        assert!(launcher.receive().unwrap().is_none());
        drop(agent);
        assert!(matches!(launcher.receive(), Err(LinkError::Closed)));
        let hello = ToAgent::State { state: super::super::State::Ended };
        assert!(matches!(launcher.send(&hello, &[]), Err(LinkError::Closed)));
    }

    #[test]
    fn peer_that_does_not_read_blocks_nobody() {
        let (agent, _launcher) = pair();
        let full = (0..100_000).find_map(|id| agent.send(&ToLauncher::Info { id }, &[]).err());
        assert!(matches!(full, Some(LinkError::Io { source: Errno::EAGAIN, .. })), "{full:?}");
    }

    #[test]
    fn roles_without_descriptors_and_twice_the_same_are_refused() {
        let (agent, _launcher) = pair();
        let unpaired = agent.send(&start(Map::new(), vec![Role::kvm()]), &[]);
        assert!(matches!(unpaired, Err(LinkError::Message(MessageError::Unpaired { .. }))));
        let stdin = std::io::stdin();
        let twice = start(Map::new(), vec![Role::kvm(), Role::kvm()]);
        let twice = agent.send(&twice, &[stdin.as_fd(), stdin.as_fd()]);
        assert!(matches!(twice, Err(LinkError::Message(MessageError::DuplicateRole(_)))));
    }

    #[test]
    fn object_over_the_limit_is_refused_by_its_sender() {
        let (agent, _launcher) = pair();
        let large = Map::from_iter([("spec".into(), "x".repeat(MAX_MESSAGE).into())]);
        let error = agent.send(&start(large, Vec::new()), &[]).unwrap_err();
        assert!(matches!(error, LinkError::Message(MessageError::TooLong(_))), "{error}");
    }

    #[test]
    fn stream_socket_is_no_channel() {
        let (stream, _peer) = UnixStream::pair().unwrap();
        assert!(matches!(AgentEnd::from_fd(stream.into()), Err(LinkError::NotALink(_))));
    }
}
