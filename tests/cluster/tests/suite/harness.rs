//! A test that fails leaves behind what is needed to see why.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use corten_cluster::assets::TOOLS_IMAGE;

use crate::workbench::{Workbench, pod};

#[test]
fn failure_names_a_directory_with_its_evidence() -> Result<()> {
    let mut namespace = String::new();
    let outcome = Workbench::test("evidence", |bench| {
        namespace.clone_from(&bench.namespace);
        bench.create(pod("witness", TOOLS_IMAGE, &["-c", "echo I saw it; exec sleep 1000"]))?;
        bench.ready("witness")?;
        bail!("on purpose")
    });

    let error = outcome.unwrap_err();
    assert!(format!("{error:#}").ends_with(": on purpose"), "{error:#}");
    let said = error.to_string();
    let directory = said.strip_prefix("evidence of this failure is in ").context(said.clone())?;
    let directory = PathBuf::from(directory);
    let read = |name: &str| {
        let file = directory.join(&namespace).join(name);
        fs::read_to_string(&file).with_context(|| format!("no {}", file.display()))
    };
    assert!(read("witness.log")?.contains("I saw it"));
    assert!(read("events.txt")?.contains("Started"));
    assert!(read("describe.txt")?.contains(TOOLS_IMAGE));
    assert!(fs::read_to_string(directory.join("nodes.txt"))?.contains("Allocatable"));
    fs::remove_dir_all(&directory)?;
    Ok(())
}
