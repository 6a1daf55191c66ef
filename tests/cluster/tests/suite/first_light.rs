//! VirtualMachineInstances on a cluster that has Corten.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use corten_resources::names::launcher_pod_name;
use serde_json::{Value, json};

use crate::guest::{Guest, condition, text, vmi};
use crate::workbench::{READY, Workbench, eventually, pod};

/// Not the example's kernel, name, topology or arguments.
#[test]
fn guest_with_two_cpus_powers_off_and_its_reason_stays() -> Result<()> {
    Workbench::test("succeeds", |bench| {
        let mut object = vmi("second.with-dots", "");
        let domain = &mut object["spec"]["domain"];
        domain["cpu"] = json!({ "sockets": 2, "cores": 1, "threads": 1 });
        domain["memory"]["guest"] = json!("300Mi");
        domain["firmware"]["kernelBoot"] = json!({
            "kernelArgs": "console=ttyS0 corten.end=poweroff some.word=\"two words\"",
            "container": {
                "image": "corten.test/kernel-boot-6.1-cloud:1",
                "kernelPath": "/boot/vmlinux",
                "initrdPath": "/boot/initrd",
            },
        });
        bench.create(object)?;
        let guest = Guest::new(bench, "second.with-dots");
        let ended = guest.reaches("/phase", "Succeeded")?;
        assert_eq!(ended["status"]["reason"], "PoweredOff");
        assert_eq!(condition(&ended, "Ready")["reason"], "GuestNotRunning");

        let log = guest.log()?;
        for words in [
            "Command line: console=ttyS0 corten.end=poweroff some.word=\"two words\"",
            "Brought up 1 node, 2 CPUs",
            "reboot: Power down",
            "the guest powered off",
        ] {
            assert!(log.contains(words), "{words:?} is not in the log:\n{log}");
        }
        let pod = guest.pod()?;
        let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(terminated["exitCode"], 0);
        let message: Value = serde_json::from_str(text(&terminated["message"]))?;
        assert_eq!(message["reason"], "powered-off");
        assert!(events(bench, "second.with-dots")?.contains("Stopped"));

        // Nothing is left to be ended.
        bench.run(&["delete", "--timeout=60s", "vmi", "second.with-dots"])?;
        Ok(())
    })
}

#[test]
fn guest_that_does_not_hear_its_button_is_killed_after_its_grace() -> Result<()> {
    Workbench::test("deaf", |bench| {
        bench.create(vmi("deaf", "corten.end=idle"))?;
        let guest = Guest::new(bench, "deaf");
        guest.reaches("/phase", "Running")?;
        let pod = guest.pod()?;
        let name = text(&pod["metadata"]["name"]);
        // Whoever may look into a Pod can try to run it once more.
        let again = bench.run(&["exec", name, "--", "/corten-launcher"]);
        refused(again, "a launcher runs already")?;
        // Its Pod, not the VMI, which stays and tells.
        bench.run(&["delete", "--wait=false", "pod", name])?;
        let ended = guest.reaches("/phase", "Failed")?;
        assert_eq!(ended["status"]["reason"], "Killed");
        let message = text(&condition(&ended, "Ready")["message"]).to_owned();
        assert!(message.contains("5 s"), "{message}");
        Ok(())
    })
}

#[test]
fn kernel_that_is_not_in_the_image_fails_the_vmi_by_the_name_of_its_field() -> Result<()> {
    Workbench::test("no-kernel", |bench| {
        let mut object = vmi("no-kernel", "");
        object["spec"]["domain"]["firmware"]["kernelBoot"]["container"]["kernelPath"] =
            json!("/boot/none");
        bench.create(object)?;
        let ended = Guest::new(bench, "no-kernel").reaches("/phase", "Failed")?;
        assert_eq!(ended["status"]["reason"], "KernelMissing");
        let message = text(&condition(&ended, "Ready")["message"]).to_owned();
        assert!(message.contains("kernelPath") && message.contains("/boot/none"), "{message}");
        Ok(())
    })
}

