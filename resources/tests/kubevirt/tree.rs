//! Programs in a VM's Pod take this crate without what clusters need.

use std::process::Command;

#[test]
fn kube_and_tokio_are_in_the_tree_of_neither_vmm_nor_launcher() {
    for package in ["corten-vmm", "corten-launcher"] {
        let output = Command::new(env!("CARGO"))
            .args([
                "tree",
                "--locked",
                "--offline",
                "--edges",
                "normal",
                "--prefix",
                "none",
                "-p",
                package,
            ])
            .output()
            .unwrap();
        let tree = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(tree.starts_with(&format!("{package} ")), "{tree}");
        let names: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        for unwanted in ["k8s-openapi", "kube", "kube-client", "schemars", "serde-saphyr", "tokio"]
        {
            assert!(!names.contains(&unwanted), "{package} depends on {unwanted}");
        }
    }
}
