//! Volumes of a VMI as a Linux guest on Corten's machine finds them. Runs in a node, in the cage, where `guests` starts it.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use corten_launcher::machine::{Resolved, plan};
use corten_launcher::prepare::{PodMounts, prepare};
use corten_launcher::volumes::disk_image::Scratch;
use corten_launcher::volumes::downward_metrics::{Collector, HostFacts, VmFacts};
use corten_link::{EndReason, Event};
use corten_resources::types::VirtualMachineInstance;
use corten_tests::guest::source;
use corten_tests::process::{VmProcess, asset};
use serde_json::json;

/// A boot takes 5 s in a quiet emulated node.
const BOOT: Duration = Duration::from_secs(180);
const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// The guest's init finds it as the user data of the first disk. Names are listed as Rock Ridge and as Joliet have them.
const SCRIPT: &str = r#"#!/bin/sh
set -e
look() { # look NAME DEVICE [OPTION]
	mount -t iso9660 -o "ro${3:+,$3}" "$2" /mnt
	(cd /mnt && find . -type f | sort | while read -r file; do echo "$1 $file: $(stat -c '%a %u %s' "$file") $(head -c 40 "$file" | tr '\n' ' ')"; done)
	umount /mnt
}
label() { echo "LABEL $1 $(dd if="$1" bs=1 skip=32808 count=32 2>/dev/null)"; }
for device in /dev/vda /dev/vdb /dev/vdc; do label $device; done
look SEED /dev/vda
look CONFIG /dev/vdb
look JOLIET /dev/vdb norock
look DRIVE /dev/vdc
echo "METRICS $(dd if=/dev/vdd bs=4k count=1 2>/dev/null | tr '\000\n' '  ' | grep -o 'mvbd\|<name>[A-Za-z]*Name</name>' | tr '\n' ' ')"
echo "READ-ONLY $(cat /sys/block/vda/ro /sys/block/vdd/ro /sys/block/vde/ro /sys/block/vdf/ro | tr '\n' ' ')"
echo "EMPTY $(cat /sys/block/vde/size) SERIAL $(cat /sys/block/vde/serial)"
dd if=/dev/vda of=/dev/vde bs=2k count=20 conv=fsync 2>/dev/null
echo "COPIED $(dd if=/dev/vde bs=2k count=20 2>/dev/null | cmp - /dev/vda 2>&1 | grep -c differ)"
printf changed | dd of=/dev/vdf conv=sync,fsync,notrunc 2>/dev/null
echo "OVERLAY $(dd if=/dev/vdf bs=512 count=1 iflag=direct 2>/dev/null | head -c 7)"
"#;

/// A name of the length that a key of a ConfigMap can have.
fn long_name() -> String {
    "k".repeat(253)
}

fn mounts(root: &Path) -> Result<PodMounts> {
    let file = |path: String, content: &[u8]| -> Result<()> {
        let path = root.join(path);
        fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
        Ok(fs::write(path, content)?)
    };
    file("volumes/config/nested/more/key".into(), b"value")?;
    file("volumes/config/Gr\u{fc}n".into(), b"green")?;
    file(format!("volumes/config/{}", long_name()), b"long")?;
    file("volumes/image/disk/disk.img".into(), &[0; 1 << 20])?;
    fs::create_dir_all(root.join("scratch"))?;
    Ok(PodMounts {
        volumes: root.join("volumes"),
        secrets: root.join("secrets"),
        kernel_boot: root.join("kernel"),
        capacities: [].into(),
    })
}

fn vmi() -> Result<VirtualMachineInstance> {
    Ok(serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": "first", "uid": UID},
        "spec": {
            "domain": {"memory": {"guest": "256Mi"}, "devices": {"disks": [
                {"name": "seed", "disk": {"bus": "virtio"}},
                {"name": "config", "cdrom": {"bus": "sata"}},
                {"name": "drive"},
                {"name": "metrics"},
                {"name": "empty", "serial": "scratch"},
            ]}},
            "volumes": [
                {"name": "seed", "cloudInitNoCloud": {"userData": SCRIPT, "networkData": "version: 2\n"}},
                {"name": "config", "configMap": {"name": "any", "volumeLabel": "my-config"}},
                {"name": "drive", "cloudInitConfigDrive": {"userData": "{\"ignition\":{}}"}},
                {"name": "metrics", "downwardMetrics": {}},
                {"name": "empty", "emptyDisk": {"capacity": "1Mi"}},
                {"name": "image", "containerDisk": {"image": "any"}},
            ],
        },
    }))?)
}