/// As a user sends them: by `kubectl apply`, and what is wrong is named by its path.
#[test]
fn wrong_manifests_are_refused_by_the_path_of_what_is_wrong() -> Result<()> {
    Workbench::test("refused", |bench| {
        let wrong: [(&str, Value, &str); 8] = [
            (
                "/spec/domain/cpu",
                json!({ "dedicatedCpuPlacement": true }),
                "spec.domain.cpu.dedicatedCpuPlacement",
            ),
            ("/spec/domain/cpu", json!({ "cores": "two" }), "cores"),
            ("/spec/domain/memory/guest", json!("much"), "spec.domain.memory.guest"),
            (
                "/spec/domain/devices/disks",
                json!([{ "name": "none" }]),
                "spec.domain.devices.disks[0]",
            ),
            (
                "/spec/volumes",
                json!([{ "name": "two", "emptyDisk": { "capacity": "1Mi" }, "containerDisk": { "image": "a" } }]),
                "spec.volumes[0]",
            ),
            ("/spec/networks", json!([{ "name": "lonely", "pod": {} }]), "spec.networks"),
            ("/spec/domain/devices/gpus", json!([{ "name": "g", "deviceName": "d" }]), "gpus"),
            (
                "/spec/domain/firmware/kernelBoot/container/kernelPath",
                json!("../vmlinux"),
                "spec.domain.firmware.kernelBoot.container.kernelPath",
            ),
        ];
        for (place, value, path) in wrong {
            let mut object = vmi("refused", "");
            let (parent, member) = place.rsplit_once('/').unwrap_or_default();
            object.pointer_mut(parent).context("no such place")?[member] = value;
            let apply = ["-n", &bench.namespace, "apply", "--validate=ignore", "-f", "-"];
            refused(bench.kubectl.feed(&apply, &object.to_string()).map(drop), path)
                .with_context(|| place.to_owned())?;
            refused(bench.run(&["get", "vmi", "refused"]), "not found")?;
        }
        Ok(())
    })
}

