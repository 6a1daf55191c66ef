//! The console device: from descriptors to a terminal and streams.

use corten_devices::console::{Console, ConsoleConfig, PortConfig, PortEnd, TerminalSize};
use corten_link::{ConsoleCounters, Grant, Role};

use super::DeviceSetupError;

/// The device that a guest finds, with what was granted for its ports.
pub(super) fn device(streams: &[String], grant: &mut Grant) -> Result<Console, DeviceSetupError> {
    let terminal = PortConfig { name: None, is_console: true };
    let stream = |name: &String| PortConfig { name: Some(name.clone()), is_console: false };
    let ports: Vec<PortConfig> = [terminal].into_iter().chain(streams.iter().map(stream)).collect();
    let input = grant.remove(&Role::terminal_input());
    let terminal = match grant.remove(&Role::terminal()) {
        Some(output) => PortEnd::Terminal { output, input },
        None => PortEnd::Nothing,
    };
    let end = |port| grant.remove(&Role::port(port)).map_or(PortEnd::Nothing, PortEnd::Socket);
    let ends = [terminal].into_iter().chain((1..ports.len()).map(end)).collect();
    let config = ConsoleConfig { ports, size: TerminalSize::default() };
    Console::new(&config, ends).map_err(DeviceSetupError::Console)
}

/// What a console device counted, for the control peer.
pub(in crate::machine) fn console_counters(console: &Console) -> ConsoleCounters {
    let counted = console.counters();
    ConsoleCounters {
        sent_bytes: counted.sent_bytes,
        received_bytes: counted.received_bytes,
        dropped_bytes: counted.dropped_bytes,
        bad_requests: counted.bad_messages + counted.bad_chains,
    }
}
