//! The bus: slots, and the two ways to their configuration.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::configuration::{Configuration, ConfigurationState, Identity, SIZE};
use super::{Doorbell, Function, MappedBar, lock};
use crate::{Effect, Range, RecordError, RecordName, Records, Registers, State, read_nothing};

/// How many slots the bus has.
pub const SLOTS: u8 = 32;

/// A plain host bridge that Linux has no quirks for.
const HOST_BRIDGE: Identity = Identity {
    vendor: 0x1b36,
    device: 0x0008,
    subsystem_vendor: 0x1af4,
    subsystem: 0x1100,
    class: 0x06_00_00,
    revision: 0,
};

/// The port accesses' enable bit.
const PORT_ENABLE: u32 = 1 << 31;

/// Why a function is not put into a slot.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RootError {
    /// The bus has no such slot, or the host bridge has it.
    #[error("there is no PCI slot {0} to use")]
    NoSlot(u8),
    /// Another function is there.
    #[error("the PCI slot {0} is taken")]
    Taken(u8),
}

/// What changes in the root while the machine runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootState {
    /// What was last written to the address port.
    pub port_address: u32,
    /// The function in slot 0.
    pub host_bridge: ConfigurationState,
}

impl State for RootState {
    const KIND: &'static str = "pci-root";
    const VERSION: u16 = 1;
}

/// The PCI bus: functions by slot. Slot 0 is a host bridge.
pub struct Root {
    host_bridge: Arc<HostBridge>,
    functions: RwLock<[Option<Arc<dyn Function>>; SLOTS as usize]>,
    apertures: Vec<Range>,
    port_address: AtomicU32,
}

impl Root {
    /// A bus whose BARs can be inside of `apertures` only.
    pub fn new(apertures: Vec<Range>) -> Arc<Self> {
        let host_bridge = Arc::new(HostBridge(Mutex::new(Configuration::new(HOST_BRIDGE))));
        let mut functions = [const { None }; SLOTS as usize];
        functions[0] = Some(Arc::clone(&host_bridge) as Arc<dyn Function>);
        let functions = RwLock::new(functions);
        Arc::new(Self { host_bridge, functions, apertures, port_address: AtomicU32::new(0) })
    }

    /// Puts a function into an empty slot. The owner asks for [`Self::bars`] afterwards.
    pub fn insert(&self, slot: u8, function: Arc<dyn Function>) -> Result<(), RootError> {
        if slot == 0 {
            return Err(RootError::NoSlot(slot));
        }
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        let place = functions.get_mut(usize::from(slot)).ok_or(RootError::NoSlot(slot))?;
        if place.is_some() {
            return Err(RootError::Taken(slot));
        }
        *place = Some(function);
        Ok(())
    }

    /// Takes a function out of its slot. The owner asks for [`Self::bars`] afterwards.
    pub fn remove(&self, slot: u8) -> Option<Arc<dyn Function>> {
        if slot == 0 {
            return None;
        }
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        functions.get_mut(usize::from(slot))?.take()
    }

