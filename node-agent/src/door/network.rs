//! Connects a guest before it is started, and waits as long as that takes: a network of Multus' may come late, and whatever is
//! in the way may be mended by somebody.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::Result;
use corten_link::LinkError;
use corten_resources::types::VirtualMachineInstance;
use tokio::time::sleep;
use tracing::{info, warn};

use super::keeper::why_not_start;
use super::visits::excerpt;
use super::{Session, SessionError};
use crate::cluster::Cluster;
use crate::diagnosis::{Case, Trouble, of_stage};
use crate::doors::DeviceId;
use crate::identity::{Identity, Known};
use crate::networks::{self, Connected, NetworkError, ShownNamespace};

/// Between two tries, and not later than that.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
const AGAIN_AT_LATEST: Duration = Duration::from_secs(8);

/// What the interfaces of a guest are connected with.
pub(super) struct Wiring<'a> {
    pub(super) device: &'a DeviceId,
    pub(super) cluster: &'a Cluster,
    /// Where it is told what is in the way.
    pub(super) case: Case,
    /// What launchers of this allocation have shown before.
    pub(super) shown: &'a mut ShownNamespace,
}

impl Wiring<'_> {
    /// Connects the interfaces of who was identified in the namespace that its launcher has shown. None if it left, or is not to
    /// be started any more.
    pub(super) async fn connect(
        &mut self,
        session: &mut Session,
        identity: &Identity,
        namespace: Option<OwnedFd>,
    ) -> Result<Option<Connected>> {
        let Identity { pod_uid, vmi } = identity;
        if !networks::has_interfaces(vmi) {
            return Ok(Some(Connected::default()));
        }
        let namespace = self.shown.check(namespace)?;
        let mut known = self.cluster.known();
        let (mut said, mut pause) = (String::new(), AGAIN_AFTER);
        loop {
            let (status, going) = {
                let known = known.borrow_and_update();
                (network_status(&known, pod_uid), is_going(&known, vmi))
            };
            if going {
                return Ok(None);
            }
            match connected(vmi, &namespace, status).await? {
                Ok(connected) => return Ok(Some(connected)),
                Err(error) => {
                    let (interface, stage) = (error.interface().map(str::to_owned), error.stage());
                    let error = excerpt(&format!("{:#}", anyhow::Error::from(error)));
                    if error != said {
                        let vmi = &vmi.metadata;
                        warn!(
                            device = %self.device, namespace = vmi.namespace, vmi = vmi.name, interface, %stage,
                            "the guest is not connected yet: {error}"
                        );
                        let (reason, message) = (of_stage(stage), error.clone());
                        self.case.note(|facts| {
                            facts.meet(Trouble { reason, message }, Instant::now());
                        });
                        (said, pause) = (error, AGAIN_AFTER);
                    }
                }
            }
            tokio::select! {
                _ = known.changed() => {}
                () = sleep(pause) => pause = AGAIN_AT_LATEST.min(pause * 2),
                told = session.next() => match told {
                    Err(SessionError::Link(LinkError::Closed)) => return Ok(None),
                    other => drop(other?),
                },
            }
        }
    }
}

/// On a thread of its own: the kernel may take its time for it.
async fn connected(
    vmi: &VirtualMachineInstance,
    namespace: &corten_net::Namespace,
    status: Option<String>,
) -> Result<Result<Connected, NetworkError>> {
    let (vmi, namespace) = (vmi.clone(), namespace.try_clone()?);
    let work = move || networks::connect(&vmi, &namespace, status.as_deref());
    Ok(tokio::task::spawn_blocking(work).await?)
}

fn network_status(known: &Known, pod_uid: &str) -> Option<String> {
    known.pod(pod_uid)?.network_status.clone()
}

/// Whether the object is over or goes, by what is known now; one that is not known has gone.
fn is_going(known: &Known, vmi: &VirtualMachineInstance) -> bool {
    let present = known.vmis.get(&vmi.metadata.uid);
    let reason = present.map_or(Some("it is gone"), why_not_start);
    if let Some(reason) = reason {
        info!(vmi = vmi.metadata.name, "the guest is not connected: {reason}");
    }
    reason.is_some()
}
