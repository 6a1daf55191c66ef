//! The example of the README, step by step, from its manifest to a process of its node and back.

use anyhow::{Result, ensure};
use corten_cluster::audit::{AuditLog, Write};
use corten_resources::names::launcher_pod_name;
use serde_json::{Value, json};

use super::audit::audit_log;
use super::process::vmm_process;
use crate::guest::{Guest, UP, text};
use crate::workbench::{READY, Workbench, eventually};

const EXAMPLE: &str = include_str!("../../../../../resources/examples/vmi-kernel-boot.yaml");

#[test]
fn example_boots_outlives_agent_and_operator_and_switches_itself_off() -> Result<()> {
    Workbench::test("first-light", |bench| {
        let audit = AuditLog::from_now(&audit_log()?)?;
        bench.kubectl.feed(&["-n", &bench.namespace, "apply", "-f", "-"], EXAMPLE)?;
        let guest = Guest::new(bench, "first");
        let object = guest.reaches("/phase", "Running")?;
        let pod = guest.pod()?;
        check_placement(&object, &pod);
        check_pod(&object, &pod);
        guest.says(UP)?;
        // Ready is the last thing to be written.
        let object = guest.is_ready()?;
        check_writes(&audit.each_in(&bench.namespace)?);

        let process = vmm_process(&pod)?;
        assert_eq!(process.status("Uid"), "107\t107\t107\t107");
        assert_eq!(process.status("CapEff"), "0000000000000000");
        assert_eq!(process.status("CapBnd"), "0000000000000000");
        assert_eq!(process.status("NoNewPrivs"), "1");
        assert_eq!(process.status("Seccomp"), "2");

        restart_agent(bench, text(&object["status"]["nodeName"]))?;
        eventually("the new agent does not connect", || {
            let connected = guest.log()?.matches("has connected, version").count();
            ensure!(connected == 2, "{connected} agents have connected");
            Ok(())
        })?;
        restart_operator(bench)?;
        // There was nothing to say. Which boot of its node it runs in is noted when the node reports next.
        assert_eq!(guest.object()?["status"], object["status"]);
        assert_eq!(vmm_process(&guest.pod()?)?, process);

        let log = guest.follow_log()?;
        bench.run(&["delete", "--timeout=120s", "vmi", "first"])?;
        let log = log.end()?;
        for words in ["CORTEN-BUTTON", "reboot: Power down", "the guest powered off"] {
            assert!(log.contains(words), "{words:?} is not in the log:\n{log}");
        }
        eventually("its Pod is left", || {
            let pods = guest.pods()?;
            ensure!(pods.is_empty(), "{} Pods", pods.len());
            Ok(())
        })
    })
}

/// Who runs where, as the operator wrote it.
fn check_placement(vmi: &Value, pod: &Value) {
    let (metadata, status) = (&vmi["metadata"], &vmi["status"]);
    let node = &pod["spec"]["nodeName"];
    assert_eq!(status["nodeName"], *node);
    assert_eq!(metadata["labels"]["kubevirt.io/nodeName"], *node);
    assert_eq!(status["activePods"], json!({ text(&pod["metadata"]["uid"]): node }));
    assert_eq!(metadata["finalizers"], json!(["kubevirt.io/foregroundDeleteVirtualMachine"]));
    let phases = status["phaseTransitionTimestamps"].as_array().cloned().unwrap_or_default();
    let phases: Vec<&str> = phases.iter().map(|it| text(&it["phase"])).collect();
    assert_eq!(phases, ["Pending", "Scheduling", "Scheduled", "Running"]);
}

fn check_pod(vmi: &Value, pod: &Value) {
    let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
    let uid = text(&vmi["metadata"]["uid"]);
    assert_eq!(text(&metadata["name"]), launcher_pod_name("first", uid, 0));
    assert_eq!(metadata["ownerReferences"][0]["uid"], uid);
    assert_eq!(spec["securityContext"]["runAsUser"], 107);
    let profile = json!({ "type": "Localhost", "localhostProfile": "corten/launcher.json" });
    assert_eq!(spec["securityContext"]["seccompProfile"], profile);
    let container = &spec["containers"][0];
    assert_eq!(container["securityContext"]["capabilities"], json!({ "drop": ["ALL"] }));
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["resources"]["limits"]["devices.kubevirt.io/kvm"], "1");
    let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    assert_eq!(volumes.len(), 1, "one volume, and no token: {volumes:?}");
    assert_eq!(volumes[0]["image"]["reference"], "corten.test/kernel-boot-6.12:1");
}

/// What it cost the API server from the manifest to Running: at most four writes, events apart.
fn check_writes(writes: &[Write]) {
    let account = |name: &str| format!("system:serviceaccount:kubevirt:{name}");
    let (operator, agent) = (account("corten-operator"), account("corten-node-agent"));
    let ours: Vec<&Write> = writes
        .iter()
        .filter(|it| (it.user == operator || it.user == agent) && it.code < 300)
        .filter(|it| !it.what.ends_with(" events"))
        .collect();
    let runs = ours.iter().position(|it| it.user == agent).map_or(0, |at| at + 1);
    // The Pod, its node, Scheduled if the guest takes its time, and Running.
    assert!((3..=4).contains(&runs), "{ours:#?}");
    assert_eq!(ours[0].what, "create pods", "{ours:#?}");
    assert!(ours[1..runs].iter().all(|it| it.what == "patch virtualmachineinstances"), "{ours:#?}");
    // The Pod's addresses are the interfaces', and kubelet may say them only after the guest runs.
    let agents = ours.iter().filter(|it| it.user == agent).count();
    assert!((1..=2).contains(&agents), "{ours:#?}");
    // Then that its Pod may be ready (once more if that word had not come back yet), that it is, and in which boot of its
    // node it runs, at once if they are seen at once.
    let gate = ours[runs..].iter().filter(|it| it.what == "patch pods/status").count();
    assert!((1..=2).contains(&gate), "{ours:#?}");
    assert!(ours.len() <= runs + gate + agents + 1, "{ours:#?}");
}

fn restart_agent(bench: &Workbench, node: &str) -> Result<()> {
    let field = format!("spec.nodeName={node}");
    let of_node = ["-l", "app.kubernetes.io/name=corten-node-agent", "--field-selector", &field];
    let system = ["-n", "kubevirt"];
    bench.kubectl.run(&[&system[..], &["delete", "pod"], &of_node].concat())?;
    bench.kubectl.run(
        &[&system[..], &["rollout", "status", READY, "daemonset/corten-node-agent"]].concat(),
    )?;
    Ok(())
}

/// Returns when a new one leads.
fn restart_operator(bench: &Workbench) -> Result<()> {
    let system = ["-n", "kubevirt"];
    let operator = ["delete", "pod", "-l", "app.kubernetes.io/name=corten-operator"];
    bench.kubectl.run(&[&system[..], &operator].concat())?;
    bench.kubectl.run(
        &[&system[..], &["rollout", "status", READY, "deployment/corten-operator"]].concat(),
    )?;
    let mut next = crate::guest::vmi("next", "");
    next["spec"]["nodeSelector"] = json!({ "corten.test/no-such-node": "" });
    bench.create(next)?;
    eventually("no operator makes Pods", || Guest::new(bench, "next").pod().map(drop))
}
