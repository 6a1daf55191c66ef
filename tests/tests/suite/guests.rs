//! Guests that the lab brings, booted by a stock VMM on the node's KVM: proof that both are real.
