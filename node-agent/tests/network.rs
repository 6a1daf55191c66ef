//! What the agent makes in a Pod's network namespace, and that the launcher and the VM process that are shipped run on it. It needs
//! root, and for the last test this machine's KVM; `CORTEN_LAUNCHER` and `CORTEN_VMM` name the two programs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corten_link::launcher::{State, ToAgent};
use corten_net::{Namespace, Stage, Tap, set_ipv4, set_up};
use corten_node_agent::door::{ConnectError, Handover, Session, connect};
use corten_node_agent::doors::{DeviceId, Doors};
use corten_node_agent::grant::Devices;
use corten_node_agent::ledger::{Entry, Ledger};
use corten_node_agent::networks::{self, Connected, ShownNamespace};
use corten_resources::types::VirtualMachineInstance;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

/// Long, for a machine under load.
const SOON: Duration = Duration::from_secs(120);

/// A namespace as a Pod's is, with links that take the place of those that CNI plugins make.
struct Pod {
    namespace: Namespace,
    _links: Vec<Tap>,
}

impl Pod {
    fn new(links: &[&str]) -> Result<Self> {
        let namespace = Namespace::create()?;
        let made = Namespace::enter(namespace.as_fd(), || -> Result<Vec<Tap>> {
            set_up("lo")?;
            let mut made = Vec::new();
            for (number, name) in (0_u8..).zip(links) {
                made.push(Tap::create(name, 1)?);
                set_ipv4(name, Ipv4Addr::new(192, 0, 2 + number, 2), 24)?;
            }
            Ok(made)
        })??;
        Ok(Self { namespace, _links: made })
    }

    /// Names of its links.
    fn links(&self) -> Result<BTreeSet<String>> {
        let table = Namespace::enter(self.namespace.as_fd(), || {
            fs::read_to_string("/proc/thread-self/net/dev")
        })??;
        let names = table.lines().filter_map(|line| line.split_once(':'));
        Ok(names.map(|(name, _)| name.trim().to_owned()).collect())
    }

    fn has(&self, names: &[&str]) -> Result<bool> {
        let links = self.links()?;
        Ok(names.iter().all(|name| links.contains(*name)))
    }
}

fn vmi(interfaces: &Value, networks: &Value) -> Result<VirtualMachineInstance> {
    let container = json!({"image": "microguest", "kernelPath": "kernel"});
    Ok(serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": "first", "uid": "01234567-89ab-cdef-0123-456789abcdef"},
        "spec": {"terminationGracePeriodSeconds": 0, "networks": networks, "domain": {
            "memory": {"guest": "32Mi"},
            "devices": {"interfaces": interfaces},
            "firmware": {"kernelBoot": {"kernelArgs": "loop", "container": container}},
        }},
    }))?)
}

/// One interface of each kind.
fn both() -> Result<VirtualMachineInstance> {
    vmi(
        &json!([{"name": "default", "masquerade": {}}, {"name": "second-1", "bridge": {}}]),
        &json!([{"name": "default", "pod": {}}, {"name": "second-1", "multus": {"networkName": "lan"}}]),
    )
}

const STATUS: &str = r#"[{"name":"corten","interface":"eth0","default":true},{"name":"default/lan","interface":"net1"}]"#;

fn roles(connected: &Connected) -> BTreeSet<&str> {
    let roles = connected.descriptors.iter().map(|(role, _)| role.as_str());
    roles.filter(|role| !role.starts_with("vhost/")).collect()
}

#[test]
fn pods_network_and_one_of_multus_are_wired_and_again_when_the_agent_died_with_it() -> Result<()> {
    let pod = Pod::new(&["eth0", "net1"])?;
    let made = ["tap0", "k6t-net1", "net1-nic", "tapnet1"];
    for _ in 0..2 {
        let connected = networks::connect(&both()?, &pod.namespace, Some(STATUS))?;
        let second = corten_link::Role::segment("second-1");
        let expected = [
            "tap/default/0".to_owned(),
            "dhcp4/default".to_owned(),
            format!("tap/{second}/0"),
            format!("dhcp4/{second}"),
        ];
        let found = roles(&connected);
        ensure!(found == expected.iter().map(String::as_str).collect(), "{found:?}");
        let first = connected.interfaces.get("default").context("no interface default")?;
        let told = first.addressing.as_ref().and_then(|told| told.ipv4.as_ref());
        ensure!(told.is_some_and(|told| told.address == Ipv4Addr::new(10, 0, 2, 2)), "{first:?}");
        let bridged = connected.interfaces.get("second-1").context("no interface second-1")?;
        let told = bridged.addressing.as_ref().and_then(|told| told.ipv4.as_ref());
        ensure!(
            told.is_some_and(|told| told.address == Ipv4Addr::new(192, 0, 3, 2)),
            "{bridged:?}"
        );
        ensure!(connected.uplinks["default"] == "eth0" && connected.uplinks["second-1"] == "net1");
        ensure!((first.mtu, bridged.pairs) == (1500, 1), "{connected:?}");
        ensure!(pod.has(&made)?, "{:?}", pod.links()?);
        drop(connected);
        ensure!(!pod.has(&["tap0"])? && !pod.has(&["tapnet1"])?, "{:?}", pod.links()?);
    }
    Ok(())
}

