//! vCPU threads.
//!
//! A thread owns its vCPU and makes every KVM call on it. It runs the guest, answers accesses itself through the bus it
//! was given, and posts what concerns the machine to its owner. It does what it is ordered; between orders it is parked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use corten_devices::{Bus, Effect};
use kvm_bindings::kvm_regs;
use thiserror::Error;

use super::{Input, Notice};
use crate::kvm::{Access, Exit, Failure, Kick, KvmError, Vcpu, cpu_time};
use crate::sandbox::{self, ThreadKind};

/// A kick that comes while the thread is on its way into KVM_RUN is not lost; this is for the unexpected.
const KICK_AGAIN: Duration = Duration::from_millis(10);
/// An access comes in pieces; KVM carries out at most a page of a string instruction before it looks up again.
const MOST_PIECES: usize = 4096;
/// Notices that the owner has not looked at yet. Beyond these a vCPU that posts more is slowed down.
const MOST_NOTICES: usize = 1024;
const SLOWED_DOWN: Duration = Duration::from_millis(1);

/// Counts a notice for as long as nobody has dealt with it.
#[derive(Debug, Default)]
pub struct Ticket(Arc<AtomicUsize>);

impl Ticket {
    fn new(outstanding: &Arc<AtomicUsize>) -> Self {
        outstanding.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(outstanding))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // One that counts nothing has a counter of its own.
        let _ =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
    }
}

/// Both address spaces, as they are while vCPUs run.
#[derive(Clone, Default)]
pub struct Buses {
    /// Ports.
    pub ports: Bus,
    /// Memory that is not RAM.
    pub memory: Bus,
}

/// Exits to us by reason, since the machine was assembled.
#[derive(Debug, Default)]
pub struct ExitCounters {
    /// Port accesses.
    pub port: AtomicU64,
    /// Memory accesses.
    pub memory: AtomicU64,
    /// Kicks.
    pub kicked: AtomicU64,
}

/// What a thread is told.
enum Order {
    /// Run the guest.
    Run(Arc<Buses>),
    /// Leave the guest, finish the last access, answer.
    Park(Sender<()>),
    /// Do something with the parked vCPU.
    Call(Box<dyn FnOnce(&mut Vcpu) + Send>),
}

/// Why a vCPU does not do what it was told.
#[derive(Debug, Error)]
pub enum VcpuError {
    /// It did not leave the guest.
    #[error("vCPU {index} did not stop within {limit:?}")]
    Deadline {
        /// Which one.
        index: usize,
        /// How long it had.
        limit: Duration,
    },
    /// Its thread is gone.
    #[error("the thread of vCPU {0} ended")]
    Gone(usize),
    /// It has no thread.
    #[error("cannot start the thread of vCPU {index}")]
    Thread {
        /// Which one.
        index: usize,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// KVM refused.
    #[error("vCPU {index}")]
    Kvm {
        /// Which one.
        index: usize,
        /// What.
        #[source]
        source: KvmError,
    },
}

/// A vCPU's thread, as the machine's owner sees it.
#[derive(Debug)]
pub(super) struct VcpuThread {
    index: usize,
    orders: Sender<Order>,
    kick: Kick,
    thread: Option<JoinHandle<()>>,
}

impl VcpuThread {
    /// Starts a thread that is parked.
    pub(super) fn start(
        index: usize,
        vcpu: Vcpu,
        owner: Sender<Input>,
        counters: Arc<ExitCounters>,
    ) -> Result<Self, VcpuError> {
        let kick = vcpu.kick().map_err(|source| VcpuError::Kvm { index, source })?;
        let (orders, received) = channel();
        let runner = Runner {
            index,
            vcpu,
            orders: received,
            owner,
            outstanding: Arc::default(),
            counters,
            buses: Arc::default(),
            is_over: false,
        };
        let thread = Builder::new()
            .name(format!("vcpu-{index}"))
            .spawn(move || runner.obey())
            .map_err(|source| VcpuError::Thread { index, source })?;
        Ok(Self { index, orders, kick, thread: Some(thread) })
    }

    /// Lets it run the guest.
    pub(super) fn run(&self, buses: &Arc<Buses>) -> Result<(), VcpuError> {
        self.order(Order::Run(Arc::clone(buses)))
    }

