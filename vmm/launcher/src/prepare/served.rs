//! The table of served fields against what is prepared: a volume's field that is said to be served changes what its disk holds,
//! or whether there is one. The machine's own fields are compared in `machine/served.rs`.

use std::collections::BTreeSet;

use corten_resources::served::{INSTANCE, Scope, Support};
use serde_json::{Value, json};

use super::tests::{Shelf, read, roles, spec};
use crate::log::chain;

const VOLUMES: &str = "spec.volumes.";

/// What is read of a volume before it is prepared, and by whom.
const ELSEWHERE: &[(&str, &str)] = &[
    ("spec.volumes.configMap.name", "files are found by VolumeSources"),
    ("spec.volumes.containerDisk.imagePullPolicy", "images are found by the CLI's store"),
    ("spec.volumes.downwardAPI.fields.fieldRef.apiVersion", "only v1 is valid"),
    ("spec.volumes.downwardAPI.fields.fieldRef.fieldPath", "files are found by VolumeSources"),
    ("spec.volumes.downwardAPI.fields.path", "files are found by VolumeSources"),
    (
        "spec.volumes.ephemeral.persistentVolumeClaim.readOnly",
        "the claim is only read, whatever it says",
    ),
    ("spec.volumes.name", "it matches a disk"),
    ("spec.volumes.secret.secretName", "files are found by VolumeSources"),
    ("spec.volumes.serviceAccount.serviceAccountName", "files are found by VolumeSources"),
];

/// Volumes that differ in a field: its path behind `spec.volumes.`, and both values of the volume.
fn fields() -> Vec<(String, Value, Value)> {
    let mut fields = Vec::new();
    let mut add = |path: &str, one: Value, other: Value| fields.push((path.to_owned(), one, other));
    for seed in ["cloudInitNoCloud", "cloudInitConfigDrive"] {
        let with = |name: &str, value: Value| json!({seed: {"userData": "a", name: value}});
        add(seed, json!({"emptyDisk": {"capacity": "1Mi"}}), with("userData", json!("a")));
        for (field, one, other) in [
            ("userData", json!("a"), json!("b")),
            ("networkData", json!("{}"), json!("{\"version\": 2}")),
            ("networkDataBase64", json!("e30="), json!("e30K")),
        ] {
            add(&format!("{seed}.{field}"), with(field, one), with(field, other));
        }
        let encoded = |text: &str| json!({seed: {"userDataBase64": text}});
        add(&format!("{seed}.userDataBase64"), encoded("YQ=="), encoded("Yg=="));
        for field in ["secretRef", "networkDataSecretRef"] {
            let of = |name: &str| with(field, json!({"name": name}));
            add(&format!("{seed}.{field}.name"), of("one"), of("other"));
        }
    }
    for files in ["configMap", "secret"] {
        let of = |more: Value| json!({files: more});
        let label = |label: &str| of(json!({"volumeLabel": label}));
        add(&format!("{files}.volumeLabel"), label("one"), label("other"));
        let mut missing = [of(json!({})), of(json!({"optional": true}))];
        missing.iter_mut().for_each(|volume| volume["name"] = json!("missing"));
        let [one, other] = missing;
        add(&format!("{files}.optional"), one, other);
    }
    let downward = |label: &str| json!({"downwardAPI": {"fields": [], "volumeLabel": label}});
    add("downwardAPI.volumeLabel", downward("one"), downward("other"));
    let container =
        |image: &str, path: &str| json!({"containerDisk": {"image": image, "path": path}});
    add("containerDisk.image", container("one", "/disk/a"), container("other", "/disk/a"));
    add("containerDisk.path", container("one", "/disk/a"), container("one", "/disk/b"));
    let claim = |name: &str, is_read: bool| json!({"persistentVolumeClaim": {"claimName": name, "readOnly": is_read}});
    add("persistentVolumeClaim.claimName", claim("one", false), claim("other", false));
    add("persistentVolumeClaim.readOnly", claim("one", false), claim("one", true));
    let ephemeral = |name: &str| json!({"ephemeral": claim(name, true)});
    add("ephemeral.persistentVolumeClaim.claimName", ephemeral("one"), ephemeral("other"));
    let data = |name: &str| json!({"dataVolume": {"name": name}});
    add("dataVolume.name", data("one"), data("other"));
    let host = |path: &str, kind: &str, capacity: &str| json!({"hostDisk": {"path": path, "type": kind, "capacity": capacity}});
    let disk = |path: &str| host(path, "Disk", "1Mi");
    add("hostDisk.path", disk("/host/one.img"), disk("/host/other.img"));
    let made = |kind: &str, capacity: &str| host("/host/new.img", kind, capacity);
    add("hostDisk.type", made("Disk", "1Mi"), made("DiskOrCreate", "1Mi"));
    add("hostDisk.capacity", made("DiskOrCreate", "1Mi"), made("DiskOrCreate", "2Mi"));
    let empty = |capacity: &str| json!({"emptyDisk": {"capacity": capacity}});
    add("emptyDisk.capacity", empty("1Mi"), empty("2Mi"));
    add("downwardMetrics", empty("1Mi"), json!({"downwardMetrics": {}}));
    fields
}

