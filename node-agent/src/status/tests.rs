//! Facts -> patch, as a table.

use corten_link::launcher::ToAgent;
use corten_link::{AgentReport, RunState};
use corten_resources::types::{ConditionStatus, VirtualMachineInstance};
use serde_json::{Value, json};

use super::*;
use crate::identity::{Known, KnownPod, PodName};

const NOW: &str = "2026-11-16T10:00:09Z";

fn object(phase: &str, status: &Value) -> VirtualMachineInstance {
    let mut vmi = json!({
        "metadata": {"namespace": "default", "name": "first", "uid": "u", "resourceVersion": "41"},
        "spec": {
            "domain": {
                "cpu": {"cores": 2},
                "memory": {"guest": "1Gi"},
                "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "lan", "bridge": {}}, {"name": "default", "masquerade": {}}],
                },
            },
            "networks": [{"name": "lan", "multus": {"networkName": "lan"}}, {"name": "default", "pod": {}}],
            "volumes": [
                {"name": "scratch", "emptyDisk": {"capacity": "2Mi"}},
                {"name": "root", "persistentVolumeClaim": {"claimName": "c"}},
            ],
        },
        "status": {"phase": phase, "activePods": {"pod-1": "node1"}},
    });
    for (name, value) in status.as_object().unwrap() {
        vmi["status"][name] = value.clone();
    }
    serde_json::from_value(vmi).unwrap()
}

fn known() -> Known {
    let name = PodName { namespace: "default".into(), name: "virt-launcher-first".into() };
    let addresses = vec!["10.1.0.7".to_owned(), "fd00::7".to_owned()];
    let pod = KnownPod { uid: "pod-1".into(), addresses, network_status: None };
    Known { node: "node1".into(), pods: [(name, pod)].into(), ..Known::default() }
}

fn running() -> Facts {
    let times =
        Times { scheduled: "2026-11-16T10:00:01Z".parse().unwrap(), running: NOW.parse().unwrap() };
    Facts { times: Some(times), ..Facts::default() }
}

fn report(report: Value) -> ToAgent {
    let report: AgentReport = serde_json::from_value(report).unwrap();
    ToAgent::Guest { report: Box::new(report) }
}

fn told(messages: &[ToAgent]) -> Facts {
    let mut facts = running();
    for message in messages {
        facts.hear(message);
    }
    facts
}

/// Its name, what is told, and conditions with their reasons.
type Case<'a> = (&'a str, Vec<ToAgent>, &'a [(&'a str, &'a str)]);

/// The patch for an object with such a status, and the object with the patch in it.
fn written(vmi: &VirtualMachineInstance, facts: &Facts) -> Option<(Value, VirtualMachineInstance)> {
    let patch = patch(vmi, "pod-1", &known(), facts, NOW.parse().unwrap())?;
    let mut after = serde_json::to_value(vmi).unwrap();
    json_merge(&mut after, &patch);
    Some((patch, serde_json::from_value(after).unwrap()))
}

/// As the API server merges.
fn json_merge(object: &mut Value, patch: &Value) {
    let Some(members) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in members {
        match value {
            Value::Null => drop(object.as_object_mut().unwrap().remove(name)),
            value => json_merge(&mut object[name.as_str()], value),
        }
    }
}

