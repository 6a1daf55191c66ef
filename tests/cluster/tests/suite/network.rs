//! Names, Services and other Pods are reached from Pods, in both families.

use anyhow::Result;
use corten_cluster::assets::{SAMPLES_IMAGE, TOOLS_IMAGE};

use crate::workbench::{Workbench, eventually, on_node, pod, service, two_nodes};

/// As a host in a URL.
fn host(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.into() }
}

#[test]
fn service_is_reached_by_its_name_over_both_families() -> Result<()> {
    Workbench::test("service", |bench| {
        bench.create(pod("echo", SAMPLES_IMAGE, &["echo"]))?;
        bench.create(service("echo", 80, 8080))?;
        bench.create(pod("client", TOOLS_IMAGE, &["-c", "exec sleep 1000"]))?;
        bench.ready("echo")?;
        bench.ready("client")?;

        let addresses =
            bench.run(&["get", "service", "echo", "-o", "jsonpath={.spec.clusterIPs[*]}"])?;
        let addresses: Vec<&str> = addresses.split(' ').collect();
        assert_eq!(addresses.len(), 2);
        let name = format!("echo.{}.svc.cluster.local", bench.namespace);
        let found = eventually("the name is not found", || {
            bench.sh("client", &format!("nslookup -type=a {name}; nslookup -type=aaaa {name}"))
        })?;
        for address in addresses {
            assert!(found.contains(address), "{address} is not in {found}");
            let answer = eventually("the Service does not answer", || {
                bench.sh("client", &format!("wget -q -O - http://{}/", host(address)))
            })?;
            assert!(answer.contains("\"host\":\"echo\""), "{answer}");
        }
        Ok(())
    })
}

#[test]
fn long_pods_on_two_nodes_reach_each_other_by_their_own_addresses() -> Result<()> {
    Workbench::test("across", |bench| {
        let nodes = two_nodes(&bench.kubectl)?;
        let addresses_of = |name: &str| -> Result<Vec<String>> {
            let column = "jsonpath={.status.podIPs[*].ip}";
            let addresses = bench.run(&["get", "pod", name, "-o", column])?;
            Ok(addresses.split(' ').map(Into::into).collect())
        };
        bench.create(on_node(&nodes[0], pod("echo", SAMPLES_IMAGE, &["echo"])))?;
        let client = pod("client", TOOLS_IMAGE, &["-c", "exec sleep 1000"]);
        bench.create(on_node(&nodes[1], client))?;
        bench.ready("echo")?;
        bench.ready("client")?;

        let (servers, clients) = (addresses_of("echo")?, addresses_of("client")?);
        assert_eq!((servers.len(), clients.len()), (2, 2));
        for (server, client) in servers.iter().zip(&clients) {
            let answer =
                bench.sh("client", &format!("wget -q -O - http://{}:8080/", host(server)))?;
            // Nothing in between stands in for the client.
            assert!(answer.contains(&format!("\"from\":\"{}:", host(client))), "{answer}");
        }
        Ok(())
    })
}
