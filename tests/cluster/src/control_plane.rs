//! The control plane: Kubernetes' own programs, on the machine itself, in the cluster's network namespace.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use corten_lab::qemu::Process;
use serde_json::json;

use crate::addresses::{API_PORT, MACHINE, PODS, PODS_6, REGISTRY_PORT, SERVICES, SERVICES_6};
use crate::credentials::Credentials;
use crate::kubectl::Kubectl;

/// Ready in 4 s on a quiet machine.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// What becomes of Pods on simulated nodes; nodes themselves are as kwok has them.
const POD_STAGES: &str = include_str!("../manifests/kwok-stages.yaml");

/// Where the control plane's programs, files and logs lie.
#[derive(Clone, Debug)]
pub struct Places {
    /// kube-apiserver and its kin.
    pub kubernetes: PathBuf,
    /// etcd.
    pub etcd: PathBuf,
    /// The registry's program.
    pub registry: PathBuf,
    /// kwok, where nodes are simulated.
    pub kwok: Option<PathBuf>,
    /// The NFS server, where real nodes mount from it.
    pub nfs: Option<PathBuf>,
    /// What the programs write.
    pub run: PathBuf,
    /// What they say.
    pub logs: PathBuf,
}

impl Places {
    /// The registry's images.
    pub fn registry_storage(&self) -> PathBuf {
        self.run.join("registry")
    }
}

/// One running program.
#[derive(Debug)]
pub struct Component {
    /// Its name, and that of its log.
    pub name: &'static str,
    /// The program.
    pub process: Process,
}

/// The running control plane. Programs end in the order they stand in: the API server waits for an etcd that is gone.
#[derive(Debug, Default)]
pub struct ControlPlane {
    /// The programs, the last started first.
    pub components: Vec<Component>,
}

impl ControlPlane {
    /// Starts etcd, the API server and the registry; does not wait for them.
    pub fn start(places: &Places, credentials: &Credentials) -> Result<Self> {
        let mut control_plane = Self::default();
        let pki = credentials.directory();
        control_plane.add(places, "etcd", &places.etcd.join("etcd"), etcd(&places.run, pki))?;
        let policy = places.run.join("audit-policy.json");
        fs::write(&policy, audit_policy())?;
        let server = api_server(pki, &policy, &places.logs.join("audit.log"));
        let program = places.kubernetes.join("kube-apiserver");
        control_plane.add(places, "kube-apiserver", &program, server)?;
        let configuration = places.run.join("registry.json");
        fs::write(&configuration, registry(&places.registry_storage()))?;
        let arguments = vec!["serve".to_owned(), path(&configuration)];
        control_plane.add(places, "registry", &places.registry.join("registry"), arguments)?;
        Ok(control_plane)
    }

