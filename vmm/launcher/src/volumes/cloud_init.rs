//! What a guest's cloud-init or Ignition reads at its first boot, as KubeVirt lays it out.
//!
//! | volume | label | files |
//! |---|---|---|
//! | `cloudInitNoCloud` | `cidata` | `meta-data`, `user-data`, `network-config` |
//! | `cloudInitConfigDrive` | `config-2` | `openstack/latest/{meta_data.json,user_data,network_data.json}` |
//!
//! Meta data is JSON, which is YAML too. The file for user data is always there, as cloud-init takes a seed without it for
//! none; that for the network only if something is to be said, as an empty one would switch the guest's network off.
//!
//! **Ignition.** Images of Fedora CoreOS and Flatcar for KubeVirt or OpenStack read Ignition's JSON from `user_data` of a config
//! drive, so it is given as the user data of a `cloudInitConfigDrive`. Images for plain QEMU read it from QEMU's own fw_cfg
//! device instead, to which KubeVirt's annotation `kubevirt.io/ignitiondata` leads; there is no such device here.

use std::collections::BTreeMap;

use serde::Serialize;

use super::iso9660::{IsoError, Tree, image};

/// Volume label of NoCloud.
pub const NO_CLOUD_LABEL: &str = "cidata";
/// Volume label of ConfigDrive.
pub const CONFIG_DRIVE_LABEL: &str = "config-2";
/// There may be passwords in it.
const MODE: u32 = 0o600;

/// Who the guest is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    /// As a guest reads it from its firmware too. What cloud-init does once per instance it does again when this changes.
    pub uuid: String,
    /// The object's name.
    pub name: String,
    /// The object's namespace.
    pub namespace: String,
    /// The guest's host name.
    pub hostname: String,
    /// Name of its instance type.
    pub instance_type: Option<String>,
    /// SSH keys that may log in.
    pub public_keys: Vec<String>,
}

/// What its user wants done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seed {
    /// Any format that the guest understands.
    pub user_data: Vec<u8>,
    /// How networks are set up; empty to leave it to the guest.
    pub network_data: Vec<u8>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct NoCloudMeta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_type: Option<&'a str>,
    instance_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    local_hostname: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    public_keys: BTreeMap<String, &'a str>,
}

#[derive(Serialize)]
struct ConfigDriveMeta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_type: Option<&'a str>,
    instance_id: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    hostname: &'a str,
    uuid: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    public_keys: BTreeMap<String, &'a str>,
}

impl Instance {
    /// By number, which is how cloud-init takes a list.
    fn keys(&self) -> BTreeMap<String, &str> {
        let numbered = self.public_keys.iter().enumerate();
        numbered.map(|(number, key)| (number.to_string(), key.as_str())).collect()
    }
}

/// The image for the data source NoCloud.
pub fn no_cloud(instance: &Instance, seed: &Seed) -> Result<Vec<u8>, IsoError> {
    let meta = NoCloudMeta {
        instance_type: instance.instance_type.as_deref(),
        instance_id: &instance.uuid,
        local_hostname: &instance.hostname,
        public_keys: instance.keys(),
    };
    let paths = ["meta-data", "user-data", "network-config"];
    seed_image(NO_CLOUD_LABEL, paths, json(&meta), seed)
}

/// The image for the data source ConfigDrive, and for Ignition.
pub fn config_drive(instance: &Instance, seed: &Seed) -> Result<Vec<u8>, IsoError> {
    let meta = ConfigDriveMeta {
        instance_type: instance.instance_type.as_deref(),
        instance_id: format!("{}.{}", instance.name, instance.namespace),
        hostname: &instance.hostname,
        uuid: &instance.uuid,
        public_keys: instance.keys(),
    };
    let paths = [
        "openstack/latest/meta_data.json",
        "openstack/latest/user_data",
        "openstack/latest/network_data.json",
    ];
    seed_image(CONFIG_DRIVE_LABEL, paths, json(&meta), seed)
}

fn json(meta: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(meta).expect("text under names of text is JSON")
}

fn seed_image(
    label: &str,
    paths: [&str; 3],
    meta: Vec<u8>,
    seed: &Seed,
) -> Result<Vec<u8>, IsoError> {
    let [meta_path, user_path, network_path] = paths;
    let mut tree = Tree::new(MODE);
    tree.add(meta_path, meta)?;
    tree.add(user_path, seed.user_data.clone())?;
    if !seed.network_data.is_empty() {
        tree.add(network_path, seed.network_data.clone())?;
    }
    image(&tree, label)
}

#[cfg(test)]
mod tests {
    use super::super::iso9660::testing::content;
    use super::*;

    fn instance() -> Instance {
        Instance {
            uuid: "5d307ca9-b3ef-428c-8861-06e72d69f223".into(),
            name: "web".into(),
            namespace: "shop".into(),
            hostname: "web-1".into(),
            instance_type: Some("u1.small".into()),
            public_keys: vec!["ssh-ed25519 AAAA a".into(), "ssh-rsa BBBB b".into()],
        }
    }

    fn seed(user_data: &str, network_data: &str) -> Seed {
        Seed { user_data: user_data.into(), network_data: network_data.into() }
    }

    #[test]
    fn no_cloud_has_what_cloud_init_looks_for() {
        let image = no_cloud(&instance(), &seed("#cloud-config\n", "version: 2\n")).unwrap();
        assert_eq!(
            content(&image, "meta-data").unwrap(),
            "{\"instance-type\":\"u1.small\",\"instance-id\":\"5d307ca9-b3ef-428c-8861-06e72d69f223\",\
             \"local-hostname\":\"web-1\",\"public-keys\":{\"0\":\"ssh-ed25519 AAAA a\",\"1\":\"ssh-rsa BBBB b\"}}"
        );
        assert_eq!(content(&image, "user-data").unwrap(), "#cloud-config\n");
        assert_eq!(content(&image, "network-config").unwrap(), "version: 2\n");
    }

    #[test]
    fn config_drive_has_what_openstack_has() {
        let image = config_drive(&instance(), &seed("{\"ignition\":{}}", "{}")).unwrap();
        assert_eq!(
            content(&image, "openstack/latest/meta_data.json").unwrap(),
            "{\"instance_type\":\"u1.small\",\"instance_id\":\"web.shop\",\"hostname\":\"web-1\",\
             \"uuid\":\"5d307ca9-b3ef-428c-8861-06e72d69f223\",\
             \"public_keys\":{\"0\":\"ssh-ed25519 AAAA a\",\"1\":\"ssh-rsa BBBB b\"}}"
        );
        assert_eq!(content(&image, "openstack/latest/user_data").unwrap(), "{\"ignition\":{}}");
        assert_eq!(content(&image, "openstack/latest/network_data.json").unwrap(), "{}");
    }

    #[test]
    fn without_anything_said_there_are_user_data_but_no_network() {
        let image = no_cloud(&Instance::default(), &Seed::default()).unwrap();
        assert_eq!(content(&image, "meta-data").unwrap(), "{\"instance-id\":\"\"}");
        assert_eq!(content(&image, "user-data").unwrap(), "");
        assert_eq!(content(&image, "network-config"), None);
    }
}
