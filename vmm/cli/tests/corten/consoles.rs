//! Consoles that their manifests do not want logged, or not at all.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::rig::{FOR_EVER, POWER_OFF, Rig};

#[test]
fn console_that_is_not_to_be_logged_is_shown_and_written_nowhere() -> Result<()> {
    let rig = Rig::new()?;
    let mut vmi = Rig::vmi("first", FOR_EVER);
    vmi["spec"]["domain"]["devices"]["logSerialConsole"] = json!(false);
    let running = rig.run(&vmi, &[])?;
    running.wait_for("microguest by PVH entry")?;
    ensure!(!rig.path("run/first/console.log").exists());
    for arguments in [&["logs", "first"][..], &["logs", "first", "--follow"]] {
        rig.corten(arguments)?.with(1)?.said("the console of first is not logged")?;
    }
    rig.corten(&["kill", "first"])?.with(0)?;
    running.end()?.with(80)?;
    rig.is_clean(&[])
}

#[test]
fn guest_without_a_serial_console_runs_unheard() -> Result<()> {
    let rig = Rig::new()?;
    let mut vmi = Rig::vmi("first", POWER_OFF);
    vmi["spec"]["domain"]["devices"]["autoattachSerialConsole"] = json!(false);
    let mut running = rig.run(&vmi, &[])?;
    running.close_input();
    let ended = running.end()?.with(0)?.said("first: it has no serial console")?;
    ensure!(ended.stdout.is_empty(), "{}", ended.stdout);
    rig.is_clean(&[])
}
