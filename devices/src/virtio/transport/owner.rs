//! What the machine's owner does with a virtio function.

use thiserror::Error;

use crate::pci::Function;
use crate::virtio::{ActivateError, Faults, QueueTask};
use crate::{Effect, RecordError, Records};

/// A virtio function, whatever its device type, as the machine's owner sees it. Only the owner calls these.
///
/// ```text
///            DRIVER_OK               activate                  status 0
///   Setup ──────────────▶ Waiting ─────────────▶ Working ─────────────────┐
///     ▲                    │   ▲                  │                       ▼
///     │                    │   └─── reclaim ──────┘          Leaving, tasks out
///     │                    │ status 0                                     │ reclaim
///     │    deactivated     ▼                                              │
///     └──────────────── Leaving ◀─────────────────────────────────────────┘
/// ```
///
/// | When | Order |
/// |---|---|
/// | assemble | interrupts, [`VirtioPci::new`](super::VirtioPci::new), [`Root::insert`](crate::pci::Root::insert) |
/// | load | [`Self::load`], then the bus and doorbells anew |
/// | resume | what [`Self::pending`] says, tasks to workers, [`Self::resumed`], vCPUs |
/// | [`Effect::Activate`] | [`Self::activate`], tasks to workers |
/// | [`Effect::Deactivate`] | tasks from workers, drained; [`Self::reclaim`], [`Self::deactivated`] |
/// | pause | vCPUs parked; tasks from workers, drained; [`Self::reclaim`] |
/// | save | after a pause: [`Self::save`], before interrupt controllers and vCPUs |
///
/// [`Effect::Activate`] and [`Effect::Deactivate`] may be lost in a pause: [`Self::pending`] knows of them.
pub trait Transport: Function {
    /// What the owner has to do with this function, whether or not it was told by an effect: to be asked after a load
    /// and at each resume.
    fn pending(&self) -> Effect;

    /// Starts the device, after [`Effect::Activate`] or when [`Self::pending`] says so: gives the tasks that its queues
    /// need. The owner moves each into a worker, which calls [`QueueTask::rearm`] first.
    ///
    /// Gives none if there is nothing to start: the driver has changed its mind, or broke a ring and must reset first.
    /// After an error the device asks its driver for a reset; the machine goes on.
    fn activate(&self) -> Result<Vec<Box<dyn QueueTask>>, ActivateError>;

    /// Stops the device: takes all of its tasks back, each drained. For every pause and every [`Effect::Deactivate`],
    /// also when there are none. vCPUs are parked, or the driver gave up the queues.
    fn reclaim(&self, tasks: Vec<Box<dyn QueueTask>>) -> Result<(), ReclaimError>;

    /// Ends the reset that the driver asked for by [`Effect::Deactivate`], after [`Self::reclaim`]: the status reads 0.
    /// Does nothing if no reset was asked for.
    fn deactivated(&self) -> Result<(), ReclaimError>;

    /// To be called at each resume, before vCPUs run and after interrupts are connected: repeats the configuration
    /// interrupt if there ever was one to repeat.
    fn resumed(&self);

    /// Saves the function, its MSI-X and its device, as `instance`. vCPUs are parked and the tasks reclaimed.
    fn save(&self, instance: &str, records: &mut Records) -> Result<(), RecordError>;

    /// Takes over what [`Self::save`] saved. Before anything ran; the machine's memory has its size, and its content is
    /// not looked at. Connects interrupts; the owner asks for [`Root::bars`](crate::pci::Root::bars) afterwards.
    fn load(&self, instance: &str, records: &mut Records) -> Result<(), RecordError>;

    /// What its driver did wrong.
    fn faults(&self) -> Faults;
}

/// Why tasks are not taken back. The owner has mixed something up: the machine cannot go on.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ReclaimError {
    /// Not this device's.
    #[error("a task of another device was given back")]
    Foreign,
    /// Nothing was given out.
    #[error("no task was given out")]
    NotOut,
    /// The queues in the tasks are not those that were given out.
    #[error("queues {given:?} were given out, {back:?} came back")]
    Queues {
        /// Given out.
        given: Vec<u16>,
        /// Came back.
        back: Vec<u16>,
    },
    /// The owner has tasks that it did not give back.
    #[error("the device's tasks were not given back")]
    StillOut,
}
