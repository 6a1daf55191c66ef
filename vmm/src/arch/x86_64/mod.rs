//! The x86_64 machine.

pub mod layout;