/// Whoever may create Pods can copy a launcher's. What it gets for that is nothing.
#[test]
fn pod_that_looks_like_a_launcher_gets_nothing() -> Result<()> {
    Workbench::test("impostor", |bench| {
        let privileged = bench.privileged_namespace()?;
        // A VMI whose own Pod finds no node, so that its place is free.
        let mut object = vmi("victim", "");
        object["spec"]["nodeSelector"] = json!({ "corten.test/no-such-node": "" });
        bench.create(object)?;
        let victim = Guest::new(bench, "victim");
        let launcher = eventually("there is no launcher Pod", || victim.pod())?;

        // The Pod itself stays as it is: kubelet would start a changed image whatever its restart policy says, and the
        // operator would not find it without its label.
        let name = text(&launcher["metadata"]["name"]);
        let other = ["set", "image", &format!("pod/{name}"), "compute=corten.test/tools:1"];
        refused(bench.run(&other), "stays as Corten's operator made it")?;
        refused(bench.run(&["label", "pod", name, "kubevirt.io-"]), "stays as Corten's operator")?;
        let orphan = [
            "patch",
            "pod",
            name,
            "--type=merge",
            "-p",
            r#"{"metadata":{"ownerReferences":null}}"#,
        ];
        refused(bench.run(&orphan), "stays its own")?;
        bench.run(&["annotate", "pod", name, "anybody=may"])?;

        let mut copy = pod("impostor", text(&launcher["spec"]["containers"][0]["image"]), &[]);
        copy["metadata"]["labels"] = launcher["metadata"]["labels"].clone();
        refused(bench.create(copy.clone()), "only Corten's operator makes Pods")?;
        // So it goes without the label that the operator finds its own by.
        if let Some(labels) = copy["metadata"]["labels"].as_object_mut() {
            labels.remove("kubevirt.io");
        }
        copy["metadata"]["annotations"] = launcher["metadata"]["annotations"].clone();
        copy["spec"]["securityContext"] = launcher["spec"]["securityContext"].clone();
        copy["spec"]["containers"][0]["resources"] =
            launcher["spec"]["containers"][0]["resources"].clone();
        let mut owned = copy.clone();
        owned["metadata"]["ownerReferences"] = launcher["metadata"]["ownerReferences"].clone();
        refused(bench.create(owned), "only Corten's operator makes Pods")?;
        // Of another kind, under the launcher's own name: it is let in, and the operator does not take it for its own.
        let mut foreign = copy.clone();
        let free = Guest::new(bench, "unserved");
        let mut unserved = vmi("unserved", "");
        // Nothing is made for it as long as its claim is missing.
        unserved["spec"]["volumes"] =
            json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "missing" } }]);
        bench.create(unserved)?;
        let uid = text(&free.object()?["metadata"]["uid"]).to_owned();
        foreign["metadata"]["name"] = json!(launcher_pod_name("unserved", &uid, 0));
        foreign["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "example.com/v1", "kind": "Foo", "name": "unserved", "uid": uid, "controller": true,
        }]);
        bench.create(foreign)?;
        let mut on_host = copy.clone();
        bench.create(copy)?;
        bench.ready("impostor")?;
        // Where everything is allowed, also with the node's own network to show for its own.
        on_host["metadata"]["name"] = json!("impostor-on-host");
        on_host["metadata"]["namespace"] = json!(privileged);
        on_host["spec"]["hostNetwork"] = json!(true);
        bench.kubectl.apply(&on_host.to_string())?;
        let ready = ["wait", "--for=condition=Ready", READY, "pod/impostor-on-host"];
        bench.kubectl.run(&[&["-n", &privileged], &ready[..]].concat())?;
        let column = ["get", "pod", "impostor-on-host", "-o", "jsonpath={.metadata.uid}"];
        let host_uid = bench.kubectl.run(&[&["-n", &privileged], &column[..]].concat())?;
        let impostor: Value =
            serde_json::from_str(&bench.run(&["get", "pod", "impostor", "-o", "json"])?)?;
        let uid = text(&impostor["metadata"]["uid"]);

        // The agent of its node has been there, and says why it gives nothing.
        eventually("the agent does not say why", || {
            let agents = [
                "-n",
                "kubevirt",
                "logs",
                "--tail=-1",
                "-l",
                "app.kubernetes.io/name=corten-node-agent",
            ];
            let said = bench.kubectl.run(&agents)?;
            for uid in [uid, &host_uid] {
                let nothing =
                    said.lines().any(|line| line.contains("gets nothing") && line.contains(uid));
                ensure!(nothing, "the agents have not said it of uid {uid}");
            }
            Ok(())
        })?;
        // Nor can the one who made it say that it is the VMI's.
        let forged = json!({ "status": { "activePods": { uid: impostor["spec"]["nodeName"] } } })
            .to_string();
        let patch = ["patch", "vmi", "victim", "--type=merge", "-p", &forged];
        refused(bench.run(&patch), "only Corten writes status")?;
        let label = format!("kubevirt.io/nodeName={}", text(&impostor["spec"]["nodeName"]));
        refused(bench.run(&["label", "vmi", "victim", &label]), "only Corten writes status")?;
        let mut made_up = vmi("made-up", "");
        made_up["status"] = json!({ "activePods": { uid: impostor["spec"]["nodeName"] } });
        refused(bench.create(made_up), "status")?;

        let said = eventually("the operator says nothing of the foreign Pod", || {
            // It is not woken by a Pod without its label.
            bench.run(&[
                "annotate",
                "--overwrite",
                "vmi",
                "unserved",
                &format!("at={:?}", Instant::now()),
            ])?;
            let object = free.object()?;
            let said = text(&condition(&object, "Synchronized")["message"]).to_owned();
            ensure!(said.contains("not this object's"), "{object}");
            Ok(object)
        })?;
        assert_eq!(said["status"]["activePods"], Value::Null);
        let edit = [
            "patch",
            "vmi",
            "victim",
            "--type=merge",
            "-p",
            r#"{"spec":{"domain":{"memory":{"guest":"2Gi"}}}}"#,
        ];
        refused(bench.run(&edit), "the spec cannot be changed")?;

        let log = bench.run(&["logs", "impostor"])?;
        assert!(log.contains("has connected"), "{log}");
        assert!(!log.contains("VM process"), "{log}");
        assert_eq!(victim.object()?["status"]["phase"], "Pending");
        Ok(())
    })
}

/// That it was refused, and with these words.
pub(crate) fn refused<T>(outcome: Result<T>, words: &str) -> Result<()> {
    let error = outcome.err().with_context(|| format!("it was not refused: {words}"))?;
    let said = format!("{error:#}");
    ensure!(said.contains(words), "{said:?} does not say {words:?}");
    Ok(())
}

fn events(bench: &Workbench, name: &str) -> Result<String> {
    let selector = format!("involvedObject.name={name}");
    bench.run(&["get", "events", "--field-selector", &selector])
}
