//! Requests to real ports of this machine.

use super::*;
use crate::Stopper;
use http_body_util::BodyExt;
use std::future::ready;
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

async fn started(limits: Limits) -> (SocketAddr, crate::Stopper, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stopper, stop) = Stopper::new();
    let task = tokio::spawn(serve(Port { listener, tls: None, limits }, body_length, stop));
    (address, stopper, task)
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
async fn a_request_is_answered_and_a_stalled_one_is_not_waited_for() {
    let (address, _stopper, _task) = started(SHORT).await;
    let answer = exchange(
        address,
        b"POST /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n3"), "{answer}");
    // No header, half a header, half a body: each ends.
    exchange(address, b"").await;
    exchange(address, b"POST /a HTT").await;
    let answer =
        exchange(address, b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc").await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_before_it_is_read() {
    let (address, _stopper, _task) = started(SHORT).await;
    let head = format!(
        "POST /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        9 << 20
    );
    let answer = exchange(address, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let (address, _stopper, _task) = started(SHORT).await;
    let idle =
        [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
    // Both places are taken by clients that say nothing. Their time is up soon.
    let answer = exchange(
        address,
        b"POST /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(idle);
}

#[tokio::test]
async fn a_stop_lets_a_request_end_and_accepts_no_other() {
    let (address, stopper, task) =
        started(Limits { request: Duration::from_secs(2), ..SHORT }).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    stopper.stop();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(TcpStream::connect(address).await.is_err());
    stream.write_all(b"bc").await.unwrap();
    let mut answer = Vec::new();
    timeout(Duration::from_secs(2), stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    timeout(Duration::from_secs(2), task).await.unwrap().unwrap();
}

#[tokio::test]
async fn without_a_certificate_there_is_no_tls_and_the_port_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_stopper, stop) = Stopper::new();
    let tls = Some(tls(Arc::default()).unwrap());
    tokio::spawn(serve(Port { listener, tls, limits: SHORT }, body_length, stop));
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
