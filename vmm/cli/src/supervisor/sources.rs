//! Where volumes are without a cluster: files that the command line names, and objects out of the manifests.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corten_launcher::prepare::{ClaimPlace, ImagePlace, SourceError, VolumeSources};
use corten_launcher::volumes::config_disk::{NamedFile, mounted_files};
use corten_launcher::volumes::downward_api::downward_files;
use corten_resources::types::{ContainerDisk, KernelBootContainer, LocalObjectReference, Volume};
use corten_resources::{Quantity, base64};
use serde_json::Value;

use super::images::Images;
use crate::job::Job;
use crate::place::Runtime;

/// Those of one job.
pub(super) struct HostSources<'a> {
    pub(super) job: &'a Job,
    pub(super) images: RefCell<Images>,
    /// Where other VMs are found.
    pub(super) runtime: &'a Runtime,
}

impl HostSources<'_> {
    /// What the command line says of a volume, by one of its names.
    fn said(&self, names: &[&str]) -> Option<&PathBuf> {
        names.iter().find_map(|name| self.job.volumes.get(*name))
    }
}

impl VolumeSources for HostSources<'_> {
    fn claim(&self, volume: &str, claim: &str) -> Result<ClaimPlace, SourceError> {
        let path = self.said(&[claim, volume]).ok_or_else(|| {
            format!("no claim {claim:?} here: say by --volume {claim}=PATH which file, directory or block device it is")
        })?;
        let object = self.job.sources.claims.get(claim);
        let capacity = object.map(|object| storage(claim, object)).transpose()?.flatten();
        Ok(ClaimPlace { path: path.clone(), capacity })
    }

    fn host_disk(&self, volume: &str, path: &Path) -> Result<PathBuf, SourceError> {
        Ok(self.said(&[volume]).cloned().unwrap_or_else(|| path.into()))
    }

    fn container_disk(&self, _: &str, disk: &ContainerDisk) -> Result<ImagePlace, SourceError> {
        self.images.borrow_mut().disk(disk)
    }

    fn kernel(&self, container: &KernelBootContainer) -> Result<ImagePlace, SourceError> {
        self.images.borrow_mut().kernel(container)
    }

    fn files(&self, volume: &Volume) -> Result<Option<Vec<NamedFile>>, SourceError> {
        let config_map = |name: Option<&str>| match name {
            Some(name) => self.job.sources.config_maps.get(name).map(config_map_files).transpose(),
            None => Ok(None),
        };
        let secret = |name: Option<&str>| match name {
            Some(name) => self.secret(name),
            None => Ok(None),
        };
        if let Some(source) = &volume.config_map {
            return config_map(source.name.as_deref());
        }
        if let Some(source) = &volume.secret {
            return secret(source.secret_name.as_deref());
        }
        if let Some(source) = &volume.downward_api {
            return Ok(Some(downward_files(source, &self.job.vmi.metadata)?));
        }
        if let Some(source) = &volume.sysprep {
            let name = |reference: Option<&LocalObjectReference>| {
                reference.and_then(|reference| reference.name.clone()).filter(|n| !n.is_empty())
            };
            return match (name(source.config_map.as_ref()), name(source.secret.as_ref())) {
                (Some(name), _) => config_map(Some(&name)),
                (None, name) => secret(name.as_deref()),
            };
        }
        if let Some(source) = &volume.service_account {
            let account = source.service_account_name.as_deref().unwrap_or_default();
            let directory = self.said(&[&volume.name, account]).ok_or_else(|| {
                format!(
                    "there is no cluster whose service account it could have: say by --volume {}=DIR which directory has its token",
                    volume.name
                )
            })?;
            return Ok(Some(mounted_files(directory)?));
        }
        Err("it has no files".into())
    }

    fn secret(&self, name: &str) -> Result<Option<Vec<NamedFile>>, SourceError> {
        self.job.sources.secrets.get(name).map(secret_files).transpose()
    }

    fn hint(&self) -> &'static str {
        "; it may stand in one of the FILEs, beside the object that names it"
    }

    fn vm_of(&self, process: i32) -> Option<String> {
        // A VM process is a child of its supervisor, which holds the run directory.
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name, in brackets, may have anything in it; the parent is the second word behind it.
        let parent: i32 = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        let names = self.runtime.names().ok()?;
        names.into_iter().find(|name| self.runtime.holder(name) == Some(parent))
    }
}

