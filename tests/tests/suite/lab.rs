//! What the lab promises.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use corten_tests::lab::{command, in_node, lab, own_tests_in_node};

#[test]
fn output_and_status_come_back() -> Result<()> {
    let outcome = in_node(&[], "echo out; echo err >&2; exit 7")?;
    assert_eq!((outcome.status, outcome.stdout.as_str()), (7, "out\n"));
    assert_eq!(outcome.stderr, "err\n");
    Ok(())
}

#[test]
fn choice_of_node_is_printed_with_its_reason() -> Result<()> {
    let outcome = lab(&["run", "--", "true"])?;
    assert_eq!(outcome.status, 0);
    let probe = lab(&["probe"])?.success()?;
    let expected =
        if probe.contains("emulated") { "lab: emulated node (" } else { "lab: this machine" };
    assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    Ok(())
}

#[test]
fn input_and_output_are_binary_clean() -> Result<()> {
    let input: Vec<u8> =
        (0..2_000_003_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
    let mut child = command(&["run", "--quiet", "--", "cat"])?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    let sent = input.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent));
    let output = child.wait_with_output()?;
    writer.join().expect("the writer does not panic")?;
    assert!(output.status.success());
    assert!(output.stdout == input, "{} bytes came back of {}", output.stdout.len(), input.len());
    Ok(())
}

#[test]
fn command_over_its_time_limit_ends_with_124() -> Result<()> {
    let outcome = in_node(&["--time-limit", "1"], "echo started; sleep 1000")?;
    assert_eq!((outcome.status, outcome.stdout.as_str()), (124, "started\n"));
    Ok(())
}

#[test]
fn missing_command_is_127_and_named() -> Result<()> {
    let outcome = lab(&["run", "--", "/no/such/program"])?;
    assert_eq!(outcome.status, 127);
    assert!(outcome.stderr.contains("/no/such/program"), "{}", outcome.stderr);
    Ok(())
}

#[test]
fn crashed_node_is_125_and_shows_its_console() -> Result<()> {
    let outcome = in_node(&["--isolated"], "echo c > /proc/sysrq-trigger; sleep 1000")?;
    assert_eq!(outcome.status, 125);
    assert!(outcome.stderr.contains("sysrq triggered crash"), "{}", outcome.stderr);
    Ok(())
}

#[test]
fn node_has_the_machines_clock_and_checkout_and_a_kvm() -> Result<()> {
    let before = SystemTime::UNIX_EPOCH.elapsed()?.as_secs();
    let output =
        in_node(&[], "date +%s; cat \"$CORTEN_CHECKOUT/rust-toolchain.toml\"; test -c /dev/kvm")?
            .success()?;
    let after = SystemTime::UNIX_EPOCH.elapsed()?.as_secs();
    let clock: u64 = output.lines().next().context("no clock")?.parse()?;
    assert!((before - 2..=after + 2).contains(&clock), "{before} {clock} {after}");
    assert!(output.contains("[toolchain]"));
    Ok(())
}

#[test]
fn fresh_nodes_know_nothing_of_each_other() -> Result<()> {
    let script =
        "test ! -e /etc/left-behind; touch /etc/left-behind; head -c 8 /dev/urandom | od -An -tx8";
    let first = in_node(&["--isolated"], script)?.success()?;
    let second = in_node(&["--isolated"], script)?.success()?;
    assert_ne!(first, second, "restored nodes share their random state");
    Ok(())
}

#[test]
fn nodes_reach_each_other_at_the_rate_that_was_set() -> Result<()> {
    // 4 Mbit at 1 Mbit/s take 4 s; without a limit they take a tenth of that. The time is the sender's own.
    let script = r"
        other=node$((3 - CORTEN_NODE))
        ping -4 -c 1 -W 20 $other >/dev/null && ping -6 -c 1 -W 20 $other >/dev/null
        head -c 500000 /dev/urandom >/tmp/sent
        if [ $CORTEN_NODE = 1 ]; then
            socat -u TCP-LISTEN:5000,reuseaddr OPEN:/tmp/received,creat
            echo sum $(sha256sum </tmp/received)
        else
            echo sum $(sha256sum </tmp/sent)
            before=$(date +%s%N)
            socat -u OPEN:/tmp/sent TCP:node1:5000,retry=100,interval=0.1
            echo milliseconds $((($(date +%s%N) - before) / 1000000))
        fi";
    let output = in_node(&["--nodes", "2", "--rate", "1"], script)?.success()?;
    let said = |word: &str| -> Vec<String> {
        let lines = output.lines().filter_map(|line| line.split("| ").nth(1)?.strip_prefix(word));
        lines.map(str::to_owned).collect()
    };
    let sums = said("sum ");
    ensure!(sums.len() == 2 && sums[0] == sums[1], "{output}");
    let time: u64 = said("milliseconds ").first().context("no time")?.parse()?;
    // A lower bound, so that a busy machine cannot break it; what the sockets buffer is subtracted.
    ensure!(time > 2000, "{time} ms for 4 Mbit at 1 Mbit/s");
    Ok(())
}

