//! The console device as its driver and the machine's owner see it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use virtio_bindings::virtio_ids::VIRTIO_ID_CONSOLE;
use vmm_sys_util::epoll::Epoll;

use super::channel::{Channel, Output};
use super::config::{ConsoleConfig, ConsoleError, PortEnd, TerminalSize};
use super::host_side::{HostSide, Mailbox};
use super::lane::Lane;
use super::metrics::{ConsoleCounters, Metrics, add};
use super::port::Port;
use super::state::ConsoleState;
use super::worker::{CONTROL_RECEIVE, CONTROL_TRANSMIT, ConsoleTask, Core, Queues};
use crate::virtio::{ActivateError, Activation, Device, VirtQueue, read_config};
use crate::{RecordError, RecordName, Records, State};

/// The configuration says how large the terminal is.
const F_SIZE: u64 = 1 << 0;
/// There are several ports, and control queues.
const F_MULTIPORT: u64 = 1 << 1;
/// A character can be shown by a register, without any queue.
const F_EMERG_WRITE: u64 = 1 << 2;

/// Of each direction of a port. Linux fills those to the guest with pages.
const DATA_SIZE: u16 = 64;
/// Of each control queue.
const CONTROL_SIZE: u16 = 32;
/// Where that register is.
const EMERGENCY: u64 = 8;

/// A console device.
pub struct Console {
    ports: u32,
    size: TerminalSize,
    mailbox: Arc<Mailbox>,
    /// Of port 0.
    output: Option<Arc<Output>>,
    metrics: Arc<Metrics>,
    /// What is not in a task.
    core: Option<Box<Core>>,
}

impl Console {
    /// The device with these ports, and the host's end of each. Makes all descriptors that it will ever need, but for
    /// those that are [attached](HostSide::attach).
    pub fn new(config: &ConsoleConfig, ends: Vec<PortEnd>) -> Result<Self, ConsoleError> {
        config.check()?;
        if ends.len() != config.ports.len() {
            let (found, ports) = (ends.len(), config.ports.len());
            return Err(ConsoleError::PortEnds { found, ports });
        }
        let epoll = Arc::new(Epoll::new().map_err(ConsoleError::Descriptors)?);
        let (mut ports, mut sockets, mut first) = (Vec::new(), Vec::new(), None);
        for (number, (config, end)) in config.ports.iter().zip(ends).enumerate() {
            let (terminal, socket) = match end {
                PortEnd::Nothing => (None, None),
                PortEnd::Terminal { output, input } if config.is_console => {
                    (Some(terminal(number, output, input, &epoll)?), None)
                }
                PortEnd::Terminal { .. } => return Err(ConsoleError::Terminal(number)),
                PortEnd::Socket(socket) => (None, Some(socket)),
            };
            let (output, input) = terminal.unzip();
            if number == 0 {
                first.clone_from(&output);
            }
            let mut port = Port::new(number, config.clone(), output);
            if let Some(input) = input.flatten() {
                port.set_input(input);
            }
            ports.push(port);
            sockets.push(socket);
        }
        let mailbox = Arc::new(Mailbox::new(sockets).map_err(ConsoleError::Descriptors)?);
        let metrics = Arc::new(Metrics::default());
        let core = Core {
            ports,
            epoll,
            mailbox: Arc::clone(&mailbox),
            size: config.size,
            metrics: Arc::clone(&metrics),
            buffer: Core::piece(),
        };
        Ok(Self {
            // No more than MAX_PORTS.
            ports: u32::try_from(config.ports.len()).unwrap_or(u32::MAX),
            size: config.size,
            mailbox,
            output: first,
            metrics,
            core: Some(Box::new(core)),
        })
    }

    /// What the owner attaches sockets by.
    pub fn host_side(&self) -> HostSide {
        self.mailbox.side()
    }

    /// Says how large the consoles' terminals are from now on. To be called by
    /// [`VirtioPci::change_config`](crate::virtio::VirtioPci::change_config), which tells drivers that know of one port
    /// only; others get a message.
    pub fn set_size(&mut self, size: TerminalSize) {
        self.size = size;
        match &mut self.core {
            Some(core) => core.resize(size),
            None => self.mailbox.set_size(size),
        }
    }

    /// What it has counted.
    pub fn counters(&self) -> ConsoleCounters {
        self.metrics.counters()
    }

    fn config(&self) -> [u8; 12] {
        let [a, b] = self.size.columns.to_le_bytes();
        let [c, d] = self.size.rows.to_le_bytes();
        let [e, f, g, h] = self.ports.to_le_bytes();
        [a, b, c, d, e, f, g, h, 0, 0, 0, 0]
    }

    /// No task is out.
    fn state(&self) -> ConsoleState {
        let ports = self.core.iter().flat_map(|core| &core.ports).map(Port::state).collect();
        ConsoleState { size: self.size, ports }
    }

