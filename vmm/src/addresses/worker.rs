//! The thread that moves packets between the sockets and what answers them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::{SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use corten_link::{AddressCounters, Addressing, Counters, Grant, Role, RoleError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{AddressesError, Dhcp4, Dhcp6, MAX_PACKET, Mac, Router, Silence, dhcp6};
use crate::sandbox::{self, ThreadKind};

/// What a socket is read at most: a guest that boots sends a handful, and on a bridge all that boot are heard. At this rate
/// the thread takes less than a hundredth of a processor.
const BURST: u32 = 64;
const REFILL: Duration = Duration::from_millis(20);

/// Advertisements when a machine begins to run, and the pause between them (RFC 4861, section 6.2.4: at most three, at
/// most 16 s apart, and by section 6.2.6 no less than 3 s). The first may come before the host's own address is usable.
const INITIAL: u32 = 3;
const INITIAL_PAUSE: Duration = Duration::from_secs(4);
/// Between two later ones: a sixth of how long one holds.
const PAUSE: Duration = Duration::from_secs(300);

/// It needs two packets and little else.
const STACK: usize = 128 << 10;

/// A network interface whose guest is told its addresses.
#[derive(Clone, Debug)]
pub struct Interface {
    /// That of its roles.
    pub name: String,
    /// The guest's Ethernet address.
    pub mac: Mac,
    /// What it is told.
    pub addressing: Addressing,
}

/// What answers the questions of a machine's guest, as the machine's owner sees it. Without interfaces there is no thread.
#[derive(Debug, Default)]
pub struct Addresses {
    thread: Option<Thread>,
    /// By interface.
    counts: BTreeMap<String, Arc<Counts>>,
}

#[derive(Debug)]
struct Thread {
    /// A byte for each time that the machine begins to run, 1, or stops, 0.
    owner: Option<PipeWriter>,
    runs: Cell<bool>,
    handle: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Counts {
    answered: AtomicU64,
    advertised: AtomicU64,
    ignored: AtomicU64,
    malformed: AtomicU64,
    throttled: AtomicU64,
    errors: AtomicU64,
}

impl Addresses {
    /// Takes the sockets for these interfaces out of what was granted and begins to answer. Not one may be missing, and
    /// none left over.
    pub fn start(interfaces: &[Interface], granted: &mut Grant) -> Result<Self, AddressesError> {
        let mut posts = Vec::new();
        let mut counts = BTreeMap::new();
        for interface in interfaces {
            let counted = Arc::<Counts>::default();
            posts.extend(posts_of(interface, granted, &counted)?);
            counts.insert(interface.name.clone(), counted);
        }
        if let Some(role) = granted.keys().find(|role| role.asked_by_guest_of().is_some()) {
            return Err(AddressesError::NoAddresses(role.clone()));
        }
        if posts.is_empty() {
            return Ok(Self::default());
        }
        let thread = Thread::start(posts).map_err(AddressesError::Thread)?;
        Ok(Self { thread: Some(thread), counts })
    }

    /// Whether the machine runs: when it begins to, routers are advertised to its guest.
    pub fn follow(&self, runs: bool) {
        if let Some(thread) = &self.thread {
            thread.follow(runs);
        }
    }

    /// Adds what was counted.
    pub fn count(&self, counters: &mut Counters) {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        for (name, counts) in &self.counts {
            counters.networks.entry(name.clone()).or_default().addresses = AddressCounters {
                answered: read(&counts.answered),
                advertised: read(&counts.advertised),
                ignored: read(&counts.ignored),
                malformed: read(&counts.malformed),
                throttled: read(&counts.throttled),
                errors: read(&counts.errors),
            };
        }
    }
}

impl Thread {
    fn start(posts: Vec<Post>) -> io::Result<Self> {
        let (news, owner) = io::pipe()?;
        let worker = Worker { posts, news };
        let builder = Builder::new().name("addresses".into()).stack_size(STACK);
        let handle = builder.spawn(move || worker.serve())?;
        Ok(Self { owner: Some(owner), runs: Cell::new(false), handle: Some(handle) })
    }

