//! Small commands that the lab itself runs in a node, to their end.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Mux;
use crate::wire::{Kind, STDIN_WINDOW, Start};

/// A shell program for node 1, with arguments and a time limit.
pub fn command(script: &str, arguments: &[&str], limit: Duration) -> Start {
    let argv = ["bash", "-euc", script, "bash"].into_iter().chain(arguments.iter().copied());
    Start {
        node: 1,
        argv: argv.map(ToOwned::to_owned).collect(),
        env: Vec::new(),
        directory: "/root".into(),
        time_limit: Some(limit),
        terminal: None,
        cage: None,
    }
}

impl Mux {
    /// Runs a command with that input and returns its standard output; an error tells all it said.
    pub fn run(&self, start: &Start, input: &[u8]) -> Result<Vec<u8>> {
        // The node gives no credit before the command reads, and nobody waits for credit here.
        ensure!(input.len() <= STDIN_WINDOW, "{} bytes are too many for one command", input.len());
        let channel = self.start(start)?;
        if !input.is_empty() {
            channel.send(Kind::Stdin, input)?;
        }
        channel.send(Kind::Stdin, &[])?;
        let (mut said, mut output) = (Vec::new(), Vec::new());
        for frame in &channel.frames {
            match frame.kind {
                Kind::Stdout => {
                    said.extend(&frame.payload);
                    output.extend(frame.payload);
                }
                Kind::Stderr => said.extend(frame.payload),
                Kind::Exit => {
                    let status =
                        frame.payload.first_chunk().map(|bytes| i32::from_le_bytes(*bytes));
                    let status = status.context("a node sent half a status")?;
                    let said = String::from_utf8_lossy(&said);
                    ensure!(status == 0, "it ended with status {status} in the node:\n{said}");
                    return Ok(output);
                }
                _ => {}
            }
        }
        anyhow::bail!(
            "the node ended while a command ran in it:\n{}",
            String::from_utf8_lossy(&said)
        )
    }
}
