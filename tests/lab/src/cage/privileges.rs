//! From root to what a launcher is.

use anyhow::{Context, Result};
use caps::CapSet;
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

use super::LAUNCHER_ID;

/// Makes the calling thread uid and gid 107 without groups and capabilities, for good.
pub(super) fn drop_all() -> Result<()> {
    let (uid, gid) = (Uid::from_raw(LAUNCHER_ID), Gid::from_raw(LAUNCHER_ID));
    // The bounding set first: dropping it takes a capability.
    clear(CapSet::Bounding)?;
    setgroups(&[]).context("cannot leave the supplementary groups")?;
    setresgid(gid, gid, gid).with_context(|| format!("cannot become gid {gid}"))?;
    setresuid(uid, uid, uid).with_context(|| format!("cannot become uid {uid}"))?;
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        clear(set)?;
    }
    prctl::set_no_new_privs().context("cannot set no_new_privs")
}

fn clear(set: CapSet) -> Result<()> {
    caps::clear(None, set).with_context(|| format!("cannot clear capability set {set:?}"))
}