#[test]
fn first_write_says_running_with_all_that_is_known_and_the_second_has_nothing_to_say() {
    let vmi = object(
        "Scheduling",
        &json!({"volumeStatus": [
        {"name": "root", "target": "", "persistentVolumeClaimInfo": {"claimName": "c"}}]}),
    );
    let mut facts = running();
    let uplink = Some("pod16477688c0e".to_owned());
    let lan = Connected { mac: [2, 0, 0, 0, 0, 9], pairs: 2, uplink };
    facts.interfaces.insert("lan".into(), lan);
    let mac = [2, 0, 0, 0, 0, 7];
    let default = Connected { mac, pairs: 1, uplink: Some("eth0".into()) };
    facts.interfaces.insert("default".into(), default);
    facts.hear(&ToAgent::Vm { state: RunState::Running, cause: String::new() });
    let (patch, after) = written(&vmi, &facts).unwrap();
    assert_eq!(patch["metadata"], json!({"resourceVersion": "41"}));
    let expected = json!({
        "phase": "Running",
        "phaseTransitionTimestamps": [
            {"phase": "Scheduled", "phaseTransitionTimestamp": "2026-11-16T10:00:01Z"},
            {"phase": "Running", "phaseTransitionTimestamp": NOW},
        ],
        "currentCPUTopology": {"cores": 2, "sockets": 1, "threads": 1},
        "memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestRequested": "1Gi"},
        "machine": {"type": "q35"},
        "interfaces": [
            {"name": "default", "mac": "02:00:00:00:00:07", "infoSource": "domain", "queueCount": 1,
             "ipAddress": "10.1.0.7", "ipAddresses": ["10.1.0.7", "fd00::7"], "podInterfaceName": "eth0",
             "linkState": "up"},
            {"name": "lan", "mac": "02:00:00:00:00:09", "infoSource": "domain, multus-status",
             "queueCount": 2, "podInterfaceName": "pod16477688c0e", "linkState": "up"},
        ],
        "volumeStatus": [
            {"name": "root", "target": "vda", "persistentVolumeClaimInfo": {"claimName": "c"}},
            {"name": "scratch", "target": "vdb", "size": 2 << 20},
        ],
    });
    assert_eq!(patch["status"], expected);
    assert_eq!(written(&after, &facts), None);
}

#[test]
fn agent_that_comes_back_knows_nothing_and_takes_nothing_away() {
    let facts = told(&[
        ToAgent::Vm { state: RunState::Paused, cause: String::new() },
        report(json!({"connected": true, "guest": {
            "os": {"id": "debian"},
            "interfaces": [{"interfaceName": "eth0", "mac": "02:00:00:00:00:07", "ipAddress": "10.0.2.2"},
                {"interfaceName": "docker0", "mac": "02:42:00:00:00:01"}]}})),
    ]);
    let mut facts = facts;
    let mac = [2, 0, 0, 0, 0, 7];
    facts.interfaces.insert("default".into(), Connected { mac, pairs: 1, uplink: None });
    let (_, after) = written(&object("Scheduling", &json!({})), &facts).unwrap();
    assert_eq!(written(&after, &running()), None);
    assert_eq!(written(&after, &Facts::default()), None);
}

#[test]
fn nothing_is_written_after_the_end_or_for_another_pod() {
    for phase in ["Succeeded", "Failed", "Unknown", ""] {
        assert_eq!(written(&object(phase, &json!({})), &running()), None, "{phase}");
    }
    let vmi = object("Scheduling", &json!({}));
    let now = NOW.parse().unwrap();
    assert_eq!(patch(&vmi, "pod-2", &known(), &running(), now), None);
    let elsewhere = Known { node: "node2".into(), ..known() };
    assert_eq!(patch(&vmi, "pod-1", &elsewhere, &running(), now), None);
}

