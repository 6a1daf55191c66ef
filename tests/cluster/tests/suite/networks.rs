//! Guests on the Pod network: what they reach, and who reaches them. One guest by masquerade and one by bridge carry all of it.

use std::io::{Read, Write};
use std::net::Shutdown;

use anyhow::{Context, Result, ensure};
use corten_cluster::assets::SAMPLES_IMAGE;
use serde_json::{Value, json};

use crate::guest::{Guest, text, vmi};
use crate::lab::cluster;
use crate::pods::Forward;
use crate::workbench::{Workbench, eventually, on_node, pod, service, two_nodes};

/// What each guest begins with: its address by DHCP, and the programs that busybox does not have.
const BEGIN: &str = r#"#!/bin/sh
ip link set lo up
ip link set eth0 up
udhcpc -i eth0 -n -q -t 20 >/dev/null 2>&1
echo "TOLD $(ip -4 -o address show dev eth0 | awk '{ print $4 }') MTU $(cat /sys/class/net/eth0/mtu)"
mount -t ext4 -o ro /dev/vda /mnt
mount -t devtmpfs dev /mnt/dev
tool() { chroot /mnt "$@"; }
"#;
/// What each guest ends with: whoever sends something to port 7 gets it back.
const ECHO: &str = r"
tool socat TCP6-LISTEN:7,ipv6only=0,reuseaddr,fork EXEC:cat &
tool socat UDP6-RECVFROM:7,ipv6only=0,fork EXEC:cat &
until tool socat -u OPEN:/dev/null TCP:127.0.0.1:7; do sleep 0.2; done
echo SERVING
";

