//! The API server reaches servers in Pods: a webhook and an aggregated API.

use anyhow::{Context, Result};
use corten_cluster::assets::SAMPLES_IMAGE;
use corten_cluster::kubeconfig::base64;
use corten_cluster::pki::{Authority, Subject};
use serde_json::{Value, json};

use crate::workbench::{READY, Workbench, eventually, pod, service};

const GROUP: &str = "samples.corten.test";

/// Starts the sample server `name` behind a Service; returns the certificate of its authority.
fn start_server(bench: &Workbench, name: &str, client_authority: &str) -> Result<String> {
    let authority = Authority::new("samples")?;
    let host = format!("{name}.{}.svc", bench.namespace);
    let identity = authority.issue(&Subject { name, group: None, hosts: &[&host] })?;
    bench.create(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name },
        "stringData": {
            "tls.crt": identity.certificate,
            "tls.key": identity.key,
            "client-ca.crt": client_authority,
        },
    }))?;
    let mut pod = pod(name, SAMPLES_IMAGE, &[name]);
    pod["spec"]["volumes"] = json!([{ "name": "tls", "secret": { "secretName": name } }]);
    let container = &mut pod["spec"]["containers"][0];
    container["volumeMounts"] = json!([{ "name": "tls", "mountPath": "/tls" }]);
    container["readinessProbe"] = json!({ "tcpSocket": { "port": 8443 }, "periodSeconds": 1 });
    bench.create(pod)?;
    bench.create(service(name, 443, 8443))?;
    bench.ready(name)?;
    Ok(base64(authority.certificate().as_bytes()))
}

fn config_map(name: &str, labels: &Value) -> Value {
    let metadata = json!({ "name": name, "labels": labels });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata })
}

#[test]
fn webhook_in_a_pod_refuses_what_is_labelled_so() -> Result<()> {
    Workbench::test("webhook", |bench| {
        let authority = start_server(bench, "webhook", "")?;
        let here = json!({ "kubernetes.io/metadata.name": bench.namespace });
        bench.create_global(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": bench.namespace },
            "webhooks": [{
                "name": format!("refuse.{GROUP}"),
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "namespaceSelector": { "matchLabels": here },
                "rules": [{
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["configmaps"],
                }],
                "clientConfig": {
                    "caBundle": authority,
                    "service": { "namespace": bench.namespace, "name": "webhook", "port": 443 },
                },
            }],
        }))?;

        let marked = json!({ format!("{GROUP}/refuse"): "" });
        let refused = eventually("the webhook is not asked", || {
            let outcome = bench.create(config_map("refused", &marked));
            let error = outcome.err().map(|error| error.to_string());
            // Until the API server knows of the webhook it takes anything, under the same name.
            let _ = bench.run(&["delete", "--ignore-not-found", "configmap", "refused"]);
            error
                .filter(|error| error.contains("refused by the sample webhook"))
                .context("not refused")
        })?;
        assert!(refused.contains(&format!("refuse.{GROUP}")), "{refused}");
        bench.create(config_map("taken", &json!({})))
    })
}

#[test]
fn long_aggregated_api_in_a_pod_knows_who_asks() -> Result<()> {
    Workbench::test("aggregated", |bench| {
        let front_proxy = bench.kubectl.run(&[
            "-n",
            "kube-system",
            "get",
            "configmap",
            "extension-apiserver-authentication",
            "-o",
            "jsonpath={.data.requestheader-client-ca-file}",
        ])?;
        let authority = start_server(bench, "aggregated", &front_proxy)?;
        let name = format!("v1.{GROUP}");
        bench.create_global(&json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": { "name": name },
            "spec": {
                "group": GROUP,
                "version": "v1",
                "groupPriorityMinimum": 1000,
                "versionPriority": 10,
                "caBundle": authority,
                "service": { "namespace": bench.namespace, "name": "aggregated", "port": 443 },
            },
        }))?;
        let object = format!("apiservice/{name}");
        bench.kubectl.run(&["wait", "--for=condition=Available", READY, &object])?;

        let whoami = bench.kubectl.run(&["auth", "whoami", "-o", "json"])?;
        let whoami: Value = serde_json::from_str(&whoami)?;
        let callers = bench.kubectl.run(&["get", "--raw", &format!("/apis/{GROUP}/v1/callers")])?;
        let callers: Value = serde_json::from_str(&callers)?;
        assert_eq!(
            callers["items"][0]["metadata"]["name"],
            whoami["status"]["userInfo"]["username"]
        );
        Ok(())
    })
}