    fn follow(&self, runs: bool) {
        if let Some(mut owner) = self.owner.as_ref().filter(|_| self.runs.replace(runs) != runs) {
            // The thread reads all that comes, and lives as long as this.
            let _ = owner.write(&[runs.into()]);
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // Without an owner the thread ends.
        self.owner = None;
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

/// A socket and what answers there.
struct Post {
    socket: UdpSocket,
    service: Service,
    bucket: Bucket,
    counts: Arc<Counts>,
    /// When an advertisement is due that nobody asked for, and how many of the first ones are left.
    due: Option<Instant>,
    initial: u32,
}

enum Service {
    Dhcp4(Dhcp4),
    Dhcp6(Dhcp6),
    Router(Router),
}

fn posts_of(
    interface: &Interface,
    granted: &mut Grant,
    counts: &Arc<Counts>,
) -> Result<Vec<Post>, AddressesError> {
    let Interface { name, mac, addressing } = interface;
    let unfit = |source| AddressesError::Addressing { network: name.clone(), source };
    let mut services = Vec::new();
    if let Some(ipv4) = &addressing.ipv4 {
        let server = Dhcp4::new(*mac, addressing, ipv4).map_err(unfit)?;
        services.push((Role::dhcp4(name), Service::Dhcp4(server)));
    }
    if let Some(ipv6) = &addressing.ipv6 {
        let server = Dhcp6::new(*mac, addressing, ipv6).map_err(unfit)?;
        services.push((Role::dhcp6(name), Service::Dhcp6(server)));
        let router = Router::new(*mac, addressing, ipv6).map_err(unfit)?;
        services.push((Role::router(name), Service::Router(router)));
    }
    let mut posts = Vec::new();
    for (role, service) in services {
        let socket = socket(role, name, &service, granted)?;
        let (bucket, counts) = (Bucket::full(Instant::now()), Arc::clone(counts));
        posts.push(Post { socket, service, bucket, counts, due: None, initial: 0 });
    }
    Ok(posts)
}

/// The socket of this role. It is ours alone, so nobody minds that it does not block.
fn socket(
    role: Result<Role, RoleError>,
    name: &str,
    service: &Service,
    granted: &mut Grant,
) -> Result<UdpSocket, AddressesError> {
    let role = role.map_err(|error| AddressesError::Name(name.into(), error))?;
    let fd = granted.remove(&role).ok_or_else(|| AddressesError::NotGranted(role.clone()))?;
    // Raw sockets as well: receiving and sending is the same for them.
    let socket = UdpSocket::from(fd);
    let is_fit = |address: SocketAddr| address.is_ipv4() == matches!(service, Service::Dhcp4(_));
    let outcome = match socket.local_addr() {
        Ok(address) if is_fit(address) => socket.set_nonblocking(true),
        Ok(_) => Err(io::ErrorKind::InvalidInput.into()),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => Ok(socket),
        Err(source) => Err(AddressesError::Socket { role, source }),
    }
}

impl Post {
    /// Takes a packet and answers it.
    fn serve(&mut self) {
        // One more than what is taken: a longer one is cut by the kernel, without a word.
        let mut packet = [0; MAX_PACKET + 1];
        let (length, from) = match self.socket.recv_from(&mut packet) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => return add(&self.counts.errors),
        };
        let packet = if length > MAX_PACKET { &[] } else { &packet[..length] };
        let sent = match (&self.service, from) {
            (Service::Dhcp4(server), SocketAddr::V4(from)) => server
                .answer(packet, *from.ip())
                .map(|(answer, to)| self.socket.send_to(&answer, to)),
            (Service::Dhcp6(server), SocketAddr::V6(from)) => {
                let to = SocketAddrV6::new(*from.ip(), dhcp6::CLIENT, 0, from.scope_id());
                server.answer(packet, *from.ip()).map(|answer| self.socket.send_to(&answer, to))
            }
            (Service::Router(router), SocketAddr::V6(from)) => {
                router.answer(packet, *from.ip()).map(|(answer, to)| {
                    // Raw sockets have no ports. To all, the link is the device that the socket is bound to.
                    let to = SocketAddrV6::new(to, 0, 0, from.scope_id());
                    self.socket.send_to(answer, to)
                })
            }
            // A socket has addresses of its own family only.
            _ => Err(Silence::Ignored),
        };
        add(match sent {
            Ok(Ok(_)) => &self.counts.answered,
            Ok(Err(_)) => &self.counts.errors,
            Err(Silence::Ignored) => &self.counts.ignored,
            Err(Silence::Malformed) => &self.counts.malformed,
        });
    }

    /// The machine begins to run, or stops.
    fn follow(&mut self, runs: bool, now: Instant) {
        let unasked =
            if let Service::Router(router) = &self.service { router.unasked() } else { None };
        self.due = unasked.filter(|_| runs).map(|_| now);
        self.initial = INITIAL;
    }

    /// Sends the advertisement that is due.
    fn advertise(&mut self, now: Instant) {
        let Service::Router(router) = &self.service else { return };
        let Some((advertisement, to)) = router.unasked() else { return };
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let sent = self.socket.send_to(advertisement, SocketAddrV6::new(to, 0, 0, 0));
        add(if sent.is_ok() { &self.counts.advertised } else { &self.counts.errors });
        self.initial = self.initial.saturating_sub(1);
        self.due = Some(now + if self.initial > 0 { INITIAL_PAUSE } else { PAUSE });
    }
}

fn add(number: &AtomicU64) {
    number.fetch_add(1, Ordering::Relaxed);
}

struct Worker {
    posts: Vec<Post>,
    /// Of the machine.
    news: PipeReader,
}

impl Worker {
    fn serve(mut self) {
        sandbox::enter(ThreadKind::Addresses);
        loop {
            let now = Instant::now();
            self.posts.iter_mut().for_each(|post| post.advertise(now));
            let (is_news, ready) = self.wait(now);
            if is_news && !self.hear() {
                return;
            }
            for (post, _) in self.posts.iter_mut().zip(ready).filter(|(_, is_ready)| *is_ready) {
                if post.bucket.take() {
                    add(&post.counts.throttled);
                }
                post.serve();
            }
        }
    }

    /// Takes the news of the machine. False if it has no owner any more.
    fn hear(&mut self) -> bool {
        let mut news = [0; 16];
        match self.news.read(&mut news) {
            Ok(0) => return false,
            Ok(length) => {
                let (runs, now) = (news[length - 1] == 1, Instant::now());
                self.posts.iter_mut().for_each(|post| post.follow(runs, now));
            }
            // Interrupted: it is still there.
            Err(_) => {}
        }
        true
    }

    /// Waits for news, for a packet where one may be taken, or until something is due: whether there are news, and by post,
    /// whether there is a packet, or an error to be taken.
    fn wait(&mut self, now: Instant) -> (bool, Vec<bool>) {
        let mut next: Option<Instant> = None;
        let mut fds = vec![PollFd::new(self.news.as_fd(), PollFlags::POLLIN)];
        let mut places = Vec::with_capacity(self.posts.len());
        for post in &mut self.posts {
            let refill = post.bucket.fill(now);
            next = [next, post.due, refill].into_iter().flatten().min();
            places.push(refill.is_none().then_some(fds.len()));
            if refill.is_none() {
                fds.push(PollFd::new(post.socket.as_fd(), PollFlags::POLLIN));
            }
        }
        // Rounded up, not to wake up too early, over and over.
        let timeout = next.map_or(PollTimeout::NONE, |next| {
            let wait = next.saturating_duration_since(now) + Duration::from_millis(1);
            PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)
        });
        // Interrupted, by a debugger for one: nothing was lost.
        let _ = poll(&mut fds, timeout);
        let is_ready = |place: usize| fds.get(place).and_then(PollFd::any).unwrap_or(false);
        let ready = places.into_iter().map(|place| place.is_some_and(is_ready)).collect();
        (is_ready(0), ready)
    }
}

/// How many packets a socket may be read at once. A flood finds it empty: the socket is then left alone for a while, and the
/// kernel drops what does not fit into it.
#[derive(Debug)]
struct Bucket {
    level: u32,
    filled: Instant,
}

impl Bucket {
    fn full(now: Instant) -> Self {
        Self { level: BURST, filled: now }
    }

    /// Fills it up to now. If it is still empty, when it will not be.
    fn fill(&mut self, now: Instant) -> Option<Instant> {
        let passed = now.saturating_duration_since(self.filled).as_nanos() / REFILL.as_nanos();
        let gained = u32::try_from(passed).unwrap_or(BURST).min(BURST);
        self.level = self.level.saturating_add(gained).min(BURST);
        self.filled = if self.level == BURST { now } else { self.filled + REFILL * gained };
        (self.level == 0).then(|| self.filled + REFILL)
    }

    /// Takes one. True if that was the last.
    fn take(&mut self) -> bool {
        self.level = self.level.saturating_sub(1);
        self.level == 0
    }
}

#[cfg(test)]
mod tests;