/// A VMI on that node that does what the script says.
fn networked(name: &str, node: &str, script: &str) -> Value {
    let mut object =
        vmi(name, "corten.modules=virtio_net,ext4 corten.script=cidata corten.end=idle");
    object["metadata"]["labels"] = json!({ "app": name });
    let spec = &mut object["spec"];
    spec["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    spec["domain"]["devices"] = json!({});
    spec["volumes"] = json!([
        { "name": "tools", "containerDisk": { "image": "corten.test/container-disk-tools:1" } },
        { "name": "seed", "cloudInitNoCloud": { "userData": format!("{BEGIN}{script}{ECHO}") } },
    ]);
    object
}

/// A Service for TCP and UDP on port 7, of these families.
fn echo_service(name: &str, families: &[&str]) -> Value {
    let policy = if families.len() == 2 { "RequireDualStack" } else { "SingleStack" };
    let mut service = service(name, 7, 7);
    service["spec"]["ipFamilyPolicy"] = json!(policy);
    service["spec"]["ipFamilies"] = json!(families);
    service["spec"]["ports"] = json!([
        { "name": "tcp", "port": 7, "protocol": "TCP" },
        { "name": "udp", "port": 7, "protocol": "UDP" },
    ]);
    service
}

fn with_port(address: &str) -> String {
    if address.contains(':') { format!("[{address}]:7") } else { format!("{address}:7") }
}

/// Asks the guest behind `address` from the Pod `client`, by TCP and by UDP.
fn ask(bench: &Workbench, client: &str, address: &str) -> Result<()> {
    for network in ["tcp", "udp"] {
        let sent = format!("{network} to {address}");
        let to = with_port(address);
        let answer = eventually(&format!("{sent} is not answered"), || {
            bench.run(&["exec", client, "--", "/samples", "ask", network, &to, &sent])
        })?;
        ensure!(answer == sent, "{answer:?} came back for {sent:?}");
    }
    Ok(())
}

/// Addresses in a status, or of a Service.
fn addresses(value: &Value) -> Vec<String> {
    let of = |value: &Value| text(value.get("ip").unwrap_or(value)).to_owned();
    value.as_array().into_iter().flatten().map(of).collect()
}

fn service_addresses(bench: &Workbench, name: &str) -> Result<Vec<String>> {
    let object: Value = serde_json::from_str(&bench.run(&["get", "service", name, "-o", "json"])?)?;
    Ok(addresses(&object["spec"]["clusterIPs"]))
}

/// A Pod that answers over HTTP, with its Service; guests ask it, and it asks guests.
fn peer(bench: &Workbench, node: &str) -> Result<()> {
    bench.create(on_node(node, pod("peer", SAMPLES_IMAGE, &["echo"])))?;
    bench.create(service("peer", 80, 8080))?;
    bench.ready("peer")
}

/// A link `net1` in the network namespace of the Pod with this address, on a bridge of its node: what Multus would have a plugin
/// make. It goes when this is dropped.
struct SecondNetwork {
    node: String,
}

impl SecondNetwork {
    fn new(node: &str, pod_address: &str) -> Result<Self> {
        let number = node.trim_start_matches(|letter: char| !letter.is_ascii_digit());
        let made = Self { node: number.to_owned() };
        let script = format!(
            "cd /run/netns\n\
             for it in *; do ip -n $it -4 -o address show | grep -q ' {pod_address}/' && namespace=$it; done\n\
             ip link add second0 type bridge\nip address add 10.78.0.1/24 dev second0\nip link set second0 up\n\
             ip link add second1 type veth peer name net1 netns ${{namespace:?}}\n\
             ip link set second1 master second0 up\n\
             ip -n $namespace address add 10.78.0.2/24 dev net1\nip -n $namespace link set net1 up\n"
        );
        made.run(&script)?;
        Ok(made)
    }

    fn run(&self, script: &str) -> Result<String> {
        cluster(&["node-shell", &self.node, "--", "sh", "-ec", script])
    }
}

impl Drop for SecondNetwork {
    fn drop(&mut self) {
        let _ = self.run("ip link delete second1; ip link delete second0");
    }
}

#[test]
fn masqueraded_guest_is_reached_and_reaches_out_over_both_families_and_has_a_second_network()
-> Result<()> {
    Workbench::test("masquerade", |bench| {
        let [guests, others] = two_nodes(&bench.kubectl)?;
        peer(bench, &others)?;
        let six = service_addresses(bench, "peer")?
            .into_iter()
            .find(|address| address.contains(':'))
            .context("the Service has no address of IPv6")?;
        let script = format!(
            r#"
ip -6 address add fd10:0:2::2/120 dev eth0 nodad
until ip -6 route | grep -q '^default'; do sleep 0.2; done
wget -q -O - http://peer.{}.svc.cluster.local/by-name && echo
wget -q -O - 'http://[{six}]/by-six' && echo
ip link set eth1 up
udhcpc -i eth1 -n -q -t 20 >/dev/null 2>&1
echo "SECOND $(ip -4 -o address show dev eth1 | awk '{{ print $4 }}')"
"#,
            bench.namespace
        );
        let mut object = networked("masqueraded", &guests, &script);
        object["spec"]["domain"]["devices"]["interfaces"] = json!([
            { "name": "default", "masquerade": {}, "ports": [{ "port": 7 }, { "port": 7, "protocol": "UDP" }] },
            { "name": "second", "bridge": {} },
        ]);
        object["spec"]["networks"] = json!([
            { "name": "default", "pod": { "vmNetworkCIDR": "10.77.0.0/24" } },
            { "name": "second", "multus": { "networkName": "lan" } },
        ]);
        bench.create(object)?;
        bench.create(echo_service("masqueraded", &["IPv4", "IPv6"]))?;

        // Nobody has made the second network yet, and the agent says so.
        let guest = Guest::new(bench, "masqueraded");
        let launcher = eventually("the Pod has no address", || {
            let pod = guest.pod()?;
            ensure!(!text(&pod["status"]["podIP"]).is_empty(), "{}", pod["status"]);
            Ok(pod)
        })?;
        let waits = "which network lan is to come by, is not in the Pod yet";
        eventually("the agent does not say what is missing", || {
            let label = "app.kubernetes.io/name=corten-node-agent";
            let said = bench.kubectl.run(&["-n", "kubevirt", "logs", "--tail=-1", "-l", label])?;
            let ours = |line: &str| line.contains(waits) && line.contains(&bench.namespace);
            ensure!(said.lines().any(ours), "not said");
            Ok(())
        })?;
        let second = SecondNetwork::new(&guests, text(&launcher["status"]["podIP"]))?;
        let status = json!([{ "name": format!("{}/lan", bench.namespace), "interface": "net1" }]);
        let annotation = format!("k8s.v1.cni.cncf.io/network-status={status}");
        let name = text(&launcher["metadata"]["name"]);
        bench.run(&["annotate", "pod", name, &annotation])?;

        let log = guest.says("SERVING")?;
        for words in ["TOLD 10.77.0.2/24", "/by-name", "/by-six", "SECOND 10.78.0.2/24"] {
            ensure!(log.contains(words), "{words:?} is not in the log:\n{log}");
        }
        second.run("ping -c 3 -W 5 10.78.0.2")?;
        for address in service_addresses(bench, "masqueraded")? {
            ask(bench, "peer", &address)?;
        }
        for address in addresses(&launcher["status"]["podIPs"]) {
            ask(bench, "peer", &address)?;
        }

        let mut forward = Forward::start(bench, &format!("pod/{name}"), 7)?;
        let mut connection = forward.connect()?;
        connection.write_all(b"forwarded")?;
        connection.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        ensure!(answer == "forwarded", "{answer:?}");
        Ok(())
    })
}

#[test]
fn guest_of_a_vmi_without_interfaces_is_bridged_and_has_its_pods_address() -> Result<()> {
    Workbench::test("bridge", |bench| {
        let [others, guests] = two_nodes(&bench.kubectl)?;
        peer(bench, &others)?;
        let script = format!(
            "wget -q -O - http://peer.{}.svc.cluster.local/by-name && echo\n",
            bench.namespace
        );
        bench.create(networked("bridged", &guests, &script))?;
        bench.create(echo_service("bridged", &["IPv4"]))?;
        let guest = Guest::new(bench, "bridged");
        let log = guest.says("SERVING")?;
        let object = guest.object()?;
        let interface = &object["spec"]["domain"]["devices"]["interfaces"][0];
        ensure!(interface["bridge"].is_object(), "{interface}");

        let launcher = guest.pod()?;
        let address = text(&launcher["status"]["podIP"]);
        for words in [&format!("TOLD {address}/"), "/by-name"] {
            ensure!(log.contains(words), "{words:?} is not in the log:\n{log}");
        }
        ask(bench, "peer", address)?;
        for address in service_addresses(bench, "bridged")? {
            ask(bench, "peer", &address)?;
        }
        Ok(())
    })
}
