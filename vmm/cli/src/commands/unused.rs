//! What the command line assigns and the VM does not ask for: most often a name that was mistyped.

use corten_resources::types::{VirtualMachineInstance, Volume};

use crate::oci::is_same;
use crate::options::Run;

/// A warning for each of them.
pub(super) fn warnings(options: &Run, vmi: &VirtualMachineInstance) -> Vec<String> {
    let volumes: Vec<&str> = vmi.spec.volumes.iter().flat_map(names).collect();
    let kernel = vmi.spec.kernel_container().map(|container| container.image.as_str());
    let disks = vmi.spec.volumes.iter().filter_map(|volume| volume.container_disk.as_ref());
    let images: Vec<&str> = disks.map(|disk| disk.image.as_str()).chain(kernel).collect();
    let unused_volume = options.volumes.iter().filter(|given| !volumes.contains(&&*given.name));
    let unused_image = options
        .images
        .iter()
        .filter(|given| !images.iter().any(|image| is_same(image, &given.name)));
    let volume = |name: &String| {
        let what = "claim, data volume, host disk or service account";
        format!("--volume {name} is not used: {}", instead(what, &volumes))
    };
    let image =
        |name: &String| format!("--image {name} is not used: {}", instead("image", &images));
    unused_volume
        .map(|given| volume(&given.name))
        .chain(unused_image.map(|given| image(&given.name)))
        .collect()
}

/// By which the command line can say what a volume is.
fn names(volume: &Volume) -> Vec<&str> {
    let claim = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str());
    let data = volume.data_volume.as_ref().map(|data| data.name.as_str());
    let ephemeral = volume.ephemeral.as_ref().and_then(|ephemeral| {
        ephemeral.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str())
    });
    let host = volume.host_disk.as_ref().map(|_| volume.name.as_str());
    let account =
        volume.service_account.as_ref().and_then(|account| account.service_account_name.as_deref());
    let Some(other) = claim.or(data).or(ephemeral).or(host).or(account) else { return Vec::new() };
    if other == volume.name { vec![other] } else { vec![other, &volume.name] }
}

fn instead(what: &str, there: &[&str]) -> String {
    match there {
        [] => format!("this VM has no {what}"),
        there => format!("this VM has no such {what}, but {}", there.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::options::{Command, Options};

    fn warned(arguments: &[&str]) -> Vec<String> {
        let vmi = serde_json::from_value(json!({"metadata": {"name": "first"}, "spec": {
            "domain": {"devices": {}, "firmware": {"kernelBoot": {"container": {"image": "test/kernel"}}}},
            "volumes": [
                {"name": "root", "containerDisk": {"image": "quay.io/a/b:1"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
                {"name": "more", "dataVolume": {"name": "dv"}},
                {"name": "base", "ephemeral": {"persistentVolumeClaim": {"claimName": "read"}}},
                {"name": "local", "hostDisk": {"path": "/d", "type": "Disk"}},
                {"name": "token", "serviceAccount": {"serviceAccountName": "account"}},
            ],
        }}));
        let arguments = [&["corten", "run", "vm.yaml"], arguments].concat();
        let Command::Run(run) = Options::parse_from(arguments).command else { unreachable!() };
        warnings(&run, &vmi.unwrap())
    }

    #[test]
    fn what_the_vm_asks_for_is_used_by_each_of_its_names() {
        for name in ["claim", "data", "dv", "more", "read", "base", "local", "account", "token"] {
            assert_eq!(warned(&["--volume", &format!("{name}=/x")]), Vec::<String>::new());
        }
        for name in ["test/kernel", "docker.io/test/kernel:latest", "quay.io/a/b:1"] {
            assert_eq!(warned(&["--image", &format!("{name}=/x")]), Vec::<String>::new());
        }
    }

    #[test]
    fn what_it_does_not_ask_for_is_told_with_what_it_does() {
        let expected = "--volume dta is not used: this VM has no such claim, data volume, host disk or service account, but claim, \
            data, dv, more, read, base, local, account, token";
        assert_eq!(warned(&["--volume", "dta=/x"]), [expected]);
        // The disk of an image is no claim.
        assert_eq!(warned(&["--volume", "root=/x"]).len(), 1);
        let expected = "--image quay.io/a/b:2 is not used: this VM has no such image, but quay.io/a/b:1, test/kernel";
        assert_eq!(warned(&["--image", "quay.io/a/b:2=/x"]), [expected]);
    }
}
