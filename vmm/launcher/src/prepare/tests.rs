//! VMIs with files to be found, as a host without a cluster has them and as a Pod has them.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use corten_link::ImageFormat;
use corten_resources::types::{ContainerDisk, KernelBootContainer};
use serde_json::{Value, json};

use super::*;
use crate::log::chain;
use crate::machine::{Resolved, plan};
use crate::volumes::config_disk::NamedFile;
use crate::volumes::iso9660::testing::{content, label};

const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// A directory in which everything is, by kind and name.
pub(super) struct Shelf(tempfile::TempDir);

impl Shelf {
    pub(super) fn new() -> Self {
        let shelf = Self(tempfile::tempdir().unwrap());
        fs::create_dir(shelf.path("scratch")).unwrap();
        shelf
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(path)
    }

    pub(super) fn with(self, path: &str, content: &[u8]) -> Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    pub(super) fn prepare(&self, spec: Value) -> Result<Prepared, PrepareError> {
        prepare(&vmi(spec), self, &Scratch::Nameless(self.path("scratch")))
    }
}

impl VolumeSources for Shelf {
    fn claim(&self, _: &str, claim: &str) -> Result<ClaimPlace, SourceError> {
        Ok(ClaimPlace { path: self.path(&format!("claims/{claim}")), capacity: Some(4 << 20) })
    }

    fn host_disk(&self, _: &str, path: &Path) -> Result<PathBuf, SourceError> {
        Ok(self.0.path().canonicalize()?.join(path.strip_prefix("/")?))
    }

    fn container_disk(&self, _: &str, disk: &ContainerDisk) -> Result<ImagePlace, SourceError> {
        Ok(ImagePlace::Root(self.path(&format!("images/{}", disk.image))))
    }

    fn kernel(&self, container: &KernelBootContainer) -> Result<ImagePlace, SourceError> {
        Ok(ImagePlace::Root(self.path(&format!("images/{}", container.image))))
    }

    fn files(&self, volume: &Volume) -> Result<Option<Vec<NamedFile>>, SourceError> {
        mounted(&self.path(&format!("files/{}", volume.name)))
    }

    fn secret(&self, name: &str) -> Result<Option<Vec<NamedFile>>, SourceError> {
        mounted(&self.path(&format!("secrets/{name}")))
    }

    fn vm_of(&self, _: i32) -> Option<String> {
        Some("other".into())
    }
}

fn vmi(spec: Value) -> VirtualMachineInstance {
    let annotations = json!({"kubevirt.io/instancetype-name": "u1.small"});
    let metadata =
        json!({"namespace": "shop", "name": "web.1", "uid": UID, "annotations": annotations});
    let mut object = json!({"metadata": metadata});
    object["spec"] = spec;
    serde_json::from_value(object).unwrap()
}

/// A spec with these disks and volumes.
pub(super) fn spec(disks: Value, volumes: Value) -> Value {
    let mut spec = json!({"domain": {"memory": {"guest": "64Mi"}, "devices": {}}});
    spec["domain"]["devices"]["disks"] = disks;
    spec["volumes"] = volumes;
    spec
}

pub(super) fn roles(prepared: &Prepared) -> Vec<&str> {
    prepared.descriptors.iter().map(|(role, _)| role.as_str()).collect()
}

