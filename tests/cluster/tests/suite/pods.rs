//! Pods run, can be reached by kubectl, and Pod Security holds.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use corten_cluster::assets::{SAMPLES_IMAGE, TOOLS_IMAGE};
use serde_json::json;

use crate::workbench::{Workbench, nodes, on_node, pod};

#[test]
fn long_pod_runs_on_each_node() -> Result<()> {
    Workbench::test("each-node", |bench| {
        let nodes = nodes(&bench.kubectl)?;
        for node in &nodes {
            let pod = pod(node, TOOLS_IMAGE, &["-c", "echo ready; exec sleep 1000"]);
            bench.create(on_node(node, pod))?;
        }
        for node in &nodes {
            bench.ready(node)?;
            assert_eq!(bench.run(&["logs", node])?, "ready\n");
            assert_eq!(bench.sh(node, "id -u")?, "107\n");
        }
        Ok(())
    })
}

#[test]
fn privileged_pod_is_refused_in_a_restricted_namespace() -> Result<()> {
    Workbench::test("restricted", |bench| {
        let mut pod = pod("privileged", TOOLS_IMAGE, &[]);
        pod["spec"]["containers"][0]["securityContext"] = json!({ "privileged": true });
        let error = bench.create(pod).unwrap_err().to_string();
        assert!(error.contains("violates PodSecurity \"restricted:latest\""), "{error}");
        Ok(())
    })
}

#[test]
fn logs_and_exec_pass_everything_through() -> Result<()> {
    Workbench::test("exec", |bench| {
        let script = "echo said; echo complained >&2; exec sleep 1000";
        bench.create(pod("tools", TOOLS_IMAGE, &["-c", script]))?;
        bench.ready("tools")?;

        let logs = bench.run(&["logs", "tools"])?;
        let mut lines: Vec<&str> = logs.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["complained", "said"]);

        let namespace = bench.namespace.as_str();
        let exec = ["-n", namespace, "exec", "-i", "tools", "--", "tr", "a-z", "A-Z"];
        assert_eq!(bench.kubectl.feed(&exec, "input\n")?, "INPUT\n");

        let error = bench.sh("tools", "echo why >&2; exit 7").unwrap_err().to_string();
        assert!(error.contains("why"), "{error}");
        assert!(error.contains("exit code 7"), "{error}");
        Ok(())
    })
}

/// `kubectl port-forward`, which would go on by itself.
pub(crate) struct Forward {
    child: Child,
    /// Kept open: kubectl also tells of each connection, and would end with a pipe that is closed.
    output: BufReader<ChildStdout>,
}

impl Forward {
    /// Forwards some port of this machine to `port` of `object`.
    pub(crate) fn start(bench: &Workbench, object: &str, port: u16) -> Result<Self> {
        let mut command = bench.kubectl.command();
        command.args(["-n", &bench.namespace, "port-forward", object, &format!(":{port}")]);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("it is a pipe")?);
        Ok(Self { child, output })
    }

    /// A connection to where it listens.
    pub(crate) fn connect(&mut self) -> Result<TcpStream> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let address = line.strip_prefix("Forwarding from ").and_then(|rest| rest.split(' ').next());
        let address = address.with_context(|| format!("kubectl said {line:?}"))?;
        let connection = TcpStream::connect(address)?;
        connection.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(connection)
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn long_forwarded_port_leads_into_the_pod() -> Result<()> {
    Workbench::test("forward", |bench| {
        bench.create(pod("echo", SAMPLES_IMAGE, &["echo"]))?;
        bench.ready("echo")?;

        let mut forward = Forward::start(bench, "pod/echo", 8080)?;
        let mut connection = forward.connect()?;
        connection.write_all(b"GET /way HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        assert!(answer.contains("\"host\":\"echo\",\"path\":\"/way\""), "{answer}");
        Ok(())
    })
}
