//! Tests that end operators, or change what all others stand on. They run after the others, one at a time.

mod crashes;
mod helm;
mod install;
mod kvm;
mod scale;
mod unreadable;
