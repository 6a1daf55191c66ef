//! From the start of a VM to all the ways it can end.

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use crate::rig::{
    FOR_EVER, POWER_OFF, POWER_OFF_LATER, POWER_OFF_WHEN_TYPED, Rig, read, wait_until,
};

#[test]
fn guest_that_powers_off_is_a_success_and_leaves_nothing() -> Result<()> {
    let rig = Rig::new()?;
    let mut running = rig.run(&Rig::vmi("first", POWER_OFF), &[])?;
    running.close_input();
    let ended = running.end()?.with(0)?;
    ensure!(ended.stdout.starts_with("microguest by PVH entry: "), "{}", ended.stdout);
    ensure!(ended.stderr.starts_with("first: parsed after "), "{}", ended.stderr);
    for word in
        ["images after ", "disks after ", "VM process after ", "running after ", "first output"]
    {
        ensure!(ended.stderr.contains(&format!("first: {word}")), "no {word}: {}", ended.stderr);
    }
    ensure!(ended.stderr.ends_with("first: the guest powered off\n"), "{}", ended.stderr);
    rig.is_clean(&[])
}

#[test]
fn what_is_typed_reaches_the_guest() -> Result<()> {
    let rig = Rig::new()?;
    let mut running = rig.run(&Rig::vmi("first", POWER_OFF_WHEN_TYPED), &["--quiet"])?;
    running.wait_for("microguest")?;
    running.write("typed in a test\n")?;
    let ended = running.end()?.with(0)?;
    ensure!(ended.stdout.ends_with("\ntyped in a test\n"), "{}", ended.stdout);
    ensure!(ended.stderr.is_empty(), "{}", ended.stderr);
    rig.is_clean(&[])
}

#[test]
fn reasons_of_the_end_are_told_apart_by_the_status() -> Result<()> {
    let rig = Rig::new()?;
    let cases = [
        ("doorbell port=0x505 size=1 value=1", 81, "the guest's kernel panicked"),
        ("shutdown", 82, "triple fault"),
    ];
    for (commands, status, text) in cases {
        let mut running = rig.run(&Rig::vmi("first", commands), &[])?;
        running.close_input();
        running.end()?.with(status)?.said(text)?;
    }
    rig.is_clean(&[])
}

#[test]
fn vm_in_the_background_is_listed_described_paused_and_stopped() -> Result<()> {
    let rig = Rig::new()?;
    rig.detached("first", FOR_EVER)?;
    let listed = rig.corten(&["ps"])?.with(0)?.stdout;
    ensure!(listed.starts_with("NAME ") && listed.contains("\nfirst  running  1 "), "{listed}");
    let listed: Value = serde_json::from_str(&rig.corten(&["ps", "--json"])?.with(0)?.stdout)?;
    ensure!(listed[0]["name"] == "first" && listed[0]["memory"] == 32 << 20, "{listed}");
    let info = rig.info("first")?;
    ensure!(info["state"] == "running" && info["vcpus"] == 1, "{info}");
    ensure!(info["counters"]["port-exits"].as_u64() > Some(0), "{info}");
    ensure!(info["memory-use"]["allocated"].as_u64() > Some(0), "{info}");
    ensure!(info["guest-agent"]["connected"] == false, "{info}");
    let described = rig.corten(&["info", "first"])?.with(0)?.stdout;
    ensure!(described.contains("\nguest agent   not connected\n"), "{described}");
    for order in [&["freeze", "first", "--limit", "5"][..], &["thaw", "first"]] {
        rig.corten(order)?.with(1)?.said("the guest agent is not connected")?;
    }
    rig.corten(&["pause", "first"])?.with(0)?;
    rig.corten(&["pause", "first"])?.with(0)?;
    ensure!(rig.info("first")?["state"] == "paused");
    rig.corten(&["resume", "first"])?.with(0)?;
    ensure!(rig.info("first")?["state"] == "running");
    let logs = rig.corten(&["logs", "first"])?.with(0)?.stdout;
    ensure!(logs.starts_with("microguest by PVH entry: loop"), "{logs}");
    let (supervisor, process) = rig.processes("first")?;
    // The guest does not look at its power button.
    let stopped = rig.corten(&["stop", "first", "--grace", "1"])?.with(0)?;
    stopped.said("the guest did not power off within 1 s of the power button")?;
    rig.is_clean(&[supervisor, process])?;
    ensure!(rig.corten(&["ps"])?.with(0)?.stdout.lines().count() == 1);
    for command in ["info", "stop", "kill", "pause", "resume", "freeze", "thaw", "logs", "console"]
    {
        rig.corten(&[command, "first"])?.with(1)?.said("no VM \"first\" runs")?;
    }
    Ok(())
}

