//! MSI-X: a table of messages in guest-visible memory, one for each interrupt of the function.
//!
//! A vector is *open* while MSI-X is enabled, the function is not masked and the vector is not masked. Only then does
//! the machine connect the vector's eventfd to an interrupt route; otherwise a raised vector leaves a pending bit, and
//! opening it delivers that. While MSI-X is disabled nothing pends: the function has no other interrupt.
//!
//! A vector's state has a lock of its own, the only one that I/O workers take to raise it. vCPUs may hold the
//! function's when they take it, never the other way round.

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::pci::lock;
use crate::{Interrupt, State};

/// Bytes of a table entry.
const ENTRY_SIZE: usize = 16;
const CONTROL_ENABLE: u16 = 1 << 15;
const CONTROL_MASK_ALL: u16 = 1 << 14;
/// Id of the capability.
pub(crate) const CAPABILITY: u8 = 0x11;

/// A message-signalled interrupt: what is written where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Which local APICs, and how.
    pub address: u64,
    /// Which vector there, and how.
    pub data: u32,
}

/// Connects a function's vectors to the guest's interrupt controllers. Implemented by the machine.
pub trait VectorRoutes: Send + Sync {
    /// From now on `vector` sends `message`, or nothing. When it returns, that is so: an eventfd of a vector without
    /// message is connected to nothing, and one that was written to before then has been delivered.
    ///
    /// Called for each change, on the vCPU thread that made it (at load, on the owner's), with the vector's lock held:
    /// it must not call back into the function.
    fn update(&self, vector: u16, message: Option<Message>);
}

/// One entry of the table as saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorState {
    /// Address of its message.
    pub address: u64,
    /// Data of its message.
    pub data: u32,
    /// Masked by itself.
    pub masked: bool,
    /// Raised while it was not open.
    pub pending: bool,
}

/// A function's MSI-X as saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MsixState {
    /// In use.
    pub enabled: bool,
    /// All vectors masked at once.
    pub masked: bool,
    /// The table.
    pub vectors: Vec<VectorState>,
}

impl MsixState {
    fn control(&self) -> u16 {
        let bit = |set, bit| if set { bit } else { 0 };
        bit(self.enabled, CONTROL_ENABLE) | bit(self.masked, CONTROL_MASK_ALL)
    }
}

impl State for MsixState {
    const KIND: &'static str = "msix";
    const VERSION: u16 = 1;
}

/// What the function's control register says to each vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Disabled,
    Masked,
    Open,
}

impl Gate {
    fn of(control: u16) -> Self {
        match (control & CONTROL_ENABLE != 0, control & CONTROL_MASK_ALL != 0) {
            (false, _) => Self::Disabled,
            (true, true) => Self::Masked,
            (true, false) => Self::Open,
        }
    }
}

#[derive(Debug)]
struct Entry {
    message: Message,
    masked: bool,
    pending: bool,
    gate: Gate,
    /// What the machine was told last.
    connected: Option<Message>,
}

struct Vector {
    interrupt: Interrupt,
    entry: Mutex<Entry>,
}

/// A function's MSI-X.
pub struct Msix {
    vectors: Vec<Vector>,
    control: Mutex<u16>,
    routes: Arc<dyn VectorRoutes>,
}

impl Msix {
    /// One vector for each interrupt, all masked, MSI-X disabled. At most 2048.
    pub fn new(interrupts: Vec<Interrupt>, routes: Arc<dyn VectorRoutes>) -> Self {
        let entry = || Entry {
            message: Message { address: 0, data: 0 },
            masked: true,
            pending: false,
            gate: Gate::Disabled,
            connected: None,
        };
        let vector = |interrupt| Vector { interrupt, entry: Mutex::new(entry()) };
        let vectors = interrupts.into_iter().take(2048).map(vector).collect();
        Self { vectors, control: Mutex::new(0), routes }
    }

    /// How many vectors there are.
    pub fn vectors(&self) -> u16 {
        u16::try_from(self.vectors.len()).unwrap_or(u16::MAX)
    }

    /// Whether the guest has it in use, masked or not.
    pub(crate) fn is_enabled(&self) -> bool {
        *lock(&self.control) & CONTROL_ENABLE != 0
    }

    /// What raises a vector, for those that raise it without us. While the vector is not open, the count of the eventfd
    /// stands for its pending bit.
    pub(crate) fn interrupt(&self, number: u16) -> Option<&Interrupt> {
        self.vectors.get(usize::from(number)).map(|vector| &vector.interrupt)
    }

