//! The dashboard's queries, answered by a Prometheus that scrapes operators and node agents as users' would.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use corten_cluster::addresses::MACHINE;
use corten_cluster::answer::Request;
use corten_cluster::client;
use corten_cluster::dashboard::queries;
use corten_cluster::programs::Program;
use corten_cluster::state::State;
use corten_lab::cache::Cache;
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};

use crate::guest::{Guest, UP, vmi};
use crate::workbench::{Workbench, eventually};

const NAME: &str = "prometheus";
const PORT: u16 = 9090;

/// What has no series while all is well, and nothing has a network.
const MAY_BE_EMPTY: [&str; 4] = [
    "VMs whose launcher does not answer",
    "Launchers that told nothing",
    "Network traffic",
    "Frames dropped",
];

/// A Prometheus beside the control plane, until it is dropped.
struct Prometheus {
    state: State,
    directory: tempfile::TempDir,
}

impl Prometheus {
    fn start() -> Result<Self> {
        let program = std::env::var_os("CORTEN_PROMETHEUS");
        let program = program
            .context("CORTEN_PROMETHEUS is not set: run this by `scripts/test --long cluster`")?;
        let state = State::required(&Cache::open()?)?;
        let started = Self { state, directory: tempfile::tempdir()? };
        let path = |name: &str| started.directory.path().join(name).display().to_string();
        // As docs/metrics.md says, in the place of a Pod's own account.
        let configuration = format!(
            "global: {{scrape_interval: 5s}}\n\
             scrape_configs:\n\
             - job_name: corten\n\
             \x20 kubernetes_sd_configs:\n\
             \x20 - {{role: endpointslice, kubeconfig_file: {}, namespaces: {{names: [kubevirt]}}}}\n\
             \x20 relabel_configs:\n\
             \x20 - {{source_labels: [__meta_kubernetes_service_label_prometheus_kubevirt_io], regex: \"true\", action: keep}}\n",
            started.state.inside_kubeconfig.display()
        );
        fs::write(path("prometheus.yaml"), configuration)?;
        let argv = vec![
            program,
            format!("--config.file={}", path("prometheus.yaml")).into(),
            format!("--storage.tsdb.path={}", path("data")).into(),
            format!("--web.listen-address={MACHINE}:{PORT}").into(),
        ];
        client::request(&Request::Start(Program { name: NAME.into(), argv }))?;
        Ok(started)
    }

    /// What it answers to a query of this moment.
    fn ask(&self, expression: &str) -> Result<Vec<Value>> {
        let answer = self.get(&format!("/api/v1/query?query={}", escaped(expression)?))?;
        let mut answer: Value = serde_json::from_str(&answer)?;
        ensure!(answer["status"] == "success", "{expression}: {answer}");
        match answer["data"]["result"].take() {
            Value::Array(series) => Ok(series),
            other => bail!("{expression}: no series in {other}"),
        }
    }

    fn get(&self, path: &str) -> Result<String> {
        let network = File::open(format!("/proc/{}/ns/net", self.state.process))?;
        // Of the first version, so that the body comes in one piece.
        let request = format!("GET {path} HTTP/1.0\r\nHost: {NAME}\r\n\r\n");
        // A thread of its own, as it stays in that network.
        let thread = std::thread::spawn(move || -> Result<String> {
            setns(network, CloneFlags::CLONE_NEWNET)?;
            let mut stream = TcpStream::connect((MACHINE, PORT))?;
            stream.set_read_timeout(Some(Duration::from_secs(60)))?;
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        });
        let Ok(answer) = thread.join() else { bail!("a thread of this test ended") };
        let answer = answer?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
        Ok(body.to_owned())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = client::request(&Request::Stop(NAME.into()));
    }
}

fn escaped(text: &str) -> Result<String> {
    let mut escaped = String::new();
    for byte in text.bytes() {
        write!(escaped, "%{byte:02X}")?;
    }
    Ok(escaped)
}

fn value(series: &Value) -> Option<f64> {
    series["value"][1].as_str()?.parse().ok()
}

#[test]
fn long_every_query_of_the_dashboard_is_answered_by_prometheus() -> Result<()> {
    Workbench::test("dashboard", |bench| {
        let mut object = vmi("measured", "corten.end=idle");
        object["spec"]["domain"]["devices"]["disks"] = json!([{ "name": "scratch", "disk": {} }]);
        object["spec"]["volumes"] =
            json!([{ "name": "scratch", "emptyDisk": { "capacity": "64Mi" } }]);
        bench.create(object)?;
        let guest = Guest::new(bench, "measured");
        guest.reaches("/phase", "Running")?;
        guest.says(UP)?;
        let prometheus = Prometheus::start()?;
        eventually("not every Pod with metrics is scraped", || {
            let up = prometheus.ask("sum(up)")?;
            let all = prometheus.ask("count(up)")?;
            // Two operators, and an agent on each of two nodes.
            let (up, all) = (up.first().and_then(value), all.first().and_then(value));
            ensure!(up == Some(4.0) && all == up, "{up:?} of {all:?}");
            Ok(())
        })?;
        for query in queries()? {
            eventually(&format!("{}: {}", query.panel, query.expression), || {
                let series = prometheus.ask(&query.expression)?;
                let may_be_empty = MAY_BE_EMPTY.contains(&query.panel.as_str());
                // What guests say of their memory takes a driver that this one may not have.
                let by_guest = query.expression.contains("usable");
                ensure!(may_be_empty || by_guest || !series.is_empty(), "no series");
                Ok(())
            })?;
        }
        let of_guest = |name: &str| {
            let namespace = &bench.namespace;
            let query = format!("{name}{{namespace=\"{namespace}\",name=\"measured\"}}");
            eventually(&format!("{query} has no value"), || {
                prometheus.ask(&query)?.first().and_then(value).context("no series")
            })
        };
        assert!(of_guest("corten_vmi_launcher_answering")? > 0.0);
        let given = of_guest("kubevirt_vmi_memory_domain_bytes")?;
        let (process, vcpu) = (
            of_guest("kubevirt_vmi_cpu_usage_seconds_total")?,
            of_guest("kubevirt_vmi_vcpu_seconds_total")?,
        );
        assert!(process > 0.0 && vcpu > 0.0, "{process} {vcpu}");
        let resident = of_guest("kubevirt_vmi_memory_resident_bytes")?;
        assert!(0.0 < resident && resident <= given, "{resident} of {given}");
        Ok(())
    })
}
