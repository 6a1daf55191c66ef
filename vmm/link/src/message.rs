//! What is said over a link, and its encoding.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Event, Reply, Request, Role};

/// Version of the messages this build speaks.
pub const VERSION: u16 = 1;

/// No message is longer: one receive buffer of fixed size serves every peer.
pub const MAX_MESSAGE: usize = 64 * 1024;

/// No message carries more descriptors (the kernel takes 253 at once).
pub const MAX_DESCRIPTORS: usize = 128;

/// One message. Its JSON says what it is in `kind`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Message {
    /// The first message to a VM process: the descriptors it may use from now on, in the order of `roles`.
    Grant {
        /// Version of the sender's messages.
        version: u16,
        /// One role for each descriptor that comes with the message.
        roles: Vec<Role>,
    },
    /// The control peer wants something.
    Request {
        /// Told again in the reply.
        id: u64,
        /// What it wants.
        request: Request,
        /// One role for each descriptor that comes with the message.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        roles: Vec<Role>,
    },
    /// The VM process answers a request.
    Reply {
        /// That of the request.
        id: u64,
        /// What came of it.
        reply: Reply,
        /// One role for each descriptor that comes with the message.
        roles: Vec<Role>,
    },
    /// The VM process tells something by itself.
    Event {
        /// What.
        event: Event,
    },
}

/// What all requests have in common, also those of later versions.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum AnyRequest {
    Request { id: u64 },
}

