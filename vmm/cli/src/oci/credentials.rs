//! Who one is at which registry: Docker's `config.json`, or a Secret for pulling images.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use thiserror::Error;

use super::reference::ImageReference;

/// The longest file: one with a few hundred registries.
const MAX_FILE: u64 = 1 << 20;

/// Why credentials cannot be used.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// No such file.
    #[error("cannot read credentials from {path}")]
    Read {
        /// Where they should be.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Not what it should be.
    #[error(
        "{path} is neither Docker's config.json nor a Secret of type kubernetes.io/dockerconfigjson: {what}"
    )]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// A name and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Login {
    /// What stands behind `Basic` in a request.
    pub(super) fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.user, self.password)))
    }
}

/// Logins by registry, and by what of it they are for.
#[derive(Clone, Debug, Default)]
pub struct Credentials(Vec<(String, Login)>);

impl Credentials {
    /// Reads a file: Docker's, or a manifest of a Secret in YAML or JSON. Logins that a program keeps (`credsStore`,
    /// `credHelpers`) and identity tokens are passed over.
    pub fn read(path: &Path) -> Result<Self, CredentialsError> {
        let failed = |source| CredentialsError::Read { path: path.into(), source };
        let length = std::fs::metadata(path).map_err(failed)?.len();
        let wrong = |what: String| CredentialsError::Form { path: path.into(), what };
        if length > MAX_FILE {
            return Err(wrong(format!("it is longer than {MAX_FILE} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        Self::parse(&text).map_err(wrong)
    }

    /// The user's own of Docker, if there are any: `$DOCKER_CONFIG/config.json`, or `~/.docker/config.json`.
    pub fn of_user() -> Result<Self, CredentialsError> {
        let set = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".docker"));
        match set.or_else(home).map(|directory| directory.join("config.json")) {
            Some(path) if path.exists() => Self::read(&path),
            _ => Ok(Self::default()),
        }
    }

    /// These before those.
    pub fn before(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    fn parse(text: &str) -> Result<Self, String> {
        // JSON is YAML, too.
        let document: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if document.get("kind").and_then(Value::as_str) != Some("Secret") {
            return Self::of_config(document.get("auths").unwrap_or(&Value::Null));
        }
        let entry = |name: &str| {
            let plain = document.get("stringData").and_then(|data| data.get(name)?.as_str());
            let coded = document.get("data").and_then(|data| data.get(name)?.as_str());
            match (plain, coded) {
                (Some(plain), _) => Some(Ok(plain.to_owned())),
                (None, Some(coded)) => Some(decoded(coded)),
                (None, None) => None,
            }
        };
        let json = |text: String| serde_json::from_str::<Value>(&text).map_err(|e| e.to_string());
        match (entry(".dockerconfigjson"), entry(".dockercfg")) {
            (Some(text), _) => Self::of_config(json(text?)?.get("auths").unwrap_or(&Value::Null)),
            (None, Some(text)) => Self::of_config(&json(text?)?),
            (None, None) => Err("the Secret has no .dockerconfigjson".into()),
        }
    }

    fn of_config(auths: &Value) -> Result<Self, String> {
        let mut logins = Vec::new();
        for (key, entry) in auths.as_object().into_iter().flatten() {
            let text =
                |name: &str| entry.get(name).and_then(Value::as_str).filter(|t| !t.is_empty());
            let login = match (text("auth"), text("username"), text("password")) {
                (_, Some(user), Some(password)) => (user.to_owned(), password.to_owned()),
                (Some(auth), _, _) => {
                    let pair =
                        decoded(auth).map_err(|_| format!("the login for {key} is malformed"))?;
                    let pair = pair.split_once(':').map(|(user, word)| (user.into(), word.into()));
                    pair.ok_or_else(|| format!("the login for {key} has no password"))?
                }
                _ => continue,
            };
            logins.push((normal(key), Login { user: login.0, password: login.1 }));
        }
        Ok(Self(logins))
    }

    /// The login for an image: that of the longest prefix of its name.
    pub(super) fn for_image(&self, image: &ImageReference) -> Option<&Login> {
        let name = format!("{}/{}", image.registry(), image.repository());
        let fits = |key: &str| {
            name.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let fitting = self.0.iter().filter(|(key, _)| fits(key));
        // Of equally long ones the first.
        fitting.rev().max_by_key(|(key, _)| key.len()).map(|(_, login)| login)
    }
}

fn decoded(text: &str) -> Result<String, String> {
    let bytes = STANDARD.decode(text.trim()).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

/// `https://index.docker.io/v1/` and the like, as names of images have it.
fn normal(key: &str) -> String {
    let key = key.trim_start_matches("https://").trim_start_matches("http://");
    let key = key.trim_end_matches('/');
    let key = key.strip_suffix("/v1").or_else(|| key.strip_suffix("/v2")).unwrap_or(key);
    let (host, path) = key.split_once('/').map_or((key, None), |(host, path)| (host, Some(path)));
    let host = match host {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        host => host,
    };
    path.map_or_else(|| host.to_owned(), |path| format!("{host}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(credentials: &Credentials, image: &str) -> Option<String> {
        let login = credentials.for_image(&image.parse().unwrap());
        login.map(|login| format!("{}:{}", login.user, login.password))
    }

    /// `dTpw` is `u:p`.
    const CONFIG: &str = r#"{
        "auths": {
            "https://index.docker.io/v1/": { "auth": "dTpw" },
            "quay.io": { "username": "general", "password": "hidden-1" },
            "quay.io/team": { "username": "team", "password": "hidden-2" },
            "kept.example": {},
            "127.0.0.1:5000": { "auth": "dTpw" }
        },
        "credsStore": "desktop"
    }"#;

    #[test]
    fn login_of_the_longest_prefix_is_taken() {
        let credentials = Credentials::parse(CONFIG).unwrap();
        assert_eq!(user(&credentials, "alpine").as_deref(), Some("u:p"));
        assert_eq!(user(&credentials, "quay.io/a/b").as_deref(), Some("general:hidden-1"));
        assert_eq!(user(&credentials, "quay.io/team/b").as_deref(), Some("team:hidden-2"));
        assert_eq!(user(&credentials, "quay.io/teams/b").as_deref(), Some("general:hidden-1"));
        assert_eq!(user(&credentials, "127.0.0.1:5000/x").as_deref(), Some("u:p"));
        assert_eq!(user(&credentials, "127.0.0.1:5001/x"), None);
        assert_eq!(user(&credentials, "kept.example/x"), None);
    }

    #[test]
    fn secret_is_read_in_each_of_its_forms() {
        let coded = STANDARD.encode(CONFIG);
        let yaml = format!(
            "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/dockerconfigjson\ndata:\n  .dockerconfigjson: {coded}\n"
        );
        let old =
            "kind: Secret\nstringData:\n  .dockercfg: '{\"quay.io\": {\"auth\": \"dTpw\"}}'\n";
        assert_eq!(user(&Credentials::parse(&yaml).unwrap(), "alpine").as_deref(), Some("u:p"));
        assert_eq!(user(&Credentials::parse(old).unwrap(), "quay.io/a").as_deref(), Some("u:p"));
    }

    #[test]
    fn malformed_logins_are_errors_that_do_not_show_them() {
        for text in [
            r#"{ "auths": { "quay.io": { "auth": "c2VjcmV0" } } }"#,
            r#"{ "auths": { "quay.io": { "auth": "!secret!" } } }"#,
            "kind: Secret\ndata: {}\n",
            "kind: Secret\ndata:\n  .dockerconfigjson: '!'\n",
        ] {
            let error = Credentials::parse(text).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(!format!("{:?}", Credentials::parse(CONFIG).unwrap()).contains("hidden"));
    }
}
