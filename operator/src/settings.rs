//! What the operator does as the KubeVirt object says. Read anew whenever that changes; nothing has to be restarted.

use crate::Config;
use crate::certs::{Lifetime, Lifetimes};
use corten_resources::types::{CertificateLife, KubeVirtSpec};
use jiff::SignedDuration;
use std::collections::BTreeSet;

/// vCPUs that share a CPU unless the object says otherwise; KubeVirt's.
const CPU_ALLOCATION_RATIO: u32 = 10;

/// The system-call filter of launchers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeccompKind {
    /// The one that node agents install: it allows io_uring.
    #[default]
    Localhost,
    /// The container runtime's, for nodes where nothing may be installed.
    RuntimeDefault,
}

/// What can change while the operator runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Image of launchers.
    pub launcher_image: String,
    /// When it is pulled: Always, IfNotPresent or Never.
    pub launcher_pull_policy: String,
    /// System-call filter of launchers.
    pub seccomp: SeccompKind,
    /// How many vCPUs share a CPU where a VM does not say what it needs. Never 0.
    pub cpu_allocation_ratio: u32,
    /// Secrets for registries of our own images.
    pub image_pull_secrets: Vec<String>,
    /// Features that are switched on by name.
    pub feature_gates: BTreeSet<String>,
    /// What happens to VMs that do not say so when their node is drained.
    pub eviction_strategy: Option<String>,
    /// How long our certificates live.
    pub lifetimes: Lifetimes,
}

impl Settings {
    /// Those of a cluster without a KubeVirt object, or whose object says nothing.
    pub fn new(config: &Config) -> Self {
        Self {
            launcher_image: config.launcher_image.clone(),
            launcher_pull_policy: config.launcher_pull_policy.clone(),
            seccomp: SeccompKind::default(),
            cpu_allocation_ratio: CPU_ALLOCATION_RATIO,
            image_pull_secrets: Vec::new(),
            feature_gates: BTreeSet::new(),
            eviction_strategy: None,
            lifetimes: Lifetimes::default(),
        }
    }

    /// Those of a KubeVirt object with this spec. A value that makes no sense counts as left out: it keeps none of the others
    /// from being followed.
    pub fn of(config: &Config, spec: &KubeVirtSpec) -> Self {
        let defaults = Self::new(config);
        let configuration = spec.configuration.clone().unwrap_or_default();
        let developer = configuration.developer_configuration.unwrap_or_default();
        let ratio = developer.cpu_allocation_ratio.and_then(|ratio| u32::try_from(ratio).ok());
        let runtime_default = configuration
            .seccomp_configuration
            .and_then(|seccomp| seccomp.virtual_machine_instance_profile?.custom_profile)
            .and_then(|profile| profile.runtime_default_profile);
        let mut gates: BTreeSet<_> = developer.feature_gates.into_iter().collect();
        gates.retain(|gate| !developer.disabled_feature_gates.contains(gate));
        Self {
            launcher_image: renamed(
                &defaults.launcher_image,
                given(&spec.image_registry),
                given(&spec.image_tag),
            ),
            launcher_pull_policy: given(&spec.image_pull_policy)
                .filter(|policy| ["Always", "IfNotPresent", "Never"].contains(policy))
                .map_or(defaults.launcher_pull_policy, str::to_owned),
            seccomp: match runtime_default {
                Some(true) => SeccompKind::RuntimeDefault,
                _ => SeccompKind::Localhost,
            },
            cpu_allocation_ratio: ratio
                .filter(|ratio| *ratio > 0)
                .unwrap_or(defaults.cpu_allocation_ratio),
            image_pull_secrets: spec
                .image_pull_secrets
                .iter()
                .filter_map(|secret| given(&secret.name).map(str::to_owned))
                .collect(),
            feature_gates: gates,
            eviction_strategy: given(&configuration.eviction_strategy).map(str::to_owned),
            lifetimes: lifetimes(spec),
        }
    }
}

/// A text that is there and not empty.
pub(crate) fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// An image of ours as another registry or another tag has it.
pub(crate) fn renamed(image: &str, registry: Option<&str>, tag: Option<&str>) -> String {
    let (prefix, last) =
        image.rsplit_once('/').map_or((None, image), |(prefix, last)| (Some(prefix), last));
    let (name, own_tag) =
        last.split_once([':', '@']).map_or((last, None), |(name, tag)| (name, Some(tag)));
    let separator = if tag.is_none() && last.contains('@') { '@' } else { ':' };
    let prefix = registry.map(|registry| registry.trim_end_matches('/')).or(prefix);
    let prefix = prefix.map(|prefix| format!("{prefix}/")).unwrap_or_default();
    match tag.or(own_tag) {
        // A digest is written with its algorithm.
        Some(tag) if tag.contains(':') => format!("{prefix}{name}@{tag}"),
        Some(tag) => format!("{prefix}{name}{separator}{tag}"),
        None => format!("{prefix}{name}"),
    }
}

