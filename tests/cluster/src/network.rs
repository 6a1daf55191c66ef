//! The cluster's network: a bridge in a network namespace of this process, with a TAP for each node.
//!
//! The namespace has no name and the TAPs do not persist, so all of it goes with the last process in it, in whatever way
//! that ends.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use corten_net::Tap;
use nix::sched::{CloneFlags, unshare};

use crate::addresses::{self, MACHINE, MACHINE_6, SERVICES, SERVICES_6};

/// Moves this thread, and all that it starts from now on, into a new network namespace with the bridge in it.
pub fn enter() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET).context("cannot make a network namespace (is this root?)")?;
    ip(&format!(
        "link set lo up\nlink add bridge0 type bridge\naddress add {MACHINE}/24 dev bridge0\n\
         link set bridge0 up\naddress add {MACHINE_6}/64 dev bridge0 nodad\n"
    ))
}

/// The TAP of node `number`, on the bridge, with routes to the Pods of that node.
pub fn attach(number: u8) -> Result<OwnedFd> {
    let name = tap(number);
    let queues =
        Tap::create(&name, 1).with_context(|| format!("cannot make {name}"))?.into_queues();
    let queue = queues.into_iter().next().context("a TAP has a queue")?;
    ip(&format!("link set {name} master bridge0\n{}", routes(number)))?;
    // Services are known to the nodes only: the first of them forwards.
    if number == 1 {
        ip(&format!(
            "route replace {SERVICES} via {}\nroute replace {SERVICES_6} via {}\n",
            addresses::node(1),
            addresses::node_6(1)
        ))?;
    }
    Ok(queue)
}

/// Commands for `ip -batch` that lead to the Pods of node `number`.
pub fn routes(number: u8) -> String {
    use addresses::{node, node_6, pods, pods_6};
    let (four, six) = (pods(number), pods_6(number));
    let (gateway, gateway_6) = (node(number), node_6(number));
    format!("route replace {four} via {gateway}\nroute replace {six} via {gateway_6}\n")
}

/// Commands for `ip -batch` by which a node sends everything else to the machine, where it ends. Without a route a program
/// on the node's own network could not even begin to reach a Service: the kernel looks for one before kube-proxy's
/// rules give the packet its true destination.
pub fn default_routes() -> String {
    use addresses::{MACHINE, MACHINE_6};
    format!("route replace 0.0.0.0/0 via {MACHINE}\nroute replace ::/0 via {MACHINE_6}\n")
}

/// Cuts node `number` off, or connects it again.
pub fn connect(number: u8, connected: bool) -> Result<()> {
    let state = if connected { "up" } else { "down" };
    ip(&format!("link set {} {state}\n", tap(number)))
}

fn tap(number: u8) -> String {
    format!("tap{number}")
}

fn ip(commands: &str) -> Result<()> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run ip (Debian package iproute2)")?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(commands.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip failed ({}) on:\n{commands}", said.trim());
    Ok(())
}
