//! QEMU's control protocol: one JSON object a line.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// A QEMU that answers slower than this is as good as dead.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// Saving and loading are bounded by the disk.
const MIGRATION_LIMIT: Duration = Duration::from_secs(300);

/// A connection to a QEMU's monitor.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Qmp {
    /// Waits for QEMU's greeting on `socket`.
    pub fn new(socket: UnixStream) -> Result<Self> {
        socket.set_read_timeout(Some(ANSWER_LIMIT))?;
        let mut qmp = Self { reader: BufReader::new(socket.try_clone()?), writer: socket };
        qmp.line()?;
        qmp.command("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Runs one command; events that arrive meanwhile are of no interest.
    pub fn command(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        let request = json!({ "execute": name, "arguments": arguments });
        writeln!(self.writer, "{request}").with_context(|| format!("QEMU took no {name}"))?;
        loop {
            let mut answer = self.line().with_context(|| format!("QEMU did not answer {name}"))?;
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            if let Some(error) = answer.get("error") {
                bail!("QEMU refused {name}: {}", error["desc"].as_str().unwrap_or("no reason"));
            }
        }
    }

    /// Writes the stopped machine's state to `path`; without its memory where that is a shared file.
    pub fn save(&mut self, path: &str, memory_in_file: bool) -> Result<()> {
        self.command("stop", &json!({}))?;
        self.share_memory(memory_in_file)?;
        // The default is made for networks.
        self.command("migrate-set-parameters", &json!({ "max-bandwidth": 16_u64 << 30 }))?;
        self.command("migrate", &json!({ "uri": format!("file:{path}") }))?;
        self.migration_done()
    }

    /// Loads a state into a QEMU that waits for one, and lets the machine go on.
    pub fn load(&mut self, path: &str, memory_in_file: bool) -> Result<()> {
        self.share_memory(memory_in_file)?;
        self.command("migrate-incoming", &json!({ "uri": format!("file:{path}") }))?;
        self.migration_done()?;
        self.command("cont", &json!({}))?;
        Ok(())
    }

    fn share_memory(&mut self, on: bool) -> Result<()> {
        let capability = json!({ "capability": "x-ignore-shared", "state": on });
        self.command("migrate-set-capabilities", &json!({ "capabilities": [capability] }))?;
        Ok(())
    }

    fn migration_done(&mut self) -> Result<()> {
        let deadline = Instant::now() + MIGRATION_LIMIT;
        loop {
            let progress = self.command("query-migrate", &json!({}))?;
            match progress["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    bail!("QEMU failed: {}", progress["error-desc"].as_str().unwrap_or("no reason"))
                }
                _ if Instant::now() > deadline => bail!("QEMU did not finish within 5 minutes"),
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            bail!("QEMU ended");
        }
        Ok(serde_json::from_str(&line)?)
    }
}
