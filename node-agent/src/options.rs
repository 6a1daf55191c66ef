//! Where things are on the node.

use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use clap::Parser;
use corten_resources::names::METRICS_PORT;

/// Corten's agent on a node: gives launchers what they need to run VMs.
#[derive(Clone, Debug, Parser)]
#[command(name = "corten-node-agent", version)]
pub struct Options {
    /// Name of this node.
    #[arg(long, env = "NODE_NAME")]
    pub node_name: String,
    /// How many VMs the node may have.
    #[arg(long, env = "CORTEN_DEVICES", default_value_t = 110)]
    pub devices: u16,
    /// The agent's own directory on the node, at the same path in its container.
    #[arg(long, env = "CORTEN_STATE", default_value = "/var/lib/corten")]
    pub state: PathBuf,
    /// kubelet's directory on the node, at the same path in the agent's container.
    #[arg(long, env = "CORTEN_KUBELET", default_value = "/var/lib/kubelet")]
    pub kubelet: PathBuf,
    /// KVM.
    #[arg(long, default_value = "/dev/kvm")]
    pub kvm: PathBuf,
    /// Userfaultfd; a node without it does not offer what needs it.
    #[arg(long, default_value = "/dev/userfaultfd")]
    pub userfaultfd: PathBuf,
    /// Makes TAPs; other Pods are given it.
    #[arg(long, default_value = "/dev/net/tun")]
    pub tun: PathBuf,
    /// Moves packets in the kernel; other Pods are given it.
    #[arg(long, default_value = "/dev/vhost-net")]
    pub vhost_net: PathBuf,
    /// User and group of launchers.
    #[arg(long, default_value_t = 107)]
    pub launcher_user: u32,
    /// Address of the node at which metrics are served; all of them if not given.
    #[arg(long, env = "CORTEN_METRICS_ADDRESS", default_value_t = IpAddr::from(Ipv6Addr::UNSPECIFIED))]
    pub metrics_address: IpAddr,
    /// Port of metrics.
    #[arg(long, env = "CORTEN_METRICS_PORT", default_value_t = METRICS_PORT)]
    pub metrics_port: u16,
}

impl Options {
    /// Where device plugins listen.
    pub fn plugins(&self) -> PathBuf {
        self.kubelet.join("device-plugins")
    }

    /// Where kubelet says which Pod has which device.
    pub fn pod_resources(&self) -> PathBuf {
        self.kubelet.join("pod-resources/kubelet.sock")
    }

    /// The launcher's system-call profile; Pods name it by the part below `seccomp`.
    pub fn seccomp_profile(&self) -> PathBuf {
        let name = Path::new(corten_resources::names::LAUNCHER_SECCOMP_PROFILE);
        self.kubelet.join("seccomp").join(name)
    }

    /// Directories of devices.
    pub fn doors(&self) -> PathBuf {
        self.state.join("doors")
    }

    /// What was given to whom.
    pub fn ledger(&self) -> PathBuf {
        self.state.join("ledger")
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn options_are_well_formed_and_places_are_as_pods_expect_them() {
        Options::command().debug_assert();
        let options = Options::parse_from(["corten-node-agent", "--node-name", "node1"]);
        assert_eq!(options.metrics_port, 9177);
        assert_eq!(options.doors(), Path::new("/var/lib/corten/doors"));
        assert_eq!(
            options.seccomp_profile(),
            Path::new("/var/lib/kubelet/seccomp/corten/launcher.json")
        );
    }
}
