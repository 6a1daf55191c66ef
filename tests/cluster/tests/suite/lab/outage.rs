//! Nodes that fail.

use anyhow::{Context, Result};

use super::cluster;
use crate::workbench::kubectl;

/// Connects node 2 again, whatever becomes of the test: the others need it.
struct Cut;

impl Cut {
    fn node_2() -> Result<Self> {
        let cut = Self;
        cluster(&["node-cut", "2"])?;
        Ok(cut)
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        let _ = cluster(&["node-heal", "2"]);
    }
}

#[test]
fn node_that_is_cut_off_is_not_ready_until_it_is_healed() -> Result<()> {
    let kubectl = kubectl()?;
    let wait = |condition: &str, timeout: &str| {
        kubectl.run(&["wait", "node/node2", &format!("--for=condition=Ready={condition}"), timeout])
    };
    let cut = Cut::node_2()?;
    // The controller manager waits 50 s for a sign of life.
    wait("Unknown", "--timeout=240s").context("it does not become unknown")?;
    // The lab's own way into the node is not the network.
    assert_eq!(cluster(&["node-shell", "2", "--", "echo", "alive"])?, "alive\n");
    drop(cut);
    wait("True", "--timeout=120s").context("it does not come back")?;
    Ok(())
}
