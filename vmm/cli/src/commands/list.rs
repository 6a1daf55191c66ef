//! `corten ps` and `corten info`.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use corten_launcher::log::chain;
use corten_link::BootOrigin;
use corten_resources::shown;

use super::guest;
use crate::client::{Client, ClientError};
use crate::failure::Failure;
use crate::phase::span;
use crate::place::{PlaceError, Runtime};
use crate::protocol::Status;

/// All VMs.
pub(super) fn ps(runtime: &Runtime, json: bool) -> Result<u8, Failure> {
    let mut all = Vec::new();
    for name in runtime.names()? {
        match Client::connect(runtime, &name).and_then(|mut client| client.status(false)) {
            Ok(status) => all.push(status),
            // It ended while the list was made.
            Err(
                ClientError::Place(PlaceError::NotRunning(_))
                | ClientError::Gone { .. }
                | ClientError::Ended { .. },
            ) => {}
            // The others are still worth listing.
            Err(error) => super::say(&chain(&error)),
        }
    }
    if json {
        super::print_json(&all)?;
    } else {
        super::print(&table(&all))?;
    }
    Ok(0)
}

fn table(all: &[Status]) -> String {
    let mut rows = vec![["NAME", "STATE", "CPUS", "MEMORY", "UPTIME", "PROCESS"].map(String::from)];
    rows.extend(all.iter().map(|status| {
        let unknown = || "-".to_owned();
        [
            status.name.clone(),
            status.state.text().into(),
            status.vcpus.map_or_else(unknown, |vcpus| vcpus.to_string()),
            status.memory.map_or_else(unknown, bytes),
            duration(status.uptime),
            status.process.map_or_else(unknown, |pid| pid.to_string()),
        ]
    }));
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// One VM.
pub(super) fn info(runtime: &Runtime, name: &str, json: bool) -> Result<u8, Failure> {
    let status = Client::connect(runtime, name)?.status(true)?;
    if json {
        super::print_json(&status)?;
    } else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        super::print(&described(&status, now))?;
    }
    Ok(0)
}

fn described(status: &Status, now: u64) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // Much of it is a guest's own word, which is not to reach the terminal as it is. Writing to a String does not fail.
        let _ = writeln!(text, "{name:<14}{}", shown(value));
    };
    line("name", &status.name);
    line("state", status.state.text());
    line("uptime", &duration(status.uptime));
    if let Some(vcpus) = status.vcpus {
        line("processors", &vcpus.to_string());
    }
    if let Some(memory) = status.memory {
        let used = status.memory_use.as_ref();
        let used = used.map(|used| format!(", {} of it on this machine", bytes(used.allocated)));
        line("memory", &(bytes(memory) + &used.unwrap_or_default()));
    }
    if let Some(resets) = status.resets.filter(|resets| *resets > 0) {
        line("resets", &resets.to_string());
    }
    for text in status.boot.iter().flat_map(booted) {
        line("boot", &text);
    }
    line("supervisor", &status.supervisor.to_string());
    if let Some(process) = status.process {
        line("VM process", &process.to_string());
    }
    for kept in &status.jail {
        line("kept in by", kept);
    }
    for reached in &status.phases {
        line("phase", &format!("{:<14}{}", reached.phase.text(), span(reached.at)));
    }
    if let Some(counters) = &status.counters {
        for (name, disk) in &counters.disks {
            let (read, written) = (bytes(disk.read_bytes), bytes(disk.written_bytes));
            line("disk", &format!("{name}: {read} read, {written} written"));
        }
        for (name, network) in &counters.networks {
            let (received, sent) =
                (bytes(network.received_bytes), bytes(network.transmitted_bytes));
            let who = if network.by_kernel { " (by the kernel, vhost-net)" } else { "" };
            line("network", &format!("{name}: {received} received, {sent} sent{who}"));
        }
    }
    if let Some(report) = &status.guest_agent {
        guest::lines(report, now).iter().for_each(|(name, value)| line(name, value));
    }
    text
}

/// What a guest was booted from, and what could not be booted.
fn booted(from: &BootOrigin) -> Vec<String> {
    match from {
        BootOrigin::Kernel => vec!["the kernel of its manifest".into()],
        BootOrigin::Disk { disk, partition, kernel, passed_over, .. } => {
            let place = match partition {
                0 => disk.clone(),
                partition => format!("{disk}, partition {partition}"),
            };
            let found = format!("{kernel} of {place}");
            std::iter::once(found).chain(passed_over.iter().cloned()).collect()
        }
        BootOrigin::Nothing { reasons } => {
            let none = "nothing: no disk has anything to boot".to_owned();
            std::iter::once(none).chain(reasons.iter().cloned()).collect()
        }
    }
}

pub(super) fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..0x10_0000 => format!("{} KiB", count >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", count >> 20),
        _ => {
            let tenths = (count >> 20) * 10 / 1024;
            format!("{}.{} GiB", tenths / 10, tenths % 10)
        }
    }
}

pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use corten_link::AgentReport;

    use super::*;
    use crate::protocol::State;

    fn status(name: &str, memory: Option<u64>) -> Status {
        Status {
            name: name.into(),
            state: State::Running,
            supervisor: 10,
            process: memory.map(|_| 11),
            uptime: 61,
            vcpus: memory.map(|_| 2),
            memory,
            resets: None,
            boot: None,
            phases: Vec::new(),
            jail: Vec::new(),
            counters: None,
            memory_use: None,
            guest_agent: None,
        }
    }

    #[test]
    fn table_lines_up() {
        let text = table(&[status("first", Some(256 << 20)), status("a-long-name", None)]);
        let expected = "\
            NAME         STATE    CPUS  MEMORY   UPTIME  PROCESS\n\
            first        running  2     256 MiB  1 min   11\n\
            a-long-name  running  -     -        1 min   -\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn description_says_what_was_booted_or_why_nothing_was() {
        let reasons = vec!["disk root: an xfs file system".to_owned()];
        let mut status = status("first", Some(1 << 20));
        status.boot = Some(BootOrigin::Nothing { reasons });
        let text = described(&status, 0);
        let told = "boot          nothing: no disk has anything to boot\n\
                    boot          disk root: an xfs file system\n";
        assert!(text.contains(told), "{text}");
        let disk = BootOrigin::Disk {
            disk: "root".into(),
            partition: 2,
            kernel: "/vmlinuz".into(),
            title: "Linux".into(),
            passed_over: Vec::new(),
        };
        assert_eq!(booted(&disk), ["/vmlinuz of root, partition 2"]);
    }

    #[test]
    fn what_a_guest_says_of_itself_does_not_reach_the_terminal_as_it_is() {
        let mut status = status("first", None);
        let mut report = AgentReport::default();
        report.guest.host_name = "a\u{1b}]0;title\u{7}\nname          other".into();
        status.guest_agent = Some(Box::new(report));
        let text = described(&status, 0);
        assert!(text.contains(r"host name     a\u{1b}]0;title\u{7}\nname"), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("name")).count(), 1, "{text}");
    }

    #[test]
    fn sizes_and_times_read_well() {
        let sizes = [0, 1023, 1024, 1 << 20, 1536 << 20].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1 KiB", "1 MiB", "1.5 GiB"]);
        let times = [0, 59, 3599, 3661, 90_000].map(duration);
        assert_eq!(times, ["0 s", "59 s", "59 min", "1 h 1 min", "1 d 1 h"]);
    }
}