    /// The capability's body and which bits of it the guest can write: table and pending bits at these offsets of a
    /// BAR.
    pub(crate) fn capability(&self, bar: u8, table: u32, pending: u32) -> ([u8; 10], [u8; 2]) {
        let mut body = [0; 10];
        body[..2].copy_from_slice(&self.vectors().saturating_sub(1).to_le_bytes());
        body[2..6].copy_from_slice(&(table | u32::from(bar)).to_le_bytes());
        body[6..].copy_from_slice(&(pending | u32::from(bar)).to_le_bytes());
        (body, (CONTROL_ENABLE | CONTROL_MASK_ALL).to_le_bytes())
    }

    /// The control register of that state, the table's size included.
    pub(crate) fn control_of(&self, state: &MsixState) -> u16 {
        self.vectors().saturating_sub(1) | state.control()
    }

    /// Takes over the control register after a write of the guest.
    pub(crate) fn set_control(&self, control: u16) {
        let control = control & (CONTROL_ENABLE | CONTROL_MASK_ALL);
        let mut current = lock(&self.control);
        if *current == control {
            return;
        }
        *current = control;
        for number in 0..self.vectors() {
            self.change(number, |entry| entry.gate = Gate::of(control));
        }
    }

    /// Raises a vector: at once if it is open, else when it opens. False if MSI-X is disabled or has no such vector.
    pub fn raise(&self, number: u16) -> bool {
        let Some(vector) = self.vectors.get(usize::from(number)) else { return false };
        let mut entry = lock(&vector.entry);
        if entry.gate == Gate::Disabled {
            return false;
        }
        if entry.connected.is_some() {
            vector.interrupt.raise();
        } else {
            entry.pending = true;
        }
        true
    }

    /// Answers a guest's read of the table.
    pub fn read_table(&self, offset: u64, data: &mut [u8]) {
        for (byte, at) in data.iter_mut().zip(offset..) {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            *byte = self.vectors.get(at / ENTRY_SIZE).map_or(0xff, |vector| {
                let entry = lock(&vector.entry);
                let mut image = [0; ENTRY_SIZE];
                image[..8].copy_from_slice(&entry.message.address.to_le_bytes());
                image[8..12].copy_from_slice(&entry.message.data.to_le_bytes());
                image[12] = entry.masked.into();
                image[at % ENTRY_SIZE]
            });
        }
    }

    /// Takes a guest's write to the table: 4 or 8 aligned bytes, as the specification has it. Others do nothing.
    pub fn write_table(&self, offset: u64, data: &[u8]) {
        if !matches!(data.len(), 4 | 8) || !offset.is_multiple_of(data.len() as u64) {
            return;
        }
        let Ok(number) = u16::try_from(offset / ENTRY_SIZE as u64) else { return };
        let (words, _) = data.as_chunks::<4>();
        self.change(number, |entry| {
            for (field, word) in ((offset / 4) % 4..).zip(words) {
                let word = u32::from_le_bytes(*word);
                let address = &mut entry.message.address;
                match field {
                    0 => *address = *address & !0xffff_ffff | u64::from(word),
                    1 => *address = *address & 0xffff_ffff | u64::from(word) << 32,
                    2 => entry.message.data = word,
                    _ => entry.masked = word & 1 != 0,
                }
            }
        });
    }

    /// Answers a guest's read of the pending bits. Nobody can write them.
    pub fn read_pending(&self, offset: u64, data: &mut [u8]) {
        let end = self.vectors.len().div_ceil(64) * 8;
        for (byte, at) in data.iter_mut().zip(offset..) {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            *byte = if at < end { 0 } else { 0xff };
            let vectors = self.vectors.iter().skip(at.saturating_mul(8)).take(8);
            for (bit, vector) in vectors.enumerate() {
                let mut entry = lock(&vector.entry);
                vector.absorb(&mut entry);
                *byte |= u8::from(entry.pending) << bit;
            }
        }
    }

    /// What it is, to be loaded again. vCPUs are parked and nothing raises any more.
    pub fn save(&self) -> MsixState {
        let control = *lock(&self.control);
        let vectors = self.vectors.iter().map(|vector| {
            let mut entry = lock(&vector.entry);
            vector.absorb(&mut entry);
            VectorState {
                address: entry.message.address,
                data: entry.message.data,
                masked: entry.masked,
                pending: entry.pending,
            }
        });
        MsixState {
            enabled: control & CONTROL_ENABLE != 0,
            masked: control & CONTROL_MASK_ALL != 0,
            vectors: vectors.collect(),
        }
    }

    /// Why that state cannot be loaded here, if so.
    pub(crate) fn check(&self, state: &MsixState) -> Result<(), String> {
        if state.vectors.len() != self.vectors.len() {
            let (found, here) = (state.vectors.len(), self.vectors.len());
            return Err(format!("{found} vectors where there are {here}"));
        }
        for (number, vector) in state.vectors.iter().enumerate() {
            let open = !state.masked && !vector.masked;
            if vector.pending && (!state.enabled || open) {
                return Err(format!("vector {number} is pending although nothing holds it back"));
            }
        }
        Ok(())
    }

