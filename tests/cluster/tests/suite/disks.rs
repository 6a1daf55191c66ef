//! Disks of VirtualMachineInstances, as their guests see them.

use anyhow::{Context, Result, ensure};
use corten_cluster::assets::TOOLS_IMAGE;
use serde_json::{Value, json};

use crate::guest::{Guest, add_disk, vm, vmi};
use crate::storage::{claims, user};
use crate::workbench::{Workbench, eventually, nodes};

const GREETER: &str =
    include_str!("../../../../resources/examples/vmi-container-disk-cloud-init.yaml");
const DEBIAN: &str = include_str!("../../../../resources/examples/vmi-debian-cloud-init.yaml");

#[test]
fn disk_of_an_image_boots_and_does_what_its_cloud_init_says() -> Result<()> {
    Workbench::test("greeter", |bench| greets(bench, GREETER, "greeter"))
}

/// A system as a user would bring it, with cloud-init of its own.
#[test]
fn long_debian_boots_from_the_disk_of_an_image_and_does_what_its_cloud_init_says() -> Result<()> {
    Workbench::test("debian", |bench| greets(bench, DEBIAN, "debian"))
}

fn greets(bench: &Workbench, example: &str, name: &str) -> Result<()> {
    bench.kubectl.feed(&["-n", &bench.namespace, "apply", "-f", "-"], example)?;
    let guest = Guest::new(bench, name);
    guest.reaches("/phase", "Running")?;
    let log = guest.follow_log()?.end()?;
    for words in ["USER uid=1000(ada)", "FILE written", "HOST greeter", "the guest powered off"] {
        ensure!(log.contains(words), "{words:?} is not in the log:\n{log}");
    }
    let ended = guest.reaches("/phase", "Succeeded")?;
    assert_eq!(ended["status"]["reason"], "PoweredOff");
    Ok(())
}

/// What a guest does with its disks: it writes to the first and powers off, and when it is there again it tells what it finds.
/// `$1` is what to write. Its last disk has this script.
const KEEPER: &str = r#"#!/bin/sh
first() { dd "if=$1" bs=512 count=1 2>/dev/null | tr -d '\000'; }
put() { echo "$2" | dd "of=$1" bs=512 conv=sync,fsync 2>/dev/null; }
if [ "$(first /dev/vda)" = WORDS ]; then
	echo "KEPT $(first /dev/vda)"
	echo button >/run/end
else
	put /dev/vda WORDS
fi
"#;

/// What it does with disks that are made anew for each of its lives.
const LOOKER: &str = r#"
echo "BASE $(first /dev/vdb)"
put /dev/vdb scribbled
echo "SCRIBBLED $(first /dev/vdb)"
mkdir -p /secret /settings
mount -t iso9660 -o ro /dev/vdc /secret
mount -t iso9660 -o ro /dev/vdd /settings
echo "SECRET $(cat /secret/password)"
echo "SETTING $(cat /settings/motto)"
"#;

/// A VM with a disk of the claim `data`, further ones, and that script, in which WORDS stands for those of the namespace.
fn keeper(bench: &Workbench, more: &[(&str, Value)], script: &str) -> Value {
    let mut vmi = vmi("keeper", "corten.script=cidata corten.end=poweroff");
    add_disk(&mut vmi, "data", json!({ "persistentVolumeClaim": { "claimName": "data" } }));
    for (name, volume) in more {
        add_disk(&mut vmi, name, volume.clone());
    }
    let script = script.replace("WORDS", &bench.namespace);
    add_disk(&mut vmi, "seed", json!({ "cloudInitNoCloud": { "userData": script } }));
    vm(vmi)
}

/// Its guest powers off after its first life, and is started again. Returns the log of a life in which it finds what it
/// wrote.
fn comes_back(bench: &Workbench) -> Result<String> {
    let guest = Guest::new(bench, "keeper");
    let first = eventually("there is no first life", || guest.object())?;
    let log = guest.says(&format!("KEPT {}", bench.namespace))?;
    assert_ne!(guest.object()?["metadata"]["uid"], first["metadata"]["uid"], "it is the first");
    Ok(log)
}

#[test]
fn vm_that_powered_off_is_started_again_and_finds_its_disks() -> Result<()> {
    Workbench::test("disks", |bench| {
        let local = |name| (name, "local", "Filesystem", "ReadWriteOnce");
        claims(bench, &[local("data"), local("base")])?;
        fill_base(bench)?;
        for (kind, name, data) in [
            ("Secret", "secret", json!({ "stringData": { "password": "open sesame" } })),
            ("ConfigMap", "settings", json!({ "data": { "motto": "by claim and file" } })),
        ] {
            let mut object = data;
            object["apiVersion"] = json!("v1");
            object["kind"] = json!(kind);
            object["metadata"] = json!({ "name": name });
            bench.create(object)?;
        }
        let base = json!({ "persistentVolumeClaim": { "claimName": "base" } });
        let more = [
            ("base", json!({ "ephemeral": base })),
            ("secret", json!({ "secret": { "secretName": "secret" } })),
            ("settings", json!({ "configMap": { "name": "settings" } })),
        ];
        bench.create(keeper(bench, &more, &(KEEPER.to_owned() + LOOKER)))?;
        let log = comes_back(bench)?;
        // The first life wrote to it too, and that went with it.
        let base = format!("BASE base of {}", bench.namespace);
        for words in [&base, "SCRIBBLED scribbled", "SECRET open sesame", "SETTING by claim"] {
            ensure!(log.contains(words), "{words:?} is not in the log:\n{log}");
        }
        Ok(())
    })
}

#[test]
fn block_device_of_a_claim_keeps_its_data_over_a_restart() -> Result<()> {
    Workbench::test("block", |bench| {
        claims(bench, &[("data", "local", "Block", "ReadWriteOnce")])?;
        bench.create(keeper(bench, &[], KEEPER))?;
        let log = comes_back(bench)?;
        assert!(log.contains("the VM process is"), "{log}");
        Ok(())
    })
}

/// Puts a disk into the claim `base`. Both claims get their volumes on the node where that is done.
fn fill_base(bench: &Workbench) -> Result<()> {
    let node = nodes(&bench.kubectl)?.pop().context("there is no node")?;
    let mut pod = user(&node, &[("data", "Filesystem"), ("base", "Filesystem")]);
    pod["spec"]["securityContext"]["fsGroup"] = json!(107);
    pod["spec"]["restartPolicy"] = json!("Never");
    let script = format!(
        "rm -f /base/disk.img; echo 'base of {}' | dd of=/base/disk.img bs=1M conv=sync",
        bench.namespace
    );
    pod["spec"]["containers"][0]["image"] = json!(TOOLS_IMAGE);
    pod["spec"]["containers"][0]["args"] = json!(["-ec", script]);
    bench.create(pod)?;
    let done = "--for=jsonpath={.status.phase}=Succeeded";
    bench.run(&["wait", done, "--timeout=120s", &format!("pod/{node}")])?;
    Ok(())
}
