//! What a cluster is made of: programs built from Go modules, images, the disk of its nodes.
//!
//! These recipes are not among the lab's own, so nothing but a cluster builds Kubernetes.

use corten_lab::assets::Recipe;

/// Version of Kubernetes; the module in `go/kubernetes` names it too, which a test checks.
pub const KUBERNETES: &str = "1.36.3";
/// The image that containerd starts every Pod with, by the name in its default configuration.
pub const PAUSE_IMAGE: &str = "registry.k8s.io/pause:3.10.2";
/// The cluster's DNS server.
pub const COREDNS_IMAGE: &str = "registry.k8s.io/coredns/coredns:v1.14.7";
/// busybox under all its names.
pub const TOOLS_IMAGE: &str = "corten.test/tools:1";
/// Servers for tests; see `go/samples`.
pub const SAMPLES_IMAGE: &str = "corten.test/samples:1";

const TOOLCHAIN: (&str, &[u8]) = ("go-toolchain.sh", include_bytes!("../recipes/go-toolchain.sh"));

/// The files of a Go module, and what finds a Go to build them.
macro_rules! module {
    ($name:literal: $($file:literal),+) => {
        &[TOOLCHAIN, $(($file, include_bytes!(concat!("../go/", $name, "/", $file)))),+]
    };
}

const GO: Recipe =
    Recipe { script: include_str!("../recipes/go-build.sh"), mebibytes: 2048, ..Recipe::EMPTY };

