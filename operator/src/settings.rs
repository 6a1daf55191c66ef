//! What the cluster's administrator decides for every VM. It may change while the operator runs.

/// What the cluster's administrator decides for every VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Image of the launcher.
    pub launcher_image: String,
    /// When the launcher's image is pulled: Always, IfNotPresent or Never.
    pub launcher_pull_policy: String,
    /// Which system-call profile launchers have.
    pub seccomp: SeccompKind,
    /// How many vCPUs share a processor of the node, as far as the scheduler reckons.
    pub cpu_allocation_ratio: u32,
    /// Secrets with which images are pulled in the namespace of a VM, besides those it names itself.
    pub image_pull_secrets: Vec<String>,
}

/// Which system-call profile launchers have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeccompKind {
    /// The one that the node agent installs: it allows io_uring.
    #[default]
    Localhost,
    /// The container runtime's own.
    RuntimeDefault,
}
