//! One virtual machine in the kernel: memory slots, interrupt routes, doorbells.

use std::num::NonZeroUsize;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use corten_devices::Interrupt;
use corten_devices::pci::{Doorbell, Message};
use kvm_bindings::{
    KVM_CAP_DISABLE_QUIRKS2, KVM_CLOCK_REALTIME, KVM_IRQ_ROUTING_IRQCHIP, KVM_IRQ_ROUTING_MSI,
    KVM_IRQCHIP_IOAPIC, KVM_MAX_CPUID_ENTRIES, KVM_X86_QUIRK_LINT0_REENABLED, KvmIrqRouting,
    kvm_clock_data, kvm_cpuid_entry2, kvm_enable_cap, kvm_irq_routing_entry,
    kvm_irq_routing_irqchip, kvm_irq_routing_msi, kvm_irqchip, kvm_userspace_memory_region,
};
use kvm_ioctls::{Cap, IoEventAddress, Kvm, NoDatamatch, VmFd};
use vm_memory::GuestAddress;

use super::{KvmError, Vcpu, cannot, tsc};
use crate::ram::Ram;

/// What the machine cannot do without.
const REQUIRED: [(Cap, &str); 9] = [
    (Cap::Irqchip, "an interrupt controller in the kernel"),
    (Cap::Irqfd, "interrupts by eventfd"),
    (Cap::Ioeventfd, "doorbells by eventfd"),
    (Cap::SignalMsi, "message-signalled interrupts"),
    (Cap::UserMemory, "memory slots"),
    (Cap::ImmediateExit, "immediate exits"),
    (Cap::AdjustClock, "setting the guest's clock"),
    (Cap::VcpuEvents, "saving a vCPU's events"),
    (Cap::Xsave2, "the size of a vCPU's extended state (Linux 5.17)"),
];

/// A virtual machine without devices.
#[derive(Debug)]
pub struct Vm {
    kvm: Kvm,
    fd: VmFd,
    routes: Mutex<Vec<kvm_irq_routing_entry>>,
}

/// Places KVM wants for itself.
#[derive(Clone, Copy, Debug)]
pub struct KvmPages {
    /// One page for an identity map.
    pub identity_map: GuestAddress,
    /// Three pages for a TSS.
    pub tss: GuestAddress,
}

impl Vm {
    /// A new VM from an open /dev/kvm, with nothing in it.
    pub fn new(kvm: OwnedFd) -> Result<Self, KvmError> {
        // SAFETY: the descriptor is owned, and given up here; that it is KVM's shows the first call.
        let kvm = unsafe { Kvm::from_raw_fd(kvm.into_raw_fd()) };
        for (capability, what) in REQUIRED {
            if !kvm.check_extension(capability) {
                return Err(cannot(format!("do without {what}"))(kvm_ioctls::Error::new(
                    libc::ENOSYS,
                )));
            }
        }
        let fd = create(&kvm).map_err(cannot("create a VM"))?;
        Ok(Self { kvm, fd, routes: Mutex::default() })
    }

    /// Gives it interrupt controllers, whose lines are routed one to one. After memory and before vCPUs: with controllers
    /// in place KVM waits a grace period for each slot.
    pub fn create_controllers(&self, pages: KvmPages, lines: u32) -> Result<(), KvmError> {
        self.fd
            .set_identity_map_address(pages.identity_map.0)
            .map_err(cannot("place the identity map"))?;
        let tss = usize::try_from(pages.tss.0).unwrap_or_default();
        self.fd.set_tss_address(tss).map_err(cannot("place the TSS"))?;
        self.fd.create_irq_chip().map_err(cannot("create interrupt controllers"))?;
        *self.routes.lock().unwrap_or_else(PoisonError::into_inner) = line_routes(lines);
        // KVM starts with the same routes, and with lines to the old controllers. Those are harmless as long as a new
        // first processor does not listen to them, as it does by a quirk: setting routes costs milliseconds.
        if self.without_old_interrupts() { Ok(()) } else { self.commit_routes() }
    }

