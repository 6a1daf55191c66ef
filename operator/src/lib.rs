//! The control plane: observes `kubevirt.io/v1` objects, plans with pure functions, applies. Not here yet.

#![forbid(unsafe_code)]
