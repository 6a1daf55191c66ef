//! VMs in files.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Result, ensure};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;

use crate::rig::{POWER_OFF, Rig};

const TWO_LINES: &str = "typed lines=2";

#[test]
fn saved_vm_goes_on_as_often_as_wanted_under_any_name() -> Result<()> {
    let rig = Rig::new()?;
    rig.detached("first", &format!("{TWO_LINES} {POWER_OFF}"))?;
    let mut console = rig.start(&["console", "first"])?;
    console.wait_for("microguest")?;
    console.write("one\n")?;
    console.wait_for("\none\n")?;
    let (supervisor, process) = rig.processes("first")?;
    rig.corten(&["save", "first", "saved"])?
        .with(0)?
        .said("first: saved; `corten restore saved`")?;
    console.end()?.with(0)?.said("the VM was saved")?;
    rig.is_clean(&[supervisor, process])?;
    for name in ["memory", "records", "job.json"] {
        let mode = fs::metadata(rig.path("saved").join(name))?.permissions().mode();
        ensure!(mode & 0o777 == 0o600, "{name}: {mode:o}");
    }
    for name in ["first", "copy"] {
        let mut restored = rig.start(&["restore", "saved", "--name", name, "--any-kvm"])?;
        restored.wait_for_word("running after")?;
        restored.write("two\n")?;
        let ended = restored.end()?.with(0)?;
        ensure!(ended.stdout == "two\n", "{}", ended.stdout);
    }
    rig.is_clean(&[])
}

#[test]
fn vm_that_is_kept_goes_on_and_a_restored_one_can_stay_paused() -> Result<()> {
    let rig = Rig::new()?;
    rig.detached("first", &format!("{TWO_LINES} {POWER_OFF}"))?;
    rig.corten(&["save", "first", "saved", "--keep-running"])?.with(0)?;
    ensure!(rig.info("first")?["state"] == "running");
    let restore = ["restore", "saved", "--name", "copy", "--paused", "--detach", "--any-kvm"];
    rig.corten(&restore)?.with(0)?;
    ensure!(rig.info("copy")?["state"] == "paused");
    rig.corten(&["resume", "copy"])?.with(0)?;
    ensure!(rig.info("copy")?["state"] == "running");
    // It was paused before, so it is afterwards.
    rig.corten(&["pause", "copy"])?.with(0)?;
    rig.corten(&["save", "copy", "again", "--keep-running"])?.with(0)?;
    ensure!(rig.info("copy")?["state"] == "paused");
    for name in ["first", "copy"] {
        rig.corten(&["kill", name])?.with(0)?;
    }
    rig.is_clean(&[])
}

/// Saves a VM that does this, with a disk of its own.
fn save_with_disk(rig: &Rig, script: &str) -> Result<()> {
    let mut vmi = Rig::vmi("first", script);
    vmi["spec"]["volumes"] = json!([{"name": "scratch", "emptyDisk": {"capacity": "8Mi"}}]);
    vmi["spec"]["domain"]["devices"]["disks"] = json!([{"name": "scratch", "disk": {}}]);
    let mut running = rig.run(&vmi, &["--detach"])?;
    running.close_input();
    running.end()?.with(0)?;
    rig.corten(&["save", "first", "saved"])?.with(0)?;
    Ok(())
}

#[test]
fn disks_that_only_the_vm_has_are_saved_with_it() -> Result<()> {
    let rig = Rig::new()?;
    save_with_disk(&rig, &format!("{TWO_LINES} {POWER_OFF}"))?;
    ensure!(fs::metadata(rig.path("saved/disk-scratch"))?.len() == 8 << 20);
    let mut restored = rig.start(&["restore", "saved", "--any-kvm"])?;
    restored.wait_for_word("running after")?;
    restored.write("one\ntwo\n")?;
    restored.end()?.with(0)?;
    rig.is_clean(&[])
}

