//! Who may write what, also where roles would allow it.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::agent::{Agents, Nodes, client, runtime, vmis};
use super::objects::{Object, launchers, vmi, vmi_on};
use super::operator::Operators;
use super::test;
use crate::guest::text;
use crate::workbench::{Workbench, eventually, two_nodes};

/// Gives a user of that name one of the default roles in the namespace.
fn bind(bench: &Workbench, user: &str, role: &str) -> Result<()> {
    let (role, name) = (format!("--clusterrole={role}"), format!("--user={user}"));
    bench.run(&["create", "rolebinding", user, &role, &name])?;
    let who = format!("--as={user}");
    eventually("the role is not in force", || {
        bench.run(&["auth", "can-i", "get", "virtualmachineinstances.kubevirt.io", &who])?;
        Ok(())
    })
}

fn refused(result: Result<()>) -> Result<String> {
    Ok(result.err().context("it was allowed")?.to_string())
}

#[test]
fn user_who_may_edit_makes_machines_and_writes_no_status() -> Result<()> {
    test("editor", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let user = format!("ada-{}", std::process::id());
        bind(bench, &user, "edit")?;
        let as_user = format!("--as={user}");
        let create = ["-n", &bench.namespace, &as_user, "create", "-f", "-"];
        bench.kubectl.feed(&create, &vmi("hers").to_string())?;
        let hers = Object::new(bench, "vmi", "hers");
        let running = hers.reaches("/status/phase", "Running")?;
        hers.patch_as(&[&as_user], &json!({ "metadata": { "labels": { "mine": "yes" } } }))?;

        for patch in [
            json!({ "status": { "phase": "Succeeded" } }),
            json!({ "status": { "activePods": { "another": "node" } } }),
            json!({ "metadata": { "labels": { "kubevirt.io/nodeName": "elsewhere" } } }),
        ] {
            let said = refused(hers.patch_as(&[&as_user], &patch))?;
            ensure!(said.contains("only Corten writes"), "{patch}: {said}");
        }
        let (ours, mine) = ("kubevirt.io/foregroundDeleteVirtualMachine", "example.com/mine");
        let finalizers = |all: Value| json!({ "metadata": { "finalizers": all } });
        hers.patch_as(&[&as_user], &finalizers(json!([ours, mine])))?;
        for left in [Value::Null, json!([mine])] {
            let said = refused(hers.patch_as(&[&as_user], &finalizers(left)))?;
            ensure!(said.contains(ours), "{said}");
        }
        hers.patch_as(&[&as_user], &finalizers(json!([ours])))?;
        let mut with_status = vmi("forged");
        with_status["status"] = json!({ "phase": "Running" });
        let forged = bench.kubectl.feed(&create, &with_status.to_string());
        let said = refused(forged.map(drop))?;
        assert!(said.contains("what Corten reports"), "{said}");

        let launcher = launchers(bench)?.pop().context("no Pod")?;
        let pod = Object::new(bench, "pod", &launcher);
        let label = json!({ "metadata": { "labels": { "kubevirt.io/created-by": "another" } } });
        refused(pod.patch_as(&[&as_user], &label))?;
        let said = refused(debugged(bench, operators, &launcher))?;
        assert!(said.contains("stays as Corten's operator made it"), "{said}");
        let said =
            refused(bench.kubectl.feed(&create, &forged_pod(&running).to_string()).map(drop))?;
        assert!(said.contains("only Corten's operator makes Pods"), "{said}");
        bench.run(&["delete", "--wait=false", &as_user, "vmi", "hers"])?;
        hers.gone()
    })
}