#[test]
fn disk_is_seen_by_the_node_and_written_through() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = directory.path().join("disk");
    fs::write(&disk, vec![b'a'; 1 << 20])?;
    let path = format!("{}:rw", disk.display());
    let script = "test $(head -c 4 /dev/sda) = aaaa; printf bbbb | dd of=/dev/sda conv=notrunc oflag=direct,sync bs=512 \
                  iflag=fullblock conv=sync,notrunc status=none";
    in_node(&["--disk", &path], script)?.success()?;
    assert_eq!(fs::read(&disk)?[..4], *b"bbbb");
    let outcome = in_node(&["--disk", &disk.display().to_string()], "echo x > /dev/sda")?;
    assert_ne!(outcome.status, 0, "a disk given without :rw was written to");
    Ok(())
}

#[test]
fn both_kernels_run() -> Result<()> {
    for kernel in ["6.1", "6.12"] {
        let release = in_node(&["--kernel", kernel], "uname -r; test -c /dev/kvm")?.success()?;
        assert!(release.starts_with(&format!("{kernel}.")), "{release}");
    }
    Ok(())
}

#[test]
fn cpu_and_memory_are_as_asked() -> Result<()> {
    let script = "grep -c rdrand /proc/cpuinfo || true; awk '/MemTotal/ { print int($2 / 1024) }' /proc/meminfo";
    let output = in_node(&["--cpu", "EPYC,-rdrand", "--memory", "1024"], script)?.success()?;
    let numbers: Vec<u64> = output.lines().map(str::parse).collect::<Result<_, _>>()?;
    assert_eq!(numbers[0], 0, "{output}");
    assert!((800..1024).contains(&numbers[1]), "{output}");
    Ok(())
}

#[test]
fn lab_that_stays_up_serves_commands_until_it_goes_down() -> Result<()> {
    let name = format!("--name=test-{}", std::process::id());
    lab(&["up", &name, "--nodes", "2"])?.success()?;
    let second = lab(&["up", &name])?;
    assert_eq!(second.status, 125, "two labs of one name");
    let host = lab(&["exec", &name, "--node", "2", "--", "uname", "-n"])?;
    let status = lab(&["status"])?.stdout;
    let none = lab(&["exec", &name, "--node", "3", "--", "true"])?;
    lab(&["down", &name])?.success()?;
    assert_eq!(host.stdout, "node2\n");
    assert!(status.contains("node2 running"), "{status}");
    assert_eq!(none.status, 125);
    assert_eq!(lab(&["exec", &name, "--", "true"])?.status, 125);
    Ok(())
}

#[test]
fn killed_lab_leaves_nothing_behind() -> Result<()> {
    let before = Traces::now()?;
    let mut child =
        command(&["run", "--quiet", "--nodes", "2", "--", "sh", "-c", "echo up; sleep 1000"])?
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()?;
    wait_for_line(&mut child, "node1| up")?;
    let family = descendants(child.id())?;
    assert!(family.len() >= 2, "two nodes have two processes: {family:?}");
    child.kill()?;
    child.wait()?;
    wait_until_gone(&family)?;
    assert_eq!(Traces::now()?, before);
    Ok(())
}

#[test]
fn interrupted_lab_ends_its_command_and_itself() -> Result<()> {
    let script = "trap 'echo asked; exit 3' TERM; echo up; while :; do sleep 0.1; done";
    let mut child =
        command(&["run", "--quiet", "--", "bash", "-c", script])?.stdout(Stdio::piped()).spawn()?;
    wait_for_line(&mut child, "up")?;
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(3));
    Ok(())
}

