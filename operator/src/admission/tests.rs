//! Reviews and their answers.

use super::review::Refusal;
use super::*;
use corten_resources::validate::Finding;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

fn review(operation: &str, object: &Value, old: &Value) -> Vec<u8> {
    let name = [object, old]
        .iter()
        .find_map(|it| it.pointer("/metadata/name")?.as_str())
        .unwrap_or_default()
        .to_owned();
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": { "group": "kubevirt.io", "version": "v1", "kind": "VirtualMachineInstance" },
            "resource": { "group": "kubevirt.io", "version": "v1", "resource": "virtualmachineinstances" },
            "requestKind": { "group": "kubevirt.io", "version": "v1", "kind": "VirtualMachineInstance" },
            "name": name,
            "namespace": "guests",
            "operation": operation,
            "userInfo": { "username": "jane", "groups": ["system:authenticated"], "extra": { "k": ["v"] } },
            "object": object,
            "oldObject": old,
            "dryRun": true,
            "options": { "apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions" },
        },
    })
    .to_string()
    .into_bytes()
}

/// The response to a review at a path, as the API server reads it.
fn response(path: &str, body: &[u8], machines: Option<Result<Existing, String>>) -> Value {
    let (question, subject, _) = route(path).unwrap();
    let request = Review::read(body).unwrap();
    let answer = decide(question, subject, &request, machines, crate::vmi::testing::now(0));
    let review: Value = serde_json::from_slice(&answer.written(&request)).unwrap();
    assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(review["response"]["uid"], "705ab4f5-6393-11e8-b7cc-42010a800002");
    review["response"].clone()
}

fn patch_of(response: &Value) -> Value {
    assert_eq!(response["allowed"], true, "{response}");
    if response["patch"].is_null() {
        return json!([]);
    }
    assert_eq!(response["patchType"], "JSONPatch");
    let bytes: ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
    serde_json::from_slice(&bytes.0).unwrap()
}

/// The object with the patch of the answer.
fn patched(object: &Value, response: &Value) -> Value {
    let mut object = object.clone();
    for operation in patch_of(response).as_array().unwrap() {
        let path = operation["path"].as_str().unwrap();
        let (parent, name) = path.rsplit_once('/').unwrap();
        let name = name.replace("~1", "/").replace("~0", "~");
        let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match operation["op"].as_str().unwrap() {
            "remove" => assert!(parent.remove(&name).is_some(), "{path}"),
            "replace" => {
                assert!(parent.insert(name, operation["value"].clone()).is_some(), "{path}");
            }
            _ => assert!(parent.insert(name, operation["value"].clone()).is_none(), "{path}"),
        }
    }
    object
}

