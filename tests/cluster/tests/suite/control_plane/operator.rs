//! The operator as it is installed, but for where it runs: two processes beside the control plane, behind the same Service.
//!
//! They are every test's: whoever comes first installs Corten and starts them, and they end with the cluster. A test that
//! kills one runs alone, and the next one finds it started again.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use corten_cluster::addresses::MACHINE;
use corten_cluster::answer::Request;
use corten_cluster::audit::AuditLog;
use corten_cluster::client;
use corten_cluster::kubectl::Kubectl;
use corten_cluster::programs::Program;
use corten_cluster::state::{NAME, State};
use corten_lab::cache::Cache;
use nix::fcntl::{Flock, FlockArg};
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};

use super::objects::install;
use crate::workbench::eventually;

/// Its namespace.
pub(super) const SYSTEM: &str = "kubevirt";
/// Its Deployment, Service, Lease and service account.
pub(super) const OPERATOR: &str = "corten-operator";
/// Numbers of the replicas.
pub(super) const REPLICAS: [u16; 2] = [1, 2];

/// The operators of the cluster under test.
pub(super) struct Operators {
    pub(super) kubectl: Kubectl,
    state: State,
    run: PathBuf,
}

impl Operators {
    /// Corten is installed, both replicas answer and the KubeVirt object is Available.
    pub(super) fn serving() -> Result<Self> {
        let cache = Cache::open()?;
        let state = State::required(&cache)?;
        ensure!(state.nodes == 0, "this needs `scripts/cluster up --control-plane-only`");
        let operators = Self { kubectl: state.kubectl(), state, run: cache.runs().join(NAME) };
        operators.start()?;
        Ok(operators)
    }

    /// Starts what does not run, and waits until all serve.
    pub(super) fn start(&self) -> Result<()> {
        let lock = File::create(self.run.join("operators.lock"))?;
        let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
        let installed = self.run.join("operators-installed");
        if !installed.exists() {
            install(&self.kubectl)?;
            fs::write(installed, "")?;
        }
        for number in REPLICAS {
            if self.process(number)?.is_none() {
                self.start_one(number)?;
            }
        }
        for number in REPLICAS {
            self.ready(number)?;
            self.route(number, true)?;
        }
        let wait = ["-n", SYSTEM, "wait", "--for=condition=Available", "--timeout=120s"];
        let waited = self.kubectl.run(&[&wait[..], &["kubevirt", "--all"]].concat());
        waited.map(|_| ()).with_context(|| format!("its logs are in {}", self.logs().display()))
    }

    /// Starts one that was killed, and sends requests to it as soon as it serves.
    pub(super) fn start_again(&self, number: u16) -> Result<()> {
        self.start_one(number)?;
        self.ready(number)?;
        self.route(number, true)
    }

    fn start_one(&self, number: u16) -> Result<()> {
        let program = std::env::var_os("CORTEN_OPERATOR");
        let program =
            program.context("CORTEN_OPERATOR is not set: run this by `scripts/test cluster`")?;
        let [webhooks, health] = ports(number);
        let argv = vec![
            "/usr/bin/env".into(),
            format!("KUBECONFIG={}", self.kubeconfig()?.display()).into(),
            format!("POD_NAME={}", pod(number)).into(),
            program,
            "--launcher-image=corten.test/launcher:1".into(),
            "--node-agent-image=corten.test/node-agent:1".into(),
            format!("--namespace={SYSTEM}").into(),
            format!("--address={MACHINE}").into(),
            format!("--webhook-port={webhooks}").into(),
            format!("--health-port={health}").into(),
        ];
        client::request(&Request::Start(Program { name: name(number), argv }))?;
        Ok(())
    }

