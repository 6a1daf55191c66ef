//! Data for cloud-init: what is inline, in Base64 or in a Secret -> bytes.

use corten_resources::base64;
use corten_resources::types::{
    AccessCredential, CloudInit, LocalObjectReference, SshPublicKeyPropagation,
    VirtualMachineInstance,
};
use corten_resources::validate::Finding;
use thiserror::Error;

use super::{SourceError, VolumeSources};
use crate::machine::{uuid, uuid_text};
use crate::volumes::cloud_init::{Instance, Seed};

/// Where the name of the instance type stands.
const INSTANCE_TYPES: [&str; 2] =
    ["kubevirt.io/cluster-instancetype-name", "kubevirt.io/instancetype-name"];

/// Why there are no data.
#[derive(Debug, Error)]
pub enum SeedError {
    /// Nothing is given.
    #[error("it has neither user data nor network data")]
    Empty,
    /// Not Base64.
    #[error("{0} is no Base64")]
    Base64(&'static str),
    /// A Secret that cannot be read.
    #[error("cannot read Secret {name}")]
    Secret {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: SourceError,
    },
    /// A Secret that is not there.
    #[error("Secret {name} is not there{hint}")]
    NoSecret {
        /// Its name.
        name: String,
        /// Where it may be.
        hint: &'static str,
    },
    /// A Secret without the key.
    #[error("Secret {name} has no key {key}")]
    NoKey {
        /// Its name.
        name: String,
        /// The key.
        key: &'static str,
    },
    /// No UUID.
    #[error("{0}")]
    Uuid(Finding),
}

/// Whose data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    NoCloud,
    ConfigDrive,
}

/// The host name that a guest is told, by its seed and by whoever gives it an address.
pub fn hostname(vmi: &VirtualMachineInstance) -> String {
    vmi.spec.guest_hostname(&vmi.metadata.name)
}

/// What a volume says. As in KubeVirt, a Secret goes before what is inline, and that before Base64.
pub(super) fn seed(source: &CloudInit, sources: &dyn VolumeSources) -> Result<Seed, SeedError> {
    let user_data = data(
        (source.secret_ref.as_ref(), ["userdata", "userData"]),
        source.user_data.as_deref(),
        (source.user_data_base64.as_deref(), "userDataBase64"),
        sources,
    )?;
    let network_data = data(
        (source.network_data_secret_ref.as_ref(), ["networkdata", "networkData"]),
        source.network_data.as_deref(),
        (source.network_data_base64.as_deref(), "networkDataBase64"),
        sources,
    )?;
    if user_data.is_empty() && network_data.is_empty() {
        return Err(SeedError::Empty);
    }
    Ok(Seed { user_data, network_data })
}

fn data(
    secret: (Option<&LocalObjectReference>, [&'static str; 2]),
    inline: Option<&str>,
    base64: (Option<&str>, &'static str),
    sources: &dyn VolumeSources,
) -> Result<Vec<u8>, SeedError> {
    let name = secret.0.and_then(|secret| secret.name.as_deref()).filter(|name| !name.is_empty());
    if let Some(name) = name {
        let files = files_of(name, sources)?;
        let found = files.into_iter().find(|(key, _)| secret.1.contains(&key.as_str()));
        let missing = || SeedError::NoKey { name: name.into(), key: secret.1[0] };
        return found.map(|(_, bytes)| bytes).ok_or_else(missing);
    }
    if let Some(text) = inline.filter(|text| !text.is_empty()) {
        return Ok(text.into());
    }
    let (text, field) = base64;
    base64::decode(text.unwrap_or_default()).ok_or(SeedError::Base64(field))
}

fn files_of(name: &str, sources: &dyn VolumeSources) -> Result<Vec<(String, Vec<u8>)>, SeedError> {
    let files = sources.secret(name);
    let files = files.map_err(|source| SeedError::Secret { name: name.into(), source })?;
    files.ok_or_else(|| SeedError::NoSecret { name: name.into(), hint: sources.hint() })
}

/// Who the guest is.
pub(super) fn instance(
    vmi: &VirtualMachineInstance,
    sources: &dyn VolumeSources,
    kind: Kind,
) -> Result<Instance, SeedError> {
    let annotation =
        |name: &&str| vmi.metadata.annotations.get(*name).filter(|text| !text.is_empty());
    Ok(Instance {
        uuid: uuid_text(uuid(vmi).map_err(SeedError::Uuid)?),
        name: vmi.metadata.name.clone(),
        namespace: vmi.metadata.namespace.clone(),
        hostname: hostname(vmi),
        instance_type: INSTANCE_TYPES.iter().find_map(annotation).cloned(),
        public_keys: public_keys(vmi, sources, kind)?,
    })
}

/// SSH keys that come by this kind of disk: whatever is in the Secrets, key by key.
fn public_keys(
    vmi: &VirtualMachineInstance,
    sources: &dyn VolumeSources,
    kind: Kind,
) -> Result<Vec<String>, SeedError> {
    let is_meant = |method: &SshPublicKeyPropagation| match kind {
        Kind::NoCloud => method.no_cloud.is_some(),
        Kind::ConfigDrive => method.config_drive.is_some(),
    };
    let secret = |credential: &AccessCredential| {
        let keys = credential.ssh_public_key.as_ref()?;
        let secret = keys.source.secret.as_ref()?.secret_name.clone();
        (is_meant(&keys.propagation_method) && !secret.is_empty()).then_some(secret)
    };
    let mut keys = Vec::new();
    for name in vmi.spec.access_credentials.iter().filter_map(secret) {
        let files = files_of(&name, sources)?;
        let texts =
            files.into_iter().map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned());
        keys.extend(texts.filter(|text| !text.is_empty()));
    }
    Ok(keys)
}
