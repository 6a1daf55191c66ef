//! What the agent tells Prometheus: the numbers of its node's VMs, and of itself. `docs/metrics.md` lists every name.
//!
//! ```text
//!   GET /metrics --> VMIs of this node that run --> their launchers, all at once, with one deadline --> text
//!                                                   one that does not answer is told as such, and waited for no longer
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `table` | the numbers of VMs by name; pure |
//! | `vm` | what is known of one VM; pure |
//! | `scrape` | asks launchers |
//! | `serve` | the port |

mod scrape;
mod serve;
mod table;
mod vm;

pub use scrape::Scraper;
pub use serve::serve;
pub use vm::{Vm, VmAnswer};

use corten_serving::metrics::{Family, Kind, write_process};

static HANDLER_READY: Family = Family::new(
    "kubevirt_virt_handler_ready_status",
    "1 if VMs can be started on this node: its KVM can be used.",
    Kind::Gauge,
    &["node"],
);
static SILENCES: Family = Family::new(
    "corten_launcher_silences_total",
    "Times that the launcher of a VM that runs did not tell its numbers.",
    Kind::Counter,
    &["node", "reason"],
);

/// Everything, as Prometheus reads it.
fn text(node: &str, ready: bool, vms: &[Vm]) -> String {
    HANDLER_READY.set(&[node], f64::from(u8::from(ready)));
    let mut text = String::new();
    HANDLER_READY.write(&mut text);
    SILENCES.write(&mut text);
    table::write(&mut text, node, vms);
    write_process(&mut text);
    text
}

#[cfg(test)]
mod tests;