    /// What the operator knows the API server by: its service account's token, as in a Pod.
    fn kubeconfig(&self) -> Result<PathBuf> {
        let path = self.run.join("operator.conf");
        let create = ["-n", SYSTEM, "create", "token", OPERATOR, "--duration=24h"];
        let token = self.kubectl.run(&create)?.trim().to_owned();
        let mut config: Value = serde_json::from_slice(&fs::read(&self.state.inside_kubeconfig)?)?;
        config["users"][0]["user"] = json!({ "token": token });
        fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// Kills a replica, and stops sending requests to it, as the cluster would.
    pub(super) fn kill(&self, number: u16) -> Result<()> {
        if self.process(number)?.is_some() {
            client::request(&Request::Stop(name(number)))?;
        }
        self.route(number, false)
    }

    /// Its process, if it runs.
    pub(super) fn process(&self, number: u16) -> Result<Option<u32>> {
        let report = client::request(&Request::Status)?.report.unwrap_or_default();
        let row = report.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find_map(
            |row| match row[..] {
                [first, "running", "process", id, ..] if first == name(number) => id.parse().ok(),
                _ => None,
            },
        );
        Ok(row)
    }

    /// Which replica leads.
    pub(super) fn leader(&self) -> Result<Option<u16>> {
        let holder = self.holder()?;
        Ok(REPLICAS.into_iter().find(|number| holder.starts_with(&format!("{}_", pod(*number)))))
    }

    /// Who holds the Lease.
    pub(super) fn holder(&self) -> Result<String> {
        let path = "jsonpath={.spec.holderIdentity}";
        self.kubectl.run(&["-n", SYSTEM, "get", "lease", OPERATOR, "-o", path])
    }

    fn ready(&self, number: u16) -> Result<()> {
        eventually(
            &format!("operator {number} is not ready, see {}", self.logs().display()),
            || {
                let process = self.process(number)?;
                ensure!(process.is_some(), "it has ended");
                self.get(number, "/readyz").map(|_| ())
            },
        )
    }

    /// Asks a replica's port of health and metrics.
    pub(super) fn get(&self, number: u16, path: &str) -> Result<String> {
        let [_, port] = ports(number);
        let network = File::open(format!("/proc/{}/ns/net", self.state.process))?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n");
        // A thread of its own, as it stays in that network.
        let thread = std::thread::spawn(move || -> Result<String> {
            setns(network, CloneFlags::CLONE_NEWNET)?;
            let mut stream = TcpStream::connect((MACHINE, port))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        });
        let Ok(answer) = thread.join() else { bail!("a thread of this test ended") };
        let answer = answer?;
        ensure!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
        Ok(answer)
    }

    /// Says whether requests to Corten's Services may go to a replica.
    fn route(&self, number: u16, ready: bool) -> Result<()> {
        let [webhooks, health] = ports(number);
        let services = self.kubectl.run(&["-n", SYSTEM, "get", "services", "-o", "json"])?;
        let services: Value = serde_json::from_str(&services)?;
        for service in services["items"].as_array().into_iter().flatten() {
            let ports: Vec<Value> = service["spec"]["ports"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|port| {
                    let target = port["targetPort"].to_string();
                    let plain = ["8080", "health", "metrics"].iter().any(|it| target.contains(it));
                    let number = if plain { health } else { webhooks };
                    json!({ "name": port["name"], "port": number, "protocol": "TCP" })
                })
                .collect();
            let service = service["metadata"]["name"].as_str().unwrap_or_default();
            let slice = json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": format!("{service}-{number}"),
                    "namespace": SYSTEM,
                    "labels": {
                        "kubernetes.io/service-name": service,
                        "endpointslice.kubernetes.io/managed-by": "corten.test",
                    },
                },
                "addressType": "IPv4",
                "endpoints": [{ "addresses": [MACHINE], "conditions": { "ready": ready } }],
                "ports": ports,
            });
            self.kubectl.apply(&slice.to_string())?;
        }
        Ok(())
    }

    /// The logs of everything, and the audit log.
    pub(super) fn logs(&self) -> &Path {
        &self.state.logs
    }

    /// What is written from now on.
    pub(super) fn audit(&self) -> Result<AuditLog> {
        AuditLog::from_now(&self.state.logs.join("audit.log"))
    }
}

/// The user that a service account of the system is to the API server.
pub(super) fn account(name: &str) -> String {
    format!("system:serviceaccount:{SYSTEM}:{name}")
}

fn name(number: u16) -> String {
    format!("operator-{number}")
}

fn pod(number: u16) -> String {
    format!("{OPERATOR}-{number}")
}

/// Of webhooks, and of health and metrics.
fn ports(number: u16) -> [u16; 2] {
    [8442 + number, 8079 + number]
}
