//! `corten` with the VM process that is shipped and the microguest in it, on this machine's KVM.
//!
//! `CORTEN_VMM` names the program of the VM process; `CORTEN`, if it is set, another build of the command.

mod consoles;
mod input;
mod jail;
mod life;
mod networks;
mod rig;
mod saving;
mod terminal;
