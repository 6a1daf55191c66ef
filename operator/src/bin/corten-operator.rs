//! Corten's operator: serves VirtualMachineInstances until SIGTERM.

#![forbid(unsafe_code)]

use anyhow::Context;
use clap::Parser;
use corten_operator::{Config, SeccompKind, Settings, vmi};
use std::io::stderr;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

/// Corten's operator
#[derive(Parser)]
#[command(version)]
struct Options {
    #[command(flatten)]
    config: Config,
    /// What is logged, as tracing's filters say it
    #[arg(long, env = "CORTEN_LOG", default_value = "info")]
    log: String,
    /// Name of the Pod, for events
    #[arg(long, env = "POD_NAME")]
    pod_name: Option<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let filter = EnvFilter::try_new(&options.log)
        .with_context(|| format!("{:?} is no log filter", options.log))?;
    let logs = tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter);
    // Every line names its object: what it was reconciled for would only say it again.
    logs.with_current_span(false).with_span_list(false).with_writer(stderr).init();
    // Both before anything else: the first process of a container has no default action for them.
    let stop = stop(signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    // Fails if there is a provider already, which is then as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = kube::Client::try_default()
        .await
        .context("cannot find the cluster: neither a service account nor a kubeconfig")?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        launcher = options.config.launcher_image,
        "started"
    );
    let settings = watch::Sender::new(Arc::new(settings(options.config)));
    vmi::run(client, settings.subscribe(), options.pod_name, stop).await;
    Ok(())
}

fn settings(config: Config) -> Settings {
    Settings {
        launcher_image: config.launcher_image,
        launcher_pull_policy: config.launcher_pull_policy,
        seccomp: SeccompKind::Localhost,
        cpu_allocation_ratio: 10,
        image_pull_secrets: Vec::new(),
    }
}

async fn stop(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
}
