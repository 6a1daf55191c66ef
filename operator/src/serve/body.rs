//! Bodies of requests, read within bounds.

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The longest body. The API server takes objects of up to 3 MiB, and a review of a change holds two.
const LONGEST: usize = 8 << 20;
/// What a body may have before it counts as a long one.
const LONG: usize = 256 << 10;

/// How many long bodies are held at a time.
static LONG_BODIES: Semaphore = Semaphore::const_new(4);

/// A body that was read.
pub(super) struct Whole {
    bytes: Vec<u8>,
    /// Kept as long as the bytes are.
    _permit: Option<SemaphorePermit<'static>>,
}

impl Whole {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body is longer than {LONGEST} bytes")]
    TooLong,
    #[error("the body ended early")]
    Broken(#[from] hyper::Error),
}

/// Reads a body whole.
pub(super) async fn read(mut body: Incoming) -> Result<Whole, BodyError> {
    if body.size_hint().lower() > u64::try_from(LONGEST).unwrap_or(u64::MAX) {
        return Err(BodyError::TooLong);
    }
    let mut bytes = Vec::new();
    let mut permit = None;
    while let Some(frame) = body.frame().await {
        let data: Bytes = frame?.into_data().unwrap_or_default();
        let length = bytes.len() + data.len();
        if length > LONGEST {
            return Err(BodyError::TooLong);
        }
        if length > LONG && permit.is_none() {
            // Is never closed.
            permit = LONG_BODIES.acquire().await.ok();
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Whole { bytes, _permit: permit })
}
