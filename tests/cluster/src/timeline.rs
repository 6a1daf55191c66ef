//! When each step from a manifest to a guest's user space was seen, by the clock of whoever waits for it.
//!
//! Watches are open before the object is made, so that no step is missed; what is measured is what a client sees, not
//! what the components noted down, which is in whole seconds. Lines of the log are the exception: they have the time at
//! which the node's container runtime read them, since a log can be asked for only when the Pod is known to run. The node's
//! clock may be off: it is set right by the line that came here soonest.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::assets::TOOLS_IMAGE;
use crate::kubectl::Kubectl;
use crate::manifests;

/// All steps there are, in their order. Which of them happen depends on the object.
const STEPS: [&str; 12] = [
    STORED,
    POD_MADE,
    POD_BOUND,
    "VMI Scheduling",
    "container runs",
    "launcher waits",
    "agent connected",
    "VM process started",
    "VMI Running",
    "first line of the kernel",
    USER_SPACE,
    "Pod Ready",
];
const STORED: &str = "object stored";
const POD_MADE: &str = "Pod made";
const POD_BOUND: &str = "Pod has a node";
const USER_SPACE: &str = "user space";

/// What has to be seen in the log for a step.
const WORDS: [(&str, &str); 4] = [
    ("waits for the node agent", "launcher waits"),
    ("has connected, version", "agent connected"),
    ("the VM process is", "VM process started"),
    ("Linux version", "first line of the kernel"),
];

/// For each object: ten times what it takes.
const LIMIT: Duration = Duration::from_secs(300);

/// What is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pod,
    Vmi,
}

/// Time from the request that made the object to each step.
type Timeline = BTreeMap<&'static str, Duration>;