fn vmi(change: impl FnOnce(&mut Value)) -> Value {
    let mut vmi = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": "first", "namespace": "guests" },
        "spec": { "domain": {
            "devices": {},
            "memory": { "guest": "256Mi" },
            "firmware": { "kernelBoot": { "container": {
                "image": "corten.test/kernel-boot-6.12:1", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd" } } },
        } },
    });
    change(&mut vmi);
    vmi
}

const MUTATE: &str = "/mutate/virtualmachineinstances";
const VALIDATE: &str = "/validate/virtualmachineinstances";

#[test]
fn a_new_instance_gets_what_would_need_a_write_later() {
    let sent = vmi(|vmi| vmi["spec"]["domain"]["cpu"] = json!(null));
    let response = response(MUTATE, &review("CREATE", &sent, &json!(null)), None);
    let stored = patched(&sent, &response);
    assert_eq!(
        stored["metadata"]["finalizers"],
        json!(["kubevirt.io/foregroundDeleteVirtualMachine"])
    );
    assert_eq!(stored["status"]["phase"], "Pending");
    assert_eq!(stored["status"]["runtimeUser"], 107);
    assert_eq!(
        stored["status"]["phaseTransitionTimestamps"],
        json!([{ "phase": "Pending", "phaseTransitionTimestamp": "2026-01-01T00:00:00Z" }])
    );
    assert_eq!(stored["status"]["conditions"][0]["type"], "Ready");
    assert_eq!(stored["status"]["conditions"][0]["status"], "False");
    assert_eq!(stored["spec"]["architecture"], "amd64");
    assert_eq!(stored["spec"]["domain"]["cpu"]["cores"], 1);
    // What was there is as it was.
    let boot = "/spec/domain/firmware/kernelBoot";
    assert_eq!(stored.pointer(boot), sent.pointer(boot));
}

#[test]
fn filling_in_twice_is_filling_in_once() {
    let sent = vmi(|_| ());
    let once = patched(&sent, &response(MUTATE, &review("CREATE", &sent, &json!(null)), None));
    // Another webhook changed something in between, and ours is asked again.
    let mut again = once.clone();
    again["status"]["conditions"][0]["message"] = json!("forged");
    let twice = patched(&again, &response(MUTATE, &review("CREATE", &again, &json!(null)), None));
    assert_eq!(once, twice);
}

#[test]
fn an_instance_whose_name_is_generated_is_like_no_other() {
    let sent =
        vmi(|vmi| vmi["metadata"] = json!({ "generateName": "many-", "namespace": "guests" }));
    let uuid = |request: &str| {
        let body = review("CREATE", &sent, &json!(null));
        let body = String::from_utf8(body)
            .unwrap()
            .replace("705ab4f5-6393-11e8-b7cc-42010a800002", request);
        let request = Review::read(body.as_bytes()).unwrap();
        let answer = decide(
            Question::Mutate,
            Subject::Object(Kind::Instance),
            &request,
            None,
            crate::vmi::testing::now(0),
        );
        let review: Value = serde_json::from_slice(&answer.written(&request)).unwrap();
        patched(&sent, &review["response"])["spec"]["domain"]["firmware"]["uuid"].clone()
    };
    assert!(uuid("a").is_string());
    assert_ne!(uuid("a"), uuid("b"));
}

#[test]
fn status_of_a_new_instance_is_refused() {
    let forged = [
        json!({ "phase": "Running" }),
        json!({ "phase": "Pending", "activePods": { "a": "b" } }),
        json!({ "nodeName": "n" }),
        json!("x"),
    ];
    for status in forged {
        let sent = vmi(|vmi| vmi["status"] = status);
        let response = response(MUTATE, &review("CREATE", &sent, &json!(null)), None);
        assert_eq!(response["allowed"], false);
        assert_eq!(response["status"]["details"]["causes"][0]["field"], "status");
    }
}

#[test]
fn status_that_says_nothing_but_a_revision_is_taken() {
    for status in [
        json!({}),
        json!({ "phase": "", "guestOSInfo": {}, "conditions": [] }),
        json!({ "virtualMachineRevisionName": "revision-start-vm-1" }),
    ] {
        let revision = status["virtualMachineRevisionName"].clone();
        let sent = vmi(|vmi| vmi["status"] = status);
        let response = response(MUTATE, &review("CREATE", &sent, &json!(null)), None);
        assert_eq!(response["allowed"], true, "{response}");
        let stored = patched(&sent, &response);
        assert_eq!(stored["status"]["phase"], "Pending");
        assert_eq!(stored["status"]["virtualMachineRevisionName"], revision);
    }
}

#[test]
fn an_update_of_an_instance_is_left_as_it_is() {
    let sent = vmi(|vmi| vmi["metadata"]["labels"] = json!({ "a": "b" }));
    let response = response(MUTATE, &review("UPDATE", &sent, &vmi(|_| ())), None);
    assert_eq!(patch_of(&response), json!([]));
}

#[test]
fn refused_fields_are_told_by_path() {
    let sent = vmi(|vmi| {
        vmi["spec"]["domain"]["devices"]["sound"] = json!({ "name": "s" });
        vmi["spec"]["domain"]["memory"]["guest"] = json!("much");
    });
    let response = response(VALIDATE, &review("CREATE", &sent, &json!(null)), None);
    assert_eq!(response["allowed"], false);
    let status = &response["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")));
    let causes = status["details"]["causes"].as_array().unwrap();
    let fields: Vec<_> = causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    for field in ["spec.domain.devices.sound", "spec.domain.memory.guest"] {
        assert!(fields.iter().any(|found| found.starts_with(field)), "{fields:?}");
        assert!(status["message"].as_str().unwrap().contains(field), "{status}");
    }
    assert!(causes.iter().all(|cause| !cause["message"].as_str().unwrap().is_empty()));
}

