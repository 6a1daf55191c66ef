//! Every asset there is.

use super::Recipe;

/// Debian kernels a node can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kernel {
    /// Debian 12's own.
    #[value(name = "6.1")]
    V6_1,
    /// The newer one Debian 12 carries.
    #[value(name = "6.12")]
    V6_12,
}

impl Kernel {
    /// Assets with the kernel and with the initramfs of a node.
    pub(crate) fn assets(self) -> (&'static str, &'static str) {
        match self {
            Self::V6_1 => ("kernel-6.1", "node-initrd-6.1"),
            Self::V6_12 => ("kernel-6.12", "node-initrd-6.12"),
        }
    }
}

const KERNEL: Recipe = Recipe {
    script: include_str!("../../recipes/kernel.sh"),
    packages: &["kmod", "xz-utils", "zstd", "lz4"],
    fetches: true,
    ..Recipe::EMPTY
};

const NODE_INITRD: Recipe = Recipe {
    script: include_str!("../../recipes/node-initrd.sh"),
    packages: &["kmod", "cpio", "xz-utils"],
    agent: true,
    ..Recipe::EMPTY
};

const GUEST_INITRD: Recipe = Recipe {
    script: include_str!("../../recipes/guest-initrd.sh"),
    packages: &["busybox-static", "cpio", "kmod", "xz-utils"],
    files: &[
        ("init", include_bytes!("../../guest/init")),
        ("fstab", include_bytes!("../../guest/fstab")),
        ("udhcpc", include_bytes!("../../guest/udhcpc")),
    ],
    ..Recipe::EMPTY
};

const MAKE_DISK: (&str, &[u8]) = ("make-disk", include_bytes!("../../guest/make-disk"));

const QCOW2: Recipe = Recipe {
    script: include_str!("../../recipes/guest-qcow2.sh"),
    packages: &["qemu-utils"],
    ..Recipe::EMPTY
};

/// The writer of archives is this program; its source is part of the key.
const OCI_WRITER: &[(&str, &[u8])] = &[
    ("archive.rs", include_bytes!("../oci/archive.rs")),
    ("document.rs", include_bytes!("../oci/document.rs")),
    ("image.rs", include_bytes!("../oci/image.rs")),
    ("layer.rs", include_bytes!("../oci/layer.rs")),
];

const CONTAINER_DISK: Recipe = Recipe {
    script: include_str!("../../recipes/container-disk.sh"),
    files: OCI_WRITER,
    ..Recipe::EMPTY
};

const KERNEL_BOOT: Recipe = Recipe {
    script: include_str!("../../recipes/kernel-boot.sh"),
    files: OCI_WRITER,
    ..Recipe::EMPTY
};