#[test]
fn conditions_come_and_go_as_the_launcher_tells_and_those_of_others_stay() {
    let others = json!({"conditions": [
        {"type": "Ready", "status": "False", "lastProbeTime": null},
        {"type": "PodScheduled", "status": "True"}]});
    let vm = |state, cause: &str| ToAgent::Vm { state, cause: cause.into() };
    let agent = |commands: &[&str]| {
        let commands: Vec<_> =
            commands.iter().map(|name| json!({"name": name, "enabled": true})).collect();
        report(
            json!({"connected": true, "guest": {"supported_commands": [], "supportedCommands": commands}}),
        )
    };
    let gone = report(json!({"connected": false, "guest": {}}));
    let cases: Vec<Case<'_>> = vec![
        ("runs", vec![vm(RunState::Running, "")], &[]),
        ("by its user", vec![vm(RunState::Paused, "")], &[("Paused", "PausedByUser")]),
        ("by a disk", vec![vm(RunState::Paused, "disk x")], &[("Paused", "PausedIOError")]),
        ("goes on", vec![vm(RunState::Paused, ""), vm(RunState::Running, "")], &[]),
        ("an agent", vec![agent(&[])], &[("AgentConnected", "")]),
        (
            "an old agent",
            vec![agent(&["guest-ping"])],
            &[("AgentConnected", ""), ("AgentVersionNotSupported", "CommandsMissing")],
        ),
        ("an agent that went", vec![agent(&["guest-ping"]), gone], &[]),
    ];
    for (case, messages, expected) in cases {
        let (_, after) = written(&object("Running", &others), &told(&messages)).unwrap();
        let conditions: Vec<_> = after
            .status
            .conditions
            .iter()
            .map(|it| (it.kind.as_str(), it.reason.as_deref().unwrap_or_default()))
            .collect();
        assert_eq!(conditions[..2], [("Ready", ""), ("PodScheduled", "")], "{case}");
        assert_eq!(&conditions[2..], expected, "{case}");
    }
}

#[test]
fn message_of_a_condition_follows_and_its_time_does_not() {
    let paused =
        |cause: &str| told(&[ToAgent::Vm { state: RunState::Paused, cause: cause.into() }]);
    let (_, first) = written(&object("Running", &json!({})), &paused("disk a\nfailed")).unwrap();
    let before = first.status.condition(PAUSED).unwrap().clone();
    assert_eq!(before.message.as_deref(), Some("VMI was paused, IO error: disk a failed"));
    let later = "2026-11-16T11:00:00Z".parse().unwrap();
    let change = patch(&first, "pod-1", &known(), &paused("disk b"), later).unwrap();
    let condition = &change["status"]["conditions"][0];
    assert_eq!(condition["message"], "VMI was paused, IO error: disk b");
    assert_eq!(condition["lastTransitionTime"], NOW);
}

#[test]
fn change_that_is_refused_is_said_until_it_is_heeded() {
    let facts = |heeds| Facts { heeds: Some(heeds), ..running() };
    let refused = facts(Heeds::Refuses("memory cannot change".into()));
    let (_, after) = written(&object("Running", &json!({})), &refused).unwrap();
    let condition = after.status.condition(RESTART_REQUIRED).unwrap();
    assert_eq!(condition.reason.as_deref(), Some("ChangeRefused"));
    assert_eq!(condition.message.as_deref(), Some("memory cannot change"));
    let (_, after) = written(&after, &facts(Heeds::All)).unwrap();
    assert!(after.status.conditions.is_empty());
}

#[test]
fn conditions_of_others_of_the_agents_are_said_also_before_the_vm_runs() {
    let claim = Claim {
        status: ConditionStatus::False,
        reason: "NotListening".into(),
        message: "the launcher does not listen".into(),
    };
    let mut facts = Facts::default();
    facts.conditions.insert("LinkReady", Some(claim));
    let (patch, after) = written(&object("Scheduling", &json!({})), &facts).unwrap();
    assert_eq!(patch["status"].as_object().unwrap().len(), 1, "{patch}");
    facts.conditions.insert("LinkReady", None);
    let (_, after) = written(&after, &facts).unwrap();
    assert!(after.status.conditions.is_empty());
}