    /// Asks it to park; the answer comes on the returned channel.
    pub(super) fn ask_to_park(&self) -> Result<Receiver<()>, VcpuError> {
        let (answer, parked) = channel();
        self.order(Order::Park(answer))?;
        self.kick();
        Ok(parked)
    }

    /// Waits until it is parked.
    pub(super) fn wait_parked(
        &self,
        parked: &Receiver<()>,
        deadline: Instant,
        limit: Duration,
    ) -> Result<(), VcpuError> {
        loop {
            match parked.recv_timeout(KICK_AGAIN) {
                Ok(()) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(VcpuError::Gone(self.index)),
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                    return Err(VcpuError::Deadline { index: self.index, limit });
                }
                Err(RecvTimeoutError::Timeout) => self.kick(),
            }
        }
    }

    /// Makes a call on the parked vCPU, on its own thread, and waits for the result.
    pub(super) fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Vcpu) -> T + Send + 'static,
    ) -> Result<T, VcpuError> {
        let (answer, result) = channel();
        self.order(Order::Call(Box::new(move |vcpu| drop(answer.send(call(vcpu))))))?;
        result.recv().map_err(|_| VcpuError::Gone(self.index))
    }

    /// How long it had a processor, if its thread is there.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        cpu_time::of_thread(self.thread.as_ref()?)
    }

    fn order(&self, order: Order) -> Result<(), VcpuError> {
        self.orders.send(order).map_err(|_| VcpuError::Gone(self.index))
    }

    fn kick(&self) {
        if let Some(thread) = &self.thread {
            self.kick.kick(thread);
        }
    }
}

