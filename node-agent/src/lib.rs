//! The agent on each node, Corten's only privileged part: it opens what a VM may use and hands it over.
//!
//! Its network wiring is `node-agent/net`; the system-call profile it installs for launchers is
//! `node-agent/seccomp/launcher.json`. The agent itself is not here yet.
