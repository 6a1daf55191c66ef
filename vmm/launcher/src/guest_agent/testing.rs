//! An agent that answers as qemu-ga does, for tests of those who keep one.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

/// The guest's end of a socket that was to be attached, and the state of a guest behind it.
#[derive(Debug, Default)]
pub struct FakeAgent {
    socket: Option<UnixStream>,
    /// Whether its file systems are frozen.
    pub frozen: bool,
    /// How often its clock was set.
    pub clock_set: usize,
}

impl FakeAgent {
    /// Takes the socket that was to be attached to its port.
    pub fn attach(&mut self, socket: OwnedFd) {
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(true).expect("a socket can be");
        self.socket = Some(socket);
    }

    /// Hangs up.
    pub fn hang_up(&mut self) {
        self.socket = None;
    }

    /// Answers what it was asked since; whether it was anything.
    pub fn serve(&mut self) -> bool {
        let Some(mut socket) = self.socket.take() else { return false };
        let mut asked = Vec::new();
        let end = socket.read_to_end(&mut asked);
        assert!(end.is_ok() || end.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
        for line in asked.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let line = line.strip_prefix(b"\xff").unwrap_or(line);
            let command: Value = serde_json::from_slice(line).expect("commands are JSON");
            let answer = self.answer(&command);
            socket.write_all(&answer).expect("there is room for an answer");
        }
        self.socket = Some(socket);
        !asked.is_empty()
    }

    fn answer(&mut self, command: &Value) -> Vec<u8> {
        let name = command["execute"].as_str().unwrap_or_default();
        let value = match name {
            "guest-sync-delimited" => command["arguments"]["id"].clone(),
            "guest-info" => {
                let names = ["get-users", "get-osinfo", "get-host-name", "get-fsinfo", "set-time"]
                    .into_iter()
                    .chain(["network-get-interfaces", "fsfreeze-freeze", "fsfreeze-thaw"]);
                let command = |name| json!({"name": format!("guest-{name}"), "enabled": true});
                let commands: Vec<Value> = names.map(command).collect();
                json!({"version": "10.0.3", "supported_commands": commands})
            }
            "guest-get-osinfo" => json!({
                "id": "debian", "name": "Debian GNU/Linux", "pretty-name": "Debian GNU/Linux 12 (bookworm)",
                "version-id": "12", "kernel-release": "6.12.1", "machine": "x86_64",
            }),
            "guest-get-host-name" => json!({"host-name": "greeter"}),
            "guest-get-users" => json!([{"user": "ada", "login-time": 1_000_000_000.0}]),
            "guest-get-fsinfo" => json!([{
                "name": "vda1", "mountpoint": "/", "type": "ext4", "used-bytes": 1 << 20,
                "total-bytes": 4 << 20, "disk": [],
            }]),
            "guest-network-get-interfaces" => json!([{
                "name": "eth0", "hardware-address": "02:00:00:00:00:01",
                "ip-addresses": [{"ip-address": "10.0.2.2", "ip-address-type": "ipv4", "prefix": 24}],
            }]),
            "guest-fsfreeze-status" if self.frozen => json!("frozen"),
            "guest-fsfreeze-status" => json!("thawed"),
            "guest-fsfreeze-freeze" => {
                self.frozen = true;
                json!(1)
            }
            "guest-fsfreeze-thaw" => {
                self.frozen = false;
                json!(1)
            }
            "guest-set-time" => {
                self.clock_set += 1;
                json!({})
            }
            _ => json!({}),
        };
        let mut answer = if name == "guest-sync-delimited" { vec![0xff] } else { Vec::new() };
        answer.extend(format!("{}\n", json!({"return": value})).into_bytes());
        answer
    }
}