pub(super) static TABLE: &[Recipe] = &[
    Recipe {
        name: "qemu",
        script: include_str!("../../recipes/qemu.sh"),
        packages: crate::qemu::PACKAGES,
        fetches: true,
        ..Recipe::EMPTY
    },
    Recipe { name: "kernel-6.12", parameters: &[("PACKAGE", "linux-image-6.12-amd64")], ..KERNEL },
    Recipe { name: "kernel-6.1", parameters: &[("PACKAGE", "linux-image-amd64")], ..KERNEL },
    Recipe {
        name: "kernel-6.1-cloud",
        parameters: &[("PACKAGE", "linux-image-cloud-amd64")],
        ..KERNEL
    },
    Recipe { name: "node-initrd-6.12", inputs: &[("KERNEL", "kernel-6.12")], ..NODE_INITRD },
    Recipe { name: "node-initrd-6.1", inputs: &[("KERNEL", "kernel-6.1")], ..NODE_INITRD },
    Recipe {
        name: "node-root",
        script: include_str!("../../recipes/node-root.sh"),
        inputs: &[("KERNEL_6_12", "kernel-6.12"), ("KERNEL_6_1", "kernel-6.1")],
        packages: &["mmdebstrap", "e2fsprogs", "kmod"],
        fetches: true,
        mebibytes: 6144,
        ..Recipe::EMPTY
    },
    Recipe { name: "guest-initrd-6.12", inputs: &[("KERNEL", "kernel-6.12")], ..GUEST_INITRD },
    Recipe {
        name: "guest-initrd-6.1-cloud",
        inputs: &[("KERNEL", "kernel-6.1-cloud")],
        ..GUEST_INITRD
    },
    Recipe {
        name: "guest-tiny-disk",
        script: include_str!("../../recipes/guest-tiny-disk.sh"),
        inputs: &[("KERNEL", "kernel-6.12"), ("INITRD", "guest-initrd-6.12")],
        packages: &["cpio", "e2fsprogs", "fdisk"],
        files: &[MAKE_DISK, ("tiny-grub.cfg", include_bytes!("../../guest/tiny-grub.cfg"))],
        ..Recipe::EMPTY
    },
    Recipe {
        name: "guest-debian-disk",
        script: include_str!("../../recipes/guest-debian-disk.sh"),
        packages: &["mmdebstrap", "e2fsprogs", "fdisk", "debian-archive-keyring"],
        fetches: true,
        files: &[MAKE_DISK],
        in_node: Some(include_str!("../../guest/update-grub-in-node")),
        mebibytes: 3072,
        ..Recipe::EMPTY
    },
    Recipe {
        name: "guest-tools-disk",
        script: include_str!("../../recipes/guest-tools-disk.sh"),
        packages: &["mmdebstrap", "e2fsprogs", "debian-archive-keyring"],
        fetches: true,
        ..Recipe::EMPTY
    },
    Recipe { name: "guest-tiny-qcow2", inputs: &[("DISK", "guest-tiny-disk")], ..QCOW2 },
    Recipe { name: "guest-debian-qcow2", inputs: &[("DISK", "guest-debian-disk")], ..QCOW2 },
    Recipe { name: "guest-tools-qcow2", inputs: &[("DISK", "guest-tools-disk")], ..QCOW2 },
    Recipe {
        name: "container-disk-tools",
        parameters: &[("NAME", "corten.test/container-disk-tools:1")],
        inputs: &[("DISK", "guest-tools-qcow2")],
        ..CONTAINER_DISK
    },
    Recipe {
        name: "container-disk-tiny",
        parameters: &[("NAME", "corten.test/container-disk-tiny:1")],
        inputs: &[("DISK", "guest-tiny-qcow2")],
        ..CONTAINER_DISK
    },
    Recipe {
        name: "container-disk-debian",
        parameters: &[("NAME", "corten.test/container-disk-debian:1")],
        inputs: &[("DISK", "guest-debian-qcow2")],
        ..CONTAINER_DISK
    },
    Recipe {
        name: "kernel-boot-6.12",
        parameters: &[("NAME", "corten.test/kernel-boot-6.12:1")],
        inputs: &[("KERNEL", "kernel-6.12"), ("INITRD", "guest-initrd-6.12")],
        ..KERNEL_BOOT
    },
    Recipe {
        name: "kernel-boot-6.1-cloud",
        parameters: &[("NAME", "corten.test/kernel-boot-6.1-cloud:1")],
        inputs: &[("KERNEL", "kernel-6.1-cloud"), ("INITRD", "guest-initrd-6.1-cloud")],
        ..KERNEL_BOOT
    },
];

/// Names of all assets.
pub fn names() -> Vec<&'static str> {
    TABLE.iter().map(|recipe| recipe.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_assets_that_stand_before_their_users() {
        for (at, recipe) in TABLE.iter().enumerate() {
            for (_, input) in recipe.inputs {
                let found = TABLE[..at].iter().any(|earlier| earlier.name == *input);
                assert!(found, "{} wants {input}", recipe.name);
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let mut seen = names();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), TABLE.len());
    }
}
