//! What is wrong with an object, or not served, by path. Pure.

use crate::served::{self, Support};
use crate::types::VirtualMachineInstanceSpec;
use serde_json::Value;
use std::fmt;

/// Seconds in a year. From some value on the API server's clock runs over, and a guest would be killed at once.
const MOST_GRACE: i64 = 365 * 24 * 60 * 60;

/// Something about a field of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The field: `spec.domain.devices.disks`.
    pub path: String,
    /// What kind of finding it is.
    pub reason: Reason,
    /// What is wrong, and what to write instead.
    pub message: String,
}

/// What kind of finding it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The value cannot be.
    Invalid,
    /// A value is needed.
    Missing,
    /// Corten does not do this.
    NotServed,
}

impl Reason {
    /// As a condition names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "InvalidField",
            Self::Missing => "MissingField",
            Self::NotServed => "FieldNotServed",
        }
    }
}

impl Finding {
    /// A value that cannot be.
    pub fn invalid(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), reason: Reason::Invalid, message: message.into() }
    }

    /// A value that is needed.
    pub fn missing(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), reason: Reason::Missing, message: message.into() }
    }

    fn not_served(path: &str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), reason: Reason::NotServed, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Everything that keeps a VirtualMachineInstance from being run; nothing if it can be.
pub fn validate(spec: &VirtualMachineInstanceSpec) -> Vec<Finding> {
    let mut findings = Vec::new();
    match serde_json::to_value(spec) {
        Ok(value) => walk("spec", &value, &mut findings),
        Err(error) => findings.push(Finding::invalid("spec", error.to_string())),
    }
    findings.extend(spec.topology().err());
    findings.extend(spec.guest_memory().err());
    findings.extend(spec.kernel().err());
    findings.extend(resources(spec));
    let grace = spec.termination_grace_period_seconds;
    if let Some(seconds) = grace.filter(|seconds| !(0..=MOST_GRACE).contains(seconds)) {
        let message = format!("{seconds} seconds are not between 0 and {MOST_GRACE}");
        findings.push(Finding::invalid("spec.terminationGracePeriodSeconds", message));
    }
    findings
}

/// Refuses what the table of served fields does not have.
fn walk(path: &str, value: &Value, findings: &mut Vec<Finding>) {
    if asks_for_nothing(value) {
        return;
    }
    match (served::support(path), value) {
        (Some(Support::Served | Support::Harmless(_)), _) => {}
        (Some(Support::Only(values)), _) => {
            let written = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if !values.contains(&written.as_str()) {
                let wanted = values.join(" or ");
                findings.push(Finding::not_served(
                    path,
                    format!("{written} is not served; only {wanted} is"),
                ));
            }
        }
        (None, Value::Object(members)) if served::has_fields_below(path) => {
            for (name, member) in members {
                walk(&format!("{path}.{name}"), member, findings);
            }
        }
        (None, Value::Array(members)) if served::has_fields_below(path) => {
            // The table speaks of members of a list alike; a finding names the one.
            for (index, member) in members.iter().enumerate() {
                let from = findings.len();
                walk(path, member, findings);
                for finding in findings.iter_mut().skip(from) {
                    finding.path = finding.path.replacen(path, &format!("{path}[{index}]"), 1);
                }
            }
        }
        (None, _) => findings.push(Finding::not_served(
            path,
            "not served, or not a field at all: check its spelling, or leave it out",
        )),
    }
}

