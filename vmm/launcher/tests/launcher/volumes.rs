//! What is prepared for a VMI, in the hands of the VM process that is shipped.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corten_launcher::machine::{Resolved, plan};
use corten_launcher::prepare::{PodMounts, Prepared, prepare};
use corten_launcher::vmm::Vmm;
use corten_launcher::volumes::disk_image::Scratch;
use corten_link::{Message, Reply, Request, Role, RunState};
use corten_resources::types::VirtualMachineInstance;
use serde_json::{Value, json};

use crate::rig::{SOON, UID};

/// A VM process that ends with the test.
struct Guard(Vmm);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.force();
        let _ = nix::sys::wait::waitpid(self.0.pid(), None);
    }
}

/// Mount points with something for each kind of volume.
fn mounts(root: &Path) -> Result<PodMounts> {
    let file = |path: &str, content: &[u8]| -> Result<()> {
        let path = root.join(path);
        fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
        Ok(fs::write(path, content)?)
    };
    file("kernel/boot/kernel", corten_microguest::ELF)?;
    file("volumes/root/disk/disk.img", &[0; 1 << 20])?;
    file("volumes/claim/disk.img", &[0; 1 << 20])?;
    file("volumes/cd/disk.img", &[0; 1 << 20])?;
    file("volumes/ephemeral/disk.img", &[0; 1 << 20])?;
    file("volumes/host/disk.img", &[0; 1 << 20])?;
    file("volumes/config/key", b"value")?;
    fs::create_dir(root.join("scratch"))?;
    Ok(PodMounts {
        volumes: root.join("volumes"),
        secrets: root.join("secrets"),
        kernel_boot: root.join("kernel"),
        capacities: [].into(),
    })
}

