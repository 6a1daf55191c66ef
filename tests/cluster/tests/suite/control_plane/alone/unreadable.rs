//! Objects that Corten's types cannot read. Its own definitions let none in; others', as KubeVirt's, may.

use anyhow::{Context, Result};
use corten_cluster::kubectl::Kubectl;
use serde_json::{Value, json};

use crate::control_plane::agent::Agents;
use crate::control_plane::objects::{Object, checkout, objects_in, vmi};
use crate::control_plane::operator::{OPERATOR, Operators, account};
use crate::control_plane::test;
use crate::guest::text;
use crate::workbench::eventually;

const DEFINITION: &str = "virtualmachineinstances.kubevirt.io";

/// The definition with a field of any type, until it is dropped.
struct Loosened<'a>(&'a Kubectl);

impl<'a> Loosened<'a> {
    fn new(operators: &'a Operators) -> Result<Self> {
        let kubectl = &operators.kubectl;
        let definition = kubectl.run(&["get", "crd", DEFINITION, "-o", "json"])?;
        let definition: Value = serde_json::from_str(&definition)?;
        let versions = definition["spec"]["versions"].as_array().context("no versions")?;
        let at = versions.iter().position(|it| it["name"] == "v1").context("no v1")?;
        let field = "schema/openAPIV3Schema/properties/status/properties/runtimeUser";
        let patch = json!([{
            "op": "replace",
            "path": format!("/spec/versions/{at}/{field}"),
            "value": { "x-kubernetes-preserve-unknown-fields": true },
        }]);
        let loosened = Self(kubectl);
        kubectl.run(&["patch", "crd", DEFINITION, "--type=json", "-p", &patch.to_string()])?;
        Ok(loosened)
    }

    /// The definition as it is shipped.
    fn tighten(&self) -> Result<()> {
        let objects = objects_in(&checkout("resources/manifests"))?;
        let found = objects.iter().find(|(_, it)| it["metadata"]["name"] == DEFINITION);
        let (_, definition) = found.context("no such definition")?;
        self.0.feed(&["replace", "-f", "-"], &definition.to_string()).map(drop)
    }
}

impl Drop for Loosened<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.tighten() {
            eprintln!("the definition stays as it is: {error:#}");
        }
    }
}

#[test]
fn object_that_cannot_be_read_is_told_so_and_stops_nobody_else() -> Result<()> {
    test("unreadable", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        bench.create(vmi("poison"))?;
        let poison = Object::new(bench, "vmi", "poison");
        poison.reaches("/status/phase", "Running")?;
        let _loosened = Loosened::new(operators)?;
        let operator = format!("--as={}", account(OPERATOR));
        // The API server takes to a new definition in its own time.
        eventually("it is not taken", || {
            poison.patch_as(&[&operator], &json!({ "status": { "runtimeUser": "nobody" } }))
        })?;
        bench.create(vmi("next"))?;
        Object::new(bench, "vmi", "next").reaches("/status/phase", "Running")?;
        let told = poison.condition("Synchronized", "False")?;
        assert_eq!(told["reason"], "ObjectNotReadable", "{told}");
        assert!(text(&told["message"]).contains("runtimeUser"), "{told}");
        poison.delete()
    })
}