#[test]
fn direct_mode_serves_where_kvm_is_real() -> Result<()> {
    // A node is such a machine. Its cache is in its own memory, since the one it sees is the machine's.
    let inner =
        |arguments: &str| format!("export CORTEN_CACHE=/tmp/cache; $CORTEN_LAB {arguments}");
    let probe = in_node(&["--isolated"], &inner("probe"))?.success()?;
    assert!(probe.contains("runs ordinary guests"), "{probe}");
    let script = "run -- sh -c 'touch /tmp/x; exit 9' 2>&1 || echo status $?; test ! -e /tmp/x";
    let output = in_node(&["--isolated"], &inner(script))?.success()?;
    ensure!(output.contains("lab: this machine itself"), "{output}");
    ensure!(output.contains("status 9"), "{output}");
    // What is shared stays where it is, also below /tmp, which is otherwise the node's own.
    let shared = "mkdir -p /tmp/kept; echo found >/tmp/kept/file; SECRET=1 ";
    let script =
        format!("{shared} {}", inner("run --share /tmp/kept -- sh -c 'cat /tmp/kept/file; env'"));
    let output = in_node(&["--isolated"], &script)?.success()?;
    ensure!(output.contains("found") && !output.contains("SECRET"), "{output}");
    let program = std::env::current_exe()?;
    let tests = format!("run --cage -- {} micro::", program.display());
    let output = in_node(&["--isolated"], &inner(&tests))?.success()?;
    ensure!(output.contains("test result: ok."), "{output}");
    Ok(())
}

#[test]
fn refused_save_leaves_the_lab_as_it_was() -> Result<()> {
    let name = format!("--name=busy-{}", std::process::id());
    lab(&["up", &name, "--isolated"])?.success()?;
    let script = "cd \"$CORTEN_CHECKOUT\"; sleep 1000 >/dev/null 2>&1 & echo kept >/tmp/work";
    lab(&["exec", &name, "--", "bash", "-c", script])?.success()?;
    let refused = lab(&["save", &name, "busy"])?;
    let after = lab(&[
        "exec",
        &name,
        "--",
        "bash",
        "-c",
        "cat /tmp/work; ls \"$CORTEN_CHECKOUT/Cargo.toml\"",
    ]);
    lab(&["down", &name])?.success()?;
    ensure!(refused.status == 125 && refused.stderr.contains("is in use"), "{}", refused.stderr);
    ensure!(after?.success()?.starts_with("kept\n"));
    Ok(())
}

/// A lab with an empty cache, at the moment when it makes the first thing it needs.
fn making_lab(cache: &tempfile::TempDir) -> Result<Child> {
    let mut child = command(&["run", "--isolated", "--", "true"])?
        .env("CORTEN_CACHE", cache.path())
        .stderr(Stdio::piped())
        .spawn()?;
    let stderr = child.stderr.take().context("no stderr")?;
    let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
    ensure!(lines.any(|line| line.contains("fetching")), "nothing was made");
    Ok(child)
}

#[test]
fn lab_killed_while_it_makes_something_leaves_no_process() -> Result<()> {
    let cache = tempfile::tempdir()?;
    let mut child = making_lab(&cache)?;
    let family = descendants(child.id())?;
    ensure!(family.len() >= 2, "a recipe has processes: {family:?}");
    child.kill()?;
    child.wait()?;
    wait_until_gone(&family)
}

#[test]
fn lab_that_is_still_starting_ends_when_asked() -> Result<()> {
    let cache = tempfile::tempdir()?;
    let mut child = making_lab(&cache)?;
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
    ensure!(child.wait()?.code() == Some(143));
    Ok(())
}

