//! `net`: TCP by iperf3 between the guest and its node, and what each 64 KiB of it cost.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::boot::huge_pages_on_advice;
use crate::measure::Subject;
use crate::measure::counts::Counter;
use crate::report::{Figure, FigureReport};
use crate::scripted::{HOST, Session, Variant, Workbench};
use crate::vmm::{Choice, Disk, Programs, VmmProcess};

/// What is compared unless somebody says otherwise.
pub const AGAINST: [&str; 2] = ["corten", "qemu-q35"];
/// Assets of the lab that it needs.
pub const ASSETS: [&str; 3] = crate::disk::ASSETS;

const MEBIBYTES: u32 = 32;
/// Pieces of 64 KiB.
const PIECES: u32 = MEBIBYTES * 16;
const DIRECTIONS: [(&str, &str); 2] = [("guest to node", ""), ("node to guest", "-R")];
const VARIANTS: [(&str, bool); 2] = [("vhost-net", true), ("without", false)];

fn script() -> String {
    let mut script = String::from(
        r#"
tools /dev/vdb
mount -t tmpfs tmp /mnt/tmp
job() {
	step READY
	said=$(tool iperf3 -c 10.100.0.1 -f k "$@" | grep receiver)
	step "DONE $said"
}
tool iperf3 -c 10.100.0.1 -n 1M >/dev/null
"#,
    );
    for (_, direction) in DIRECTIONS {
        script += &format!("job -n 64K {direction}\njob -n {MEBIBYTES}M {direction}\n");
    }
    script + "step IDLE\n"
}

/// Runs iperf3 under each of `against`. To be called in a node.
pub fn net(
    against: &[Choice],
    programs: &Programs,
    files: (&Path, &Path),
    tools: &Path,
    (quick, only): (bool, Option<&str>),
) -> Result<FigureReport> {
    let huge_pages = huge_pages_on_advice()?;
    let bench = Workbench::new(against, programs, files, &huge_pages)?;
    let tools = [Disk { file: tools.join("disk.raw"), read_only: true }];
    let mut subjects = Vec::new();
    let wanted = |name: &str| only.is_none_or(|only| name.contains(only));
    for (name, vhost) in VARIANTS.into_iter().filter(|(name, _)| wanted(name)) {
        let variant = Variant { name, mebibytes: 512, vhost, huge_pages: false };
        for (number, choice) in against.iter().enumerate() {
            subjects.push(bench.subject(number, choice, variant, &script(), &tools)?);
        }
    }
    let mut server = Command::new("iperf3");
    server.args(["--server", "--bind", &HOST.to_string()]).stdout(Stdio::null());
    let _server = VmmProcess::spawn(server, Vec::new())?;
    let counter =
        Counter::new().inspect_err(|error| eprintln!("bench: not counted: {error:#}")).ok();
    let runs = if quick { 1 } else { 5 };
    let title = "TCP over a TAP, one stream of iperf3";
    bench.report(title, &subjects, runs, |subject| run(subject, counter.as_ref()))
}

fn run(subject: &Subject, counter: Option<&Counter>) -> Result<Vec<Figure>> {
    let mut started = subject.vmm.start(&subject.guest)?;
    let mut session = Session::new(&mut started)?;
    let (mut figures, mut rates) = (Vec::new(), Vec::new());
    for (name, _) in DIRECTIONS {
        let (start, _) = session.job(counter)?;
        let (work, done) = session.job(counter)?;
        let rate = rate_of(&done).with_context(|| format!("{name}: {done}"))?;
        figures.extend(work.figures(name, ("64 KiB", f64::from(PIECES)), &start));
        rates.push(Figure::new(format!("{name}: Kbit per second"), rate));
    }
    figures.push(session.idle()?);
    figures.extend(rates);
    Ok(figures)
}

/// `[  5]   0.00-1.05   sec  32.0 MBytes  254650 Kbits/sec                  receiver`
fn rate_of(line: &str) -> Option<f64> {
    let (before, _) = line.split_once("Kbits/sec")?;
    before.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_read_from_what_iperf3_says() {
        let line =
            "[  5]   0.00-1.05   sec  32.0 MBytes  254650 Kbits/sec                  receiver";
        assert_eq!(rate_of(line), Some(254_650.0));
        assert_eq!(rate_of("iperf3: error - unable to connect"), None);
    }
}