/// What is prepared of one volume, or why it cannot be.
fn prepared(volume: &Value) -> Result<String, String> {
    let mut shelf = Shelf::new();
    for (name, byte) in [("one", 1), ("other", 2)] {
        for path in [
            format!("images/{name}/disk/a"),
            format!("images/{name}/disk/b"),
            format!("claims/{name}/disk.img"),
            format!("host/{name}.img"),
        ] {
            // By its path, too, images are told from each other.
            let sectors = 512 * (1 + usize::from(path.ends_with('b')));
            shelf = shelf.with(&path, &vec![byte; sectors]);
        }
        let text = format!("{{\"secret\": \"{name}\"}}");
        for key in ["userdata", "networkdata"] {
            shelf = shelf.with(&format!("secrets/{name}/{key}"), text.as_bytes());
        }
    }
    let mut volume = volume.clone();
    if volume["name"].is_null() {
        volume["name"] = json!("there");
    }
    shelf = shelf.with("files/there/key", b"value");
    let disks = json!([{"name": volume["name"]}]);
    let prepared = shelf.prepare(spec(disks, json!([volume])));
    let prepared = prepared.map_err(|error| {
        let place = shelf.path("").display().to_string();
        chain(&error).replace(&place, "")
    })?;
    let contents: Vec<_> =
        roles(&prepared).into_iter().map(|role| (role, read(&prepared, role))).collect();
    let disks: Vec<_> =
        prepared.disks.values().map(|disk| (&disk.images, disk.read_only)).collect();
    Ok(format!("{contents:?} {disks:?}"))
}

#[test]
fn fields_of_volumes_that_are_served_change_what_is_prepared() {
    for (path, one, other) in fields() {
        let as_before = prepared(&one);
        // Times of day are in metrics alone, which stand on the other side.
        assert_eq!(as_before, prepared(&one), "{path}: it is another one each time");
        let changed = prepared(&other);
        assert!(as_before != changed, "{path} makes no difference");
        assert!(as_before.is_ok() || changed.is_ok(), "{path}: {as_before:?}, {changed:?}");
    }
}

#[test]
fn each_served_field_of_a_volume_is_somebodys() {
    let compared: BTreeSet<String> =
        fields().into_iter().map(|(path, ..)| format!("{VOLUMES}{path}")).collect();
    for entry in INSTANCE.entries().filter(|entry| entry.path.starts_with(VOLUMES)) {
        let support = entry.support(Scope::Standalone);
        let is_served = !support.is_refused() && !matches!(support, Support::Harmless(_));
        let is_known =
            compared.contains(entry.path) || ELSEWHERE.iter().any(|(path, _)| *path == entry.path);
        assert_eq!(is_known, is_served, "{}: the table says {support:?}", entry.path);
    }
}