    /// Every BAR that is on the bus now: decoded, inside of an aperture, and not on top of one that comes before it in
    /// this list, by slot and number. None of them overlap, whatever the guest did.
    pub fn bars(&self) -> Vec<MappedBar> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut bars: Vec<MappedBar> = Vec::new();
        for bar in functions.into_iter().flatten().flat_map(Function::bars) {
            let inside = self.apertures.iter().any(|aperture| contains(*aperture, bar.range));
            if inside && !bars.iter().any(|other| overlap(other.range, bar.range)) {
                bars.push(bar);
            }
        }
        bars
    }

    /// The doorbells of [`Self::bars`].
    pub fn doorbells(&self) -> Vec<Doorbell> {
        self.bars().into_iter().flat_map(|bar| bar.doorbells).collect()
    }

    /// Saves what is not in the functions of other slots.
    pub fn save(&self, records: &mut Records) -> Result<(), RecordError> {
        let state = RootState {
            port_address: self.port_address.load(Ordering::Relaxed),
            host_bridge: lock(&self.host_bridge.0).save(),
        };
        records.put("", &state)
    }

    /// Takes over what [`Self::save`] saved.
    pub fn load(&self, records: &mut Records) -> Result<(), RecordError> {
        let state: RootState = records.take("")?;
        lock(&self.host_bridge.0).load(&state.host_bridge).map_err(|error| {
            let name = RecordName { kind: RootState::KIND.into(), instance: String::new() };
            RecordError::Impossible { name, reason: error.to_string() }
        })?;
        self.port_address.store(state.port_address, Ordering::Relaxed);
        Ok(())
    }

    /// The function at an address within the bus's 1 MiB of configuration, and the register there.
    fn find(&self, address: u64, length: usize) -> Option<(Arc<dyn Function>, usize)> {
        let register = usize::try_from(address & 0xfff).ok()?;
        let number = (address >> 12) & 7;
        let slot = usize::try_from(address >> 15).ok()?;
        let fits = matches!(length, 1 | 2 | 4) && register % 4 + length <= 4 && register < SIZE;
        if !fits || number != 0 {
            return None;
        }
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        Some((functions.get(slot)?.clone()?, register))
    }

    fn read(&self, address: u64, data: &mut [u8]) {
        match self.find(address, data.len()) {
            Some((function, register)) => function.read_configuration(register, data),
            None => read_nothing(data),
        }
    }

    fn write(&self, address: u64, data: &[u8]) -> Effect {
        match self.find(address, data.len()) {
            Some((function, register)) => function.write_configuration(register, data),
            None => Effect::None,
        }
    }

    /// The configuration address that an access to the data port is for.
    fn selected(&self, byte: u64) -> Option<u64> {
        let address = self.port_address.load(Ordering::Relaxed);
        let bus = (address >> 16) & 0xff;
        // AMD's extension has more register bits where others have reserved ones.
        let register = address & 0xfc | (address >> 16) & 0xf00;
        let enabled = address & PORT_ENABLE != 0 && bus == 0;
        enabled.then_some(u64::from((address & 0xff00) << 4 | register) + byte)
    }
}

fn contains(outer: Range, inner: Range) -> bool {
    let Some(offset) = inner.base.checked_sub(outer.base) else { return false };
    offset.checked_add(inner.size).is_some_and(|end| end <= outer.size)
}

fn overlap(one: Range, other: Range) -> bool {
    let (first, second) = if one.base <= other.base { (one, other) } else { (other, one) };
    second.base - first.base < first.size
}

/// Configuration space as memory: 4 KiB for each function of bus 0.
pub struct Ecam(pub Arc<Root>);

impl Registers for Ecam {
    fn read(&self, offset: u64, data: &mut [u8]) {
        self.0.read(offset, data);
    }

    fn write(&self, offset: u64, data: &[u8]) -> Effect {
        self.0.write(offset, data)
    }
}

/// Configuration space by ports: address at offset 0, four bytes of data at 4.
pub struct Ports(pub Arc<Root>);

