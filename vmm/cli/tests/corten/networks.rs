//! Networks of VMs, in a network namespace that is the test's own: what is made, and that it goes with the VM.

use std::fs;
use std::os::fd::AsRawFd;

use anyhow::{Result, ensure};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use crate::rig::{FOR_EVER, Rig, wait_until};

/// Runs a test on a thread that has a network of its own, with nothing in it.
fn in_own_network(test: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            corten_net::set_up("lo")?;
            test()
        });
        thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the test panicked")))
    })
}

/// Links of this thread's network.
fn links() -> Result<Vec<String>> {
    let table = fs::read_to_string("/proc/thread-self/net/dev")?;
    let names = table.lines().skip(2).filter_map(|line| line.split_once(':'));
    Ok(names.map(|(name, _)| name.trim().to_owned()).collect())
}

/// Makes a bridge in this thread's network.
fn make_bridge(name: &str) -> Result<()> {
    let (socket, name) = (std::net::UdpSocket::bind("127.0.0.1:0")?, std::ffi::CString::new(name)?);
    // SAFETY: SIOCBRADDBR takes a pointer to a name with a NUL at its end, and any socket.
    let made = unsafe { libc::ioctl(socket.as_raw_fd(), 0x89a0, name.as_ptr()) };
    ensure!(made == 0, "{}", std::io::Error::last_os_error());
    Ok(())
}

/// A VMI with an interface.
fn connected(interface: &Value) -> Value {
    let mut vmi = Rig::vmi("first", FOR_EVER);
    vmi["spec"]["domain"]["devices"] = json!({"interfaces": [interface]});
    vmi["spec"]["networks"] = json!([{"name": "default", "pod": {}}]);
    vmi
}

fn detached(rig: &Rig, vmi: &Value, more: &[&str]) -> Result<String> {
    let mut running = rig.run(vmi, &[&["--detach"], more].concat())?;
    running.close_input();
    Ok(running.end()?.with(0)?.stderr)
}

#[test]
fn links_of_a_vm_go_with_it_also_when_its_supervisor_is_killed() -> Result<()> {
    in_own_network(|| {
        let rig = Rig::new()?;
        let vmi =
            connected(&json!({"name": "default", "masquerade": {}, "ports": [{"port": 8080}]}));
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let words = detached(&rig, &vmi, &[])?;
            ensure!(words.contains("first: network after "), "{words}");
            let found = links()?;
            ensure!(found.iter().any(|name| name.starts_with("corten")), "{found:?}");
            let (supervisor, process) = rig.processes("first")?;
            kill(supervisor, signal)?;
            wait_until(|| links().is_ok_and(|links| links == ["lo"]))?;
            rig.corten(&["ps"])?.with(0)?;
            rig.is_clean(&[supervisor, process])?;
        }
        Ok(())
    })
}

#[test]
fn port_that_is_taken_is_refused_by_its_number_and_nothing_is_left() -> Result<()> {
    in_own_network(|| {
        let rig = Rig::new()?;
        let _taken = std::net::TcpListener::bind("127.0.0.1:8080")?;
        let mut vmi =
            connected(&json!({"name": "default", "masquerade": {}, "ports": [{"port": 8080}]}));
        let disk = rig.path("disk.img");
        let host_disk = json!({"path": disk, "type": "DiskOrCreate", "capacity": "1Mi"});
        vmi["spec"]["volumes"] = json!([{"name": "data", "hostDisk": host_disk}]);
        let mut running = rig.run(&vmi, &[])?;
        running.close_input();
        running.end()?.with(84)?.said("port 8080/tcp of the host is taken by another program")?;
        ensure!(links()? == ["lo"]);
        ensure!(!disk.exists(), "a disk is left");
        rig.is_clean(&[])
    })
}

#[test]
fn without_a_network_there_is_no_link() -> Result<()> {
    in_own_network(|| {
        let rig = Rig::new()?;
        detached(
            &rig,
            &connected(&json!({"name": "default", "masquerade": {}})),
            &["--no-network"],
        )?;
        ensure!(links()? == ["lo"], "{:?}", links());
        ensure!(rig.info("first")?["counters"]["networks"] == json!({}));
        rig.corten(&["kill", "first"])?.with(0)?;
        rig.is_clean(&[])
    })
}

#[test]
fn bridge_that_is_not_there_is_refused_by_its_name() -> Result<()> {
    in_own_network(|| {
        let rig = Rig::new()?;
        let vmi = connected(&json!({"name": "default", "bridge": {}}));
        let mut running = rig.run(&vmi, &["--bridge", "nosuch0"])?;
        running.close_input();
        running.end()?.with(84)?.said("nosuch0")?;
        rig.is_clean(&[])
    })
}

#[test]
fn networks_of_multus_are_bridges_that_the_command_line_names() -> Result<()> {
    in_own_network(|| {
        let rig = Rig::new()?;
        make_bridge("br1")?;
        make_bridge("br2")?;
        let mut vmi = Rig::vmi("first", FOR_EVER);
        vmi["spec"]["domain"]["devices"] = json!({"interfaces": [
            {"name": "default", "masquerade": {}}, {"name": "lan", "bridge": {}},
            {"name": "storage", "bridge": {}},
        ]});
        vmi["spec"]["networks"] = json!([
            {"name": "default", "pod": {}}, {"name": "lan", "multus": {"networkName": "lan"}},
            {"name": "storage", "multus": {"networkName": "ns/storage"}},
        ]);
        let mut refused = rig.run(&vmi, &["--bridge", "lan=br1"])?;
        refused.close_input();
        let told =
            "spec.networks[2].multus: there is no Multus here: say by --bridge storage=BRIDGE";
        refused.end()?.with(3)?.said(told)?;
        let before = links()?;
        ensure!(before.len() == 3, "{before:?}");
        detached(&rig, &vmi, &["--bridge", "lan=br1", "--bridge", "ns/storage=br2"])?;
        let found = links()?;
        for name in ["cortentap0", "cortentap1"] {
            ensure!(found.iter().any(|link| link == name), "{found:?}");
        }
        let info = rig.info("first")?;
        let networks = info["counters"]["networks"].as_object().map(serde_json::Map::len);
        ensure!(networks == Some(3), "{info}");
        rig.corten(&["kill", "first"])?.with(0)?;
        wait_until(|| links().is_ok_and(|links| links.len() == before.len()))?;
        rig.is_clean(&[])
    })
}

#[test]
fn guest_that_names_no_interface_is_in_the_place_of_a_pod() -> Result<()> {
    in_own_network(|| {
        let rig = Rig::new()?;
        let mut vmi = Rig::vmi("first", FOR_EVER);
        vmi["spec"]["domain"]["devices"] = json!({});
        let words = detached(&rig, &vmi, &[])?;
        let network = words.lines().find(|line| line.contains(": network after "));
        // One address, which is of IPv4.
        let is_ipv4 = |line: &str| !line.contains(", fd") && line.matches('.').count() >= 3;
        ensure!(network.is_some_and(is_ipv4), "{words}");
        rig.corten(&["kill", "first"])?.with(0)?;
        wait_until(|| links().is_ok_and(|links| links == ["lo"]))?;
        rig.is_clean(&[])
    })
}
