//! The `corten` command: a `kubevirt.io/v1` manifest becomes a running VM without a cluster. Not here yet.