#[test]
fn warnings_and_refusals_are_told_within_bounds() {
    let request = Review::read(&review("CREATE", &vmi(|_| ()), &json!(null))).unwrap();
    let written = |answer: Answer| -> Value {
        serde_json::from_slice::<Value>(&answer.written(&request)).unwrap()["response"].clone()
    };
    let finding = |number: usize| Finding::no_effect(format!("spec.f{number}"), "ä".repeat(9000));
    let warnings = (0..90).map(finding).collect();
    let told = written(Answer::Allowed { patch: Vec::new(), warnings })["warnings"].clone();
    assert_eq!(told.as_array().unwrap().len(), 16);
    for (number, warning) in told.as_array().unwrap().iter().enumerate() {
        let warning = warning.as_str().unwrap();
        assert!(
            warning.len() <= 256 && warning.starts_with(&format!("spec.f{number}: ")),
            "{warning}"
        );
    }
    let findings: Vec<_> =
        (0..90).map(|number| Finding::invalid(format!("f{number}"), "no")).collect();
    let status = written(Answer::Refused(Refusal::invalid(&findings)))["status"].clone();
    assert_eq!(status["details"]["causes"].as_array().unwrap().len(), 50);
    assert!(status["message"].as_str().unwrap().ends_with("f9: no; and 80 more"), "{status}");
}

#[test]
fn the_spec_of_an_instance_stays_and_its_labels_may_change() {
    let changed = vmi(|vmi| vmi["spec"]["domain"]["memory"]["guest"] = json!("512Mi"));
    let refused = response(VALIDATE, &review("UPDATE", &changed, &vmi(|_| ())), None);
    assert_eq!(refused["allowed"], false);
    assert_eq!(refused["status"]["details"]["causes"][0]["field"], "spec");
    let labelled = vmi(|vmi| vmi["metadata"]["labels"] = json!({ "a": "b" }));
    let allowed = response(VALIDATE, &review("UPDATE", &labelled, &vmi(|_| ())), None);
    assert_eq!(allowed["allowed"], true);
}

