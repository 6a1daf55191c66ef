//! Message-signalled interrupts: a function's vectors, as routes in KVM.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use corten_devices::Interrupt;
use corten_devices::pci::{Message, VectorRoutes};

use super::Input;
use crate::kvm::{KvmError, Vm};

/// The vectors of one function. Their routes have numbers of their own, which the guest does not see.
pub(super) struct FunctionRoutes {
    vm: Arc<Vm>,
    /// Route of vector 0; the others follow.
    first: u32,
    vectors: Vec<Vector>,
    owner: Sender<Input>,
}

struct Vector {
    interrupt: Interrupt,
    is_connected: Mutex<bool>,
}

impl FunctionRoutes {
    /// Connects `interrupts` by the routes from `first` on, once the guest says where to.
    pub(super) fn new(
        vm: &Arc<Vm>,
        first: u32,
        interrupts: &[Interrupt],
        owner: &Sender<Input>,
    ) -> Self {
        let vector = |interrupt: &Interrupt| Vector {
            interrupt: interrupt.clone(),
            is_connected: Mutex::new(false),
        };
        let vectors = interrupts.iter().map(vector).collect();
        Self { vm: Arc::clone(vm), first, vectors, owner: owner.clone() }
    }

    fn connect(&self, number: u16, message: Option<Message>) -> Result<(), KvmError> {
        let Some(vector) = self.vectors.get(usize::from(number)) else { return Ok(()) };
        let route = self.first + u32::from(number);
        let mut is_connected = vector.is_connected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(message) = message {
            // Before the eventfd, whose count may be delivered as soon as it is connected.
            self.vm.route_messages(&[(route, message)])?;
        }
        match (message, *is_connected) {
            (Some(_), false) => self.vm.connect(&vector.interrupt, route)?,
            (None, true) => self.vm.disconnect(&vector.interrupt, route)?,
            _ => {}
        }
        *is_connected = message.is_some();
        Ok(())
    }
}

impl VectorRoutes for FunctionRoutes {
    fn update(&self, vector: u16, message: Option<Message>) {
        if let Err(error) = self.connect(vector, message) {
            // Without its interrupts the guest cannot be run on.
            let _ = self.owner.send(Input::Broken(super::chain(&error)));
        }
    }
}