    fn without_old_interrupts(&self) -> bool {
        let mut quirks = kvm_enable_cap { cap: KVM_CAP_DISABLE_QUIRKS2, ..Default::default() };
        quirks.args[0] = KVM_X86_QUIRK_LINT0_REENABLED.into();
        self.fd.enable_cap(&quirks).is_ok()
    }

    /// Rate of the time stamp counter of its vCPUs.
    pub fn tsc_khz(&self) -> Result<u32, KvmError> {
        if let Some(rate) = tsc::rate_of(&self.fd) {
            return Ok(rate);
        }
        // Before Linux 5.16 only vCPUs know it, and one in this VM would have no local APIC.
        let other = create(&self.kvm).map_err(cannot("create a VM"))?;
        let vcpu = other.create_vcpu(0).map_err(cannot("create a vCPU"))?;
        vcpu.get_tsc_khz().map_err(cannot("tell the rate of the time stamp counter"))
    }

    /// Lends the guest its memory. `ram` stays mapped for the life of the process.
    pub fn set_memory(&self, ram: &Ram) -> Result<(), KvmError> {
        for (number, (slot, address)) in (0..).zip(ram.mapped_slots()) {
            let region = kvm_userspace_memory_region {
                slot: number,
                flags: 0,
                guest_phys_addr: slot.start,
                memory_size: slot.size,
                userspace_addr: address,
            };
            // SAFETY: the range is one whole mapping, and mappings of guest memory are never undone.
            unsafe { self.fd.set_user_memory_region(region) }
                .map_err(cannot("take guest memory"))?;
        }
        Ok(())
    }

    /// Creates the vCPU with this APIC id.
    pub fn create_vcpu(&self, apic_id: u32) -> Result<Vcpu, KvmError> {
        let size = self.kvm.get_vcpu_mmap_size().map_err(cannot("size a vCPU's page"))?;
        let no_page = || cannot("size a vCPU's page")(kvm_ioctls::Error::new(libc::EINVAL));
        let size = NonZeroUsize::new(size).ok_or_else(no_page)?;
        let fd = self.fd.create_vcpu(u64::from(apic_id));
        Ok(Vcpu::new(fd.map_err(cannot(format!("create the vCPU with APIC id {apic_id}")))?, size))
    }

