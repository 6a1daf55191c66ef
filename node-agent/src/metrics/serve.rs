//! The port that Prometheus asks.

use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use corten_serving::answer::{Answer, metrics, text};
use corten_serving::port::{self, Limits, Port};
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tracing::{info, warn};

use super::Scraper;

/// Prometheus has one or two; the port is on the node's network, where others are, too.
const CONNECTIONS: usize = 16;
/// How long one is kept that asks for nothing: whoever asks more rarely connects again.
const IDLE: Duration = Duration::from_secs(35);
/// Between tries to listen. The port may be somebody else's for a while: the agent before this one, as a rule.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Answers without end. A port that cannot be had is said, and tried again: VMs do not need it.
pub async fn serve(scraper: Scraper, address: IpAddr, port: u16) {
    let address = SocketAddr::new(address, port);
    let listener = listen(address).await;
    info!(%address, "metrics are served");
    let limits = Limits { connections: CONNECTIONS, header: IDLE, ..Limits::default() };
    let port = Port { listener, tls: None, limits, opened: None };
    port::serve(port, move |request| answer(scraper.clone(), request), pending()).await;
}

async fn listen(address: SocketAddr) -> TcpListener {
    let mut said = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(error) if !said => warn!(%address, %error, "metrics cannot be served yet"),
            Err(_) => {}
        }
        said = true;
        sleep(AGAIN_AFTER).await;
    }
}

async fn answer(scraper: Scraper, request: Request<Incoming>) -> Answer {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => metrics(scraper.text().await),
        (_, "/metrics") => text(StatusCode::METHOD_NOT_ALLOWED, "GET it"),
        _ => text(StatusCode::NOT_FOUND, "there is /metrics"),
    }
}