#[test]
fn what_an_earlier_release_let_in_can_still_be_let_go() {
    let broken = |finalizers: Value| {
        vmi(|vmi| {
            vmi["spec"] = json!({ "tolerations": 3 });
            vmi["metadata"]["finalizers"] = finalizers;
            vmi["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        })
    };
    let body = review("UPDATE", &broken(json!([])), &broken(json!(["a"])));
    assert_eq!(response(VALIDATE, &body, None)["allowed"], true);
    assert_eq!(response(MUTATE, &body, None)["allowed"], true);
}

#[test]
fn an_object_that_cannot_be_read_is_refused_with_the_place() {
    let sent = vmi(|vmi| vmi["spec"]["domain"]["cpu"] = json!({ "cores": "two" }));
    for path in [MUTATE, VALIDATE] {
        let response = response(path, &review("CREATE", &sent, &json!(null)), None);
        assert_eq!(response["allowed"], false, "{path}");
        let field = response["status"]["details"]["causes"][0]["field"].as_str().unwrap();
        assert!(field.starts_with("spec.domain.cpu"), "{path}: {field}");
    }
}

#[test]
fn hostile_bodies_are_no_reviews() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested = format!(
        "{{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{deep}}}"
    );
    let bodies = [
        "",
        "null",
        "[]",
        "{}",
        "\"x\"",
        "{\"kind\":\"AdmissionReview\"}",
        "\u{0}",
        &deep,
        &nested,
        "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\"}",
        "{\"apiVersion\":\"admission.k8s.io/v1beta1\",\"kind\":\"AdmissionReview\",\"request\":{\"uid\":\"a\",\"operation\":\"CREATE\"}}",
        "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{\"uid\":1,\"operation\":\"CREATE\"}}",
    ];
    for body in bodies {
        assert!(Review::read(body.as_bytes()).is_err(), "{}", &body[..body.len().min(100)]);
    }
    assert!(Review::read(&[0xff, 0xfe]).is_err());
}

#[test]
fn objects_of_any_shape_are_answered() {
    let shapes = [
        json!(null),
        json!(3),
        json!("x"),
        json!([]),
        json!({}),
        json!({ "metadata": 1 }),
        json!({ "spec": [] }),
        json!({ "metadata": { "labels": 3 }, "spec": { "template": { "spec": { "domain": { "machine": 3 } } } } }),
        json!({ "metadata": { "finalizers": "x" }, "status": 7, "spec": { "vmiName": {}, "replicas": "x", "selector": 1 } }),
        json!({ "metadata": {}, "spec": { "vmiName": "a", "template": null, "selector": { "matchLabels": { "a": 1 } } } }),
    ];
    for plural in Kind::ALL.map(Kind::plural).into_iter().chain([DEFINITIONS]) {
        for question in ["mutate", "validate"] {
            for operation in ["CREATE", "UPDATE", "DELETE", "CONNECT"] {
                for (object, old) in shapes.iter().flat_map(|a| shapes.iter().map(move |b| (a, b)))
                {
                    let body = review(operation, object, old);
                    let answer = response(&format!("/{question}/{plural}"), &body, None);
                    assert!(answer["allowed"].is_boolean());
                }
            }
        }
    }
}

#[test]
fn a_migration_is_labelled_and_must_name_its_machine() {
    let sent = json!({ "metadata": { "name": "m" }, "spec": { "vmiName": "first" } });
    let body = review("CREATE", &sent, &json!(null));
    let stored = patched(&sent, &response("/mutate/virtualmachineinstancemigrations", &body, None));
    assert_eq!(
        stored["metadata"],
        json!({ "name": "m", "labels": { "kubevirt.io/vmi-name": "first" } })
    );
    let path = "/validate/virtualmachineinstancemigrations";
    assert_eq!(response(path, &body, None)["allowed"], true);
    let nameless =
        review("CREATE", &json!({ "metadata": { "name": "m" }, "spec": {} }), &json!(null));
    assert_eq!(
        response(path, &nameless, None)["status"]["details"]["causes"][0]["field"],
        "spec.vmiName"
    );
    let moved = json!({ "metadata": { "name": "m" }, "spec": { "vmiName": "second" } });
    assert_eq!(response(path, &review("UPDATE", &moved, &sent), None)["allowed"], false);
}

#[test]
fn a_template_keeps_what_its_user_wrote() {
    let sent = json!({ "metadata": { "name": "m" }, "spec": { "running": true, "template": {
        "spec": { "domain": { "devices": {} } } } } });
    let body = review("CREATE", &sent, &json!(null));
    let stored = patched(&sent, &response("/mutate/virtualmachines", &body, None));
    assert_eq!(
        stored["spec"],
        json!({ "running": true, "template": { "spec": {
            "architecture": "amd64", "domain": { "devices": {}, "machine": { "type": "q35" } } } } })
    );
    let again = review("UPDATE", &stored, &stored);
    assert_eq!(patch_of(&response("/mutate/virtualmachines", &again, None)), json!([]));
}

#[test]
fn a_replica_set_is_counted_and_must_select_its_own() {
    let set = |labels: Value| {
        json!({ "metadata": { "name": "m" }, "spec": {
        "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": labels }, "spec": vmi(|_| ())["spec"] } } })
    };
    let path = "virtualmachineinstancereplicasets";
    let body = review("CREATE", &set(json!({ "a": "b" })), &json!(null));
    let stored =
        patched(&set(json!({ "a": "b" })), &response(&format!("/mutate/{path}"), &body, None));
    assert_eq!(stored["spec"]["replicas"], 1);
    assert_eq!(response(&format!("/validate/{path}"), &body, None)["allowed"], true);
    let body = review("CREATE", &set(json!({ "a": "c" })), &json!(null));
    let refused = response(&format!("/validate/{path}"), &body, None);
    assert_eq!(refused["status"]["details"]["causes"][0]["field"], "spec.template.metadata.labels");
}