/// Adds a container to a Pod that runs, as the administrator.
fn debugged(bench: &Workbench, operators: &Operators, pod: &str) -> Result<()> {
    let mut added = json!({ "name": "added", "image": "corten.test/tools:1" });
    // Pod Security has nothing against it.
    added["securityContext"] =
        json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    let added = json!({ "spec": { "ephemeralContainers": [added] } });
    runtime()?.block_on(async {
        let admin = client(&operators.kubectl.kubeconfig, None).await?;
        let pods: Api<Pod> = Api::namespaced(admin, &bench.namespace);
        pods.patch_ephemeral_containers(pod, &PatchParams::default(), &Patch::Strategic(added))
            .await?;
        Ok(())
    })
}

/// A Pod that calls itself the launcher of that VMI.
fn forged_pod(vmi: &Value) -> Value {
    let mut pod = crate::workbench::pod("virt-launcher-forged", "corten.test/tools:1", &[]);
    pod["metadata"]["labels"] = json!({ "kubevirt.io": "virt-launcher" });
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "name": vmi["metadata"]["name"],
        "uid": vmi["metadata"]["uid"],
        "controller": true,
    }]);
    pod
}

#[test]
fn user_who_may_view_changes_nothing() -> Result<()> {
    test("viewer", |bench, _| {
        let user = format!("eve-{}", std::process::id());
        bind(bench, &user, "view")?;
        let as_user = format!("--as={user}");
        bench.run(&["get", "vm,vmi,vmirs,vmim", &as_user])?;
        let create = ["-n", &bench.namespace, &as_user, "create", "-f", "-"];
        let said = refused(bench.kubectl.feed(&create, &vmi("hers").to_string()).map(drop))?;
        assert!(said.contains("forbidden"), "{said}");
        Ok(())
    })
}

#[test]
fn token_without_a_node_does_not_write_on_what_has_none() -> Result<()> {
    test("nowhere", |bench, operators| {
        bench.create(vmi_on("nowhere", "no-such-node"))?;
        let runs = Patch::Merge(json!({ "status": { "phase": "Running" } }));
        let written = runtime()?.block_on(async {
            let admin = client(&operators.kubectl.kubeconfig, None).await?;
            let agent = Nodes::new(admin, operators).client_by(None).await?;
            let all: Api<DynamicObject> = Api::namespaced_with(agent, &bench.namespace, &vmis());
            anyhow::Ok(all.patch("nowhere", &PatchParams::default(), &runs).await?)
        });
        let said = refused(written.map(drop))?;
        assert!(said.contains("its own node"), "{said}");
        Ok(())
    })
}

#[test]
fn agent_writes_for_its_own_node_only() -> Result<()> {
    test("agents", |bench, operators| {
        bench.create(vmi("bound"))?;
        let bound = Object::new(bench, "vmi", "bound");
        let object = bound.bound()?;
        let own = text(&object["status"]["nodeName"]).to_owned();
        let other = two_nodes(&bench.kubectl)?.into_iter().find(|node| *node != own);
        let other = other.context("there is one node only")?;

        let runs = json!({ "status": { "phase": "Running" } });
        let said = refused(as_agent(bench, operators, &other, &runs))?;
        assert!(said.contains("its own node"), "{said}");
        for patch in [
            json!({ "status": { "activePods": { "another": own } } }),
            json!({ "status": { "phase": "Succeeded" } }),
            json!({ "spec": { "terminationGracePeriodSeconds": 77 } }),
            json!({ "metadata": { "finalizers": null } }),
        ] {
            refused(as_agent(bench, operators, &own, &patch)).with_context(|| patch.to_string())?;
        }
        as_agent(bench, operators, &own, &runs)?;
        bound.reaches("/status/phase", "Running")?;
        Ok(())
    })
}

fn as_agent(bench: &Workbench, operators: &Operators, node: &str, patch: &Value) -> Result<()> {
    runtime()?.block_on(async {
        let admin = client(&operators.kubectl.kubeconfig, None).await?;
        let agent = Nodes::new(admin, operators).client(node).await?;
        let all: Api<DynamicObject> = Api::namespaced_with(agent, &bench.namespace, &vmis());
        all.patch("bound", &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    })
}
