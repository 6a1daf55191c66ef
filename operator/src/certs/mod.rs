//! The certificate that webhooks are served with, and the authority that vouches for it: made by the operator itself, kept
//! in a Secret, renewed in time.
//!
//! | in the Secret | is |
//! |---|---|
//! | `ca.crt`, `ca.key` | the authority that signs from now on |
//! | `bundle.crt` | every authority that clients are to trust: that one, and earlier ones until they expire |
//! | `tls.crt`, `tls.key` | the serving certificate |
//!
//! Rotation overlaps: a new authority is in the bundle for a while before anything is signed with it, and the earlier one
//! stays there as long as it is valid. So neither a replica that has read the Secret late nor an API server that has the
//! webhooks as they were a moment ago refuses the other.
//!
//! Every replica runs the same loop: who comes first creates the Secret or changes it, by its version; the others read.
//! What is served follows the Secret without restart.

mod der;
mod judge;
mod keep;
mod kept;
mod make;

pub use judge::{Facts, Lifetime, Lifetimes, Span, Verdict, judge};
pub use keep::{Bundle, Keeper, ServingCertificate};

/// Name of the Secret.
pub const SECRET: &str = "corten-operator-certs";
