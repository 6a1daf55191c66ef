//! Names of images, by the rules that Docker has made usual.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use thiserror::Error;

use super::digest::{ContentDigest, DigestError};

/// Where images live whose name does not say.
const DEFAULT_REGISTRY: &str = "docker.io";
/// Whose they are whose name there has one part only.
const DEFAULT_OWNER: &str = "library";
const DEFAULT_TAG: &str = "latest";

/// Name of an image in full: registry, repository, tag or digest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageReference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<ContentDigest>,
}

/// Why a text names no image.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ReferenceError {
    /// Empty, too long, or with characters that no name has.
    #[error("{text:?} is no name of an image: {what}")]
    Form {
        /// The text, cut.
        text: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Behind the `@`.
    #[error(transparent)]
    Digest(#[from] DigestError),
}

impl ImageReference {
    /// Host and port, as the name has it.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Path within the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Digest, if the name has one. It then says exactly one image.
    pub fn digest(&self) -> Option<&ContentDigest> {
        self.digest.as_ref()
    }

    /// What to ask the registry for: the digest, or else the tag.
    pub fn version(&self) -> String {
        match &self.digest {
            Some(digest) => digest.to_string(),
            None => self.tag.as_deref().unwrap_or(DEFAULT_TAG).to_owned(),
        }
    }

    /// Whether the name moves along with each new version, so that it is worth asking again.
    pub fn is_latest(&self) -> bool {
        self.digest.is_none() && self.version() == DEFAULT_TAG
    }

    /// Whether an archive that calls an image `name` means this one.
    pub fn is_called(&self, name: &str) -> bool {
        name.parse::<Self>().is_ok_and(|other| self.same_as(&other))
    }

    /// Whether both name the same version of the same repository. A name with a digest is also met by its tag, as that is
    /// what archives carry; which content it is the digest decides.
    pub fn same_as(&self, other: &Self) -> bool {
        let tag = |reference: &Self| reference.tag.clone().unwrap_or(DEFAULT_TAG.into());
        self.registry == other.registry
            && self.repository == other.repository
            && match (&self.digest, &other.digest) {
                (Some(one), Some(two)) => one == two,
                _ => tag(self) == tag(other),
            }
    }
}

/// Whether two texts name the same image.
pub fn is_same(one: &str, other: &str) -> bool {
    let parse = |text: &str| text.parse::<ImageReference>();
    one == other
        || matches!((parse(one), parse(other)), (Ok(one), Ok(other)) if one.same_as(&other))
}

impl FromStr for ImageReference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let wrong = |what| ReferenceError::Form { text: text.chars().take(100).collect(), what };
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest.parse()?)),
            None => (text, None),
        };
        // A colon behind the last slash begins a tag; one before it, a port.
        let (name, tag) = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (name, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(wrong(
                "its tag has other characters than letters, digits, '_', '.' and '-', or more than 128",
            ));
        }
        let (registry, path) = match name.split_once('/') {
            Some((host, path)) if is_host(host) => (host, path),
            _ => (DEFAULT_REGISTRY, name),
        };
        let registry = if registry == "index.docker.io" { DEFAULT_REGISTRY } else { registry };
        let repository = match path.contains('/') || registry != DEFAULT_REGISTRY {
            true => path.to_owned(),
            false => format!("{DEFAULT_OWNER}/{path}"),
        };
        if path.is_empty() || registry.len() + 1 + repository.len() > 255 {
            return Err(wrong("it is empty or has more than 255 characters"));
        }
        if !repository.split('/').all(is_component) {
            return Err(wrong(
                "parts of a path are lower-case letters and digits, with single '.', '_', '__' or '-' between them",
            ));
        }
        if !is_registry(registry) {
            return Err(wrong("its registry is no host with an optional port"));
        }
        let tag = tag.or(digest.is_none().then_some(DEFAULT_TAG)).map(Into::into);
        Ok(Self { registry: registry.into(), repository, tag, digest })
    }
}

/// Whether the first part of a name is a registry, and not of a path.
fn is_host(part: &str) -> bool {
    part == "localhost"
        || part.contains(['.', ':'])
        || part.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => {
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return false;
            }
            ("host", port.strip_prefix(':').or(port.is_empty().then_some("0")))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("0")),
        },
    };
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.split('.').all(label) && port.is_some_and(|port| port.parse::<u16>().is_ok())
}

fn is_component(part: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    let mut separators = part.split(|character: char| character.is_ascii_alphanumeric());
    word(*first)
        && word(*last)
        && bytes.iter().all(|byte| word(*byte) || matches!(byte, b'.' | b'_' | b'-'))
        && separators
            .all(|run| matches!(run, "" | "." | "_" | "__") || run.bytes().all(|byte| byte == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
        && tag.bytes().next().is_some_and(word)
}

impl Display for ImageReference {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(formatter, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(formatter, "@{digest}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_completed_as_docker_does() {
        for (short, full) in [
            ("alpine", "docker.io/library/alpine:latest"),
            ("alpine:3.22", "docker.io/library/alpine:3.22"),
            ("index.docker.io/alpine", "docker.io/library/alpine:latest"),
            ("kubevirt/fedora-container-disk", "docker.io/kubevirt/fedora-container-disk:latest"),
            ("quay.io/containerdisks/fedora:43", "quay.io/containerdisks/fedora:43"),
            ("localhost/disk", "localhost/disk:latest"),
            ("127.0.0.1:5000/a/b/c:v1.2_3-x", "127.0.0.1:5000/a/b/c:v1.2_3-x"),
            ("[::1]:5000/disk", "[::1]:5000/disk:latest"),
            ("Registry/disk", "Registry/disk:latest"),
        ] {
            let reference: ImageReference = short.parse().unwrap();
            assert_eq!(reference.to_string(), full);
            assert_eq!(full.parse(), Ok(reference), "{full}");
        }
    }

    #[test]
    fn digest_says_the_version_and_keeps_the_tag_for_people() {
        let digest = ContentDigest::of(b"");
        let text = format!("quay.io/a/b:1@{digest}");
        let reference: ImageReference = text.parse().unwrap();
        assert_eq!(reference.to_string(), text);
        assert_eq!(reference.version(), digest.to_string());
        assert!(!reference.is_latest());
        assert!(reference.is_called("quay.io/a/b:1"));
        assert!(!reference.is_called("quay.io/a/b:2"));
        assert!("alpine".parse::<ImageReference>().unwrap().is_latest());
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "a".repeat(300);
        for text in [
            "",
            "/",
            "a//b",
            "UPPER",
            "a:",
            "a:b:c",
            "a/../b",
            "../a",
            "-a",
            "a-",
            "a..b",
            "a___b",
            "a@sha256:12",
            "host:port/a",
            "ho_st.com/a",
            "[::1/a",
            "[zz]:1/a",
            "a b",
            "a:tag/",
            "a:-tag",
            &long,
        ] {
            assert!(text.parse::<ImageReference>().is_err(), "{text:?}");
        }
    }
}