fn vmi() -> Result<VirtualMachineInstance> {
    let container = json!({"image": "microguest", "kernelPath": "/boot/kernel"});
    let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let spec: Value = json!({
        "domain": {
            "memory": {"guest": "32Mi"},
            "cpu": {"cores": 2},
            "firmware": {"kernelBoot": {"kernelArgs": "loop", "container": container}},
            "devices": {"rng": {}, "autoattachVSOCK": true, "blockMultiQueue": true, "disks": [
                {"name": "root", "serial": "root"},
                {"name": "cd", "cdrom": {"bus": "sata"}},
                {"name": "claim", "blockSize": {"matchVolume": {}}},
            ]},
        },
        "volumes": [
            {"name": "root", "containerDisk": {"image": "any"}},
            claim("claim"),
            claim("cd"),
            {"name": "host", "hostDisk": {"path": "/any/disk.img", "type": "Disk"}},
            {"name": "empty", "emptyDisk": {"capacity": "2Mi"}},
            {"name": "ephemeral", "ephemeral": {"persistentVolumeClaim": {"claimName": "claim"}}},
            {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n"}},
            {"name": "drive", "cloudInitConfigDrive": {"userData": "{}"}},
            {"name": "config", "configMap": {"name": "any"}},
            {"name": "metrics", "downwardMetrics": {}},
        ],
    });
    let metadata = json!({"namespace": "default", "name": "volumes", "uid": UID});
    Ok(serde_json::from_value(json!({"metadata": metadata, "spec": spec}))?)
}

fn boot(vmi: &VirtualMachineInstance, prepared: &Prepared) -> Result<Guard> {
    let program = std::env::var_os("CORTEN_VMM").context("CORTEN_VMM names no program")?;
    let kvm = File::options().read(true).write(true).open("/dev/kvm")?;
    let disks = prepared.disks.clone();
    let resolved = Resolved { disks, guest_cid: Some(7), ..Resolved::default() };
    let plan = plan(vmi, &resolved)?;
    let opened = prepared.descriptors.iter().map(|(role, fd)| (role.clone(), fd.as_fd()));
    let mut descriptors: Vec<(Role, BorrowedFd<'_>)> = opened.collect();
    descriptors.push((Role::kvm(), kvm.as_fd()));
    Ok(Guard(Vmm::start(Path::new(&program), &descriptors, plan.machine, false)?))
}

/// Waits until the machine says how it is, or why it is not.
fn state(vmm: &mut Guard) -> Result<RunState> {
    vmm.0.ask(Request::Info)?;
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline {
        match vmm.0.receive()? {
            Some(Message::Reply { reply: Reply::Info { info }, .. }) => return Ok(info.state),
            Some(Message::Reply { reply: Reply::Done, .. }) => {}
            Some(message) => bail!("it said {message:?}"),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    bail!("it said nothing")
}

#[test]
fn vm_process_takes_every_kind_of_volume_and_a_second_one_is_told_who_has_them() -> Result<()> {
    let root = tempfile::tempdir()?;
    let root = root.path().canonicalize()?;
    let (mounts, vmi) = (mounts(&root)?, vmi()?);
    let scratch = Scratch::Nameless(root.join("scratch"));
    let mut vmm = boot(&vmi, &prepare(&vmi, &mounts, &scratch)?)?;
    let state = state(&mut vmm)?;
    ensure!(state == RunState::Running, "{state:?}");

    let refused = prepare(&vmi, &mounts, &scratch).err().context("its disks are in use")?;
    let text = corten_launcher::log::chain(&refused);
    let (path, pid) = (root.join("volumes/claim/disk.img"), vmm.0.pid());
    let holder = format!("disk {} is in use by process {pid} (corten-vmm)", path.display());
    ensure!(text.ends_with(&holder), "{text}");
    drop(vmm);
    prepare(&vmi, &mounts, &scratch)?;
    Ok(())
}

#[test]
fn shareable_disk_is_had_by_two_vm_processes_and_by_nobody_alone() -> Result<()> {
    let root = tempfile::tempdir()?;
    let root = root.path().canonicalize()?;
    let mounts = mounts(&root)?;
    let scratch = Scratch::Nameless(root.join("scratch"));
    let vmi = |is_shared: bool| -> Result<VirtualMachineInstance> {
        let mut vmi = vmi()?;
        vmi.spec.volumes.retain(|volume| volume.name == "claim");
        vmi.spec.domain.devices.disks.retain(|disk| disk.name == "claim");
        vmi.spec.domain.devices.disks[0].shareable = Some(is_shared);
        Ok(vmi)
    };
    let shared = vmi(true)?;
    let mut first = boot(&shared, &prepare(&shared, &mounts, &scratch)?)?;
    ensure!(state(&mut first)? == RunState::Running);
    let mut second = boot(&shared, &prepare(&shared, &mounts, &scratch)?)?;
    ensure!(state(&mut second)? == RunState::Running);
    let alone = prepare(&vmi(false)?, &mounts, &scratch).err().context("it is shared")?;
    let text = corten_launcher::log::chain(&alone);
    ensure!(text.contains("disk.img is in use by process"), "{text}");
    Ok(())
}

#[test]
fn disk_that_a_vm_process_reads_is_shared_with_readers_and_written_to_by_nobody() -> Result<()> {
    let root = tempfile::tempdir()?;
    let root = root.path().canonicalize()?;
    let mounts = mounts(&root)?;
    let scratch = Scratch::Nameless(root.join("scratch"));
    let vmi = |is_read: bool| -> Result<VirtualMachineInstance> {
        let mut vmi = vmi()?;
        vmi.spec.volumes.retain(|volume| volume.name == "claim");
        vmi.spec.domain.devices.disks.retain(|disk| disk.name == "claim");
        let claim = vmi.spec.volumes[0].persistent_volume_claim.as_mut().context("a claim")?;
        claim.read_only = Some(is_read);
        Ok(vmi)
    };
    let (reader, writer) = (vmi(true)?, vmi(false)?);
    let mut first = boot(&reader, &prepare(&reader, &mounts, &scratch)?)?;
    ensure!(state(&mut first)? == RunState::Running);
    let mut second = boot(&reader, &prepare(&reader, &mounts, &scratch)?)?;
    ensure!(state(&mut second)? == RunState::Running);
    drop(second);
    let refused = prepare(&writer, &mounts, &scratch).err().context("it is read")?;
    let text = corten_launcher::log::chain(&refused);
    let holder = format!("disk.img is in use by process {} (corten-vmm)", first.0.pid());
    ensure!(text.ends_with(&holder), "{text}");
    drop(first);

    let mut first = boot(&writer, &prepare(&writer, &mounts, &scratch)?)?;
    ensure!(state(&mut first)? == RunState::Running);
    let refused = prepare(&reader, &mounts, &scratch).err().context("it is written to")?;
    let text = corten_launcher::log::chain(&refused);
    let holder = format!("disk.img is in use by process {} (corten-vmm)", first.0.pid());
    ensure!(text.ends_with(&holder), "{text}");
    Ok(())
}
