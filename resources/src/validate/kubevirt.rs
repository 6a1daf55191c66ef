//! A KubeVirt object: what the installation is told.

use super::Findings;
use super::text::{is_digest, is_duration, is_registry, is_tag};
use crate::finding::Finding;
use crate::types::{CertificateLife, KubeVirtSpec, SelfSignedCertificates};

/// Gates of KubeVirt's that make a difference here. There is none yet: what is served is served without one.
const GATES: [&str; 0] = [];

pub(super) fn check(spec: &KubeVirtSpec, findings: &mut Findings) {
    let rotation = spec.certificate_rotate_strategy.as_ref();
    if let Some(certificates) = rotation.and_then(|rotation| rotation.self_signed.as_ref()) {
        certificate_lives(certificates, findings);
    }
    images(spec, findings);
    #[cfg(feature = "cluster")]
    super::embedded::check_installation(spec, findings);
    let configuration = spec.configuration.as_ref();
    let Some(developer) = configuration.and_then(|all| all.developer_configuration.as_ref()) else {
        return;
    };
    const PATH: &str = "spec.configuration.developerConfiguration";
    if let Some(ratio) = developer.cpu_allocation_ratio.filter(|ratio| *ratio < 1) {
        let message = format!("{ratio} is less than 1: so many virtual processors share one");
        findings.push(Finding::invalid(format!("{PATH}.cpuAllocationRatio"), message));
    }
    for (index, gate) in developer.feature_gates.iter().enumerate() {
        if !GATES.contains(&gate.as_str()) {
            let message = format!("the gate {gate:?} does nothing here");
            findings.push(Finding::no_effect(format!("{PATH}.featureGates[{index}]"), message));
        }
    }
}

/// Parts of the names of images. What is no name would be rolled out to every node, where nothing can be pulled by it.
fn images(spec: &KubeVirtSpec, findings: &mut Findings) {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(tag) = given(&spec.image_tag).filter(|tag| !is_tag(tag) && !is_digest(tag)) {
        let message = format!("{tag:?} is no tag of an image such as v1.2.3, nor a digest");
        findings.push(Finding::invalid("spec.imageTag", message));
    }
    if let Some(registry) = given(&spec.image_registry).filter(|text| !is_registry(text)) {
        let message = format!("{registry:?} is no registry such as registry.example:5000/corten");
        findings.push(Finding::invalid("spec.imageRegistry", message));
    }
}

fn certificate_lives(certificates: &SelfSignedCertificates, findings: &mut Findings) {
    const PATH: &str = "spec.certificateRotateStrategy.selfSigned";
    let life = |life: &Option<CertificateLife>| {
        life.as_ref().map_or((None, None), |it| (it.duration.clone(), it.renew_before.clone()))
    };
    let ((ca, ca_before), (server, server_before)) =
        (life(&certificates.ca), life(&certificates.server));
    let given = [
        ("ca.duration", ca),
        ("ca.renewBefore", ca_before),
        ("caOverlapInterval", certificates.ca_overlap_interval.clone()),
        ("caRotateInterval", certificates.ca_rotate_interval.clone()),
        ("certRotateInterval", certificates.cert_rotate_interval.clone()),
        ("server.duration", server),
        ("server.renewBefore", server_before),
    ];
    for (name, text) in given {
        if let Some(text) = text.filter(|text| !text.is_empty() && !is_duration(text)) {
            let message = format!("{text:?} is no time such as 168h or 1h30m");
            findings.push(Finding::invalid(format!("{PATH}.{name}"), message));
        }
    }
}