#[test]
fn what_machines_need_is_not_deleted_while_there_are_some() {
    let some = || Some(Ok(Some((3, "guests/first".to_owned()))));
    let delete =
        |name: &str| review("DELETE", &json!(null), &json!({ "metadata": { "name": name } }));
    let ours = "virtualmachineinstances.kubevirt.io";
    let cases = [
        ("/validate/kubevirts", "kubevirt", some(), false),
        ("/validate/kubevirts", "kubevirt", Some(Ok(None)), true),
        ("/validate/kubevirts", "kubevirt", Some(Err("no answer".to_owned())), false),
        ("/validate/customresourcedefinitions", ours, some(), false),
        ("/validate/customresourcedefinitions", ours, Some(Ok(None)), true),
        ("/validate/customresourcedefinitions", "datavolumes.cdi.kubevirt.io", some(), true),
        ("/validate/customresourcedefinitions", "things.example.com", some(), true),
        ("/validate/virtualmachineinstances", "first", None, true),
    ];
    for (path, name, machines, allowed) in cases {
        assert_eq!(
            response(path, &delete(name), machines.clone())["allowed"],
            allowed,
            "{path} {name} {machines:?}"
        );
    }
    let message =
        response("/validate/kubevirts", &delete("kubevirt"), some())["status"]["message"].clone();
    assert!(message.as_str().unwrap().contains("there are 3, one is guests/first"), "{message}");
}

#[test]
fn a_definition_that_is_deleted_among_all_others_is_known_by_itself() {
    let name = "virtualmachines.kubevirt.io";
    let body = review("DELETE", &json!(null), &json!({ "metadata": { "name": name } }));
    let mut body: Value = serde_json::from_slice(&body).unwrap();
    body["request"]["name"] = json!("");
    let some = Some(Ok(Some((3, "guests/first".to_owned()))));
    let path = "/validate/customresourcedefinitions";
    assert_eq!(response(path, body.to_string().as_bytes(), some)["allowed"], false);
}

#[test]
fn of_kubevirt_objects_only_the_one_that_counts_is_kept() {
    let kubevirt = |uid: &str, second: u32, going: bool| {
        let deleted = going.then_some("2026-01-02T00:00:00Z");
        json!({ "metadata": { "name": uid, "namespace": "n", "uid": uid, "deletionTimestamp": deleted,
            "creationTimestamp": format!("2026-01-01T00:00:0{second}Z") } })
    };
    let counts = |which: &Value, all: &[&Value]| {
        let request = Review::read(&review("DELETE", &json!(null), which)).unwrap();
        let all: Vec<_> =
            all.iter().map(|it| serde_json::from_value((*it).clone()).unwrap()).collect();
        super::counts(&request, &all)
    };
    let (first, second) = (kubevirt("a", 1, false), kubevirt("b", 2, false));
    assert!(counts(&first, &[&first, &second]) && !counts(&second, &[&first, &second]));
    assert!(counts(&second, &[&second]));
    // It goes already: another word of it changes nothing, and the other counts now.
    let going = kubevirt("a", 1, true);
    assert!(!counts(&going, &[&going, &second]) && counts(&second, &[&going, &second]));
}

#[test]
fn only_known_paths_are_answered() {
    for path in [
        "",
        "/",
        "/mutate",
        "/mutate/",
        "/mutate/pods",
        "/other/virtualmachines",
        "/mutate/virtualmachines/x",
    ] {
        assert_eq!(route(path), None, "{path}");
    }
    assert_eq!(
        route("/mutate/virtualmachines"),
        Some((Question::Mutate, Subject::Object(Kind::Machine), "virtualmachines"))
    );
}
