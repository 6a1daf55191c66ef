//! Linux guests with all devices that carry out a script, step by step: they say on their serial port how far they are, and
//! wait for a line on the console device's stream before they go on.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corten_net::Tap;
use tempfile::TempDir;

use crate::boot::{copies, copy};
use crate::machine::{Kvm, Machine};
use crate::measure::Subject;
use crate::measure::console::Console;
use crate::measure::counts::Counter;
use crate::measure::process;
use crate::measure::work::{Watch, Work};
use crate::report::{Figure, FigureReport, FigureSeries};
use crate::vmm::{Choice, Devices, Disk, Guest, Peer, Programs, Started, StopAt, VmmProcess};

/// The host's address on the TAP.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 1);
const TAP: &str = "bench0";
/// Writing 2 GiB takes a minute in an emulated guest.
const STEP_LIMIT: Duration = Duration::from_secs(400);
/// How long an idle VMM is watched.
const IDLE: Duration = Duration::from_secs(10);
const SCRIPT_DISK: usize = 64 << 10;

const COMMAND_LINE: &str = "console=ttyS0 quiet mitigations=off corten.script=/dev/vda \
    corten.modules=ext4,virtio_net,virtio_console,virtio_rng,virtio_balloon,vmw_vsock_virtio_transport";

/// What all scripts can call. `step` says something and waits until the host has seen it.
const PRELUDE: &str = r#"set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
ip link set lo up
ip link set eth0 up
ip address add 10.100.0.2/24 dev eth0
set -- /dev/vport*p1
until [ -c "$1" ]; do sleep 0.2; set -- /dev/vport*p1; done
exec 4<>"$1"
step() { echo "$@"; read -r _ <&4; }
tools() {
	mount -o ro "$1" /mnt
	mount -t devtmpfs dev /mnt/dev
	mount -t proc proc /mnt/proc
	mount -t sysfs sys /mnt/sys
}
tool() { chroot /mnt "$@"; }
echo idle >/run/end
"#;

/// What scripted guests of one benchmark have in common. To be made in a node.
pub(crate) struct Workbench {
    directory: TempDir,
    kernel: PathBuf,
    initrd: PathBuf,
    programs: Vec<PathBuf>,
    tap: Arc<OwnedFd>,
    description: String,
}

/// How a machine differs from others of its benchmark.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) mebibytes: u64,
    pub(crate) vhost: bool,
    pub(crate) huge_pages: bool,
}

impl Workbench {
    pub(crate) fn new(
        against: &[Choice],
        programs: &Programs,
        (kernel, initrd): (&Path, &Path),
        huge_pages: &str,
    ) -> Result<Self> {
        let version = fs::read_to_string(kernel.join("version")).unwrap_or_default();
        let directory = TempDir::new().context("cannot make a directory for copies")?;
        let tap = Tap::create(TAP, 1)?;
        corten_net::set_ipv4(TAP, HOST, 24)?;
        let queue = tap.into_queues().pop().context("a TAP without a queue")?;
        Ok(Self {
            kernel: copy(&kernel.join("vmlinux"), directory.path(), "vmlinux")?,
            initrd: copy(initrd, directory.path(), "initrd")?,
            programs: copies(against, programs, directory.path())?,
            directory,
            tap: Arc::new(queue),
            description: format!(
                "Linux {}, 1 vCPU, \"{COMMAND_LINE}\", the lab's initramfs; disks, network, console with a stream, random numbers, balloon, vsock; {huge_pages}",
                version.trim()
            ),
        })
    }

    /// A file of this many bytes, none of them a hole, in the node's memory.
    pub(crate) fn data(&self, name: &str, bytes: usize) -> Result<Disk> {
        let file = self.directory.path().join(name);
        fs::write(&file, vec![0x5a; bytes]).context("cannot make a disk")?;
        Ok(Disk { file, read_only: false })
    }

    /// The guest that runs `script`, with these disks from /dev/vdb on.
    pub(crate) fn subject(
        &self,
        number: usize,
        choice: &Choice,
        variant: Variant,
        script: &str,
        disks: &[Disk],
    ) -> Result<Subject> {
        let file = self.directory.path().join(format!("script-{}", variant.name));
        let mut bytes = format!("{PRELUDE}{script}").into_bytes();
        ensure!(bytes.len() <= SCRIPT_DISK, "the script is too long");
        // Linux looks for partition tables in the first sectors.
        bytes.resize(SCRIPT_DISK, 0);
        fs::write(&file, bytes).context("cannot write the script")?;
        let devices = Devices {
            disks: [&[Disk { file, read_only: true }], disks].concat(),
            tap: Arc::clone(&self.tap),
            vhost: variant.vhost,
            huge_pages: variant.huge_pages,
        };
        let guest = Guest {
            kernel: self.kernel.clone(),
            initrd: Some(self.initrd.clone()),
            command_line: COMMAND_LINE.into(),
            cpus: 1,
            memory: variant.mebibytes << 20,
            mark: String::new(),
            stop_at: StopAt::Mark,
            devices: Some(devices),
        };
        let program = self.programs.get(number).context("a VMM without a program")?;
        Ok(Subject { vmm: choice.vmm(program), guest, image: variant.name.into() })
    }