/// Why a message cannot be sent or was refused.
#[derive(Debug, Error)]
pub enum MessageError {
    /// Longer than [`MAX_MESSAGE`].
    #[error("message of {0} bytes is over the limit of {MAX_MESSAGE}")]
    TooLong(usize),
    /// Not one of our messages.
    #[error("not a message of version {VERSION}")]
    Malformed(#[source] serde_json::Error),
    /// A request that this build does not know. The link goes on: its sender can be answered.
    #[error("request {id} is none of version {VERSION}")]
    UnknownRequest {
        /// Its number.
        id: u64,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The peer speaks a version we do not know.
    #[error("peer speaks version {0} of the link, this build speaks {VERSION}")]
    Version(u16),
    /// More descriptors than [`MAX_DESCRIPTORS`].
    #[error("{0} descriptors are over the limit of {MAX_DESCRIPTORS}")]
    TooManyDescriptors(usize),
    /// Roles and descriptors do not pair up.
    #[error("{roles} roles came with {descriptors} descriptors")]
    Unpaired {
        /// How many roles the message names.
        roles: usize,
        /// How many descriptors came with it.
        descriptors: usize,
    },
    /// Two descriptors under one role.
    #[error("role {0} stands twice in one message")]
    DuplicateRole(Role),
}

impl Message {
    /// The message as it goes over the link.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        self.check()?;
        let bytes = serde_json::to_vec(self).map_err(MessageError::Malformed)?;
        if bytes.len() > MAX_MESSAGE {
            return Err(MessageError::TooLong(bytes.len()));
        }
        Ok(bytes)
    }

    /// Reads a message that came with `descriptors` descriptors.
    pub fn decode(bytes: &[u8], descriptors: usize) -> Result<Self, MessageError> {
        if bytes.len() > MAX_MESSAGE {
            return Err(MessageError::TooLong(bytes.len()));
        }
        let message: Self = serde_json::from_slice(bytes).map_err(|source| {
            match serde_json::from_slice(bytes) {
                Ok(AnyRequest::Request { id }) => MessageError::UnknownRequest { id, source },
                Err(_) => MessageError::Malformed(source),
            }
        })?;
        message.check()?;
        let roles = message.roles().len();
        if roles != descriptors {
            return Err(MessageError::Unpaired { roles, descriptors });
        }
        Ok(message)
    }

    /// The roles of the descriptors that belong to this message.
    pub fn roles(&self) -> &[Role] {
        match self {
            Self::Grant { roles, .. } | Self::Request { roles, .. } | Self::Reply { roles, .. } => {
                roles
            }
            Self::Event { .. } => &[],
        }
    }

    fn check(&self) -> Result<(), MessageError> {
        if let Self::Grant { version, .. } = self
            && *version != VERSION
        {
            return Err(MessageError::Version(*version));
        }
        check_roles(self.roles())
    }
}

/// What holds for the roles of every message on every link.
pub(crate) fn check_roles(roles: &[Role]) -> Result<(), MessageError> {
    if roles.len() > MAX_DESCRIPTORS {
        return Err(MessageError::TooManyDescriptors(roles.len()));
    }
    let twice = roles.iter().enumerate().find(|(at, role)| roles[..*at].contains(role));
    match twice {
        Some((_, role)) => Err(MessageError::DuplicateRole(role.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grant(roles: Vec<Role>) -> Message {
        Message::Grant { version: VERSION, roles }
    }

    #[test]
    fn grant_of_version_1_reads_as_recorded() {
        let recorded = br#"{"kind":"grant","version":1,"roles":["kvm","uffd","tap/net1/0"]}"#;
        let roles = vec![Role::kvm(), Role::userfaultfd(), Role::tap("net1", 0).unwrap()];
        assert_eq!(Message::decode(recorded, 3).unwrap(), grant(roles.clone()));
        assert_eq!(grant(roles).encode().unwrap(), recorded);
    }

    #[test]
    fn requests_replies_and_events_of_version_1_read_as_recorded() {
        let request = r#"{"kind":"request","id":7,"request":{"what":"pause"}}"#;
        let reply =
            r#"{"kind":"reply","id":7,"reply":{"what":"refused","reason":"no"},"roles":[]}"#;
        let event =
            r#"{"kind":"event","event":{"what":"ended","reason":"powered-off","detail":""}}"#;
        for recorded in [request, reply, event] {
            let message = Message::decode(recorded.as_bytes(), 0).unwrap();
            assert_eq!(message.encode().unwrap(), recorded.as_bytes());
        }
    }

    #[test]
    fn request_may_bring_descriptors() {
        let recorded =
            r#"{"kind":"request","id":7,"request":{"what":"pause"},"roles":["disk/vda"]}"#;
        let message = Message::decode(recorded.as_bytes(), 1).unwrap();
        assert_eq!(message.roles(), [Role::disk("vda").unwrap()]);
        assert_eq!(message.encode().unwrap(), recorded.as_bytes());
    }

    #[test]
    fn request_of_the_future_can_be_answered() {
        let bytes = br#"{"kind":"request","id":9,"request":{"what":"from-the-future","how":1}}"#;
        let error = Message::decode(bytes, 0).unwrap_err();
        assert!(matches!(error, MessageError::UnknownRequest { id: 9, .. }), "{error}");
    }

    #[test]
    fn other_version_is_refused_by_number() {
        let newer = br#"{"kind":"grant","version":7,"roles":[]}"#;
        let error = Message::decode(newer, 0).unwrap_err();
        assert_eq!(error.to_string(), "peer speaks version 7 of the link, this build speaks 1");
    }

    #[test]
    fn descriptors_must_pair_with_roles() {
        let bytes = grant(vec![Role::kvm()]).encode().unwrap();
        for descriptors in [0, 2] {
            let error = Message::decode(&bytes, descriptors).unwrap_err();
            assert!(matches!(error, MessageError::Unpaired { roles: 1, .. }), "{error}");
        }
    }

    #[test]
    fn same_role_twice_is_refused_on_both_sides() {
        let twice = grant(vec![Role::kvm(), Role::kvm()]);
        assert!(matches!(twice.encode(), Err(MessageError::DuplicateRole(_))));
        let bytes = br#"{"kind":"grant","version":1,"roles":["kvm","kvm"]}"#;
        assert!(matches!(Message::decode(bytes, 2), Err(MessageError::DuplicateRole(_))));
    }

    #[test]
    fn over_long_input_is_refused_unread() {
        let bytes = vec![b' '; MAX_MESSAGE + 1];
        assert!(matches!(Message::decode(&bytes, 0), Err(MessageError::TooLong(_))));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let _ = Message::decode(&bytes, 0);
        }

        #[test]
        fn what_is_encoded_decodes_equal(queues in 0u16..40, network in "[a-z]([a-z0-9]{0,20})") {
            let roles: Vec<_> = (0..queues).map(|q| Role::tap(&network, q).unwrap()).collect();
            let message = grant(roles.clone());
            let bytes = message.encode().unwrap();
            prop_assert_eq!(Message::decode(&bytes, roles.len()).unwrap(), message);
        }
    }
}