#[test]
fn vm_that_starts_paused_does_nothing_until_it_is_resumed() -> Result<()> {
    let rig = Rig::new()?;
    let mut vmi = Rig::vmi("first", FOR_EVER);
    vmi["spec"]["startStrategy"] = "Paused".into();
    let mut running = rig.run(&vmi, &["--detach"])?;
    running.close_input();
    running.end()?.with(0)?.said("(paused until `corten resume`)")?;
    let info = rig.info("first")?;
    ensure!(info["state"] == "paused", "{info}");
    for exits in ["port-exits", "memory-exits", "kicks"] {
        ensure!(info["counters"][exits] == 0, "{exits}: {info}");
    }
    ensure!(rig.corten(&["logs", "first"])?.with(0)?.stdout.is_empty());
    rig.corten(&["resume", "first"])?.with(0)?;
    ensure!(rig.info("first")?["state"] == "running");
    let logs = || Ok::<_, anyhow::Error>(rig.corten(&["logs", "first"])?.with(0)?.stdout);
    wait_until(|| logs().is_ok_and(|logs| logs.starts_with("microguest by PVH entry")))?;
    rig.corten(&["kill", "first"])?.with(0)?;
    rig.is_clean(&[])
}

#[test]
fn why_nothing_was_booted_is_told_with_the_status() -> Result<()> {
    let rig = Rig::new()?;
    let mut disk = vec![0x11; 1 << 20];
    disk[..4].copy_from_slice(b"XFSB");
    std::fs::write(rig.path("disk.img"), disk)?;
    let mut vmi = Rig::vmi("first", "");
    vmi["spec"]["domain"]["firmware"] = Value::Null;
    let host_disk = json!({"path": rig.path("disk.img"), "type": "Disk"});
    vmi["spec"]["volumes"] = json!([{"name": "root", "hostDisk": host_disk}]);
    let mut running = rig.run(&vmi, &["--detach"])?;
    running.close_input();
    running.end()?.with(0)?;
    let info = rig.info("first")?;
    ensure!(info["boot"]["what"] == "nothing", "{info}");
    ensure!(info["boot"]["reasons"].to_string().contains("an xfs file system"), "{info}");
    let text = rig.corten(&["info", "first"])?.with(0)?.stdout;
    ensure!(text.contains("\nboot          nothing: "), "{text}");
    ensure!(text.contains("an xfs file system"), "{text}");
    rig.corten(&["kill", "first"])?.with(0)?;
    rig.is_clean(&[])
}

#[test]
fn disk_that_is_made_stays_with_a_vm_that_ran_and_goes_with_one_that_did_not() -> Result<()> {
    let rig = Rig::new()?;
    let disk = rig.path("disk.img");
    let mut vmi = Rig::vmi("first", POWER_OFF);
    let host_disk = json!({"path": disk, "type": "DiskOrCreate", "capacity": "1Mi"});
    vmi["spec"]["volumes"] = json!([{"name": "data", "hostDisk": host_disk}]);
    // The VM process itself finds that this is no kernel.
    std::fs::write(rig.path("image/boot/empty"), "")?;
    let kernel = "/spec/domain/firmware/kernelBoot/container/kernelPath";
    let mut broken = vmi.clone();
    if let Some(path) = broken.pointer_mut(kernel) {
        *path = "/boot/empty".into();
    }
    for (vmi, status, is_left) in [(&broken, 84, false), (&vmi, 0, true), (&broken, 84, true)] {
        let mut running = rig.run(vmi, &[])?;
        running.close_input();
        running.end()?.with(status)?;
        ensure!(disk.exists() == is_left, "{status}");
    }
    rig.is_clean(&[])
}

