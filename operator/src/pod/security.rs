//! What a launcher may do: nothing that Pod Security "restricted" would have to allow.

use crate::SeccompKind;
use corten_resources::names::{LAUNCHER_SECCOMP_PROFILE, LAUNCHER_USER};
use k8s_openapi::api::core::v1 as core;

pub(super) fn of_pod(seccomp: SeccompKind) -> core::PodSecurityContext {
    core::PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(LAUNCHER_USER),
        run_as_group: Some(LAUNCHER_USER),
        fs_group: Some(LAUNCHER_USER),
        // Without it kubelet walks through every file of a volume at each start.
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(match seccomp {
            // The runtime's default list has no io_uring; the node agent installs this one, which has.
            SeccompKind::Localhost => core::SeccompProfile {
                type_: "Localhost".to_owned(),
                localhost_profile: Some(LAUNCHER_SECCOMP_PROFILE.to_owned()),
            },
            SeccompKind::RuntimeDefault => {
                core::SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }
            }
        }),
        ..Default::default()
    }
}

pub(super) fn of_container() -> core::SecurityContext {
    core::SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(core::Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            ..Default::default()
        }),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        run_as_user: Some(LAUNCHER_USER),
        run_as_group: Some(LAUNCHER_USER),
        ..Default::default()
    }
}