#[test]
fn guest_finds_its_volumes_by_label_name_and_content() -> Result<()> {
    let root = tempfile::tempdir()?;
    let (mounts, vmi) = (mounts(root.path())?, vmi()?);
    let prepared = prepare(&vmi, &mounts, &Scratch::Nameless(root.path().join("scratch")))?;
    let host = HostFacts { name: "node-1".into(), product: "corten".into() };
    let vm = VmFacts { process: 1, vcpus: 1, memory: 256 << 20, memory_limit: 256 << 20 };
    prepared.metrics.as_ref().context("no metrics")?.write(&Collector::new(host, vm).collect())?;
    let plan = plan(&vmi, &Resolved { disks: prepared.disks, ..Resolved::default() })?;
    let source = source("quiet corten.script=cidata corten.modules=isofs,nls_utf8")?;
    let mut process = VmProcess::boot_granted(plan.machine, source, prepared.descriptors)?;
    let event = process.next_event(BOOT)?;
    let console = process.console();
    let is_off = matches!(event, Event::Ended { reason: EndReason::PoweredOff, .. });
    ensure!(is_off, "{event:?}\n{console}");

    let long = long_name();
    let size = SCRIPT.len();
    let expected = [
        "LABEL /dev/vda cidata".to_owned(),
        "LABEL /dev/vdb my-config".into(),
        "LABEL /dev/vdc config-2".into(),
        "SEED ./meta-data: 600 0 ".into(),
        format!("SEED ./user-data: 600 0 {size} #!/bin/sh set -e"),
        "SEED ./network-config: 600 0 11 version: 2".into(),
        "CONFIG ./nested/more/key: 644 0 5 value".into(),
        "CONFIG ./Gr\u{fc}n: 644 0 5 green".into(),
        format!("CONFIG ./{long}: 644 0 4 long"),
        // Without Rock Ridge everybody may read everything.
        format!("JOLIET ./{}: 555 0 4 long", &long[..64]),
        "JOLIET ./nested/more/key: 555 0 5 value".into(),
        "DRIVE ./openstack/latest/user_data: 600 0 15 {\"ignition\":{}}".into(),
        "METRICS mvbd <name>HostName</name>".into(),
        "READ-ONLY 1 1 0 0".into(),
        "EMPTY 2048 SERIAL scratch".into(),
        "COPIED 0".into(),
        "OVERLAY changed".into(),
        "CORTEN-SCRIPT-EXIT 0".into(),
    ];
    for line in expected {
        ensure!(console.lines().any(|said| said.starts_with(&line)), "no {line:?} in\n{console}");
    }
    Ok(())
}

/// What runs in a guest that came up from its own disk.
const FIRST_BOOT: &str = r#"#!/bin/sh
read -r line </proc/cmdline
echo "BOOTED ${line##* } $(cat /sys/block/vda/serial)"
mount -o remount,rw / && touch /written && sync
echo "WRITTEN $?"
echo poweroff >/run/end
"#;

/// The VMI of most people's first manifest: an image and a seed.
#[test]
fn container_disk_boots_by_itself_and_runs_its_user_data() -> Result<()> {
    let root = tempfile::tempdir()?;
    let mounts = mounts(root.path())?;
    let image = root.path().join("volumes/root/disk/disk.qcow2");
    fs::create_dir_all(image.parent().context("a file is in a directory")?)?;
    let mut asset = asset("CORTEN_ASSET_GUEST_TINY_QCOW2", "disk.qcow2")?;
    io::copy(&mut asset, &mut fs::File::create(image)?)?;
    let vmi = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": "tiny", "uid": UID},
        "spec": {
            "domain": {"memory": {"guest": "256Mi"}, "devices": {"disks": [
                {"name": "root", "disk": {"bus": "virtio"}, "serial": "root-disk"},
                {"name": "seed", "disk": {"bus": "virtio"}},
            ]}},
            "volumes": [
                {"name": "root", "containerDisk": {"image": "corten.test/container-disk-tiny:1"}},
                {"name": "seed", "cloudInitNoCloud": {"userData": FIRST_BOOT}},
            ],
        },
    }))?;
    let prepared = prepare(&vmi, &mounts, &Scratch::Nameless(root.path().join("scratch")))?;
    let plan = plan(&vmi, &Resolved { disks: prepared.disks, ..Resolved::default() })?;
    let mut process = VmProcess::boot_disks(plan.machine, prepared.descriptors)?;
    loop {
        match process.next_event(BOOT)? {
            Event::Ended { reason: EndReason::PoweredOff, .. } => break,
            Event::Ended { reason, detail, .. } => {
                bail!("{reason:?} {detail}\n{}", process.console())
            }
            _ => {}
        }
    }
    let console = process.console();
    ensure!(
        console.lines().any(|line| line.starts_with("BOOTED ") && line.ends_with("root-disk")),
        "{console}"
    );
    ensure!(console.contains("WRITTEN 0") && console.contains("CORTEN-SCRIPT-EXIT 0"), "{console}");
    Ok(())
}
