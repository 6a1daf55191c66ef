//! A worker in the hand of a test: what a thread would do, one turn at a time.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::read;

use crate::Records;
use crate::virtio::{DrainError, QueueTask, Transport, Wakeup};

/// More turns than any bounded work of a test takes.
const MOST_TURNS: usize = 10_000;

/// Starts `function` and arms its tasks, as a worker that takes them does.
pub fn take_up(function: &dyn Transport) -> Vec<Box<dyn QueueTask>> {
    let mut tasks = function.activate().expect("what was saved is what can be");
    tasks.iter_mut().for_each(|task| task.rearm());
    tasks
}

/// Drains the tasks of `function`, none of which may have to wait for anything, and gives them back.
pub fn give_back(function: &dyn Transport, mut tasks: Vec<Box<dyn QueueTask>>) {
    for task in &mut tasks {
        assert_eq!(task.drain().expect("it can be asked"), 0, "nothing is in flight");
    }
    function.reclaim(tasks).expect("they are its own");
}

/// Hands the state of a device at rest on to another one, as to the next process, which must then say the same of itself.
pub fn hand_on(from: &dyn Transport, to: &dyn Transport) {
    let saved = |function: &dyn Transport| {
        let mut records = Records::default();
        function.save("device", &mut records).expect("a device at rest can be saved");
        records
    };
    let records = saved(from);
    to.load("device", &mut records.clone()).expect("what was saved can be loaded");
    assert_eq!(saved(to), records);
}

/// Drains a task as a worker does: what is in flight wakes it, until nothing is, or up to the deadline.
pub fn drain(task: &mut Box<dyn QueueTask>, deadline: Instant) -> Result<(), DrainError> {
    loop {
        match task.drain()? {
            0 => return Ok(()),
            in_flight if Instant::now() >= deadline => {
                return Err(DrainError::Deadline { in_flight });
            }
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
        turn(std::slice::from_mut(task));
    }
}

/// One turn: how many wake-ups were answered.
pub fn turn(tasks: &mut [Box<dyn QueueTask>]) -> usize {
    let mut woken = 0;
    for task in tasks {
        for wakeup in task.wakeups() {
            if is_awake(wakeup) {
                task.on_event(wakeup.token);
                woken += 1;
            }
        }
    }
    woken
}

/// Turns until nothing wakes the worker. One that spins does not get there, and the test fails.
pub fn settle(tasks: &mut [Box<dyn QueueTask>]) {
    let turns = (0..MOST_TURNS).take_while(|_| turn(tasks) > 0).count();
    assert!(turns < MOST_TURNS, "the worker spins");
}

fn is_awake(wakeup: Wakeup) -> bool {
    // SAFETY: it is open as long as the task lives, which its caller has.
    let fd = unsafe { BorrowedFd::borrow_raw(wakeup.fd) };
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    let is_readable = poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
    if is_readable && wakeup.is_edge {
        // Each time that it was written to is told of once.
        read(fd, &mut [0; 8]).expect("an eventfd that is readable can be read");
    }
    is_readable
}
