//! Requests to real ports of this machine.

use super::*;
use crate::Stopper;
use corten_serving::port::{Limits, Port, serve};
use http_body_util::BodyExt;
use std::future::{pending, ready};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const SHORT: Limits = Limits {
    connections: 2,
    handshake: Duration::from_millis(200),
    header: Duration::from_millis(300),
    request: Duration::from_millis(300),
    linger: Duration::ZERO,
    drain: Duration::from_secs(2),
};

async fn body_length(request: Request<Incoming>) -> Answer {
    match body::read(request.into_body()).await {
        Ok(body) => text(StatusCode::OK, body.bytes().len().to_string()),
        Err(BodyError::TooLong) => text(StatusCode::PAYLOAD_TOO_LARGE, "long"),
        Err(error) => text(StatusCode::BAD_REQUEST, error.to_string()),
    }
}

async fn started(tls: Option<Arc<ServerConfig>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let port = Port { listener, tls, limits: SHORT, opened: None };
    tokio::spawn(serve(port, body_length, pending()));
    address
}

/// Sends bytes, and reads until the other side closes.
async fn exchange(address: SocketAddr, sent: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(sent).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await.expect("no end");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_before_it_is_read() {
    let address = started(None).await;
    let head = format!(
        "POST /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        9 << 20
    );
    let answer = exchange(address, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn without_a_certificate_there_is_no_tls_and_the_port_goes_on() {
    let address = started(Some(tls(Arc::default()).unwrap())).await;
    for rubbish in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\xff\xff\x01", b""] {
        exchange(address, rubbish).await;
    }
    TcpStream::connect(address).await.unwrap();
}

#[tokio::test]
async fn health_tells_whether_webhooks_are_served() {
    let (stopper, stop) = Stopper::new();
    let serving = ServingCertificate::default();
    let status = |path: &str| health(path, &serving, &stop).status().as_u16();
    assert_eq!([status("/healthz"), status("/readyz"), status("/x")], [200, 503, 404]);
    let body =
        ready(health("/metrics", &serving, &stop)).await.into_body().collect().await.unwrap();
    let body = String::from_utf8(body.to_bytes().to_vec()).unwrap();
    assert!(body.contains("kubevirt_virt_operator_ready_status"), "{body}");
    stopper.stop();
    assert_eq!([status("/healthz"), status("/readyz")], [200, 503]);
}