pub(super) fn read(prepared: &Prepared, role: &str) -> Vec<u8> {
    let (_, fd) = prepared.descriptors.iter().find(|(found, _)| found.as_str() == role).unwrap();
    let file = File::from(fd.as_fd().try_clone_to_owned().unwrap());
    let mut bytes = vec![0; file.metadata().unwrap().len().try_into().unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn container_disk_and_cloud_init_are_an_image_an_overlay_and_a_seed() {
    let shelf = Shelf::new().with("images/fedora/disk/disk.img", &[0; 1 << 20]);
    let volumes = json!([
        {"name": "root", "containerDisk": {"image": "fedora"}},
        {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n", "networkDataBase64": "dmVyc2lvbjogMgo=\n"}},
    ]);
    let prepared =
        shelf.prepare(spec(json!([{"name": "root"}, {"name": "seed"}]), volumes)).unwrap();
    assert_eq!(roles(&prepared), ["image/root/0", "overlay/root", "disk/seed"]);
    assert_eq!(prepared.disks["root"].images, [ImageFormat::Raw]);
    assert!(!prepared.disks["root"].read_only && prepared.disks["seed"].read_only);
    let seed = read(&prepared, "disk/seed");
    assert_eq!(label(&seed), "cidata");
    assert_eq!(content(&seed, "user-data").unwrap(), "#cloud-config\n");
    assert_eq!(content(&seed, "network-config").unwrap(), "version: 2\n");
    let meta = content(&seed, "meta-data").unwrap();
    let expected = format!(
        "{{\"instance-type\":\"u1.small\",\"instance-id\":\"{UID}\",\"local-hostname\":\"web-1\"}}"
    );
    assert_eq!(meta, expected);
}

#[test]
fn secrets_go_before_what_is_inline_and_keys_come_along() {
    let shelf = Shelf::new()
        .with("secrets/seed/userData", b"secret")
        .with("secrets/net/networkdata", b"{}")
        .with("secrets/keys/a", b"ssh-ed25519 A")
        .with("secrets/keys/b", b"ssh-ed25519 B");
    let volumes = json!([{"name": "seed", "cloudInitConfigDrive": {
        "userData": "inline", "secretRef": {"name": "seed"}, "networkDataSecretRef": {"name": "net"},
    }}]);
    let mut spec = spec(json!([]), volumes);
    spec["hostname"] = json!("given");
    let source = json!({"secret": {"secretName": "keys"}});
    spec["accessCredentials"] = json!([
        {"sshPublicKey": {"source": source, "propagationMethod": {"configDrive": {}}}},
        {"sshPublicKey": {"source": {"secret": {"secretName": "none"}}, "propagationMethod": {"noCloud": {}}}},
    ]);
    let prepared = shelf.prepare(spec).unwrap();
    let seed = read(&prepared, "disk/seed");
    assert_eq!(label(&seed), "config-2");
    assert_eq!(content(&seed, "openstack/latest/user_data").unwrap(), "secret");
    assert_eq!(content(&seed, "openstack/latest/network_data.json").unwrap(), "{}");
    let meta: Value =
        serde_json::from_str(&content(&seed, "openstack/latest/meta_data.json").unwrap()).unwrap();
    assert_eq!(meta["public_keys"], json!({"0": "ssh-ed25519 A", "1": "ssh-ed25519 B"}));
    assert_eq!((&meta["hostname"], &meta["uuid"]), (&json!("given"), &json!(UID)));
}

#[test]
fn every_kind_of_volume_becomes_a_disk() {
    let shelf = Shelf::new()
        .with("claims/old/disk.img", &[0; 1024])
        .with("claims/new/lost+found", b"")
        .with("host/disk.img", &[0; 512])
        .with("files/config/key", b"value")
        .with("files/secret/password", b"xyzzy")
        .with("files/account/token", b"token")
        .with("files/downward/labels", b"a=b");
    let volumes = json!([
        {"name": "old", "persistentVolumeClaim": {"claimName": "old", "readOnly": true}},
        {"name": "new", "dataVolume": {"name": "new"}},
        {"name": "ephemeral", "ephemeral": {"persistentVolumeClaim": {"claimName": "old"}}},
        {"name": "host", "hostDisk": {"path": "/host/disk.img", "type": "Disk"}},
        {"name": "made", "hostDisk": {"path": "/host/made.img", "type": "DiskOrCreate", "capacity": "2Mi"}},
        {"name": "empty", "emptyDisk": {"capacity": "3Mi"}},
        {"name": "config", "configMap": {"name": "m"}},
        {"name": "secret", "secret": {"secretName": "s", "volumeLabel": "mine"}},
        {"name": "none", "secret": {"secretName": "none", "optional": true}},
        {"name": "account", "serviceAccount": {"serviceAccountName": "a"}},
        {"name": "downward", "downwardAPI": {"fields": []}},
        {"name": "metrics", "downwardMetrics": {}},
    ]);
    let object = spec(json!([{"name": "host"}]), volumes);
    let prepared = shelf.prepare(object.clone()).unwrap();
    assert_eq!(
        roles(&prepared),
        [
            "disk/host",
            "disk/old",
            "disk/new",
            "image/ephemeral/0",
            "overlay/ephemeral",
            "disk/made",
            "disk/empty",
            "disk/config",
            "disk/secret",
            "disk/none",
            "disk/account",
            "disk/downward",
            "disk/metrics",
        ]
    );
    let sizes = ["old", "new", "ephemeral", "host", "made", "empty", "metrics"]
        .map(|name| prepared.disks[name].size);
    assert_eq!(sizes, [1024, 4 << 20, 1024, 512, 2 << 20, 3 << 20, 256 << 10]);
    let read_only: Vec<&str> = prepared
        .disks
        .iter()
        .filter(|(_, place)| place.read_only)
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(read_only, ["account", "config", "downward", "metrics", "none", "old", "secret"]);
    let secret = read(&prepared, "disk/secret");
    assert_eq!(
        (label(&secret).as_str(), content(&secret, "password").unwrap().as_str()),
        ("mine", "xyzzy")
    );
    assert_eq!(label(&read(&prepared, "disk/config")), "cfgdata");
    assert!(read(&prepared, "disk/metrics").starts_with(b"mvbd"));
    assert!(prepared.metrics.is_some());
    let resolved = Resolved { disks: prepared.disks, ..Resolved::default() };
    assert_eq!(plan(&vmi(object), &resolved).unwrap().machine.disks.len(), 12);
}

#[test]
fn a_cd_rom_of_an_image_has_no_overlay() {
    let shelf = Shelf::new().with("images/iso/disk/install.iso", &[0; 4096]);
    let volumes = json!([{"name": "cd", "containerDisk": {"image": "iso"}}]);
    let prepared =
        shelf.prepare(spec(json!([{"name": "cd", "cdrom": {"bus": "sata"}}]), volumes)).unwrap();
    assert_eq!(roles(&prepared), ["image/cd/0"]);
    assert!(prepared.disks["cd"].read_only);
}

#[test]
fn kernel_and_initial_ram_disk_come_from_their_image() {
    let shelf =
        Shelf::new().with("images/k/boot/vmlinuz", b"kernel").with("images/k/initrd", b"initrd");
    let container = json!({"image": "k", "kernelPath": "/boot/vmlinuz", "initrdPath": "/initrd"});
    let mut object = spec(json!([]), json!([]));
    object["domain"]["firmware"] = json!({"kernelBoot": {"container": container}});
    let prepared = shelf.prepare(object).unwrap();
    assert_eq!(roles(&prepared), ["kernel", "initrd"]);
    assert_eq!(read(&prepared, "kernel"), b"kernel");
}

#[test]
fn a_raw_disk_that_begins_like_another_format_is_warned_of() {
    let mut bytes = vec![0; 1024];
    bytes[..4].copy_from_slice(b"QFI\xfb");
    let shelf = Shelf::new().with("claims/c/disk.img", &bytes);
    let volumes = json!([{"name": "root", "persistentVolumeClaim": {"claimName": "c"}}]);
    let prepared = shelf.prepare(spec(json!([]), volumes)).unwrap();
    assert_eq!(prepared.warnings.len(), 1);
    assert!(prepared.warnings[0].starts_with("volume root begins like a qcow2 image"));
    assert_eq!(roles(&prepared), ["disk/root"]);
}

#[test]
fn what_cannot_be_had_is_said_by_path_volume_and_reason() {
    let shelf = Shelf::new()
        .with("images/two/disk/a", &[0; 512])
        .with("images/two/disk/b", &[0; 512])
        .with("secrets/seed/other", b"");
    let cases = [
        (
            json!({"containerDisk": {"image": "two"}}),
            "containerDisk: volume v cannot be used: the image has 2 files",
        ),
        (
            json!({"containerDisk": {"image": "none"}}),
            "containerDisk: volume v cannot be used: cannot open",
        ),
        (
            json!({"hostDisk": {"path": "/none", "type": "Disk"}}),
            "hostDisk: volume v cannot be used: ",
        ),
        (
            json!({"hostDisk": {"path": "/none", "type": "DiskOrCreate"}}),
            "hostDisk: volume v cannot be used: it has no capacity",
        ),
        (json!({"emptyDisk": {}}), "emptyDisk: volume v cannot be used: it has no capacity"),
        (
            json!({"emptyDisk": {"capacity": "many"}}),
            "emptyDisk: volume v cannot be used: the capacity cannot be read",
        ),
        (
            json!({"secret": {"secretName": "s"}}),
            "secret: volume v cannot be used: Secret s is not there, and it is not optional",
        ),
        (
            json!({"configMap": {"name": "m"}}),
            "configMap: volume v cannot be used: ConfigMap m is not there, and it is not optional",
        ),
        (json!({"configMap": {}}), "configMap: volume v cannot be used: it names nothing"),
        (
            json!({"cloudInitNoCloud": {}}),
            "cloudInitNoCloud: volume v cannot be used: it has neither",
        ),
        (
            json!({"cloudInitNoCloud": {"userDataBase64": "%"}}),
            "cloudInitNoCloud: volume v cannot be used: userDataBase64 is no Base64",
        ),
        (
            json!({"cloudInitNoCloud": {"secretRef": {"name": "none"}}}),
            "cloudInitNoCloud: volume v cannot be used: Secret none is not there",
        ),
        (
            json!({"cloudInitNoCloud": {"secretRef": {"name": "seed"}}}),
            "cloudInitNoCloud: volume v cannot be used: Secret seed has no key userdata",
        ),
        (
            json!({"containerPath": {"path": "/x"}}),
            "containerPath: volume v cannot be used: no disk can be made of it",
        ),
    ];
    for (source, text) in cases {
        let mut volume = source;
        volume["name"] = json!("v");
        let error = shelf.prepare(spec(json!([]), json!([volume]))).unwrap_err();
        let text = format!("spec.volumes[0].{text}");
        assert!(chain(&error).starts_with(&text), "{} is not {text}", chain(&error));
    }
}

#[test]
fn a_disk_of_another_vm_is_refused_by_its_name() {
    let shelf = Shelf::new().with("claims/c/disk.img", &[0; 512]);
    let held =
        File::options().read(true).write(true).open(shelf.path("claims/c/disk.img")).unwrap();
    let mut sleeper = crate::volumes::holder::testing::hold(held);
    let volumes = json!([{"name": "root", "persistentVolumeClaim": {"claimName": "c"}}]);
    let error = shelf.prepare(spec(json!([]), volumes)).unwrap_err();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let text = format!("disk.img is in use by VM other (process {})", sleeper.id());
    assert!(chain(&error).ends_with(&text), "{}", chain(&error));
}

#[test]
fn a_disk_that_another_vm_writes_to_is_not_read_and_one_that_it_reads_not_written_to() {
    let shelf = Shelf::new().with("claims/c/disk.img", &[0; 4 << 20]);
    let claim = json!({"persistentVolumeClaim": {"claimName": "c"}});
    let only_read = json!({"persistentVolumeClaim": {"claimName": "c", "readOnly": true}});
    let ephemeral = json!({"ephemeral": claim});
    let prepared = |volume: &Value| {
        let mut volume = volume.clone();
        volume["name"] = json!("root");
        shelf.prepare(spec(json!([]), json!([volume])))
    };
    let refused = |volume: &Value, mut sleeper: std::process::Child| {
        let result = prepared(volume);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        let text = format!("disk.img is in use by VM other (process {})", sleeper.id());
        let error = chain(&result.unwrap_err());
        assert!(error.starts_with("spec.volumes[0].") && error.ends_with(&text), "{error}");
    };
    let path = shelf.path("claims/c/disk.img");
    for reader in [&ephemeral, &only_read] {
        let held = File::options().read(true).write(true).open(&path).unwrap();
        refused(reader, crate::volumes::holder::testing::hold(held));
        // As a VM process has it, which gets the descriptor.
        let reading = prepared(reader).unwrap();
        prepared(reader).unwrap();
        let (_, fd) = reading.descriptors.into_iter().next().unwrap();
        refused(&claim, crate::volumes::holder::testing::keep(fd.into()));
    }
    prepared(&claim).unwrap();
}

#[test]
fn one_file_is_not_two_disks_if_it_is_written_to() {
    let shelf = Shelf::new().with("claims/c/disk.img", &[0; 512]).with("claims/d/other", &[]);
    fs::hard_link(shelf.path("claims/c/disk.img"), shelf.path("claims/d/disk.img")).unwrap();
    let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
    let only_read =
        |name: &str| json!({"persistentVolumeClaim": {"claimName": name, "readOnly": true}});
    let ephemeral = |name: &str| json!({"ephemeral": claim(name)});
    let prepared = |first: &Value, second: &Value| {
        let (mut first, mut second) = (first.clone(), second.clone());
        (first["name"], second["name"]) = (json!("one"), json!("two"));
        shelf.prepare(spec(json!([]), json!([first, second])))
    };
    let cases = [
        (claim("c"), claim("c")),
        (claim("c"), claim("d")),
        (claim("c"), ephemeral("c")),
        (ephemeral("d"), claim("c")),
        (only_read("c"), claim("d")),
    ];
    for (first, second) in &cases {
        let error = chain(&prepared(first, second).unwrap_err());
        assert!(error.starts_with("spec.volumes[1]."), "{error}");
        assert!(
            error.ends_with("disk.img is that of volume one too, and is written to"),
            "{error}"
        );
    }
    prepared(&ephemeral("c"), &only_read("d")).unwrap();
}

#[test]
fn a_pod_has_its_volumes_at_their_names() {
    let shelf = Shelf::new()
        .with("volumes/image/disk/disk.img", &[0; 512])
        .with("volumes/host/disk.img", &[0; 1024])
        .with("volumes/claim/lost+found", b"")
        .with("volumes/config/key", b"value")
        .with("secrets/seed/userdata", b"data");
    let volumes = json!([
        {"name": "image", "containerDisk": {"image": "any"}},
        {"name": "host", "hostDisk": {"path": "/somewhere/on/the/node/disk.img", "type": "Disk"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "any"}},
        {"name": "config", "configMap": {"name": "any"}},
        {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "seed"}}},
    ]);
    let mut object = vmi(spec(json!([]), volumes));
    object.status = serde_json::from_value(
        json!({"volumeStatus": [{"name": "claim", "target": "", "persistentVolumeClaimInfo": {
            "capacity": {"storage": "10Gi"}, "requests": {"storage": "3Mi"},
        }}]}),
    )
    .unwrap();
    let mounts = PodMounts {
        volumes: shelf.path("volumes"),
        secrets: shelf.path("secrets"),
        kernel_boot: shelf.path("kernel"),
        capacities: object.claim_capacities(),
    };
    let prepared = prepare(&object, &mounts, &Scratch::Nameless(shelf.path("scratch"))).unwrap();
    assert_eq!(prepared.disks["claim"].size, 3 << 20);
    assert_eq!(content(&read(&prepared, "disk/seed"), "user-data").unwrap(), "data");
    assert_eq!(content(&read(&prepared, "disk/config"), "key").unwrap(), "value");
    assert_eq!(prepared.disks["host"].size, 1024);
}
