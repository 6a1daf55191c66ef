//! Corten's control plane on a real API server, with simulated nodes: `scripts/cluster up --control-plane-only`.
//!
//! The operator is two processes beside the control plane ([`operator`]). What a node agent would write is written by
//! [`agent`], and only there. Tests in [`alone`] end operators or change what the others stand on.

mod admission;
mod agent;
mod alone;
mod definitions;
mod diagnosis;
mod examples;
mod instances;
mod machines;
mod objects;
mod operator;
mod outage;
mod sets;
mod writers;

use anyhow::{Context, Result};

use crate::workbench::Workbench;
use operator::Operators;

/// Runs the body of a test beside operators that serve.
fn test(purpose: &str, body: impl FnOnce(&mut Workbench, &Operators) -> Result<()>) -> Result<()> {
    let operators = Operators::serving()?;
    Workbench::test(purpose, |bench| body(bench, &operators))
        .with_context(|| format!("logs of the operators are in {}", operators.logs().display()))
}
