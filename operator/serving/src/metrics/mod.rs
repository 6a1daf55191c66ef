//! Metrics, and how Prometheus reads them (text format 0.0.4).

mod family;
mod process;

pub use family::{Family, Kind, heading, sample, whole};
pub use process::write as write_process;