    /// Waits for the API server and starts what needs it.
    pub fn complete(
        &mut self,
        places: &Places,
        credentials: &Credentials,
        kubectl: &Kubectl,
    ) -> Result<()> {
        let deadline = Instant::now() + READY_LIMIT;
        while kubectl.run(&["get", "--raw", "/readyz"]).is_err() {
            self.check(places)?;
            if Instant::now() > deadline {
                bail!("the API server is not ready; {}", log_of(places, "kube-apiserver"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let pki = credentials.directory();
        let program = places.kubernetes.join("kube-controller-manager");
        self.add(places, "kube-controller-manager", &program, controller_manager(pki))?;
        let program = places.kubernetes.join("kube-scheduler");
        self.add(places, "kube-scheduler", &program, clients(pki, "scheduler"))?;
        if let Some(kwok) = &places.kwok {
            let stages = places.run.join("kwok-stages.yaml");
            fs::write(&stages, POD_STAGES)?;
            let arguments = vec![
                format!("--config={}", path(&stages)),
                format!("--kubeconfig={}", path(&pki.join("kwok.conf"))),
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".into(),
                "--node-lease-duration-seconds=40".into(),
            ];
            self.add(places, "kwok", &kwok.join("kwok"), arguments)?;
        }
        Ok(())
    }

    /// An error if a program has ended, with what it said last.
    pub fn check(&mut self, places: &Places) -> Result<()> {
        for component in &mut self.components {
            if !component.process.is_running() {
                bail!("{} ended; {}", component.name, log_of(places, component.name));
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        places: &Places,
        name: &'static str,
        program: &Path,
        arguments: Vec<String>,
    ) -> Result<()> {
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        let log = places.logs.join(format!("{name}.log"));
        let process = Process::start(program, &arguments, &[], &log)
            .with_context(|| format!("cannot start {name}"))?;
        self.components.insert(0, Component { name, process });
        Ok(())
    }
}

fn log_of(places: &Places, name: &str) -> String {
    let log = places.logs.join(format!("{name}.log"));
    let text = fs::read(&log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let end = lines[lines.len().saturating_sub(10)..].join("\n  | ");
    format!("the end of {} is:\n  | {end}", log.display())
}

fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn etcd(run: &Path, pki: &Path) -> Vec<String> {
    let file = |name: &str| path(&pki.join(name));
    vec![
        format!("--data-dir={}", path(&run.join("etcd"))),
        // Nothing of it outlives the cluster.
        "--unsafe-no-fsync".into(),
        "--listen-client-urls=https://127.0.0.1:2379".into(),
        "--advertise-client-urls=https://127.0.0.1:2379".into(),
        "--listen-peer-urls=http://127.0.0.1:2380".into(),
        "--client-cert-auth".into(),
        format!("--trusted-ca-file={}", file("etcd-ca.crt")),
        format!("--cert-file={}", file("etcd.crt")),
        format!("--key-file={}", file("etcd.key")),
        "--log-level=warn".into(),
    ]
}

fn api_server(pki: &Path, policy: &Path, audit_log: &Path) -> Vec<String> {
    let file = |name: &str| path(&pki.join(name));
    vec![
        "--etcd-servers=https://127.0.0.1:2379".into(),
        format!("--etcd-cafile={}", file("etcd-ca.crt")),
        format!("--etcd-certfile={}", file("etcd-client.crt")),
        format!("--etcd-keyfile={}", file("etcd-client.key")),
        format!("--advertise-address={MACHINE}"),
        format!("--secure-port={API_PORT}"),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--service-cluster-ip-range={SERVICES},{SERVICES_6}"),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        // As kubeadm has it: Pods of the node agent are privileged; Pod Security decides where.
        "--allow-privileged".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", file("service-accounts.pub")),
        format!("--service-account-signing-key-file={}", file("service-accounts.key")),
        format!("--kubelet-client-certificate={}", file("kubelet-client.crt")),
        format!("--kubelet-client-key={}", file("kubelet-client.key")),
        format!("--kubelet-certificate-authority={}", file("ca.crt")),
        "--kubelet-preferred-address-types=InternalIP".into(),
        format!("--requestheader-client-ca-file={}", file("front-proxy-ca.crt")),
        "--requestheader-allowed-names=front-proxy-client".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        format!("--proxy-client-cert-file={}", file("front-proxy.crt")),
        format!("--proxy-client-key-file={}", file("front-proxy.key")),
        // It runs where there is no kube-proxy, so it goes to Pods, not to Services.
        "--enable-aggregator-routing".into(),
        format!("--audit-policy-file={}", path(policy)),
        format!("--audit-log-path={}", path(audit_log)),
    ]
}

fn controller_manager(pki: &Path) -> Vec<String> {
    let file = |name: &str| path(&pki.join(name));
    let mut arguments = clients(pki, "controller-manager");
    arguments.extend([
        format!("--service-account-private-key-file={}", file("service-accounts.key")),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--cluster-signing-cert-file={}", file("ca.crt")),
        format!("--cluster-signing-key-file={}", file("ca.key")),
        "--use-service-account-credentials".into(),
        format!("--cluster-cidr={PODS},{PODS_6}"),
    ]);
    arguments
}

fn clients(pki: &Path, name: &str) -> Vec<String> {
    let config = path(&pki.join(format!("{name}.conf")));
    vec![
        format!("--kubeconfig={config}"),
        format!("--authentication-kubeconfig={config}"),
        format!("--authorization-kubeconfig={config}"),
        "--leader-elect=false".into(),
        "--bind-address=127.0.0.1".into(),
    ]
}

fn audit_policy() -> String {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{ "level": "Metadata" }],
    });
    policy.to_string()
}

fn registry(storage: &Path) -> String {
    let configuration = json!({
        "version": "0.1",
        "log": { "level": "warn", "accesslog": { "disabled": false } },
        "storage": { "filesystem": { "rootdirectory": storage } },
        "http": { "addr": format!("{MACHINE}:{REGISTRY_PORT}") },
    });
    configuration.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_audited_with_its_metadata() {
        let policy: serde_json::Value = serde_json::from_str(&audit_policy()).unwrap();
        assert_eq!(policy["rules"], json!([{ "level": "Metadata" }]));
    }

    #[test]
    fn api_server_has_what_a_hardened_cluster_has() {
        let arguments = api_server(Path::new("/pki"), Path::new("/policy"), Path::new("/audit"));
        for expected in [
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-certificate-authority=/pki/ca.crt",
            "--audit-log-path=/audit",
        ] {
            assert!(arguments.iter().any(|argument| argument == expected), "{expected}");
        }
    }
}