#[test]
fn guest_tells_of_its_system_and_its_addresses() {
    let facts = told(&[report(json!({"connected": true, "guest": {
    "os": {"id": "debian", "prettyName": "Debian\n13", "kernelRelease": "6.12"},
    "fsFreezeStatus": "frozen",
    "interfaces": [
        {"interfaceName": "enp2s0", "mac": "02:00:00:00:00:09", "ipAddress": "192.0.2.9",
         "ipAddresses": ["192.0.2.9", "fe80::9", "no address"]},
        {"interfaceName": "enp1s0", "mac": "02:00:00:00:00:07", "ipAddress": "10.0.2.2"},
        {"interfaceName": "docker0", "mac": "02:42:00:00:00:01", "ipAddress": "172.17.0.1"},
    ]}}))]);
    let mut facts = facts;
    for (name, last) in [("lan", 9), ("default", 7)] {
        let mac = [2, 0, 0, 0, 0, last];
        facts.interfaces.insert(name.into(), Connected { mac, pairs: 1, uplink: None });
    }
    let (_, after) = written(&object("Running", &json!({})), &facts).unwrap();
    let system = after.status.guest_os_info.as_ref().unwrap();
    assert_eq!(system.pretty_name.as_deref(), Some("Debian 13"));
    assert_eq!(after.status.fs_freeze_status.as_deref(), Some("frozen"));
    let shown = serde_json::to_value(&after.status.interfaces).unwrap();
    let field = |number: usize, name: &str| shown[number][name].clone();
    assert_eq!(field(0, "infoSource"), "domain, guest-agent");
    assert_eq!(field(0, "interfaceName"), "enp1s0");
    assert_eq!(field(0, "ipAddress"), "10.1.0.7", "behind address translation it is the Pod's");
    assert_eq!(field(1, "infoSource"), "domain, guest-agent, multus-status");
    assert_eq!(field(1, "ipAddresses"), json!(["192.0.2.9", "fe80::9"]));
    let own = json!({"infoSource": "guest-agent", "interfaceName": "docker0",
        "mac": "02:42:00:00:00:01", "ipAddress": "172.17.0.1", "ipAddresses": ["172.17.0.1"]});
    assert_eq!(shown[2], own);

    // Thawed, and the agent is gone: what it said of addresses is not known any more.
    facts.hear(&report(json!({"connected": false, "guest": {"fsFreezeStatus": "thawed"}})));
    let (_, after) = written(&after, &facts).unwrap();
    assert_eq!(after.status.fs_freeze_status, None);
    assert!(after.status.guest_os_info.is_some());
    assert_eq!(after.status.interfaces.len(), 2);
    assert_eq!(after.status.interfaces[0].info_source.as_deref(), Some("domain"));
    assert_eq!(after.status.interfaces[1].ip_address, None);
}

#[test]
fn guest_that_says_much_is_cut_short() {
    let many: Vec<_> = (0..300)
        .map(|number| {
            let addresses: Vec<_> = (0..100).map(|host| format!("192.0.2.{host}")).collect();
            json!({"interfaceName": "x".repeat(5000), "mac": format!("mac {number}"), "ipAddresses": addresses})
        })
        .collect();
    let facts = told(&[report(json!({"connected": true, "guest": {
        "os": {"id": "y".repeat(60_000)}, "interfaces": many}}))]);
    let (patch, after) = written(&object("Running", &json!({})), &facts).unwrap();
    assert_eq!(after.status.interfaces.len(), 2 + 10);
    assert_eq!(after.status.interfaces[2].ip_addresses.len(), 32);
    assert!(patch.to_string().len() < 20_000);
}

#[test]
fn interface_of_an_agent_that_came_later_has_the_address_that_it_was_given() {
    let (_, after) = written(&object("Running", &json!({})), &running()).unwrap();
    let shown = &after.status.interfaces[0];
    assert_eq!(shown.name.as_deref(), Some("default"));
    let derived =
        corten_resources::defaults::Identity { namespace: "default", name: "first", uid: "u" };
    let mac = derived.mac_address("default").map(|byte| format!("{byte:02x}")).join(":");
    assert_eq!(shown.mac.as_deref(), Some(mac.as_str()));
    assert_eq!(after.status.interfaces[1].mac, None, "a bridge may take the Pod's");
}
