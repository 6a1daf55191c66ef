//! What the operator and the node agents serve alike: ports within bounds, and numbers for Prometheus.
//!
//! | module | holds |
//! |---|---|
//! | [`port`] | a port with HTTP or HTTPS: how many connections, how long each thing may take |
//! | [`answer`] | whole answers |
//! | [`metrics`] | metrics with their series, as Prometheus reads them |
//!
//! What is answered, and which numbers there are, is each program's own.

#![forbid(unsafe_code)]

pub mod answer;
pub mod metrics;
pub mod port;