/// Something was seen.
enum Seen {
    /// A watch has told all there was before; from here on it tells changes.
    Watching,
    Pod(Value),
    Vmi(Value),
    /// A line of the log, and when it was written.
    Line(String, Timestamp),
    /// A watch or a log has ended.
    Over(&'static str),
}

/// Makes a plain Pod, then the VMI of a manifest, in turn `runs` times on the same node, each in a namespace of its own, and
/// returns a table of the median times at which their steps were seen. The guest says `until` on its console when its user
/// space runs.
pub fn beside_a_pod(kubectl: &Kubectl, vmi: &str, until: &str, runs: u16) -> Result<String> {
    let node = kubectl.run(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"])?;
    let script = "echo user space; exec sleep 1000";
    let pod = manifests::restricted_pod("plain", TOOLS_IMAGE, &["-c", script]);
    let read = ["create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-"];
    let vmi = serde_json::from_str(&kubectl.feed(&read, vmi)?).context("not one object")?;
    let mut objects = [("plain Pod", Kind::Pod, pod, "user space"), ("VMI", Kind::Vmi, vmi, until)];
    for (_, _, object, _) in &mut objects {
        // The place of a namespace that the manifest may name is taken by ours.
        object["metadata"]["namespace"] = Value::Null;
        object["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    }
    let mut columns = objects.each_ref().map(|(name, ..)| (*name, Vec::new()));
    for run in 0..runs {
        for ((name, kind, object, until), (_, timelines)) in objects.iter().zip(&mut columns) {
            let kind_name = if *kind == Kind::Pod { "pod" } else { "vmi" };
            let namespace = format!("timeline-{kind_name}-{run}-{}", std::process::id());
            kubectl.apply(&manifests::namespace(&namespace, "restricted").to_string())?;
            let timeline = follow(kubectl, &namespace, (*kind, &object.to_string()), until);
            // What is ending would take time from the next one.
            let left = kubectl.run(&["delete", "--timeout=120s", "namespace", &namespace]);
            timelines.push(timeline.with_context(|| format!("{name} in {namespace}"))?);
            left?;
        }
    }
    Ok(table(&columns.map(|(name, timelines)| (name, medians(&timelines)))))
}

/// For each step the median of when it was seen.
fn medians(timelines: &[Timeline]) -> Timeline {
    let median = |step: &&'static str| {
        let mut times: Vec<Duration> =
            timelines.iter().filter_map(|timeline| timeline.get(*step).copied()).collect();
        times.sort_unstable();
        Some((*step, *times.get(times.len() / 2)?))
    };
    STEPS.iter().filter_map(median).collect()
}

/// Makes an object of `kind` from its manifest in `namespace`, which must be empty, and follows it until its Pod is ready and a line
/// of its log has `until` in it.
fn follow(
    kubectl: &Kubectl,
    namespace: &str,
    (kind, manifest): (Kind, &str),
    until: &str,
) -> Result<Timeline> {
    let (sender, seen) = channel();
    let deadline = Instant::now() + LIMIT;
    let mut children = Children(Vec::new());
    let core = format!("/api/v1/namespaces/{namespace}");
    children.watch(kubectl, &format!("{core}/pods"), Seen::Pod, &sender)?;
    let vmis = format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances");
    if kind == Kind::Vmi {
        children.watch(kubectl, &vmis, Seen::Vmi, &sender)?;
    }
    for _ in 0..children.0.len() {
        ensure!(matches!(next(&seen, deadline)?, (Seen::Watching, _)), "{namespace} is not empty");
    }

    let (start, started) = (Instant::now(), Timestamp::now());
    let mut timeline = Timeline::new();
    let mut log = Log::default();
    kubectl.feed(&["-n", namespace, "create", "-f", "-"], manifest)?;
    timeline.insert(STORED, start.elapsed());
    let mut logs_of = None;
    while !(log.0.contains_key(USER_SPACE) && timeline.contains_key("Pod Ready")) {
        let (what, at) = next(&seen, deadline)
            .with_context(|| format!("seen so far: {:?}", timeline.keys().collect::<Vec<_>>()))?;
        let at = at - start;
        let mut note = |step| {
            timeline.entry(step).or_insert(at);
        };
        match what {
            Seen::Pod(pod) => {
                steps_of_pod(&pod).into_iter().for_each(&mut note);
                if logs_of.is_none() && is_running(&pod) {
                    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                    children.log(kubectl, &format!("{core}/pods/{name}/log"), &sender)?;
                    logs_of = Some(name);
                }
                let phase = pod["status"]["phase"].as_str().unwrap_or_default();
                ensure!(
                    !matches!(phase, "Succeeded" | "Failed"),
                    "the Pod ended: {}",
                    pod["status"]
                );
            }
            Seen::Vmi(vmi) => steps_of_vmi(&vmi).into_iter().for_each(&mut note),
            Seen::Line(line, written) => {
                log.line(&line, until, written.duration_since(started), at);
            }
            Seen::Watching => {}
            Seen::Over(what) => bail!("{what} ended early"),
        }
    }
    timeline.extend(log.steps());
    Ok(timeline)
}

/// Steps that lines of the log tell, by the node's clock, and by how much that is off.
#[derive(Default)]
struct Log(BTreeMap<&'static str, SignedDuration>, Option<SignedDuration>);

impl Log {
    fn line(&mut self, line: &str, until: &str, written: SignedDuration, seen: Duration) {
        let late = SignedDuration::try_from(seen).unwrap_or_default() - written;
        self.1 = Some(self.1.map_or(late, |least| least.min(late)));
        let known = WORDS.iter().filter(|(words, _)| line.contains(words)).map(|(_, step)| *step);
        for step in known.chain(line.contains(until).then_some(USER_SPACE)) {
            self.0.entry(step).or_insert(written);
        }
    }

    fn steps(self) -> impl Iterator<Item = (&'static str, Duration)> {
        let off = self.1.unwrap_or_default();
        self.0.into_iter().map(move |(step, at)| (step, (at + off).unsigned_abs()))
    }
}

fn next(seen: &Receiver<(Seen, Instant)>, deadline: Instant) -> Result<(Seen, Instant)> {
    match seen.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(seen) => Ok(seen),
        Err(RecvTimeoutError::Timeout) => bail!("the next step did not come in time"),
        Err(RecvTimeoutError::Disconnected) => bail!("nobody watches any more"),
    }
}

/// kubectl processes that end with this value.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Children {
    /// What the API says at `path`, as it comes.
    fn raw(&mut self, kubectl: &Kubectl, path: &str) -> Result<impl Read + Send + use<>> {
        let mut command = kubectl.command();
        command.args(["get", "--raw", path]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().context("cannot run kubectl")?;
        let output = child.stdout.take().context("kubectl has no output")?;
        self.0.push(child);
        Ok(output)
    }

    fn watch(
        &mut self,
        kubectl: &Kubectl,
        path: &str,
        kind: fn(Value) -> Seen,
        sender: &Sender<(Seen, Instant)>,
    ) -> Result<()> {
        // The server itself says where the initial state ends.
        let parameters = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let output = self.raw(kubectl, &format!("{path}?{parameters}"))?;
        let sender = sender.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let at = Instant::now();
                let Ok(mut event) = serde_json::from_str::<Value>(&line) else { continue };
                let seen = match event["type"].as_str() {
                    Some("BOOKMARK") => Seen::Watching,
                    Some("ADDED" | "MODIFIED") => kind(event["object"].take()),
                    _ => continue,
                };
                if sender.send((seen, at)).is_err() {
                    return;
                }
            }
            let _ = sender.send((Seen::Over("a watch"), Instant::now()));
        });
        Ok(())
    }