#[test]
fn disk_to_be_forced_that_the_vm_does_not_have_is_refused() -> Result<()> {
    let rig = Rig::new()?;
    save_with_disk(&rig, TWO_LINES)?;
    let restore = ["restore", "saved", "--force-disk", "scrach", "--any-kvm"];
    let words = "--force-disk scrach: the VM has no volume of that name; it has scratch";
    rig.corten(&restore)?.with(1)?.said(words)?;
    let restore = ["restore", "saved", "--force-disk", "scratch", "--detach", "--any-kvm"];
    rig.corten(&restore)?.with(0)?;
    rig.corten(&["kill", "first"])?.with(0)?;
    rig.is_clean(&[])
}

#[test]
fn save_that_fails_leaves_no_directory_and_the_vm_running() -> Result<()> {
    let rig = Rig::new()?;
    rig.detached("first", TWO_LINES)?;
    fs::create_dir(rig.path("there"))?;
    rig.corten(&["save", "first", "there"])?.with(1)?.said("cannot write there")?;
    ensure!(fs::read_dir(rig.path("there"))?.count() == 0);
    rig.corten(&["save", "first", "no/such/place"])?.with(1)?;
    rig.corten(&["save", "nobody", "saved"])?.with(1)?.said("no VM \"nobody\" runs")?;
    ensure!(!rig.path("saved").exists());
    ensure!(rig.info("first")?["state"] == "running");
    rig.corten(&["kill", "first"])?.with(0)?;
    let words = "there is no saved VM, which `corten save` writes: job.json: ";
    rig.corten(&["restore", "there", "--any-kvm"])?.with(1)?.said(words)?;
    rig.corten(&["restore", "nowhere", "--any-kvm"])?.with(1)?.said("cannot read ")?;
    // A pipe has nobody who writes to it.
    mkfifo(&rig.path("there/job.json"), Mode::S_IRWXU)?;
    rig.corten(&["restore", "there", "--any-kvm"])?.with(1)?.said("job.json: it is a pipe")?;
    rig.is_clean(&[])
}

#[test]
fn guest_that_had_no_way_to_tell_a_status_is_not_asked_for_one() -> Result<()> {
    let rig = Rig::new()?;
    rig.detached("first", TWO_LINES)?;
    rig.corten(&["save", "first", "saved"])?.with(0)?;
    let restore = ["restore", "saved", "--exit-status", "--any-kvm"];
    rig.corten(&restore)?.with(1)?.said("was run without it before it was saved")?;
    // One that had it has it again, though this guest says nothing.
    let run = Rig::vmi("first", &format!("{TWO_LINES} {POWER_OFF}"));
    let running = rig.run(&run, &["--exit-status"])?;
    running.wait_for("microguest")?;
    rig.corten(&["save", "first", "with"])?.with(0)?;
    running.end()?.with(87)?.said("first: the VM was saved; `corten restore` goes on with it")?;
    let job: serde_json::Value = serde_json::from_slice(&fs::read(rig.path("with/job.json"))?)?;
    ensure!(job["exit-status"] == true, "{job}");
    let mut restored = rig.start(&["restore", "with", "--exit-status", "--any-kvm"])?;
    restored.wait_for_word("running after")?;
    restored.write("one\ntwo\n")?;
    restored.end()?.with(88)?.said("told no status")?;
    // What a guest told before it was saved is known afterwards.
    let mut job = job;
    job["guest-status"] = 7.into();
    fs::write(rig.path("with/job.json"), job.to_string())?;
    let mut restored = rig.start(&["restore", "with", "--exit-status", "--any-kvm"])?;
    restored.wait_for_word("running after")?;
    restored.write("one\ntwo\n")?;
    restored.end()?.with(7)?.said("it told status 7")?;
    rig.is_clean(&[])
}

#[test]
fn damaged_vm_is_refused() -> Result<()> {
    let rig = Rig::new()?;
    rig.detached("first", TWO_LINES)?;
    rig.corten(&["save", "first", "saved"])?.with(0)?;
    fs::write(rig.path("saved/records"), "nothing of the kind")?;
    rig.corten(&["restore", "saved", "--any-kvm"])?.with(84)?;
    fs::write(rig.path("saved/job.json"), "{}")?;
    rig.corten(&["restore", "saved", "--any-kvm"])?.with(1)?.said("saved is no saved VM")?;
    rig.is_clean(&[])
}
