//! Keys and passwords that are brought into a guest.

use super::Marker;
use super::fields::object;

object! {
    /// Something that lets a user in.
    pub struct AccessCredential {
        /// Keys for SSH.
        pub ssh_public_key: Option<SshPublicKeyCredential>,
        /// Names of users and their passwords.
        pub user_password: Option<UserPasswordCredential>,
    }

    /// Keys for SSH.
    pub struct SshPublicKeyCredential {
        /// How they get into the guest.
        pub propagation_method: SshPublicKeyPropagation,
        /// Where they come from.
        pub source: CredentialSource,
    }

    /// How keys get into the guest: one of these.
    pub struct SshPublicKeyPropagation {
        /// With the config drive, at boot.
        pub config_drive: Option<Marker>,
        /// With the NoCloud disk, at boot.
        pub no_cloud: Option<Marker>,
        /// By the guest agent, whenever they change.
        pub qemu_guest_agent: Option<SshPublicKeyAgent>,
    }

    /// Keys that the guest agent writes.
    pub struct SshPublicKeyAgent {
        /// Users who get them.
        pub users: Vec<String>,
    }

    /// Names of users and their passwords.
    pub struct UserPasswordCredential {
        /// How they get into the guest.
        pub propagation_method: UserPasswordPropagation,
        /// Where they come from.
        pub source: CredentialSource,
    }

    /// How passwords get into the guest.
    pub struct UserPasswordPropagation {
        /// By the guest agent.
        pub qemu_guest_agent: Option<Marker>,
    }

    /// Where keys or passwords come from.
    pub struct CredentialSource {
        /// A Secret.
        pub secret: Option<CredentialSecret>,
    }

    /// A Secret with keys or passwords.
    pub struct CredentialSecret {
        /// Its name.
        pub secret_name: String,
    }
}