/// A field that is there, but says nothing.
fn asks_for_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(members) => members.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Amounts can be read, and a request is not over its limit.
fn resources(spec: &VirtualMachineInstanceSpec) -> Vec<Finding> {
    const PATH: &str = "spec.domain.resources";
    let Some(resources) = &spec.domain.resources else { return Vec::new() };
    let mut findings = Vec::new();
    for (list, amounts) in [("limits", &resources.limits), ("requests", &resources.requests)] {
        for (name, amount) in amounts {
            let read = amount.millis().map_err(|error| error.to_string());
            findings.extend(
                read.err().map(|error| Finding::invalid(format!("{PATH}.{list}.{name}"), error)),
            );
        }
    }
    for (name, request) in &resources.requests {
        let limit = resources.limits.get(name).and_then(|limit| limit.millis().ok());
        if let (Ok(wanted), Some(limit)) = (request.millis(), limit)
            && wanted > limit
        {
            let message = format!("{request} is more than the limit of {}", resources.limits[name]);
            findings.push(Finding::invalid(format!("{PATH}.requests.{name}"), message));
        }
    }
    if let (Ok(guest), Some(limit)) = (spec.guest_memory(), resources.limits.get("memory"))
        && limit.units().is_ok_and(|limit| guest > limit)
    {
        let message = format!("the guest has more memory than the limit of {limit}");
        findings.push(Finding::invalid("spec.domain.memory.guest", message));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// One that can be run, with `change` made to its JSON.
    fn findings(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut spec = json!({ "domain": {
            "devices": {},
            "memory": { "guest": "256Mi" },
            "firmware": { "kernelBoot": { "container": { "image": "i", "kernelPath": "/k" } } },
        } });
        change(&mut spec);
        validate(&serde_json::from_value(spec).unwrap()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_machine_with_a_kernel_and_memory_can_be_run() {
        assert_eq!(findings(|_| ()), [""; 0]);
    }

    #[test]
    fn everything_that_is_served_can_be_given_at_once() {
        let all = findings(|spec| {
            spec["architecture"] = json!("amd64");
            spec["evictionStrategy"] = json!("None");
            spec["nodeSelector"] = json!({ "a.b/c": "d" });
            spec["priorityClassName"] = json!("high");
            spec["schedulerName"] = json!("other");
            spec["terminationGracePeriodSeconds"] = json!(0);
            spec["tolerations"] = json!([{ "key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3 }]);
            spec["domain"]["cpu"] =
                json!({ "cores": 2, "sockets": 1, "threads": 1, "model": "host-model" });
            spec["domain"]["machine"] = json!({ "type": "q35" });
            spec["domain"]["resources"] = json!({ "requests": { "memory": "256Mi", "cpu": 1 }, "limits": { "memory": "512Mi", "cpu": "2" } });
            spec["domain"]["firmware"]["uuid"] = json!("5d307ca9-b3ef-428c-8861-06e72d69f223");
            spec["domain"]["firmware"]["serial"] = json!("1");
            spec["domain"]["firmware"]["kernelBoot"]["kernelArgs"] = json!("console=ttyS0");
            spec["domain"]["firmware"]["kernelBoot"]["container"]["initrdPath"] = json!("/i");
            spec["domain"]["firmware"]["kernelBoot"]["container"]["imagePullPolicy"] =
                json!("Always");
            spec["domain"]["firmware"]["kernelBoot"]["container"]["imagePullSecret"] = json!("s");
            spec["domain"]["devices"] = json!({ "autoattachPodInterface": false, "autoattachGraphicsDevice": false,
                "autoattachMemBalloon": false, "autoattachSerialConsole": true, "logSerialConsole": true });
        });
        assert_eq!(all, [""; 0]);
    }

    #[test]
    fn what_is_not_served_is_refused_by_its_path() {
        let table = [
            ("/domain/devices/disks", json!([{ "name": "d" }]), "spec.domain.devices.disks"),
            (
                "/domain/devices/interfaces",
                json!([{ "name": "n" }]),
                "spec.domain.devices.interfaces",
            ),
            (
                "/domain/devices/autoattachPodInterface",
                json!(true),
                "spec.domain.devices.autoattachPodInterface",
            ),
            (
                "/domain/cpu",
                json!({ "dedicatedCpuPlacement": true }),
                "spec.domain.cpu.dedicatedCpuPlacement",
            ),
            ("/domain/cpu", json!({ "model": "Haswell" }), "spec.domain.cpu.model"),
            (
                "/domain/firmware/bootloader",
                json!({ "efi": { "secureBoot": true } }),
                "spec.domain.firmware.bootloader",
            ),
            (
                "/domain/resources",
                json!({ "limits": { "example.com/gpu": 1 } }),
                "spec.domain.resources.limits.example.com/gpu",
            ),
            ("/volumes", json!([{ "name": "v" }]), "spec.volumes"),
            ("/architecture", json!("arm64"), "spec.architecture"),
            ("/evictionStrategy", json!("LiveMigrate"), "spec.evictionStrategy"),
            ("/tolerations", json!([{ "key": "k" }, { "later": 1 }]), "spec.tolerations[1].later"),
            ("/thisIsNoField", json!(0), "spec.thisIsNoField"),
        ];
        for (pointer, value, path) in table {
            let found = findings(|spec| {
                let (parent, name) = pointer.rsplit_once('/').unwrap();
                spec.pointer_mut(parent).unwrap()[name] = value;
            });
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(&format!("{path}: ")), "{found:?}");
        }
    }

    #[test]
    fn a_field_that_is_there_but_empty_asks_for_nothing() {
        let empty = findings(|spec| {
            spec["volumes"] = json!([]);
            spec["hostname"] = json!("");
            spec["domain"]["features"] = json!({});
            spec["domain"]["clock"] = json!(null);
        });
        assert_eq!(empty, [""; 0]);
    }

    #[test]
    fn every_finding_is_told_not_only_the_first() {
        let found = findings(|spec| {
            spec["domain"]["memory"]["guest"] = json!("x");
            spec["domain"]["cpu"] = json!({ "cores": -2 });
            spec["terminationGracePeriodSeconds"] = json!(-1);
        });
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn a_request_over_its_limit_and_a_guest_over_the_limit_are_refused() {
        let found = findings(|spec| {
            spec["domain"]["resources"] = json!({ "requests": { "cpu": 2, "memory": "64Mi" }, "limits": { "cpu": 1, "memory": "128Mi" } });
        });
        assert_eq!(
            found,
            [
                "spec.domain.resources.requests.cpu: 2 is more than the limit of 1",
                "spec.domain.memory.guest: the guest has more memory than the limit of 128Mi",
            ]
        );
    }
}
