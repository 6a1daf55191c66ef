//! How a guest is asked whether it is well.

use super::fields::object;
use super::{Embedded, Marker};

object! {
    /// A question to the guest: one of four, and how often it is asked.
    pub struct Probe {
        /// A command in the guest ends with 0.
        pub exec: Option<Embedded>,
        /// After so many failures in a row it counts as failed.
        pub failure_threshold: Option<i32>,
        /// The guest agent answers.
        pub guest_agent_ping: Option<Marker>,
        /// A page is served.
        pub http_get: Option<Embedded>,
        /// Seconds before it is first asked.
        pub initial_delay_seconds: Option<i32>,
        /// Seconds from one to the next.
        pub period_seconds: Option<i32>,
        /// After so many successes in a row it counts as well.
        pub success_threshold: Option<i32>,
        /// A port is open.
        pub tcp_socket: Option<Embedded>,
        /// Seconds after which an answer is missing.
        pub timeout_seconds: Option<i32>,
    }
}
