//! A port that is served: accepts, answers, ends what is under way.

use crate::answer::{Answer, text};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// What clients are given at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time. Further ones wait until one ends.
    pub connections: usize,
    /// Time for a handshake.
    pub handshake: Duration,
    /// Time from one answer, or the start, to the end of the next header. API servers close connections that they have
    /// not used for 90 s themselves; who closes first may cut off a request that is on its way.
    pub header: Duration,
    /// Time from the end of the header to the answer.
    pub request: Duration,
    /// How long connections are still accepted after a stop: it takes a moment until nobody sends new ones.
    pub linger: Duration,
    /// Time for what is then still under way.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            handshake: Duration::from_secs(5),
            header: Duration::from_secs(100),
            request: Duration::from_secs(10),
            linger: Duration::from_secs(3),
            drain: Duration::from_secs(5),
        }
    }
}

/// A port, how it is secured, and what clients are given at most.
pub struct Port {
    /// Where connections arrive.
    pub listener: TcpListener,
    /// Without it, plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
    /// What clients are given at most.
    pub limits: Limits,
    /// Is told how many connections are open, each time that one came.
    pub opened: Option<fn(usize)>,
}

/// Answers until `stop` has come, then ends what is under way.
pub async fn serve<F>(
    port: Port,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    stop: impl Future<Output = ()>,
) where
    F: Future<Output = Answer> + Send + 'static,
{
    let Port { listener, tls, limits, opened } = port;
    let acceptor = tls.map(TlsAcceptor::from);
    let places = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    let mut end = std::pin::pin!(async move {
        stop.await;
        sleep(limits.linger).await;
    });
    loop {
        let accepted = async {
            // Is never closed.
            let place = Arc::clone(&places).acquire_owned().await.ok()?;
            Some((listener.accept().await, place))
        };
        let (stream, place) = tokio::select! {
            () = &mut end => break,
            accepted = accepted => match accepted {
                Some((Ok((stream, _)), place)) => (stream, place),
                Some((Err(error), _)) => {
                    // Too many open files, as a rule: an end of some other connection helps.
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
                None => break,
            },
        };
        if let Some(opened) = opened {
            opened(limits.connections - places.available_permits());
        }
        let (acceptor, answer, watcher) = (acceptor.clone(), answer.clone(), graceful.watcher());
        tokio::spawn(connection(stream, acceptor, answer, limits, watcher, place));
    }
    drop(listener);
    if timeout(limits.drain, graceful.shutdown()).await.is_err() {
        tracing::warn!("connections were cut off that did not end");
    }
}

/// Serves one connection to its end.
async fn connection<F>(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    answer: impl Fn(Request<Incoming>) -> F + Send + 'static,
    limits: Limits,
    watcher: Watcher,
    _place: OwnedSemaphorePermit,
) where
    F: Future<Output = Answer> + Send + 'static,
{
    let _ = stream.set_nodelay(true);
    match acceptor {
        None => requests(stream, answer, limits, watcher).await,
        Some(acceptor) => match timeout(limits.handshake, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => requests(stream, answer, limits, watcher).await,
            // Probes of ports and clients with an old bundle; it would be said for each of their tries.
            Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
            Err(_) => tracing::debug!("a handshake took too long"),
        },
    }
}

async fn requests<F>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    answer: impl Fn(Request<Incoming>) -> F,
    limits: Limits,
    watcher: Watcher,
) where
    F: Future<Output = Answer> + Send + 'static,
{
    let service = service_fn(|request| {
        let answer = answer(request);
        async move {
            let answer = timeout(limits.request, answer).await;
            Ok::<_, Infallible>(
                answer.unwrap_or_else(|_| text(StatusCode::REQUEST_TIMEOUT, "it took too long")),
            )
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_headers(64)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection broke");
    }
}

#[cfg(test)]
mod tests;
