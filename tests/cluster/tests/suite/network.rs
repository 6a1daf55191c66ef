//! Names and Services work from Pods, in both families.

use anyhow::Result;
use corten_cluster::assets::{SAMPLES_IMAGE, TOOLS_IMAGE};

use crate::workbench::{Workbench, eventually, pod, service};

#[test]
fn service_is_reached_by_its_name_over_both_families() -> Result<()> {
    let bench = Workbench::new("service")?;
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
        let host = if address.contains(':') { format!("[{address}]") } else { address.into() };
        let answer = eventually("the Service does not answer", || {
            bench.sh("client", &format!("wget -q -O - http://{host}/"))
        })?;
        assert!(answer.contains("\"host\":\"echo\""), "{answer}");
    }
    Ok(())
}