#[test]
fn bad_requests_are_refused_by_what_is_wrong() -> Result<()> {
    for (arguments, expected) in [
        (&["run", "--share", "/no/such/directory", "--", "true"][..], "/no/such/directory"),
        (&["run", "--from", "no-such-save", "--", "true"], "no node was saved as"),
        (&["run", "--from", "../x", "--", "true"], "cannot name a saved node"),
        (&["run", "--isolated", "--disk", "/no/such/disk", "--", "true"], "/no/such/disk"),
        (&["run", "--isolated", "--cpu", "NoSuchCpu", "--", "true"], "NoSuchCpu"),
        (&["run", "--rate", "5", "--", "true"], "--nodes 2 or more"),
        (&["up", "--name", "../evil"], "cannot name a lab"),
        (&["assets", "no-such-asset"], "there is no asset"),
        (&["down", "--name", "nobody"], "no lab named"),
    ] {
        let outcome = lab(arguments)?;
        assert_eq!(outcome.status, 125, "{arguments:?}");
        assert!(outcome.stderr.contains(expected), "{arguments:?}: {}", outcome.stderr);
    }
    Ok(())
}

const WITHOUT_LINUX: [&str; 3] = ["micro::", "machine::", "process::"];

/// In a node of the newer one they run caged.
#[test]
fn micro_and_machine_tests_pass_in_a_node_of_the_older_kernel() -> Result<()> {
    own_tests_in_node(&["--kernel=6.1"], &WITHOUT_LINUX).map(drop)
}

#[test]
fn micro_and_machine_tests_pass_in_the_launchers_cage() -> Result<()> {
    own_tests_in_node(&["--cage"], &WITHOUT_LINUX).map(drop)
}

#[test]
fn micro_and_machine_tests_pass_in_the_default_cage() -> Result<()> {
    own_tests_in_node(&["--cage=default"], &WITHOUT_LINUX).map(drop)
}

#[test]
fn hostile_guest_leaves_its_neighbour_alone_in_the_cage() -> Result<()> {
    own_tests_in_node(&["--cage"], &["hostile::neighbour_goes_on_while"]).map(drop)
}

#[test]
fn cage_is_closed_on_each_kernel() -> Result<()> {
    for kernel in ["6.12", "6.1"] {
        for cage in ["--cage=launcher", "--cage=default"] {
            own_tests_in_node(
                &["--kernel", kernel, cage, "--tap=net1:2", "--tap=net2"],
                &["cage::"],
            )?;
        }
    }
    Ok(())
}

/// Fifty runs in a row, two at a time: about two minutes.
#[test]
fn long_fifty_runs_two_at_a_time() -> Result<()> {
    let before = Traces::now()?;
    let halves: Vec<_> = (0..2)
        .map(|half| {
            std::thread::spawn(move || -> Result<()> {
                for run in 0..25 {
                    let text = format!("half {half} run {run}");
                    let output =
                        in_node(&[], &format!("echo {text}; test -c /dev/kvm"))?.success()?;
                    ensure!(output.trim() == text, "{output}");
                }
                Ok(())
            })
        })
        .collect();
    for half in halves {
        half.join().expect("a half does not panic")?;
    }
    assert_eq!(Traces::now()?, before);
    Ok(())
}

/// What a lab could leave on the machine.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    mounts: BTreeSet<String>,
    interfaces: BTreeSet<String>,
    namespaces: usize,
}

impl Traces {
    fn now() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?.lines().map(Into::into).collect();
        let interfaces = fs::read_dir("/sys/class/net")?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_>>()?;
        let namespaces = fs::read_dir("/run/netns").map_or(0, Iterator::count);
        Ok(Self { mounts, interfaces, namespaces })
    }
}

fn wait_for_line(child: &mut Child, wanted: &str) -> Result<()> {
    let output = child.stdout.as_mut().context("no stdout")?;
    for line in BufReader::new(output).lines() {
        if line? == wanted {
            return Ok(());
        }
    }
    anyhow::bail!("{wanted:?} never came")
}

fn descendants(root: u32) -> Result<BTreeSet<u32>> {
    let mut family = BTreeSet::from([root]);
    loop {
        let before = family.len();
        for entry in fs::read_dir("/proc")?.flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1));
            if parent
                .and_then(|parent| parent.parse().ok())
                .is_some_and(|pid| family.contains(&pid))
            {
                family.insert(pid);
            }
        }
        if family.len() == before {
            family.remove(&root);
            return Ok(family);
        }
    }
}

fn wait_until_gone(family: &BTreeSet<u32>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while family.iter().any(|pid| is_alive(*pid)) {
        ensure!(Instant::now() < deadline, "{family:?} outlive the lab");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn is_alive(pid: u32) -> bool {
    // A zombie holds nothing; whoever adopted it has yet to look.
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}