    /// Takes over what [`Self::save`] gave, and tells the machine of every open vector.
    pub fn load(&self, state: &MsixState) -> Result<(), String> {
        self.check(state)?;
        let mut control = lock(&self.control);
        *control = state.control();
        for (number, saved) in (0..).zip(&state.vectors) {
            self.change(number, |entry| {
                entry.message = Message { address: saved.address, data: saved.data };
                entry.masked = saved.masked;
                entry.pending = saved.pending;
                entry.gate = Gate::of(*control);
            });
        }
        Ok(())
    }

    /// Changes a vector and does what follows from it.
    fn change(&self, number: u16, change: impl FnOnce(&mut Entry)) {
        let Some(vector) = self.vectors.get(usize::from(number)) else { return };
        let mut entry = lock(&vector.entry);
        change(&mut entry);
        let open = entry.gate == Gate::Open && !entry.masked;
        let message = open.then_some(entry.message);
        if entry.connected != message {
            // First the route, then the pending interrupt: otherwise it would go nowhere or to where it used to.
            self.routes.update(number, message);
            entry.connected = message;
        }
        if entry.gate == Gate::Disabled {
            vector.absorb(&mut entry);
            entry.pending = false;
        }
        if open && entry.pending {
            entry.pending = false;
            vector.interrupt.raise();
        }
    }
}