impl Drop for VcpuThread {
    fn drop(&mut self) {
        // Without orders the thread ends; if it is in the guest it has to leave it first.
        let (closed, _) = channel();
        self.orders = closed;
        self.kick();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Runner {
    index: usize,
    vcpu: Vcpu,
    orders: Receiver<Order>,
    owner: Sender<Input>,
    /// Its notices that nobody has dealt with yet.
    outstanding: Arc<AtomicUsize>,
    counters: Arc<ExitCounters>,
    buses: Arc<Buses>,
    /// It has asked for a reset, or cannot go on: it runs no more, whoever is resumed meanwhile.
    is_over: bool,
}

/// Whether the vCPU goes on.
enum Next {
    Run,
    Park,
    Quit,
}

impl Runner {
    fn obey(mut self) {
        sandbox::enter(ThreadKind::Vcpu);
        while let Ok(order) = self.orders.recv() {
            match order {
                Order::Run(_) if self.is_over => {}
                Order::Run(buses) => {
                    self.buses = buses;
                    self.vcpu.forget_kicks();
                    if self.run_until_parked() {
                        return;
                    }
                }
                Order::Park(answer) => drop(answer.send(())),
                Order::Call(call) => call(&mut self.vcpu),
            }
        }
    }

    /// Runs the guest until an order or an event parks the vCPU; true if its thread is to end.
    fn run_until_parked(&mut self) -> bool {
        let mut waiting: Option<Sender<()>> = None;
        let quit = loop {
            match self.next_order(&mut waiting) {
                Next::Run => {}
                Next::Park => break false,
                Next::Quit => break true,
            }
            match self.step() {
                Next::Run => {}
                Next::Park => break false,
                Next::Quit => break true,
            }
        };
        self.finish_access();
        if let Some(answer) = waiting {
            // Whoever asked may have given up.
            let _ = answer.send(());
        }
        quit
    }

    fn next_order(&mut self, waiting: &mut Option<Sender<()>>) -> Next {
        use std::sync::mpsc::TryRecvError;
        match self.orders.try_recv() {
            Err(TryRecvError::Empty) => Next::Run,
            Err(TryRecvError::Disconnected) => Next::Quit,
            Ok(Order::Park(answer)) => {
                *waiting = Some(answer);
                Next::Park
            }
            Ok(Order::Run(buses)) => {
                self.buses = buses;
                Next::Run
            }
            // The owner parks a vCPU before it calls; a call that comes anyway is dropped, which the caller sees.
            Ok(Order::Call(_)) => Next::Run,
        }
    }

    fn step(&mut self) -> Next {
        match self.vcpu.run() {
            Ok(exit) => match answer(exit, &self.buses, &self.counters) {
                Answer::GoOn => Next::Run,
                Answer::Kicked => {
                    // Whoever kicked has sent an order before.
                    self.vcpu.forget_kicks();
                    Next::Run
                }
                Answer::Effect(effect) => self.post_effect(effect),
                Answer::End(cause) => self.post_end(cause),
            },
            Err(error) => self.post_end(EndCause::RunFailed(error.to_string())),
        }
    }

    fn post_effect(&mut self, effect: Effect) -> Next {
        match effect {
            Effect::Panicked => return self.post_end(EndCause::Panicked),
            Effect::Reset | Effect::PowerOff => self.is_over = true,
            _ => {}
        }
        self.post(Notice::Effect(effect));
        // What comes next must find the machine changed, or must not come.
        if self.is_over || matches!(effect, Effect::MoveBars { .. }) {
            return Next::Park;
        }
        if self.outstanding.load(Ordering::Relaxed) > MOST_NOTICES {
            std::thread::sleep(SLOWED_DOWN);
        }
        Next::Run
    }

    fn post_end(&mut self, cause: EndCause) -> Next {
        self.is_over = true;
        let registers = self.vcpu.fd().get_regs().ok().map(Box::new);
        self.post(Notice::Ended { cause, registers });
        Next::Park
    }

    fn post(&self, notice: Notice) {
        // Without an owner the machine is being taken down.
        let ticket = Ticket::new(&self.outstanding);
        let _ = self.owner.send(Input::Vcpu { index: self.index, notice, ticket });
    }

    fn finish_access(&mut self) {
        for _ in 0..MOST_PIECES {
            let outcome = self.vcpu.finish_access();
            match outcome.map(|exit| answer(exit, &self.buses, &self.counters)) {
                Ok(Answer::GoOn) => {}
                Ok(Answer::Effect(effect)) => {
                    let _ = self.post_effect(effect);
                }
                Ok(Answer::Kicked | Answer::End(_)) | Err(_) => {
                    self.vcpu.forget_kicks();
                    return;
                }
            }
        }
        // State that is read now would have half an access in it.
        let text = format!("vCPU {}: an access does not come to its end", self.index);
        let _ = self.owner.send(Input::Broken(text));
    }
}

/// Why a guest cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// Triple fault.
    TripleFault,
    /// It said that its kernel panicked.
    Panicked,
    /// It halted with nobody to wake it.
    Halted,
    /// KVM gave up.
    Failed(Failure),
    /// KVM_RUN failed.
    RunFailed(String),
}

enum Answer {
    GoOn,
    Kicked,
    Effect(Effect),
    End(EndCause),
}

fn answer(exit: Exit<'_>, buses: &Buses, counters: &ExitCounters) -> Answer {
    let count = |counter: &AtomicU64| {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    let effect = match exit {
        Exit::Port { port, size, access } => {
            count(&counters.port);
            port_access(&buses.ports, port, size, access)
        }
        Exit::Memory { address, access } => {
            count(&counters.memory);
            match access {
                Access::Read(data) => {
                    buses.memory.read(address, data);
                    Effect::None
                }
                Access::Write(data) => buses.memory.write(address, data),
            }
        }
        Exit::Kicked => {
            count(&counters.kicked);
            return Answer::Kicked;
        }
        Exit::Halted => return Answer::End(EndCause::Halted),
        Exit::TripleFault => return Answer::End(EndCause::TripleFault),
        Exit::Failed(failure) => return Answer::End(EndCause::Failed(failure)),
    };
    match effect {
        Effect::None => Answer::GoOn,
        effect => Answer::Effect(effect),
    }
}

/// A string instruction accesses the same port many times.
fn port_access(ports: &Bus, port: u16, size: usize, access: Access<'_>) -> Effect {
    let port = u64::from(port);
    match access {
        Access::Read(data) => {
            data.chunks_mut(size).for_each(|value| ports.read(port, value));
            Effect::None
        }
        Access::Write(data) => {
            let effects = data.chunks(size).map(|value| ports.write(port, value));
            // The last one that means something: two of one instruction mean the same.
            effects.fold(
                Effect::None,
                |last, effect| if effect == Effect::None { last } else { effect },
            )
        }
    }
}

/// Registers of a guest that ended, on one line.
pub(super) fn describe_registers(registers: &kvm_regs) -> String {
    let r = registers;
    format!(
        "rip {:#x} rsp {:#x} rflags {:#x} rax {:#x} rbx {:#x} rcx {:#x} rdx {:#x} rsi {:#x} rdi {:#x}",
        r.rip, r.rsp, r.rflags, r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi
    )
}
