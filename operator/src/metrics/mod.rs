//! What the operator counts, as Prometheus reads it. `docs/metrics.md` lists every name; a test keeps it whole.
//!
//! KubeVirt's names where it has one for the thing, so that its dashboards and alerts find it; `corten_` before the rest.
//! Labels come from fixed sets. The exception is what KubeVirt names per VM, and that ends with the object.

mod population;
mod requests;

pub use population::{Population, follow, population};
pub use requests::CountRequests;

use corten_serving::metrics::{Family, Kind, write_process};
use jiff::Timestamp;
use std::time::{Duration, Instant};

/// Seconds from a fraction of a millisecond to half a minute.
const SHORT: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// Seconds of which a VM's phases take some: KubeVirt's edges, and finer ones beside them where ours are.
const PHASES: &[f64] = &[
    1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0,
    1200.0, 1800.0, 3600.0,
];

static INFO: Family =
    Family::new("kubevirt_info", "Version of Corten.", Kind::Gauge, &["kubeversion"]);
static OPERATOR_READY: Family = Family::new(
    "kubevirt_virt_operator_ready_status",
    "1 if this replica serves webhooks.",
    Kind::Gauge,
    &[],
);
static OPERATOR_LEADING: Family = Family::new(
    "kubevirt_virt_operator_leading_status",
    "1 if this replica leads: it applies what is installed.",
    Kind::Gauge,
    &[],
);
static CONTROLLER_READY: Family = Family::new(
    "kubevirt_virt_controller_ready_status",
    "1 if this replica runs controllers, or would as soon as it leads.",
    Kind::Gauge,
    &[],
);
static CONTROLLER_LEADING: Family = Family::new(
    "kubevirt_virt_controller_leading_status",
    "1 if this replica leads: it runs the controllers.",
    Kind::Gauge,
    &[],
);
static REQUESTS: Family = Family::new(
    "kubevirt_rest_client_requests_total",
    "Requests to the API server.",
    Kind::Counter,
    &["code", "method", "resource", "verb"],
);
static REQUEST_LATENCY: Family = Family::new(
    "kubevirt_rest_client_request_latency_seconds",
    "Time until the API server began to answer. Watches are left out.",
    Kind::Histogram(SHORT),
    &["verb"],
);
static TRANSITION: Family = Family::new(
    "kubevirt_vmi_phase_transition_time_seconds",
    "Time that VirtualMachineInstances spent in a phase before this one.",
    Kind::Histogram(PHASES),
    &["phase", "last_phase"],
);
static TRANSITION_FROM_CREATION: Family = Family::new(
    "kubevirt_vmi_phase_transition_time_from_creation_seconds",
    "Time from the creation of VirtualMachineInstances to this phase.",
    Kind::Histogram(PHASES),
    &["phase"],
);
static RECONCILE: Family = Family::new(
    "corten_reconcile_duration_seconds",
    "Time that one reconciliation took.",
    Kind::Histogram(SHORT),
    &["controller", "result"],
);
static WRITES: Family = Family::new(
    "corten_writes_total",
    "Writes to the API server, also those that it refused.",
    Kind::Counter,
    &["resource", "verb"],
);
static REVIEWS: Family = Family::new(
    "corten_admission_reviews_total",
    "Admission reviews that were answered.",
    Kind::Counter,
    &["resource", "operation", "allowed"],
);
static REVIEW_DURATION: Family = Family::new(
    "corten_admission_review_duration_seconds",
    "Time that one answer to an admission review took.",
    Kind::Histogram(SHORT),
    &["path"],
);
static CONNECTIONS: Family = Family::new(
    "corten_webhook_connections",
    "Connections to the webhook server that are open.",
    Kind::Gauge,
    &[],
);
static CERTIFICATE: Family = Family::new(
    "corten_serving_certificate_expiry_timestamp_seconds",
    "When the serving certificate expires.",
    Kind::Gauge,
    &[],
);

static ALL: [&Family; 15] = [
    &INFO,
    &OPERATOR_READY,
    &OPERATOR_LEADING,
    &CONTROLLER_READY,
    &CONTROLLER_LEADING,
    &REQUESTS,
    &REQUEST_LATENCY,
    &TRANSITION,
    &TRANSITION_FROM_CREATION,
    &RECONCILE,
    &WRITES,
    &REVIEWS,
    &REVIEW_DURATION,
    &CONNECTIONS,
    &CERTIFICATE,
];

/// How a reconciliation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As planned.
    Done,
    /// Somebody else wrote in between.
    Conflict,
    /// With an error.
    Failed,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Conflict => "conflict",
            Self::Failed => "failed",
        }
    }
}

/// A reconciliation of this controller ended.
pub fn reconciled(controller: &'static str, outcome: Outcome, took: Duration) {
    RECONCILE.observe(&[controller, outcome.as_str()], took.as_secs_f64());
}

/// An admission review was answered. Both words must be from fixed sets.
pub(crate) fn reviewed(resource: &str, operation: &str, allowed: bool) {
    REVIEWS.add(&[resource, operation, if allowed { "true" } else { "false" }]);
}

/// An answer was given on this path, which must be a known one.
pub(crate) fn answered(path: &str, since: Instant) {
    REVIEW_DURATION.observe(&[path], since.elapsed().as_secs_f64());
}

/// So many connections to webhooks are open.
pub fn connections(count: usize) {
    CONNECTIONS.set(&[], f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
}

/// The serving certificate expires then.
pub(crate) fn certificate_expires(at: Timestamp) {
    CERTIFICATE.set(&[], at.as_duration().as_secs_f64());
}

/// Whether this replica leads.
pub fn leading(leads: bool) {
    let value = f64::from(u8::from(leads));
    OPERATOR_LEADING.set(&[], value);
    CONTROLLER_LEADING.set(&[], value);
}

/// Everything, as Prometheus reads it. `ready` is whether this replica serves.
pub fn text(ready: bool) -> String {
    INFO.set(&[concat!("v", env!("CARGO_PKG_VERSION"))], 1.0);
    OPERATOR_READY.set(&[], f64::from(u8::from(ready)));
    CONTROLLER_READY.set(&[], f64::from(u8::from(ready)));
    let mut text = String::new();
    for family in ALL {
        family.write(&mut text);
    }
    population().write(&mut text);
    write_process(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_in_the_docs_and_every_name_of_the_docs_is_told() {
        let page = include_str!("../../../docs/metrics.md");
        let (page, _) = page.split_once("\n## Node agents\n").unwrap();
        population().note_machine("metrics-docs", "m", "Running");
        let vmi = crate::vmi::testing::minimal_vmi(|_| ());
        population().note_instance(&vmi);
        let told = text(true);
        let names: Vec<_> = told
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        for name in &names {
            assert!(page.contains(&format!("| `{name}` |")), "docs/metrics.md lacks {name}");
        }
        for line in page.lines().filter(|line| line.starts_with("| `")) {
            let name = line.split('`').nth(1).unwrap();
            assert!(names.contains(&name), "docs/metrics.md has {name}, which nobody tells");
        }
    }

    #[test]
    fn names_are_told_once() {
        let told = text(true);
        let mut names: Vec<_> = told.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
