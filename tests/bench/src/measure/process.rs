//! What the kernel says about a running VMM: CPU time and threads.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::time::TimeSpec;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::report::CpuTime;

/// How long an idle process is watched, and how much of that time it may run.
const WINDOW: Duration = Duration::from_millis(200);
const IDLE: Duration = Duration::from_millis(30);

/// CPU time of all its threads so far.
pub(crate) fn cpu_time(id: Pid) -> Result<CpuTime> {
    let total = used(id)?;
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).context("cannot read its times")?;
    let ticks = sysconf(SysconfVar::CLK_TCK)?.context("no clock tick")?;
    let guest = guest_ticks(&stat).context("its times are not as proc(5) says")?;
    let guest = Duration::from_secs(guest) / u32::try_from(ticks)?;
    Ok(CpuTime { total: total.as_secs_f64(), guest: guest.as_secs_f64() })
}

/// `guest_time` is field 43 of stat(5), and the name in field 2 may have spaces in it.
fn guest_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_whitespace().nth(43 - 3)?.parse().ok()
}

fn used(id: Pid) -> Result<Duration> {
    let clock = clock_getcpuclockid(id).context("no CPU clock of the process")?;
    let now: TimeSpec = clock_gettime(clock).context("no CPU clock of the process")?;
    Ok(now.into())
}

/// Waits until it has next to nothing to do.
pub(crate) fn settle(id: Pid, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    let mut before = used(id)?;
    while Instant::now() < deadline {
        std::thread::sleep(WINDOW);
        let now = used(id)?;
        if now.saturating_sub(before) <= IDLE {
            return Ok(());
        }
        before = now;
    }
    Ok(())
}

/// How often its threads went to sleep and were woken so far.
pub(crate) fn wake_ups(id: Pid) -> Result<u64> {
    let mut sum = 0;
    for thread in threads(id)? {
        // A thread may have ended meanwhile.
        let status = fs::read_to_string(format!("/proc/{id}/task/{thread}/status"));
        sum += number_of(&status.unwrap_or_default(), "voluntary_ctxt_switches").unwrap_or(0);
    }
    Ok(sum)
}

/// Bytes of page tables that the kernel keeps for its mappings.
pub(crate) fn page_tables(id: Pid) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).context("cannot read status")?;
    Ok(number_of(&status, "VmPTE").context("no VmPTE in status")? * 1024)
}

/// The number of the line `NAME: NUMBER`, whatever its unit.
fn number_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Ids of its threads.
pub(crate) fn threads(id: Pid) -> Result<Vec<u64>> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).context("cannot list its threads")?;
    let names = tasks.flatten().map(|task| task.file_name().to_string_lossy().parse());
    Ok(names.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_time_is_found_behind_any_name() {
        let fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("77 (a ) b) {}\n", fields.join(" "));
        assert_eq!(guest_ticks(&stat), Some(43));
        assert_eq!(guest_ticks("77 (a) S 1"), None);
    }

    #[test]
    fn numbers_of_status_are_found_by_their_whole_name() {
        let status =
            "VmPTE:\t     116 kB\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t99\n";
        assert_eq!(number_of(status, "VmPTE"), Some(116));
        assert_eq!(number_of(status, "voluntary_ctxt_switches"), Some(7));
        assert_eq!(number_of(status, "VmPT"), None);
    }

    #[test]
    fn own_threads_and_time_are_found() {
        let own = Pid::this();
        assert!(threads(own).unwrap().contains(&u64::from(std::process::id())));
        assert!(cpu_time(own).unwrap().total > 0.0);
    }
}
