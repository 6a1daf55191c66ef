//! corten-node-agent; see the library.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use corten_node_agent::agent;
use corten_node_agent::options::Options;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};
use tracing_subscriber::EnvFilter;

/// What is logged unless `RUST_LOG` says otherwise. The client's own word on each failed request is left out: the agent
/// says it too, with what it was for.
const LOG: &str = "info,kube_client::client::builder=off";

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let options = Options::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(LOG));
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<()> {
    // The only provider in the tree; kube leaves the choice to the program.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider was installed before"))?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot receive SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot receive SIGINT")?;
    let client = kube::Client::try_default().await.context("no way to the API server")?;
    info!(node = options.node_name, devices = options.devices, "the agent starts");
    // Nothing has to be undone: launchers go on, and the next agent finds them.
    tokio::select! {
        ended = agent::run(options, client) => ended,
        _ = terminate.recv() => { info!("the agent ends: SIGTERM"); Ok(()) }
        _ = interrupt.recv() => { info!("the agent ends: SIGINT"); Ok(()) }
    }
}