impl Vector {
    /// Makes a pending bit of what vhost signalled while nothing listened: it knows of no masks.
    fn absorb(&self, entry: &mut Entry) {
        if entry.connected.is_none() && self.interrupt.eventfd().read().is_ok() {
            entry.pending = entry.gate != Gate::Disabled;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeRoutes;

    const ENABLED: u16 = CONTROL_ENABLE;

    fn msix() -> (Msix, Arc<FakeRoutes>, Vec<Interrupt>) {
        let routes = Arc::new(FakeRoutes::default());
        let interrupts: Vec<_> = (0..3).map(|_| Interrupt::new().unwrap()).collect();
        (Msix::new(interrupts.clone(), Arc::clone(&routes) as _), routes, interrupts)
    }

    fn write(msix: &Msix, vector: u64, field: u64, value: u32) {
        msix.write_table(vector * 16 + field * 4, &value.to_le_bytes());
    }

    /// As Linux does: the whole function masked while the table is written.
    fn enabled() -> (Msix, Arc<FakeRoutes>, Vec<Interrupt>) {
        let (msix, routes, interrupts) = msix();
        msix.set_control(CONTROL_ENABLE | CONTROL_MASK_ALL);
        for vector in 0..3 {
            write(&msix, u64::from(vector), 0, 0xfee0_0000);
            write(&msix, u64::from(vector), 2, 0x20 + vector);
            write(&msix, u64::from(vector), 3, 0);
        }
        assert_eq!(routes.updates(), []);
        msix.set_control(CONTROL_ENABLE);
        (msix, routes, interrupts)
    }

    fn message(data: u32) -> Option<Message> {
        Some(Message { address: 0xfee0_0000, data })
    }

    fn raised(interrupt: &Interrupt) -> bool {
        interrupt.eventfd().read().is_ok()
    }

    fn pending(msix: &Msix) -> u64 {
        let mut bits = [0; 8];
        msix.read_pending(0, &mut bits);
        u64::from_le_bytes(bits)
    }

    #[test]
    fn vectors_start_masked_and_disabled() {
        let (msix, routes, interrupts) = msix();
        let mut entry = [0xaa; 16];
        msix.read_table(16, &mut entry);
        assert_eq!(entry, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert!(!msix.raise(1));
        assert!(!raised(&interrupts[1]));
        assert_eq!(pending(&msix), 0);
        assert_eq!(routes.updates(), []);
    }

    #[test]
    fn unmasking_the_function_connects_every_open_vector() {
        let (msix, routes, interrupts) = enabled();
        assert_eq!(routes.updates(), [(0, message(0x20)), (1, message(0x21)), (2, message(0x22))]);
        assert!(msix.raise(2));
        assert!(raised(&interrupts[2]));
        assert!(!msix.raise(3));
    }

    #[test]
    fn masked_vector_pends_and_is_delivered_when_unmasked() {
        let (msix, routes, interrupts) = enabled();
        routes.clear();
        write(&msix, 1, 3, 1);
        assert_eq!(routes.updates(), [(1, None)]);
        assert!(msix.raise(1));
        assert!(!raised(&interrupts[1]));
        assert_eq!(pending(&msix), 0b10);
        write(&msix, 1, 3, 0);
        assert_eq!(routes.updates(), [(1, None), (1, message(0x21))]);
        assert!(raised(&interrupts[1]));
        assert_eq!(pending(&msix), 0);
    }

    #[test]
    fn masked_function_pends_and_delivers_too() {
        let (msix, routes, interrupts) = enabled();
        msix.set_control(CONTROL_ENABLE | CONTROL_MASK_ALL);
        assert_eq!(routes.connected(), []);
        assert!(msix.raise(0));
        assert_eq!(pending(&msix), 1);
        msix.set_control(CONTROL_ENABLE);
        assert!(raised(&interrupts[0]));
        assert_eq!(pending(&msix), 0);
    }

    #[test]
    fn disabling_forgets_what_is_pending() {
        let (msix, routes, interrupts) = enabled();
        write(&msix, 0, 3, 1);
        msix.raise(0);
        msix.set_control(0);
        assert_eq!(routes.connected(), []);
        write(&msix, 0, 3, 0);
        msix.set_control(ENABLED);
        assert!(!raised(&interrupts[0]));
        assert_eq!(routes.connected().len(), 3);
    }

    #[test]
    fn signal_of_vhost_to_a_masked_vector_pends() {
        let (msix, _routes, interrupts) = enabled();
        write(&msix, 2, 3, 1);
        interrupts[2].raise();
        assert_eq!(pending(&msix), 0b100);
        assert!(msix.save().vectors[2].pending);
        write(&msix, 2, 3, 0);
        assert!(raised(&interrupts[2]));
    }

    #[test]
    fn interrupt_raised_while_another_thread_masks_is_not_lost() {
        let (msix, _routes, interrupts) = enabled();
        for _ in 0..300 {
            std::thread::scope(|scope| {
                scope.spawn(|| assert!(msix.raise(0)));
                write(&msix, 0, 3, 1);
                write(&msix, 0, 3, 0);
                msix.set_control(CONTROL_ENABLE | CONTROL_MASK_ALL);
                msix.set_control(CONTROL_ENABLE);
            });
            assert!(raised(&interrupts[0]));
        }
    }

    #[test]
    fn message_changed_while_open_moves_the_route() {
        let (msix, routes, _interrupts) = enabled();
        routes.clear();
        msix.write_table(8, &[0x44, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(routes.updates(), [(0, message(0x44))]);
        msix.write_table(0, &0x1_fee0_1000_u64.to_le_bytes());
        let moved = Message { address: 0x1_fee0_1000, data: 0x44 };
        assert_eq!(routes.connected()[0], (0, moved));
    }

    #[test]
    fn odd_accesses_do_nothing() {
        let (msix, routes, _interrupts) = enabled();
        let before = msix.save();
        routes.clear();
        for (offset, length) in [(0, 1), (1, 4), (4, 8), (12, 3), (48, 4), (u64::MAX - 3, 4)] {
            msix.write_table(offset, &vec![0xff; length]);
        }
        assert_eq!(msix.save(), before);
        assert_eq!(routes.updates(), []);
        let mut beyond = [0; 4];
        msix.read_table(48, &mut beyond);
        assert_eq!(beyond, [0xff; 4]);
        msix.read_pending(8, &mut beyond);
        assert_eq!(beyond, [0xff; 4]);
    }

    #[test]
    fn loaded_vectors_are_connected_and_still_pend() {
        let (msix, _routes, _interrupts) = enabled();
        write(&msix, 1, 3, 1);
        msix.raise(1);
        let state = msix.save();
        let (other, routes, interrupts) = self::msix();
        other.load(&state).unwrap();
        assert_eq!(other.save(), state);
        assert_eq!(routes.updates(), [(0, message(0x20)), (2, message(0x22))]);
        write(&other, 1, 3, 0);
        assert!(raised(&interrupts[1]));
    }

    #[test]
    fn impossible_states_are_refused() {
        let (msix, _routes, _interrupts) = enabled();
        let good = msix.save();
        let mut short = good.clone();
        short.vectors.pop();
        assert_eq!(msix.load(&short).unwrap_err(), "2 vectors where there are 3");
        let mut open = good.clone();
        open.vectors[0].pending = true;
        assert!(msix.load(&open).is_err());
        let disabled = MsixState { enabled: false, ..open };
        assert!(msix.load(&disabled).is_err());
        assert_eq!(msix.save(), good);
    }

    #[test]
    fn state_of_version_1_reads_as_it_did() {
        let golden = r#"{"enabled":true,"masked":false,"vectors":[{"address":4276092928,"data":33,"masked":true,"pending":true}]}"#;
        let state: MsixState = serde_json::from_str(golden).unwrap();
        assert_eq!(serde_json::to_string(&state).unwrap(), golden);
        let interrupts = vec![Interrupt::new().unwrap()];
        let msix = Msix::new(interrupts, Arc::new(FakeRoutes::default()));
        msix.load(&state).unwrap();
        assert_eq!(msix.save(), state);
    }
}