    /// The processor that this host can offer to guests.
    pub fn supported_cpuid(&self) -> Result<Vec<kvm_cpuid_entry2>, KvmError> {
        let cpuid = self.kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES);
        Ok(cpuid.map_err(cannot("list CPUID leaves"))?.as_slice().to_vec())
    }

    /// Indices of the MSRs that make up a vCPU's state.
    pub fn msr_indices(&self) -> Result<Vec<u32>, KvmError> {
        let list = self.kvm.get_msr_index_list().map_err(cannot("list MSRs"))?;
        Ok(list.as_slice().to_vec())
    }

    /// Bytes of a vCPU's extended state.
    pub fn xsave_size(&self) -> usize {
        usize::try_from(self.fd.check_extension_int(Cap::Xsave2)).unwrap_or(0)
    }

    /// Connects an interrupt with a line or with a message's route.
    pub fn connect(&self, interrupt: &Interrupt, gsi: u32) -> Result<(), KvmError> {
        self.fd
            .register_irqfd(interrupt.eventfd(), gsi)
            .map_err(cannot(format!("connect interrupt {gsi}")))
    }

    /// Undoes [`Vm::connect`].
    pub fn disconnect(&self, interrupt: &Interrupt, gsi: u32) -> Result<(), KvmError> {
        let outcome = self.fd.unregister_irqfd(interrupt.eventfd(), gsi);
        outcome.map_err(cannot(format!("disconnect interrupt {gsi}")))
    }

    /// Routes messages, all in one call: each call waits until no vCPU uses the old routes.
    pub fn route_messages(&self, messages: &[(u32, Message)]) -> Result<(), KvmError> {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        for (gsi, message) in messages {
            routes.retain(|route| route.type_ != KVM_IRQ_ROUTING_MSI || route.gsi != *gsi);
            routes.push(message_route(*gsi, *message));
        }
        drop(routes);
        self.commit_routes()
    }

    /// From now on a write at the doorbell's address rings it, without an exit to us.
    pub fn bind(&self, doorbell: &Doorbell) -> Result<(), KvmError> {
        let address = IoEventAddress::Mmio(doorbell.address.0);
        let outcome = self.fd.register_ioevent(&doorbell.eventfd, &address, NoDatamatch);
        outcome.map_err(cannot(format!("bind a doorbell to {:#x}", doorbell.address.0)))
    }

    /// Undoes [`Vm::bind`].
    pub fn unbind(&self, doorbell: &Doorbell) -> Result<(), KvmError> {
        let address = IoEventAddress::Mmio(doorbell.address.0);
        let outcome = self.fd.unregister_ioevent(&doorbell.eventfd, &address, NoDatamatch);
        outcome.map_err(cannot(format!("release the doorbell at {:#x}", doorbell.address.0)))
    }

    fn commit_routes(&self) -> Result<(), KvmError> {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let too_many =
            |_| cannot("route that many interrupts")(kvm_ioctls::Error::new(libc::E2BIG));
        let routing = KvmIrqRouting::from_entries(&routes).map_err(too_many)?;
        self.fd.set_gsi_routing(&routing).map_err(cannot("route interrupts"))
    }

    /// The state of one interrupt controller.
    pub fn interrupt_controller(&self, chip: u32) -> Result<kvm_irqchip, KvmError> {
        let mut state = kvm_irqchip { chip_id: chip, ..Default::default() };
        self.fd.get_irqchip(&mut state).map_err(cannot("read an interrupt controller"))?;
        Ok(state)
    }

    /// Sets the state of one interrupt controller.
    pub fn set_interrupt_controller(&self, state: &kvm_irqchip) -> Result<(), KvmError> {
        self.fd.set_irqchip(state).map_err(cannot("write an interrupt controller"))
    }

    /// The guest's clock with the host's at the same moment.
    pub fn clock(&self) -> Result<kvm_clock_data, KvmError> {
        self.fd.get_clock().map_err(cannot("read the clock"))
    }

    /// Sets the guest's clock: to what it was, or to what it would be had it never stopped.
    pub fn set_clock(&self, saved: &kvm_clock_data, advance: bool) -> Result<(), KvmError> {
        let mut clock = kvm_clock_data { clock: saved.clock, ..Default::default() };
        if advance && saved.flags & KVM_CLOCK_REALTIME != 0 {
            clock.flags = KVM_CLOCK_REALTIME;
            clock.realtime = saved.realtime;
        }
        self.fd.set_clock(&clock).map_err(cannot("set the clock"))
    }
}

/// Creating a VM is interrupted by any signal, and by completions of an io_uring of the same thread, as after a reset.
fn create(kvm: &Kvm) -> Result<VmFd, kvm_ioctls::Error> {
    loop {
        match kvm.create_vm() {
            Err(error) if error.errno() == libc::EINTR => {}
            outcome => return outcome,
        }
    }
}

/// The lines of the IOAPIC. None leads to the two old controllers that KVM makes as well: the machine says that it has
/// none, so no guest sets them up, and their vectors are those of exceptions.
fn line_routes(lines: u32) -> Vec<kvm_irq_routing_entry> {
    let route = |line| {
        let mut route = kvm_irq_routing_entry {
            gsi: line,
            type_: KVM_IRQ_ROUTING_IRQCHIP,
            ..Default::default()
        };
        route.u.irqchip = kvm_irq_routing_irqchip { irqchip: KVM_IRQCHIP_IOAPIC, pin: line };
        route
    };
    (0..lines).map(route).collect()
}

fn message_route(gsi: u32, message: Message) -> kvm_irq_routing_entry {
    let mut route = kvm_irq_routing_entry { gsi, type_: KVM_IRQ_ROUTING_MSI, ..Default::default() };
    let [a, b, c, d, e, f, g, h] = message.address.to_le_bytes();
    route.u.msi = kvm_irq_routing_msi {
        address_lo: u32::from_le_bytes([a, b, c, d]),
        address_hi: u32::from_le_bytes([e, f, g, h]),
        data: message.data,
        ..Default::default()
    };
    route
}