    /// Every queue by its use.
    fn sort(
        queues: Vec<VirtQueue>,
        ports: usize,
        is_multiport: bool,
    ) -> Result<Queues, ActivateError> {
        let mut places: Vec<Option<VirtQueue>> = Vec::new();
        places.resize_with(2 * ports + 2, || None);
        for queue in queues {
            if let Some(place) = places.get_mut(usize::from(queue.index())) {
                *place = Some(queue);
            }
        }
        let mut lane = |receive: u16| {
            let mut queue = |queue: u16| {
                let place = places.get_mut(usize::from(queue));
                place.and_then(Option::take).ok_or(ActivateError::MissingQueue { queue })
            };
            Ok(Lane { receive: queue(receive)?, transmit: queue(receive + 1)? })
        };
        let mut lanes = vec![lane(0)?];
        let mut control = None;
        if is_multiport {
            control = Some(lane(CONTROL_RECEIVE)?);
            let others = (CONTROL_TRANSMIT + 1..).step_by(2).take(ports - 1);
            lanes.extend(others.map(lane).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(Queues { lanes, control, unused: places.into_iter().flatten().collect() })
    }
}

/// Where a console's output goes, and where its input comes from.
fn terminal(
    port: usize,
    output: OwnedFd,
    input: Option<OwnedFd>,
    epoll: &Arc<Epoll>,
) -> Result<(Arc<Output>, Option<Channel>), ConsoleError> {
    let wrong = |what| move |source| ConsoleError::Descriptor { port, what, source };
    let output = Output::new(output).map_err(wrong("output"))?;
    let input = input.map(|input| Channel::input(input, epoll, port as u64)).transpose();
    Ok((Arc::new(output), input.map_err(wrong("input"))?))
}

impl Device for Console {
    type Task = ConsoleTask;

    fn device_type(&self) -> u16 {
        u16::try_from(VIRTIO_ID_CONSOLE).unwrap_or(u16::MAX)
    }

    fn features(&self) -> u64 {
        F_SIZE | F_MULTIPORT | F_EMERG_WRITE
    }

    fn queue_sizes(&self) -> Vec<u16> {
        let mut sizes = vec![DATA_SIZE, DATA_SIZE, CONTROL_SIZE, CONTROL_SIZE];
        sizes.extend((1..self.ports).flat_map(|_| [DATA_SIZE; 2]));
        sizes
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        read_config(&self.config(), offset, data);
    }

    /// The one register is that for emergencies: a character to show, at any time.
    fn write_config(&mut self, offset: u64, data: &[u8]) {
        let (EMERGENCY, Some(character)) = (offset, data.first()) else { return };
        let taken = self.output.as_ref().map_or(0, |output| output.offer(&[*character]));
        let counter =
            if taken > 0 { &self.metrics.sent_bytes } else { &self.metrics.dropped_bytes };
        add(counter, 1);
    }

    fn activate(&mut self, activation: Activation) -> Result<Vec<ConsoleTask>, ActivateError> {
        let Activation { queues, features } = activation;
        if let Some(queue) = queues.iter().find(|queue| queue.in_flight() > 0) {
            return Err(ActivateError::InFlight { queue: queue.index() });
        }
        let ports = usize::try_from(self.ports).unwrap_or(usize::MAX);
        let queues = Self::sort(queues, ports, features & F_MULTIPORT != 0)?;
        let has_size = features & F_SIZE != 0;
        let task = |mut core: Box<Core>| {
            if !has_size {
                core.ports.iter_mut().for_each(|port| port.dialogue.owed.size = false);
            }
            ConsoleTask::new(queues, core, has_size)
        };
        Ok(self.core.take().map(task).into_iter().collect())
    }

    fn reclaim(&mut self, tasks: Vec<ConsoleTask>) -> Vec<VirtQueue> {
        let mut all = Vec::new();
        for task in tasks {
            let (queues, mut core) = task.into_parts();
            if let Some(size) = self.mailbox.take_size() {
                core.resize(size);
            }
            self.core = Some(core);
            all.extend(queues.into_all());
        }
        all
    }

    /// Host's ends and the size stay.
    fn reset(&mut self) {
        if let Some(core) = &mut self.core {
            core.ports.iter_mut().for_each(Port::reset);
            core.publish();
        }
    }

    fn save(&self, instance: &str, records: &mut Records) -> Result<(), RecordError> {
        records.put(instance, &self.state())
    }

    fn load(&mut self, instance: &str, records: &mut Records) -> Result<(), RecordError> {
        let saved: ConsoleState = records.take(instance)?;
        self.state().check(&saved).map_err(|reason| {
            let name = RecordName { kind: ConsoleState::KIND.into(), instance: instance.into() };
            RecordError::Impossible { name, reason }
        })?;
        self.size = saved.size;
        if let Some(core) = &mut self.core {
            core.size = saved.size;
            for (port, saved) in core.ports.iter_mut().zip(&saved.ports) {
                port.load(saved);
            }
            core.publish();
        }
        Ok(())
    }
}