#[test]
fn killed_vm_is_gone_at_once() -> Result<()> {
    let rig = Rig::new()?;
    rig.detached("first", FOR_EVER)?;
    rig.detached("second", FOR_EVER)?;
    let (supervisor, process) = rig.processes("first")?;
    rig.corten(&["kill", "first"])?.with(0)?;
    let listed = rig.corten(&["ps"])?.with(0)?.stdout;
    ensure!(listed.lines().count() == 2 && listed.contains("\nsecond "), "{listed}");
    rig.corten(&["kill", "second"])?.with(0)?;
    rig.is_clean(&[supervisor, process])
}

#[test]
fn console_is_left_and_come_back_to() -> Result<()> {
    let rig = Rig::new()?;
    rig.detached("first", &format!("typed lines=2 {POWER_OFF}"))?;
    let mut first = rig.start(&["console", "first"])?;
    first.wait_for("microguest")?;
    first.write("one\n")?;
    first.wait_for("\none\n")?;
    // A second one looks, and cannot type meanwhile.
    let mut second = rig.start(&["console", "first"])?;
    second.wait_for("\none\n")?;
    second.wait_for_word("has the keyboard")?;
    second.write("nobody hears this\n")?;
    let follower = rig.start(&["logs", "first", "--follow"])?;
    follower.wait_for("\none\n")?;
    first.signal(Signal::SIGTERM)?;
    first.end()?.with(0)?;
    let mut third = rig.start(&["console", "first", "--take"])?;
    third.wait_for("\none\n")?;
    third.write("two\n")?;
    for viewer in [third, second, follower] {
        let ended = viewer.end()?.with(0)?;
        ensure!(ended.stdout.ends_with("\none\ntwo\n"), "{}", ended.stdout);
        ended.said("first: the guest powered off")?;
    }
    rig.is_clean(&[])
}

#[test]
fn second_vm_of_a_name_is_refused_with_the_holder_and_the_first_goes_on() -> Result<()> {
    let rig = Rig::new()?;
    rig.detached("first", FOR_EVER)?;
    let (supervisor, process) = rig.processes("first")?;
    let mut second = rig.run(&Rig::vmi("first", POWER_OFF), &[])?;
    second.close_input();
    second.end()?.with(84)?.said(&format!("first runs already, kept by process {supervisor}"))?;
    ensure!(rig.processes("first")? == (supervisor, process));
    let mut named = rig.run(&Rig::vmi("first", POWER_OFF), &["--name", "another"])?;
    named.close_input();
    named.end()?.with(0)?;
    rig.corten(&["kill", "first"])?.with(0)?;
    rig.is_clean(&[supervisor, process])
}

#[test]
fn vm_dies_with_its_supervisor_and_the_next_command_cleans_up() -> Result<()> {
    let rig = Rig::new()?;
    rig.detached("first", FOR_EVER)?;
    let (supervisor, process) = rig.processes("first")?;
    kill(supervisor, Signal::SIGKILL)?;
    wait_until(|| !std::path::Path::new(&format!("/proc/{process}")).exists())?;
    ensure!(rig.path("run/first").exists());
    ensure!(rig.corten(&["ps"])?.with(0)?.stdout.lines().count() == 1);
    rig.is_clean(&[supervisor, process])
}

#[test]
fn client_whose_supervisor_was_killed_says_so_and_leaves_nothing() -> Result<()> {
    let rig = Rig::new()?;
    let running = rig.run(&Rig::vmi("first", FOR_EVER), &["--junit", "result.xml"])?;
    running.wait_for("microguest")?;
    // There is a report at each moment.
    let xml = read(&rig.path("result.xml"))?;
    ensure!(xml.contains("<error message=\"corten was ended before the VM was\"/>"), "{xml}");
    let (supervisor, process) = rig.processes("first")?;
    kill(supervisor, Signal::SIGKILL)?;
    running.end()?.with(1)?.said("the supervisor of first is gone")?;
    let xml = read(&rig.path("result.xml"))?;
    ensure!(xml.contains("<error message=\"the supervisor of first is gone"), "{xml}");
    ensure!(xml.contains("<system-out>microguest by PVH entry: loop\n"), "{xml}");
    rig.is_clean(&[supervisor, process])
}

