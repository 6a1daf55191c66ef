//! Requests to real ports of this machine.

use super::*;
use http_body_util::BodyExt;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const SHORT: Limits = Limits {
    connections: 2,
    handshake: Duration::from_millis(200),
    header: Duration::from_millis(300),
    request: Duration::from_millis(300),
    linger: Duration::ZERO,
    drain: Duration::from_secs(2),
};

async fn body_length(request: Request<Incoming>) -> Answer {
    match request.into_body().collect().await {
        Ok(body) => text(StatusCode::OK, body.to_bytes().len().to_string()),
        Err(error) => text(StatusCode::BAD_REQUEST, error.to_string()),
    }
}

async fn started(limits: Limits) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stopper, stop) = oneshot::channel();
    let port = Port { listener, tls: None, limits, opened: None };
    let task = tokio::spawn(serve(port, body_length, async move { drop(stop.await) }));
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
    stopper.send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(TcpStream::connect(address).await.is_err());
    stream.write_all(b"bc").await.unwrap();
    let mut answer = Vec::new();
    timeout(Duration::from_secs(2), stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    timeout(Duration::from_secs(2), task).await.unwrap().unwrap();
}