impl Registers for Ports {
    fn read(&self, offset: u64, data: &mut [u8]) {
        match (offset, data.len()) {
            (0, 4) => {
                let address = self.0.port_address.load(Ordering::Relaxed);
                data.copy_from_slice(&address.to_le_bytes());
            }
            (4..8, _) => match self.0.selected(offset - 4) {
                Some(address) => self.0.read(address, data),
                None => read_nothing(data),
            },
            _ => read_nothing(data),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> Effect {
        // Narrower writes to the address port are for others, such as the reset control at 0xcf9.
        if let (0, Ok(address)) = (offset, <[u8; 4]>::try_from(data)) {
            self.0.port_address.store(u32::from_le_bytes(address), Ordering::Relaxed);
            return Effect::None;
        }
        match offset {
            4..8 => self
                .0
                .selected(offset - 4)
                .map_or(Effect::None, |address| self.0.write(address, data)),
            _ => Effect::None,
        }
    }
}

/// The function in slot 0: an identity and nothing to it.
struct HostBridge(Mutex<Configuration>);

impl Function for HostBridge {
    fn read_configuration(&self, register: usize, data: &mut [u8]) {
        lock(&self.0).read(register, data);
    }

    fn write_configuration(&self, register: usize, data: &[u8]) -> Effect {
        lock(&self.0).write(register, data);
        Effect::None
    }

    fn bars(self: Arc<Self>) -> Vec<MappedBar> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One BAR wherever it is told, and a byte of configuration.
    struct Fixed {
        slot: u8,
        base: Mutex<u64>,
    }

    impl Registers for Fixed {
        fn read(&self, _offset: u64, data: &mut [u8]) {
            data.fill(self.slot);
        }

        fn write(&self, _offset: u64, _data: &[u8]) -> Effect {
            Effect::None
        }
    }

    impl Function for Fixed {
        fn read_configuration(&self, register: usize, data: &mut [u8]) {
            data.fill(self.slot.wrapping_add(u8::try_from(register).unwrap()));
        }

        fn write_configuration(&self, _register: usize, _data: &[u8]) -> Effect {
            Effect::MoveBars { slot: self.slot }
        }

        fn bars(self: Arc<Self>) -> Vec<MappedBar> {
            let range = Range::new(*lock(&self.base), 0x1000);
            vec![MappedBar { slot: self.slot, bar: 0, range, registers: self, doorbells: vec![] }]
        }
    }

    fn root() -> (Arc<Root>, Arc<Fixed>, Arc<Fixed>) {
        let root = Root::new(vec![Range::new(0xc000_0000, 0x10_0000)]);
        let fixed = |slot, base| Arc::new(Fixed { slot, base: Mutex::new(base) });
        let (three, four) = (fixed(3, 0xc000_0000), fixed(4, 0xc000_1000));
        root.insert(3, Arc::clone(&three) as _).unwrap();
        root.insert(4, Arc::clone(&four) as _).unwrap();
        (root, three, four)
    }

    fn read(registers: &dyn Registers, offset: u64, length: usize) -> Vec<u8> {
        let mut data = vec![0xaa; length];
        registers.read(offset, &mut data);
        data
    }

    fn slots_on_the_bus(root: &Root) -> Vec<u8> {
        root.bars().iter().map(|bar| bar.slot).collect()
    }

    #[test]
    fn host_bridge_is_in_slot_0_both_ways() {
        let (root, _, _) = root();
        let (ecam, ports) = (Ecam(Arc::clone(&root)), Ports(root));
        assert_eq!(read(&ecam, 0, 4), [0x36, 0x1b, 0x08, 0x00]);
        assert_eq!(read(&ecam, 8, 4), [0, 0, 0, 6]);
        // Linux looks for type 1 accesses this way.
        assert_eq!(ports.write(3, &[1]), Effect::None);
        let before = read(&ports, 0, 4);
        assert_eq!(ports.write(0, &0x8000_0000_u32.to_le_bytes()), Effect::None);
        assert_eq!(read(&ports, 0, 4), [0, 0, 0, 0x80]);
        assert_eq!(read(&ports, 4, 4), [0x36, 0x1b, 0x08, 0x00]);
        assert_eq!(ports.write(0, &before), Effect::None);
        assert_eq!(read(&ports, 4, 4), [0xff; 4]);
    }

    #[test]
    fn functions_answer_by_slot() {
        let (root, _, _) = root();
        let (ecam, ports) = (Ecam(Arc::clone(&root)), Ports(root));
        assert_eq!(read(&ecam, 3 << 15 | 0x10, 2), [0x13; 2]);
        assert_eq!(ecam.write(4 << 15 | 4, &[0]), Effect::MoveBars { slot: 4 });
        assert_eq!(ports.write(0, &(0x8000_0010_u32 | 3 << 11).to_le_bytes()), Effect::None);
        assert_eq!(read(&ports, 6, 1), [0x15]);
        assert_eq!(ports.write(4, &[0; 4]), Effect::MoveBars { slot: 3 });
    }

    #[test]
    fn nothing_answers_elsewhere() {
        let (root, _, _) = root();
        let (ecam, ports) = (Ecam(Arc::clone(&root)), Ports(root));
        for offset in [5 << 15, 3 << 15 | 1 << 12, 3 << 15 | 0x100, 32 << 15, !3] {
            assert_eq!(read(&ecam, offset, 4), [0xff; 4], "{offset:#x}");
            assert_eq!(ecam.write(offset, &[0; 4]), Effect::None, "{offset:#x}");
        }
        for (register, length) in [(1, 4), (3, 2), (0, 8), (0, 3), (0, 0)] {
            assert_eq!(read(&ecam, 3 << 15 | register, length), vec![0xff; length]);
        }
        // Not enabled, another bus, another function, an extended register.
        for address in [3 << 11, 0x8001_1800, 0x8000_1900, 0x8100_1800_u32] {
            assert_eq!(ports.write(0, &address.to_le_bytes()), Effect::None);
            assert_eq!(read(&ports, 4, 4), [0xff; 4], "{address:#x}");
        }
    }

    #[test]
    fn bar_outside_of_the_apertures_or_on_another_is_on_the_bus_nowhere() {
        let (root, three, four) = root();
        assert_eq!(slots_on_the_bus(&root), [3, 4]);
        for base in [0xc000_0000, 0xc000_0fff, 0xc00f_f001, 0xbfff_ffff, 0, u64::MAX - 0xfff] {
            *lock(&four.base) = base;
            assert_eq!(slots_on_the_bus(&root), [3], "{base:#x}");
        }
        *lock(&four.base) = 0xc00f_f000;
        assert_eq!(slots_on_the_bus(&root), [3, 4]);
        *lock(&three.base) = 0xe800_0000;
        assert_eq!(slots_on_the_bus(&root), [4]);
    }

    #[test]
    fn slots_are_taken_once_and_emptied() {
        let (root, three, _) = root();
        assert_eq!(root.insert(3, Arc::clone(&three) as _), Err(RootError::Taken(3)));
        assert_eq!(root.insert(0, Arc::clone(&three) as _), Err(RootError::NoSlot(0)));
        assert_eq!(root.insert(32, three), Err(RootError::NoSlot(32)));
        assert!(root.remove(3).is_some());
        assert!(root.remove(3).is_none());
        assert!(root.remove(0).is_none());
        assert_eq!(read(&Ecam(root), 3 << 15, 4), [0xff; 4]);
    }

    #[test]
    fn state_of_version_1_reads_as_it_did() {
        let golden = r#"[{"kind":"pci-root","instance":"","version":1,"payload":{"port_address":2147489792,"host_bridge":{"command":6,"cache_line_size":16,"interrupt_line":255,"bars":[0,0,0,0,0,0]}}}]"#;
        let mut records: Records = serde_json::from_str(golden).unwrap();
        let (root, _, _) = root();
        root.load(&mut records).unwrap();
        records.finish().unwrap();
        let mut saved = Records::default();
        root.save(&mut saved).unwrap();
        let golden: Records = serde_json::from_str(golden).unwrap();
        assert_eq!(saved, golden);
    }

    #[test]
    fn damaged_state_is_refused() {
        let damaged = r#"[{"kind":"pci-root","instance":"","version":1,"payload":{"port_address":0,"host_bridge":{"command":6,"cache_line_size":16,"interrupt_line":0,"bars":[4096,0,0,0,0,0]}}}]"#;
        let mut records: Records = serde_json::from_str(damaged).unwrap();
        let error = root().0.load(&mut records).unwrap_err();
        assert!(matches!(error, RecordError::Impossible { .. }), "{error}");
    }

    proptest! {
        #[test]
        fn any_access_is_answered_and_state_survives(
            accesses in prop::collection::vec(
                (any::<bool>(), 0_u64..0x10_0000, prop::collection::vec(any::<u8>(), 0..9)), 0..60)
        ) {
            let (root, _, _) = root();
            let (ecam, ports) = (Ecam(Arc::clone(&root)), Ports(Arc::clone(&root)));
            for (by_port, offset, data) in accesses {
                let (registers, offset): (&dyn Registers, _) =
                    if by_port { (&ports, offset % 9) } else { (&ecam, offset) };
                let _ = registers.write(offset, &data);
                read(registers, offset, data.len());
            }
            let (mut saved, mut again) = (Records::default(), Records::default());
            root.save(&mut saved).unwrap();
            let other = self::root().0;
            other.load(&mut saved.clone()).unwrap();
            other.save(&mut again).unwrap();
            prop_assert_eq!(saved, again);
        }
    }
}
