//! An id in the guest's memory that changes whenever the guest may have been copied (VMGENID).
//!
//! A guest that finds a new one renews what must be unique: Linux reseeds its random numbers. Microsoft's
//! specification ("Virtual Machine Generation ID") wants it 8-byte aligned in memory that the guest never uses as RAM.
//! The device has no registers; that there is a new id is told by [`Acpi::generation_changed`](super::Acpi).

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use vm_memory::{GuestAddress, GuestMemoryError};

use crate::{RecordError, State};

/// Writes bytes to the guest's memory, and marks them dirty where that is kept.
pub type WriteMemory =
    Box<dyn Fn(GuestAddress, &[u8]) -> Result<(), GuestMemoryError> + Send + Sync>;

/// Why a new id is not in place.
#[derive(Debug, Error)]
pub enum GenerationIdError {
    /// There is no memory.
    #[error("cannot write the generation id to guest memory at {:#x}", .address.0)]
    Write {
        /// Where it was to be.
        address: GuestAddress,
        /// Why.
        #[source]
        source: GuestMemoryError,
    },
}

/// The device.
pub struct GenerationId {
    address: GuestAddress,
    memory: WriteMemory,
    state: Mutex<GenerationIdState>,
}

/// State of a [`GenerationId`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerationIdState {
    id: [u8; 16],
}

impl State for GenerationIdState {
    const KIND: &'static str = "generation-id";
    const VERSION: u16 = 1;
}

impl GenerationId {
    /// A device whose id is all zeros, as is the memory of a new machine. It writes nothing before [`Self::renew`].
    pub fn new(address: GuestAddress, memory: WriteMemory) -> Self {
        Self { address, memory, state: Mutex::default() }
    }

    /// The id.
    pub fn id(&self) -> [u8; 16] {
        self.state().id
    }

    /// Puts `new` in the guest's memory. No vCPU runs: the guest must not see half of it. If it fails, the old id is
    /// still the device's, and no vCPU may run before another try succeeded.
    pub fn renew(&self, new: [u8; 16]) -> Result<(), GenerationIdError> {
        let mut state = self.state();
        (self.memory)(self.address, &new)
            .map_err(|source| GenerationIdError::Write { address: self.address, source })?;
        state.id = new;
        Ok(())
    }

    /// Its state.
    pub fn save(&self) -> GenerationIdState {
        self.state().clone()
    }

    /// Takes a state. Guest memory is not touched: it has the id already, or will have it from where the rest of it
    /// comes from.
    pub fn load(&self, state: GenerationIdState) -> Result<(), RecordError> {
        *self.state() = state;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, GenerationIdState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for GenerationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenerationId").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::sync::Arc;

    use proptest::prelude::*;
    use vm_memory::{Bytes, GuestMemoryMmap};

    use super::*;

    const ADDRESS: GuestAddress = GuestAddress(0xff0);

    fn device(size: usize) -> (GenerationId, Arc<GuestMemoryMmap>) {
        let memory =
            Arc::new(GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), size)]).unwrap());
        let writes = Arc::clone(&memory);
        let write = move |at, bytes: &[u8]| writes.write_slice(bytes, at);
        (GenerationId::new(ADDRESS, Box::new(write)), memory)
    }

    fn in_memory(memory: &GuestMemoryMmap) -> [u8; 16] {
        memory.read_obj(ADDRESS).unwrap()
    }

    #[test]
    fn new_id_is_in_memory_and_in_the_state() {
        let (device, memory) = device(0x1000);
        assert_eq!(device.id(), [0; 16]);
        device.renew([7; 16]).unwrap();
        assert_eq!((device.id(), in_memory(&memory)), ([7; 16], [7; 16]));
    }

    #[test]
    fn id_that_cannot_be_written_is_not_taken() {
        let (device, _memory) = device(0xff8);
        let error = device.renew([7; 16]).unwrap_err();
        assert_eq!(error.to_string(), "cannot write the generation id to guest memory at 0xff0");
        assert!(error.source().is_some());
        assert_eq!(device.id(), [0; 16]);
    }

    #[test]
    fn state_of_version_1_is_golden() {
        let golden = r#"{"id":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,255]}"#;
        let (device, memory) = device(0x1000);
        device.load(serde_json::from_str(golden).unwrap()).unwrap();
        assert_eq!(serde_json::to_string(&device.save()).unwrap(), golden);
        assert_eq!(in_memory(&memory), [0; 16]);
    }

    #[test]
    fn id_of_another_length_is_damaged() {
        for damaged in [r#"{"id":[1,2,3]}"#, r#"{"id":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}"#, "{}"]
        {
            serde_json::from_str::<GenerationIdState>(damaged).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn save_load_save_is_equal(id: [u8; 16]) {
            let (first, _) = device(0x1000);
            first.renew(id).unwrap();
            let (second, _) = device(0x1000);
            second.load(first.save()).unwrap();
            prop_assert_eq!(second.save(), first.save());
            prop_assert_eq!(second.id(), id);
        }
    }
}