    fn log(
        &mut self,
        kubectl: &Kubectl,
        path: &str,
        sender: &Sender<(Seen, Instant)>,
    ) -> Result<()> {
        let output = self.raw(kubectl, &format!("{path}?follow=true&timestamps=true"))?;
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(output).split(b'\n');
            while let Some(Ok(line)) = lines.next() {
                let line = String::from_utf8_lossy(&line);
                let Some((time, line)) = line.split_once(' ') else { continue };
                let Ok(written) = time.parse() else { continue };
                if sender.send((Seen::Line(line.to_owned(), written), Instant::now())).is_err() {
                    return;
                }
            }
            let _ = sender.send((Seen::Over("the log"), Instant::now()));
        });
        Ok(())
    }
}

fn steps_of_pod(pod: &Value) -> Vec<&'static str> {
    let mut steps = vec![POD_MADE];
    steps.extend(pod["spec"]["nodeName"].as_str().map(|_| POD_BOUND));
    steps.extend(is_running(pod).then_some("container runs"));
    let conditions = pod["status"]["conditions"].as_array();
    let ready =
        conditions.into_iter().flatten().any(|it| it["type"] == "Ready" && it["status"] == "True");
    steps.extend(ready.then_some("Pod Ready"));
    steps
}

fn is_running(pod: &Value) -> bool {
    pod["status"]["containerStatuses"][0]["state"]["running"].is_object()
}

fn steps_of_vmi(vmi: &Value) -> Option<&'static str> {
    match vmi["status"]["phase"].as_str() {
        Some("Scheduling") => Some("VMI Scheduling"),
        Some("Running") => Some("VMI Running"),
        _ => None,
    }
}

/// A table of several timelines side by side, in milliseconds.
fn table(columns: &[(&str, Timeline)]) -> String {
    let mut table = format!("{:<26}", "milliseconds since apply");
    columns.iter().for_each(|(name, _)| table.push_str(&format!("{name:>12}")));
    for step in STEPS {
        if !columns.iter().any(|(_, timeline)| timeline.contains_key(step)) {
            continue;
        }
        table.push_str(&format!("\n{step:<26}"));
        for (_, timeline) in columns {
            let at = timeline.get(step).map_or("-".into(), |at| at.as_millis().to_string());
            table.push_str(&format!("{at:>12}"));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_a_pod_add_up() {
        let mut pod = json!({ "metadata": { "name": "a" } });
        assert_eq!(steps_of_pod(&pod), [POD_MADE]);
        pod["spec"] = json!({ "nodeName": "n" });
        pod["status"] = json!({
            "containerStatuses": [{ "state": { "running": { "startedAt": "t" } } }],
            "conditions": [{ "type": "Ready", "status": "False" }],
        });
        assert_eq!(steps_of_pod(&pod), [POD_MADE, POD_BOUND, "container runs"]);
        pod["status"]["conditions"][0]["status"] = json!("True");
        assert_eq!(steps_of_pod(&pod).last(), Some(&"Pod Ready"));
    }

    #[test]
    fn table_has_a_row_for_each_step_that_was_seen_and_a_dash_where_it_was_not() {
        let ms = Duration::from_millis;
        let pod = Timeline::from([(STORED, ms(5)), ("container runs", ms(900))]);
        let vmi = Timeline::from([
            (STORED, ms(7)),
            ("container runs", ms(950)),
            ("VMI Running", ms(1000)),
        ]);
        let table = table(&[("plain Pod", pod), ("VMI", vmi)]);
        let rows: Vec<Vec<&str>> =
            table.lines().map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["object", "stored", "5", "7"]);
        assert_eq!(rows[3], ["VMI", "Running", "-", "1000"]);
        assert_eq!(rows.len(), 4);
    }

    #[test]
    fn each_step_has_its_own_median_of_those_runs_in_which_it_was_seen() {
        let ms = Duration::from_millis;
        let run = |stored, ready| Timeline::from([(STORED, ms(stored)), ("Pod Ready", ms(ready))]);
        let mut runs = vec![run(5, 100), run(50, 90), run(6, 300)];
        runs[1].remove("Pod Ready");
        assert_eq!(medians(&runs), run(6, 300));
        assert_eq!(medians(&[]), Timeline::new());
    }

    #[test]
    fn clock_of_a_node_is_set_right_by_the_line_that_came_soonest() {
        let mut log = Log::default();
        let ms = SignedDuration::from_millis;
        // 100 ms behind; the first two lines waited for somebody to read them.
        log.line("launcher waits for the node agent", "UP", ms(800), Duration::from_millis(1500));
        log.line("Linux version 6.12", "UP", ms(1000), Duration::from_millis(1505));
        log.line("it is UP", "UP", ms(1900), Duration::from_millis(2000));
        let steps: Vec<_> = log.steps().map(|(step, at)| (step, at.as_millis())).collect();
        assert_eq!(
            steps,
            [("first line of the kernel", 1100), ("launcher waits", 900), (USER_SPACE, 2000)]
        );
    }

    #[test]
    fn every_step_that_a_log_tells_is_a_step() {
        assert!(WORDS.iter().all(|(_, step)| STEPS.contains(step)));
    }
}