#[test]
fn vm_ends_with_the_client_that_it_lives_with() -> Result<()> {
    let rig = Rig::new()?;
    let running = rig.run(&Rig::vmi("first", FOR_EVER), &[])?;
    running.wait_for("microguest")?;
    let (supervisor, process) = rig.processes("first")?;
    running.signal(Signal::SIGKILL)?;
    rig.is_clean(&[supervisor, process])
}

#[test]
fn first_interrupt_presses_the_power_button_and_the_second_kills() -> Result<()> {
    let rig = Rig::new()?;
    let mut patient = Rig::vmi("patient", FOR_EVER);
    patient["spec"]["terminationGracePeriodSeconds"] = 600.into();
    let running = rig.run(&patient, &[])?;
    running.wait_for("microguest")?;
    running.signal(Signal::SIGINT)?;
    running.wait_for_word("power button was pressed")?;
    running.signal(Signal::SIGINT)?;
    running.end()?.with(80)?.said("the VM was killed")?;
    let mut obedient = Rig::vmi("obedient", POWER_OFF_LATER);
    obedient["spec"]["terminationGracePeriodSeconds"] = 600.into();
    let running = rig.run(&obedient, &[])?;
    running.wait_for("microguest")?;
    running.signal(Signal::SIGTERM)?;
    running.end()?.with(0)?.said("power button was pressed")?;
    rig.is_clean(&[])
}

#[test]
fn vm_process_that_is_killed_from_outside_is_told_so() -> Result<()> {
    let rig = Rig::new()?;
    let running = rig.run(&Rig::vmi("first", FOR_EVER), &[])?;
    running.wait_for("microguest")?;
    let (supervisor, process) = rig.processes("first")?;
    kill(process, Signal::SIGKILL)?;
    let told = "the VM was killed: its process was ended by SIGKILL from outside";
    running.end()?.with(80)?.said(told)?;
    rig.is_clean(&[supervisor, process])
}

#[test]
fn time_that_is_over_is_a_status_of_its_own_and_stands_in_the_report() -> Result<()> {
    let rig = Rig::new()?;
    let report = rig.path("result.xml");
    let report_text = report.display().to_string();
    let more = ["--timeout", "1", "--junit", &report_text, "--log", "copy.log"];
    let mut running = rig.run(&Rig::vmi("first", FOR_EVER), &more)?;
    running.close_input();
    running.end()?.with(124)?.said("its time of 1 s was over")?;
    let xml = read(&report)?;
    ensure!(
        xml.contains("<failure message=\"the VM was killed: its time of 1 s was over\"/>"),
        "{xml}"
    );
    ensure!(xml.contains("<system-out>microguest by PVH entry: loop\n"), "{xml}");
    ensure!(read(&rig.path("copy.log"))?.starts_with("microguest"));
    let mut running = rig.run(&Rig::vmi("first", POWER_OFF), &["--junit", &report_text])?;
    running.close_input();
    running.end()?.with(0)?;
    ensure!(read(&report)?.contains("failures=\"0\""));
    rig.is_clean(&[])
}

/// As one that hangs in its boot.
#[test]
fn guest_that_never_says_anything_ends_by_its_timeout() -> Result<()> {
    let rig = Rig::new()?;
    let mut running = rig.run(&Rig::vmi("first", "quiet loop"), &["--timeout", "1"])?;
    running.close_input();
    let ended = running.end()?.with(124)?.said("first: its time of 1 s is over")?;
    ensure!(ended.stdout.is_empty(), "{}", ended.stdout);
    ensure!(!ended.stderr.contains("first output"), "{}", ended.stderr);
    rig.is_clean(&[])
}

#[test]
fn guest_that_should_tell_a_status_and_tells_none_is_a_failure() -> Result<()> {
    let rig = Rig::new()?;
    let mut running = rig.run(&Rig::vmi("first", POWER_OFF), &["--exit-status"])?;
    running.close_input();
    running.end()?.with(88)?.said("told no status")?;
    rig.is_clean(&[])
}