/// Recipes of all of it.
pub static RECIPES: &[Recipe] = &[
    Recipe {
        name: "kubernetes",
        parameters: &[
            (
                "PROGRAMS",
                "k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager \
                 k8s.io/kubernetes/cmd/kube-scheduler k8s.io/kubernetes/cmd/kubelet \
                 k8s.io/kubernetes/cmd/kube-proxy k8s.io/kubernetes/cmd/kubectl",
            ),
            ("VERSION", KUBERNETES),
        ],
        files: module!("kubernetes": "go.mod", "go.sum", "tools.go"),
        // Go's own caches take most of it.
        mebibytes: 8192,
        ..GO
    },
    Recipe {
        name: "etcd",
        parameters: &[("PROGRAMS", "go.etcd.io/etcd/server/v3=etcd")],
        files: module!("etcd": "go.mod", "go.sum", "tools.go"),
        ..GO
    },
    Recipe {
        name: "containerd",
        parameters: &[(
            "PROGRAMS",
            "github.com/containerd/containerd/v2/cmd/containerd \
             github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2 \
             github.com/containerd/containerd/v2/cmd/ctr",
        )],
        files: module!("containerd": "go.mod", "go.sum", "tools.go"),
        ..GO
    },
    Recipe {
        name: "runc",
        // The one with C in it.
        parameters: &[
            ("PROGRAMS", "github.com/opencontainers/runc"),
            ("CGO_ENABLED", "1"),
            ("GO_FLAGS", "-tags=seccomp,netgo,osusergo"),
            ("LINK_FLAGS", "-extldflags -static"),
        ],
        packages: &["gcc", "libc6-dev", "libseccomp-dev", "pkg-config"],
        files: module!("runc": "go.mod", "go.sum", "tools.go"),
        ..GO
    },
    Recipe {
        name: "cni-plugins",
        parameters: &[(
            "PROGRAMS",
            "github.com/containernetworking/plugins/plugins/main/bridge \
             github.com/containernetworking/plugins/plugins/main/loopback \
             github.com/containernetworking/plugins/plugins/main/macvlan \
             github.com/containernetworking/plugins/plugins/main/ptp \
             github.com/containernetworking/plugins/plugins/ipam/host-local \
             github.com/containernetworking/plugins/plugins/meta/portmap",
        )],
        files: module!("cni": "go.mod", "go.sum", "tools.go"),
        ..GO
    },
    Recipe {
        name: "coredns",
        parameters: &[("PROGRAMS", ".=coredns")],
        files: module!("coredns": "go.mod", "go.sum", "main.go"),
        ..GO
    },
    Recipe {
        name: "registry",
        parameters: &[("PROGRAMS", ".=registry")],
        files: module!("registry": "go.mod", "go.sum", "main.go", "load.go"),
        ..GO
    },
    Recipe {
        name: "kwok",
        parameters: &[("PROGRAMS", "sigs.k8s.io/kwok/cmd/kwok")],
        files: module!("kwok": "go.mod", "go.sum", "tools.go"),
        ..GO
    },
    Recipe {
        name: "helm",
        parameters: &[("PROGRAMS", "helm.sh/helm/v4/cmd/helm")],
        files: module!("helm": "go.mod", "go.sum", "tools.go"),
        ..GO
    },
    Recipe {
        name: "prometheus",
        // Of the many things that it can discover targets from, one; its pages are not served.
        parameters: &[
            ("PROGRAMS", "github.com/prometheus/prometheus/cmd/prometheus"),
            ("GO_FLAGS", "-tags=remove_all_sd,enable_kubernetes_sd,netgo"),
        ],
        files: module!("prometheus": "go.mod", "go.sum", "tools.go"),
        mebibytes: 4096,
        ..GO
    },
    Recipe {
        name: "samples",
        parameters: &[("PROGRAMS", ".=samples")],
        files: module!(
            "samples": "go.mod", "go.sum", "main.go", "webhook.go", "aggregated.go", "device_plugin.go"
        ),
        ..GO
    },
    Recipe {
        name: "nfs-ganesha",
        script: include_str!("../recipes/nfs-ganesha.sh"),
        fetches: true,
        ..Recipe::EMPTY
    },
    Recipe {
        name: "cluster-images",
        script: include_str!("../recipes/images.sh"),
        parameters: &[
            ("PAUSE", PAUSE_IMAGE),
            ("COREDNS", COREDNS_IMAGE),
            ("TOOLS", TOOLS_IMAGE),
            ("SAMPLES", SAMPLES_IMAGE),
        ],
        inputs: &[("COREDNS", "coredns"), ("SAMPLES", "samples")],
        packages: &["gcc", "libc6-dev", "busybox-static"],
        // The writer of archives is the lab's; its source is part of the key.
        files: &[
            ("pause.c", include_bytes!("../recipes/pause.c")),
            ("archive.rs", include_bytes!("../../lab/src/oci/archive.rs")),
            ("document.rs", include_bytes!("../../lab/src/oci/document.rs")),
            ("image.rs", include_bytes!("../../lab/src/oci/image.rs")),
            ("layer.rs", include_bytes!("../../lab/src/oci/layer.rs")),
        ],
        ..Recipe::EMPTY
    },
    Recipe {
        name: "cluster-node-disk",
        script: include_str!("../recipes/node-disk.sh"),
        inputs: &[
            ("KUBERNETES", "kubernetes"),
            ("CONTAINERD", "containerd"),
            ("RUNC", "runc"),
            ("CNI", "cni-plugins"),
            ("IMAGES", "cluster-images"),
        ],
        packages: &["e2fsprogs"],
        ..Recipe::EMPTY
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_that_of_the_module() {
        let module = include_str!("../go/kubernetes/go.mod");
        assert!(module.contains(&format!("k8s.io/kubernetes v{KUBERNETES}\n")));
        let coredns = include_str!("../go/coredns/go.mod");
        let (_, tag) = COREDNS_IMAGE.rsplit_once(':').unwrap();
        assert!(coredns.contains(&format!("github.com/coredns/coredns {tag}\n")));
    }

    #[test]
    fn inputs_are_recipes_that_stand_before_their_users() {
        for (at, recipe) in RECIPES.iter().enumerate() {
            for (_, input) in recipe.inputs {
                let found = RECIPES[..at].iter().any(|earlier| earlier.name == *input);
                assert!(found, "{} wants {input}", recipe.name);
            }
        }
    }
}