fn lifetimes(spec: &KubeVirtSpec) -> Lifetimes {
    let rotation = spec.certificate_rotate_strategy.as_ref();
    let own = rotation.and_then(|rotation| rotation.self_signed.clone()).unwrap_or_default();
    // The older names, which KubeVirt still reads.
    let older = |text: &Option<String>| duration(given(text)?);
    let life = |life: &Option<CertificateLife>,
                length: Option<_>,
                before: Option<_>,
                default: Lifetime| {
        let life = life.clone().unwrap_or_default();
        let said = older(&life.duration).or(length).unwrap_or(default.duration);
        Lifetime::new(said, older(&life.renew_before).or(before))
    };
    let defaults = Lifetimes::default();
    Lifetimes {
        authority: life(
            &own.ca,
            older(&own.ca_rotate_interval),
            older(&own.ca_overlap_interval),
            defaults.authority,
        ),
        server: life(&own.server, older(&own.cert_rotate_interval), None, defaults.server),
    }
}

/// A duration as Kubernetes writes it: `168h0m0s`.
fn duration(text: &str) -> Option<SignedDuration> {
    let mut rest = text;
    let mut sum = SignedDuration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let part = SignedDuration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        sum = sum.checked_add(part)?;
        rest = after;
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn config() -> Config {
        Config {
            launcher_image: "corten.test/launcher:1".to_owned(),
            launcher_pull_policy: "IfNotPresent".to_owned(),
        }
    }

    fn of(spec: Value) -> Settings {
        Settings::of(&config(), &serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn an_object_that_says_nothing_changes_nothing() {
        for spec in [json!({}), json!({ "configuration": {} })] {
            assert_eq!(of(spec), Settings::new(&config()));
        }
    }

    #[test]
    fn what_the_object_says_is_followed() {
        let settings = of(json!({
            "imageRegistry": "registry.example/corten/",
            "imageTag": "v2",
            "imagePullPolicy": "Always",
            "imagePullSecrets": [{ "name": "a" }, { "name": "" }, { "name": "b" }],
            "certificateRotateStrategy": { "selfSigned": {
                "ca": { "duration": "48h", "renewBefore": "12h" }, "server": { "duration": "1h30m0s" } } },
            "configuration": {
                "evictionStrategy": "LiveMigrate",
                "developerConfiguration": {
                    "cpuAllocationRatio": 4, "featureGates": ["A", "B"], "disabledFeatureGates": ["A"] },
                "seccompConfiguration": { "virtualMachineInstanceProfile": {
                    "customProfile": { "runtimeDefaultProfile": true } } },
            },
        }));
        assert_eq!(settings.launcher_image, "registry.example/corten/launcher:v2");
        assert_eq!(settings.launcher_pull_policy, "Always");
        assert_eq!(settings.image_pull_secrets, ["a", "b"]);
        assert_eq!(settings.seccomp, SeccompKind::RuntimeDefault);
        assert_eq!(settings.cpu_allocation_ratio, 4);
        assert_eq!(settings.feature_gates, ["B".to_owned()].into());
        assert_eq!(settings.eviction_strategy.as_deref(), Some("LiveMigrate"));
        let hours = SignedDuration::from_hours;
        assert_eq!(settings.lifetimes.authority, Lifetime::new(hours(48), Some(hours(12))));
        assert_eq!(settings.lifetimes.server, Lifetime::new(SignedDuration::from_mins(90), None));
    }

    #[test]
    fn a_value_without_sense_keeps_the_others() {
        let settings = of(json!({
            "imagePullPolicy": "Sometimes",
            "certificateRotateStrategy": { "selfSigned": { "ca": { "duration": "a week" } } },
            "configuration": { "evictionStrategy": "", "developerConfiguration": {
                "cpuAllocationRatio": 0, "featureGates": ["A"] } },
        }));
        let mut expected = Settings::new(&config());
        expected.feature_gates.insert("A".to_owned());
        assert_eq!(settings, expected);
    }

    #[test]
    fn images_elsewhere_and_of_other_releases() {
        let cases = [
            ("corten.test/launcher:1", None, None, "corten.test/launcher:1"),
            ("corten.test/launcher:1", Some("r:5000/x"), None, "r:5000/x/launcher:1"),
            ("corten.test/launcher:1", None, Some("2"), "corten.test/launcher:2"),
            ("launcher", None, Some("2"), "launcher:2"),
            ("launcher", Some("r"), None, "r/launcher"),
            ("r/launcher@sha256:ab", None, None, "r/launcher@sha256:ab"),
            ("r/launcher@sha256:ab", Some("q"), Some("2"), "q/launcher:2"),
            ("r/launcher:1", None, Some("sha256:ab"), "r/launcher@sha256:ab"),
        ];
        for (image, registry, tag, expected) in cases {
            assert_eq!(renamed(image, registry, tag), expected, "{image} {registry:?} {tag:?}");
        }
    }

    #[test]
    fn durations_as_kubernetes_writes_them() {
        let cases = [
            ("168h0m0s", Some(168 * 3600)),
            ("1h30m", Some(5400)),
            ("1.5h", Some(5400)),
            ("90s", Some(90)),
            ("1500ms", Some(1)),
            ("", None),
            ("5", None),
            ("h", None),
            ("-5h", None),
            ("5h-", None),
            ("1e400h", None),
            ("99999999999999999999999999h", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(duration(text).map(|it| it.as_secs()), seconds, "{text}");
        }
    }
}