    /// Runs all of `subjects` in turn, as often as told.
    pub(crate) fn report(
        &self,
        title: &str,
        subjects: &[Subject],
        runs: usize,
        mut run: impl FnMut(&Subject) -> Result<Vec<Figure>>,
    ) -> Result<FigureReport> {
        Ok(FigureReport {
            title: title.into(),
            machine: Machine::this()?,
            kvm: Kvm::of_this_machine(),
            guest: self.description.clone(),
            series: in_turn(subjects, runs, &mut run)?,
            goals: Vec::new(),
        })
    }
}

/// A B B A A B ...: whoever runs first in a node finds it cold, which an emulated one takes long to get over. A run that fails is
/// part of the result.
pub(crate) fn in_turn(
    subjects: &[Subject],
    runs: usize,
    run: &mut impl FnMut(&Subject) -> Result<Vec<Figure>>,
) -> Result<Vec<FigureSeries>> {
    let series = |subject: &Subject| {
        Ok(FigureSeries {
            vmm: subject.vmm.name().into(),
            version: subject.vmm.version()?,
            settings: subject.vmm.settings(),
            variant: subject.image.clone(),
            ..FigureSeries::default()
        })
    };
    let mut all = subjects.iter().map(series).collect::<Result<Vec<_>>>()?;
    for number in 1..=runs {
        let mut round: Vec<_> = subjects.iter().zip(&mut all).collect();
        if number % 2 == 0 {
            round.reverse();
        }
        for (subject, series) in round {
            let (started, label) = (Instant::now(), format!("{} {}", series.vmm, series.variant));
            let outcome = run(subject);
            let seconds = started.elapsed().as_secs_f64();
            match outcome {
                Ok(figures) => {
                    eprintln!("bench: {label}: run {number} of {runs} ({seconds:.1} s)");
                    series.runs.push(figures);
                }
                Err(error) => {
                    eprintln!(
                        "bench: {label}: run {number} of {runs} failed after {seconds:.1} s: {error:#}"
                    );
                    series.failures.push(format!("run {number}: {error:#}"));
                }
            }
        }
    }
    Ok(all)
}

/// A scripted guest that runs.
pub(crate) struct Session<'a> {
    pub(crate) process: &'a mut VmmProcess,
    pub(crate) peer: &'a mut Peer,
    console: Console<'a>,
    seen: usize,
}

impl<'a> Session<'a> {
    pub(crate) fn new(started: &'a mut Started) -> Result<Self> {
        Ok(Self {
            process: &mut started.process,
            peer: started.peer.as_mut().context("a machine without devices")?,
            console: Console::new(&started.console),
            seen: 0,
        })
    }

    /// Waits for a line that begins with `word`: what came before it since the last one, and the rest of it.
    pub(crate) fn wait_for(&mut self, word: &str) -> Result<(String, String)> {
        let deadline = Instant::now() + STEP_LIMIT;
        loop {
            let text = self.console.text();
            if let Some((before, rest, end)) = line_with(&text[self.seen.min(text.len())..], word) {
                self.seen += end;
                return Ok((before, rest));
            }
            if !self.console.read_more(deadline)? {
                let (ended, errors) = (self.process.ended()?, self.process.errors());
                let end = self.console.end();
                bail!("no {word:?} on the console; {ended:?}; {errors}; console: {end}");
            }
        }
    }

    /// One job: from READY to DONE, watched, and what the guest says of it.
    pub(crate) fn job(&mut self, counter: Option<&Counter>) -> Result<(Work, String)> {
        self.wait_for("READY")?;
        let watch = Watch::start(self.process.id(), counter)?;
        self.go()?;
        let (_, done) = self.wait_for("DONE")?;
        let work = watch.stop()?;
        self.go()?;
        Ok((work, done))
    }

    /// How often threads of the VMM wake up while nobody wants anything, from IDLE on.
    pub(crate) fn idle(&mut self) -> Result<Figure> {
        self.wait_for("IDLE")?;
        let id = self.process.id();
        process::settle(id, IDLE)?;
        let before = process::wake_ups(id)?;
        std::thread::sleep(IDLE);
        let wake_ups = process::wake_ups(id)?.saturating_sub(before) as f64;
        Ok(Figure::new("idle: wake-ups of the VMM per second", wake_ups / IDLE.as_secs_f64()))
    }

    /// Lets the guest go on from its step.
    pub(crate) fn go(&mut self) -> Result<()> {
        self.peer.stream.write_all(b"go\n").context("cannot tell the guest to go on")
    }
}

/// The first whole line that begins with `word`: what is before it, what is behind the word, and where it ends.
fn line_with(text: &str, word: &str) -> Option<(String, String, usize)> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        if let Some(rest) = line.strip_suffix('\n').and_then(|line| line.strip_prefix(word)) {
            return Some((text[..start].into(), rest.trim().into(), end));
        }
        start = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_line_with_the_word_is_found_with_what_is_around_it() {
        let text = "noise\r\nDONE 5 of 6\r\nmore";
        let (before, rest, end) = line_with(text, "DONE").unwrap();
        assert_eq!((before.as_str(), rest.as_str(), &text[end..]), ("noise\r\n", "5 of 6", "more"));
        assert_eq!(line_with(text, "more"), None);
        assert_eq!(line_with(text, "of"), None);
    }
}