#[test]
fn nothing_is_made_before_all_of_it_can_be() -> Result<()> {
    let pod = Pod::new(&["eth0"])?;
    let error = networks::connect(&both()?, &pod.namespace, Some(STATUS)).unwrap_err();
    ensure!((error.interface(), error.stage()) == (Some("second-1"), Stage::PodInterface));
    ensure!(error.to_string().contains("net1"), "{error}");
    ensure!(!pod.has(&["tap0"])? && !pod.has(&["k6t-net1"])?, "{:?}", pod.links()?);
    Ok(())
}

#[test]
fn second_launcher_of_a_pod_finds_the_first_ones_tap_and_is_told_so() -> Result<()> {
    let pod = Pod::new(&["eth0", "net1"])?;
    let _first = networks::connect(&both()?, &pod.namespace, Some(STATUS))?;
    let error = networks::connect(&both()?, &pod.namespace, Some(STATUS)).unwrap_err();
    ensure!((error.interface(), error.stage()) == (Some("default"), Stage::Tap), "{error}");
    Ok(())
}

#[test]
fn several_pairs_of_queues_are_pairs_of_the_tap() -> Result<()> {
    let pod = Pod::new(&["eth0"])?;
    let mut wanted = vmi(
        &json!([{"name": "default", "masquerade": {}}]),
        &json!([{"name": "default", "pod": {}}]),
    )?;
    wanted.spec.domain.devices.network_interface_multiqueue = Some(true);
    wanted.spec.domain.cpu = serde_json::from_value(json!({"cores": 3}))?;
    let connected = networks::connect(&wanted, &pod.namespace, None)?;
    ensure!(connected.interfaces["default"].pairs == 3, "{connected:?}");
    let expected = ["tap/default/0", "tap/default/1", "tap/default/2", "dhcp4/default"];
    ensure!(roles(&connected) == expected.into(), "{:?}", roles(&connected));
    Ok(())
}

/// A launcher in the network namespace of a Pod.
struct Launcher {
    directory: tempfile::TempDir,
    child: Child,
}

impl Launcher {
    fn start(pod: &Pod) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = |name: &str| directory.path().join(name);
        Doors::new(&path("doors"), 1, nix::unistd::getuid().as_raw()).prepare(&DeviceId::new(0))?;
        fs::create_dir(path("image"))?;
        fs::write(path("image/kernel"), corten_microguest::ELF)?;
        File::create(path("termination-log"))?;
        let program = |name: &str| {
            std::env::var_os(name).with_context(|| format!("{name} does not name a program"))
        };
        let mut command = Command::new(program("CORTEN_LAUNCHER")?);
        command
            .arg("--door")
            .arg(path("doors/kvm-0"))
            .arg("--kernel-boot")
            .arg(path("image"))
            .arg("--termination-log")
            .arg(path("termination-log"))
            .arg("--vmm")
            .arg(program("CORTEN_VMM")?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // A child is where its parent's thread is.
        let child = Namespace::enter(pod.namespace.as_fd(), || command.spawn())??;
        Ok(Self { directory, child })
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn visit(door: &Path) -> Result<(Session, corten_node_agent::door::Greeting)> {
    let link = loop {
        match connect(door) {
            Err(ConnectError::NotThere(_)) => sleep(Duration::from_millis(5)).await,
            other => break other?,
        }
    };
    Ok(Session::begin(link).await?)
}

#[tokio::test]
async fn guest_runs_on_what_is_made_in_the_namespace_that_its_launcher_shows() -> Result<()> {
    let pod = Pod::new(&["eth0", "net1"])?;
    let launcher = Launcher::start(&pod)?;
    let door = launcher.directory.path().join("doors/kvm-0");
    let (session, mut greeting) = timeout(SOON, visit(&door)).await??;
    ensure!(greeting.state == State::Waiting);

    let namespace = ShownNamespace::default().check(greeting.network_namespace.take())?;
    ensure!(namespace.id()? == pod.namespace.id()?, "it is the Pod's");
    let vmi = both()?;
    let connected = networks::connect(&vmi, &namespace, Some(STATUS))?;
    let entry = Entry {
        pod_uid: "pod-1".into(),
        vmi_namespace: vmi.metadata.namespace.clone(),
        vmi_name: vmi.metadata.name.clone(),
        vmi_uid: vmi.metadata.uid.clone(),
    };
    let ledger = Ledger::open(&launcher.directory.path().join("ledger"))?;
    let devices = Devices { kvm: "/dev/kvm".into(), userfaultfd: "/dev/userfaultfd".into() };
    let device = DeviceId::new(0);
    let handover = Handover { device: &device, ledger: &ledger, devices: &devices };
    let mut session = handover.start(session, &vmi, &entry, connected).await?;
    let running = async {
        loop {
            match session.next().await?.0 {
                ToAgent::State { state: State::Running } => return Ok(()),
                ToAgent::Ended { detail, .. } => anyhow::bail!("it ended: {detail}"),
                _ => {}
            }
        }
    };
    timeout(SOON, running).await??;
    // Ours are closed: the VM process has them.
    ensure!(pod.has(&["tap0", "tapnet1"])?, "{:?}", pod.links()?);

    // An agent that comes back is shown the same again.
    drop(session);
    let (_session, greeting) = timeout(SOON, visit(&door)).await??;
    let again = ShownNamespace::default().check(greeting.network_namespace)?;
    ensure!(again.id()? == pod.namespace.id()?, "it is the Pod's");
    Ok(())
}