/// Bytes that a claim asks for, if it says: a text or a number.
fn storage(name: &str, claim: &Value) -> Result<Option<u64>, SourceError> {
    let amount = &claim["spec"]["resources"]["requests"]["storage"];
    if amount.is_null() {
        return Ok(None);
    }
    let wrong = |why: &str| {
        format!("PersistentVolumeClaim {name:?}: spec.resources.requests.storage: {why}")
    };
    let amount: Quantity =
        serde_json::from_value(amount.clone()).map_err(|_| wrong("it is no amount such as 1Gi"))?;
    Ok(Some(amount.units().map_err(|error| wrong(&error.to_string()))?))
}

/// `data` in Base64, and `stringData` over it.
fn secret_files(secret: &Value) -> Result<Vec<NamedFile>, SourceError> {
    let mut files = decoded(&secret["data"])?;
    files.extend(texts(&secret["stringData"])?);
    Ok(files.into_iter().collect())
}

/// `data`, and `binaryData` in Base64.
fn config_map_files(map: &Value) -> Result<Vec<NamedFile>, SourceError> {
    let mut files = texts(&map["data"])?;
    files.extend(decoded(&map["binaryData"])?);
    Ok(files.into_iter().collect())
}

fn texts(values: &Value) -> Result<BTreeMap<String, Vec<u8>>, SourceError> {
    let text = |(key, value): (&String, &Value)| {
        let text = value.as_str().ok_or_else(|| format!("the value of key {key:?} is no text"))?;
        Ok((key.clone(), text.as_bytes().to_vec()))
    };
    values.as_object().into_iter().flatten().map(text).collect()
}

fn decoded(values: &Value) -> Result<BTreeMap<String, Vec<u8>>, SourceError> {
    let decode = |(key, value): (String, Vec<u8>)| {
        let bytes = std::str::from_utf8(&value).ok().and_then(base64::decode);
        Ok((key.clone(), bytes.ok_or_else(|| format!("the value of key {key:?} is no Base64"))?))
    };
    texts(values)?.into_iter().map(decode).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_and_config_maps_become_files() {
        let secret =
            json!({"data": {"a": "aGVs\nbG8=", "b": ""}, "stringData": {"b": "over", "c": "x"}});
        let file = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
        let expected = vec![file("a", "hello"), file("b", "over"), file("c", "x")];
        assert_eq!(secret_files(&secret).unwrap(), expected);
        let map = json!({"data": {"t": "text"}, "binaryData": {"z": "AAE="}});
        assert_eq!(config_map_files(&map).unwrap(), [file("t", "text"), ("z".into(), vec![0, 1])]);
        assert!(config_map_files(&json!({})).unwrap().is_empty());
    }

    #[test]
    fn storage_of_a_claim_is_a_text_or_a_number() {
        let claim =
            |amount: Value| json!({"spec": {"resources": {"requests": {"storage": amount}}}});
        let bytes = |amount| storage("c", &claim(amount)).map_err(|error| error.to_string());
        assert_eq!(bytes(json!("1Gi")), Ok(Some(1 << 30)));
        assert_eq!(bytes(json!(1_048_576)), Ok(Some(1 << 20)));
        assert_eq!(bytes(Value::Null), Ok(None));
        let place = "PersistentVolumeClaim \"c\": spec.resources.requests.storage: ";
        for wrong in [json!("much"), json!([1]), json!(-1)] {
            assert!(bytes(wrong).unwrap_err().starts_with(place));
        }
    }

    #[test]
    fn wrong_values_are_refused_by_their_key() {
        let error = secret_files(&json!({"data": {"key": "?"}})).unwrap_err();
        assert_eq!(error.to_string(), "the value of key \"key\" is no Base64");
        let error = config_map_files(&json!({"data": {"key": 1}})).unwrap_err();
        assert_eq!(error.to_string(), "the value of key \"key\" is no text");
    }
}
