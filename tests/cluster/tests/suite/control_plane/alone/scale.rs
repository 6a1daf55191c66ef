//! A thousand instances.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use corten_cluster::audit::Write;
use futures::{StreamExt, TryStreamExt, stream};
use kube::Api;
use kube::api::{DynamicObject, ListParams, PostParams};
use serde_json::json;

use crate::control_plane::agent::{Agents, client, runtime, vmis};
use crate::control_plane::objects::{all_gone, vmi};
use crate::control_plane::operator::{Operators, REPLICAS};
use crate::control_plane::test;
use crate::workbench::{Workbench, eventually};

const COUNT: usize = 1000;
/// Requests at a time, as many users would make.
const AT_ONCE: usize = 16;

#[test]
fn long_thousand_instances_run_and_go() -> Result<()> {
    test("thousand", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let leader = operators.leader()?.context("nobody leads")?;
        let before = Usage::of(operators, leader)?;
        let audit = operators.audit()?;
        let start = Instant::now();
        make_all(bench, operators)?;
        let made = start.elapsed();
        eventually("not all run", || {
            let running = count_running(bench, operators)?;
            ensure!(running == COUNT, "{running} of {COUNT} run");
            Ok(())
        })?;
        let ran = start.elapsed();
        let after = Usage::of(operators, leader)?;
        let writes = audit.each_in(&bench.namespace)?;
        let (pods, mut waits) = waits(&writes);
        assert_eq!(pods, COUNT, "Pods made");
        waits.sort_unstable();
        let at = |share: usize| waits.get(waits.len() * share / 100).copied().unwrap_or_default();
        let cpu = after.cpu_seconds - before.cpu_seconds;
        println!("{COUNT} instances: made in {made:.1?}, all Running after {ran:.1?}");
        println!("creation answered until Pod made: p50 {} ms, p99 {} ms", at(50), at(99));
        println!("operator that leads: {cpu:.1} s of CPU, {before} before, {after} after");
        for number in REPLICAS.into_iter().filter(|number| *number != leader) {
            println!("operator that does not lead: {}", Usage::of(operators, number)?);
        }
        let metrics = operators.get(leader, "/metrics")?;
        let at_most = |share: f64| reconciled_within(&metrics, share).unwrap_or_else(|| "?".into());
        println!("one reconciliation: p50 {} s, p99 {} s at most", at_most(0.5), at_most(0.99));

        let start = Instant::now();
        bench.run(&["delete", "--wait=false", "vmi", "--all"])?;
        all_gone(bench)?;
        println!("all gone after {:.1?}; {}", start.elapsed(), Usage::of(operators, leader)?);
        Ok(())
    })
}

fn make_all(bench: &Workbench, operators: &Operators) -> Result<()> {
    runtime()?.block_on(async {
        let admin = client(&operators.kubectl.kubeconfig, None).await?;
        let all: Api<DynamicObject> = Api::namespaced_with(admin, &bench.namespace, &vmis());
        stream::iter(0..COUNT)
            .map(|number| {
                let all = all.clone();
                async move {
                    let mut object = vmi(&format!("vm-{number:04}"));
                    object["spec"]["domain"]["memory"] = json!({ "guest": "64Mi" });
                    let object: DynamicObject = serde_json::from_value(object)?;
                    all.create(&PostParams::default(), &object).await?;
                    anyhow::Ok(())
                }
            })
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await
    })
}

fn count_running(bench: &Workbench, operators: &Operators) -> Result<usize> {
    runtime()?.block_on(async {
        let admin = client(&operators.kubectl.kubeconfig, None).await?;
        let all: Api<DynamicObject> = Api::namespaced_with(admin, &bench.namespace, &vmis());
        let list = all.list(&ListParams::default()).await?;
        Ok(list.items.iter().filter(|it| it.data["status"]["phase"] == "Running").count())
    })
}

/// How many Pods were made, and how many milliseconds each came after its instance.
fn waits(writes: &[Write]) -> (usize, Vec<i128>) {
    let mut created = BTreeMap::new();
    let mut waits = Vec::new();
    let mut pods = 0;
    for write in writes.iter().filter(|write| write.code == 201) {
        match write.what.as_str() {
            "create virtualmachineinstances" => {
                created.insert(write.name.clone(), write.answered);
            }
            "create pods" => {
                pods += 1;
                let name = write.name.trim_start_matches("virt-launcher-");
                let vmi = name.rsplit_once('-').map_or(name, |(vmi, _)| vmi);
                if let Some(earlier) = created.get(vmi) {
                    waits.push(write.answered.duration_since(*earlier).as_millis());
                }
            }
            _ => {}
        }
    }
    (pods, waits)
}

/// What a process has used.
struct Usage {
    resident_kib: u64,
    highest_kib: u64,
    cpu_seconds: f64,
}

impl Usage {
    fn of(operators: &Operators, number: u16) -> Result<Self> {
        let process = operators.process(number)?.context("it does not run")?;
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        let kib = |field: &str| -> Result<u64> {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(field))
                .context("no such field")?;
            Ok(line.trim_matches(|c: char| !c.is_ascii_digit()).parse()?)
        };
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        let (_, fields) = stat.rsplit_once(')').context("no name")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // utime and stime, in hundredths of a second.
        let ticks =
            |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok()).unwrap_or(0);
        let cpu_seconds = f64::from(ticks(11) + ticks(12)) / 100.0;
        Ok(Self { resident_kib: kib("VmRSS:")?, highest_kib: kib("VmHWM:")?, cpu_seconds })
    }
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} KiB resident, {} KiB at most", self.resident_kib, self.highest_kib)
    }
}

/// The edge of the histogram below which this share of an instance's reconciliations were done.
fn reconciled_within(metrics: &str, share: f64) -> Option<String> {
    let series = "corten_reconcile_duration_seconds_bucket{controller=\"virtualmachineinstance\",\
                  result=\"done\",le=\"";
    let buckets: Vec<(&str, f64)> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(series)?.split_once("\"} "))
        .filter_map(|(edge, count)| Some((edge, count.parse().ok()?)))
        .collect();
    let (_, all) = buckets.last()?;
    let (edge, _) = buckets.iter().find(|(_, below)| *below >= share * all)?;
    Some((*edge).into())
}
