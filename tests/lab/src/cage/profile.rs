//! A system-call profile, from the runtime-spec JSON that kubelet reads to the filters the kernel takes.
//!
//! The rules are runc's and libseccomp's, for x86-64 alone:
//! - entries of one call are alternatives; conditions in one entry must all hold, but where two of them are on the same
//!   argument runc makes each an alternative of its own;
//! - names without a number on this architecture are passed over;
//! - calls newer than every call the profile names give ENOSYS instead of the profile's default error, so that programs fall
//!   back to older calls. "Newer" is a greater number, which takes in the x32 ABI: to us it is not there.
//!
//! A call of the 32-bit ABI ends the process; profiles list that ABI, but nothing of ours uses it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};
use serde::Deserialize;
use syscalls::x86_64::Sysno;

const LAUNCHER: &str = include_str!("../../../../node-agent/seccomp/launcher.json");
const DEFAULT: &str = include_str!("../../../../node-agent/seccomp/containerd-default.json");

/// Which system calls a container may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// The Localhost profile of launchers, as the node agent installs it.
    Launcher,
    /// RuntimeDefault of containerd.
    Default,
}

impl Profile {
    /// Its name, as CORTEN_CAGE tells it to the command.
    pub fn name(self) -> &'static str {
        match self {
            Self::Launcher => "launcher",
            Self::Default => "default",
        }
    }

    /// The filters of it.
    pub(super) fn compile(self) -> Result<Filters> {
        let json = match self {
            Self::Launcher => LAUNCHER,
            Self::Default => DEFAULT,
        };
        let document = serde_json::from_str(json);
        let compiled = document.map_err(Into::into).and_then(|document| compile(&document));
        compiled.with_context(|| format!("cannot compile profile {}", self.name()))
    }
}

/// Programs to be installed in this order.
#[derive(Debug)]
pub(super) struct Filters(Vec<BpfProgram>);

impl Filters {
    /// Puts the calling thread under the filters, and under no_new_privs.
    pub(super) fn install(&self) -> Result<(), seccompiler::Error> {
        self.0.iter().try_for_each(|program| apply_filter(program))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    default_action: String,
    default_errno_ret: Option<u32>,
    architectures: Vec<String>,
    #[serde(default)]
    syscalls: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    names: Vec<String>,
    action: String,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Vec<Argument>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Argument {
    index: u8,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

/// When an action is taken for a call.
#[derive(Clone)]
enum When {
    Always,
    Any(Vec<SeccompRule>),
}

/// The calls for which one action is taken, by number.
type Calls = BTreeMap<i64, When>;

fn compile(document: &Document) -> Result<Filters> {
    let here = document.architectures.iter().any(|name| name == "SCMP_ARCH_X86_64");
    ensure!(here, "it does not list SCMP_ARCH_X86_64");
    let default = action(&document.default_action, document.default_errno_ret)?;

    let mut allowed = Calls::new();
    let mut others: Vec<(SeccompAction, Calls)> = Vec::new();
    let mut last = 0;
    for entry in &document.syscalls {
        let action = action(&entry.action, entry.errno_ret)?;
        let when = conditions(&entry.args)?;
        for number in entry.names.iter().filter_map(|name| number(name)) {
            last = last.max(number);
            if action == default {
                continue;
            }
            // What another filter decides has to get past the main one.
            add(&mut allowed, number, &when);
            if action != SeccompAction::Allow {
                let at = others.iter().position(|(other, _)| *other == action);
                let at = at.unwrap_or_else(|| {
                    others.push((action.clone(), Calls::new()));
                    others.len() - 1
                });
                add(&mut others[at].1, number, &when);
            }
        }
    }

    // A filter of seccompiler knows one action besides its default, so each further action has a filter of its own. The
    // kernel takes the strictest answer of all. The main one comes last: it need not allow installing more of them.
    let mut programs = Vec::new();
    for (action, calls) in others {
        programs.push(program(calls, SeccompAction::Allow, action)?);
    }
    if default != SeccompAction::Allow {
        let mut main = newer_calls_are_unknown(last);
        main.extend(program(allowed, default, SeccompAction::Allow)?);
        programs.push(main);
    }
    Ok(Filters(programs))
}

fn program(calls: Calls, otherwise: SeccompAction, action: SeccompAction) -> Result<BpfProgram> {
    let rules = calls.into_iter().map(|(number, when)| match when {
        When::Always => (number, Vec::new()),
        When::Any(rules) => (number, rules),
    });
    let filter = SeccompFilter::new(rules.collect(), otherwise, action, TargetArch::x86_64)?;
    Ok(filter.try_into()?)
}

fn add(calls: &mut Calls, number: i64, when: &When) {
    let known = calls.entry(number).or_insert_with(|| When::Any(Vec::new()));
    match (known, when) {
        (When::Any(rules), When::Any(more)) => rules.extend_from_slice(more),
        (known, When::Always) => *known = When::Always,
        (When::Always, _) => {}
    }
}

fn number(name: &str) -> Option<i64> {
    let number: Sysno = name.parse().ok()?;
    Some(number.id().into())
}

fn action(name: &str, errno: Option<u32>) -> Result<SeccompAction> {
    Ok(match name {
        "SCMP_ACT_ALLOW" => SeccompAction::Allow,
        "SCMP_ACT_ERRNO" => SeccompAction::Errno(errno.unwrap_or(libc::EPERM.cast_unsigned())),
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => SeccompAction::KillThread,
        "SCMP_ACT_KILL_PROCESS" => SeccompAction::KillProcess,
        "SCMP_ACT_LOG" => SeccompAction::Log,
        "SCMP_ACT_TRAP" => SeccompAction::Trap,
        _ => bail!("action {name} is not supported"),
    })
}

fn conditions(arguments: &[Argument]) -> Result<When> {
    if arguments.is_empty() {
        return Ok(When::Always);
    }
    let conditions: Vec<_> = arguments.iter().map(condition).collect::<Result<_>>()?;
    let repeated = |(at, a): (usize, &Argument)| arguments[..at].iter().any(|b| a.index == b.index);
    let alternatives: Vec<Vec<_>> = if arguments.iter().enumerate().any(repeated) {
        conditions.into_iter().map(|condition| vec![condition]).collect()
    } else {
        vec![conditions]
    };
    Ok(When::Any(alternatives.into_iter().map(SeccompRule::new).collect::<Result<_, _>>()?))
}

fn condition(argument: &Argument) -> Result<SeccompCondition> {
    let (op, value) = match argument.op.as_str() {
        "SCMP_CMP_EQ" => (SeccompCmpOp::Eq, argument.value),
        "SCMP_CMP_NE" => (SeccompCmpOp::Ne, argument.value),
        "SCMP_CMP_LT" => (SeccompCmpOp::Lt, argument.value),
        "SCMP_CMP_LE" => (SeccompCmpOp::Le, argument.value),
        "SCMP_CMP_GT" => (SeccompCmpOp::Gt, argument.value),
        "SCMP_CMP_GE" => (SeccompCmpOp::Ge, argument.value),
        "SCMP_CMP_MASKED_EQ" => (SeccompCmpOp::MaskedEq(argument.value), argument.value_two),
        op => bail!("comparison {op} is not supported"),
    };
    Ok(SeccompCondition::new(argument.index, SeccompCmpArgLen::Qword, op, value)?)
}

/// What runc puts in front of a filter: ENOSYS for calls after number `last`, else on with what follows.
fn newer_calls_are_unknown(last: i64) -> BpfProgram {
    const NUMBER: u32 = 0;
    const ARCHITECTURE: u32 = 4;
    const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
    let load = |offset| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let jump = |how, jt, jf, k| instruction(libc::BPF_JMP | how | libc::BPF_K, jt, jf, k);
    let unknown = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    vec![
        load(ARCHITECTURE),
        jump(libc::BPF_JEQ, 0, 3, AUDIT_ARCH_X86_64),
        load(NUMBER),
        jump(libc::BPF_JGT, 0, 1, u32::try_from(last).unwrap_or(u32::MAX)),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, unknown),
    ]
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    let code = u16::try_from(code).expect("instruction codes have 16 bits");
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    const EPERM: i32 = libc::EPERM;
    const ENOSYS: i32 = libc::ENOSYS;

    /// The error (0 for none) of one system call under `filters`.
    fn errno_under(filters: &Filters, number: i64, arguments: [u64; 3]) -> i32 {
        // SAFETY: the child makes system calls only, allocates nothing and ends with _exit.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let installed = filters.install();
                let [a, b, c] = arguments;
                // SAFETY: the tests pass no address other than null to the kernel.
                let result = unsafe { libc::syscall(number, a, b, c, 0, 0, 0) };
                let errno = Errno::last_raw();
                let code = match (installed, result) {
                    (Err(_), _) => 255,
                    (Ok(()), -1) => errno,
                    _ => 0,
                };
                // SAFETY: ends the child without running what belongs to the parent.
                unsafe { libc::_exit(code) }
            }
            ForkResult::Parent { child } => match waitpid(child, None).unwrap() {
                WaitStatus::Exited(_, code) => code,
                other => panic!("the child did not exit: {other:?}"),
            },
        }
    }

    fn errno(profile: Profile, number: i64, arguments: [u64; 3]) -> i32 {
        errno_under(&profile.compile().unwrap(), number, arguments)
    }

    fn filters(syscalls: &str) -> Filters {
        let json = format!(
            r#"{{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"],
                "syscalls": {syscalls}}}"#
        );
        compile(&serde_json::from_str(&json).unwrap()).unwrap()
    }

    #[test]
    fn launcher_profile_is_the_default_one_and_io_uring() {
        let default: Document = serde_json::from_str(DEFAULT).unwrap();
        let launcher: Document = serde_json::from_str(LAUNCHER).unwrap();
        let (rings, rest) = launcher.syscalls.split_last().unwrap();
        assert_eq!(rest, default.syscalls);
        assert_eq!(rings.names, ["io_uring_enter", "io_uring_register", "io_uring_setup"]);
        assert_eq!((rings.action.as_str(), &rings.args), ("SCMP_ACT_ALLOW", &vec![]));
        assert_eq!(launcher.default_action, default.default_action);
        assert_eq!(launcher.default_errno_ret, default.default_errno_ret);
        assert_eq!(launcher.architectures, default.architectures);
    }

    #[test]
    fn numbers_of_names_are_those_of_the_kernel_headers() {
        assert_eq!(number("read"), Some(libc::SYS_read));
        assert_eq!(number("newfstatat"), Some(libc::SYS_newfstatat));
        assert_eq!(number("io_uring_setup"), Some(libc::SYS_io_uring_setup));
        assert_eq!(number("clone3"), Some(libc::SYS_clone3));
        assert_eq!(number("mseal"), Some(libc::SYS_mseal));
        assert_eq!(number("removexattrat"), Some(466));
    }

    #[test]
    fn names_of_other_architectures_are_passed_over() {
        assert_eq!(number("chown32"), None);
        assert_eq!(number("socketcall"), None);
    }

    #[test]
    fn io_uring_is_for_launchers_only() {
        let no_entries = [0, 0, 0];
        let not_open = u64::from(i32::MAX.cast_unsigned());
        assert_eq!(errno(Profile::Default, libc::SYS_io_uring_setup, no_entries), EPERM);
        assert_ne!(errno(Profile::Launcher, libc::SYS_io_uring_setup, no_entries), EPERM);
        for number in [libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
            assert_eq!(errno(Profile::Default, number, [not_open, 0, 0]), EPERM);
            assert_eq!(errno(Profile::Launcher, number, [not_open, 0, 0]), libc::EBADF);
        }
    }

    #[test]
    fn calls_outside_both_lists_give_eperm() {
        for number in [libc::SYS_userfaultfd, libc::SYS_unshare, libc::SYS_mount, libc::SYS_keyctl]
        {
            assert_eq!(errno(Profile::Default, number, [0; 3]), EPERM, "{number}");
            assert_eq!(errno(Profile::Launcher, number, [0; 3]), EPERM, "{number}");
        }
    }

    #[test]
    fn personality_is_allowed_by_its_value() {
        for (value, wanted) in
            [(0, 0), (8, 0), (0xffff_ffff, 0), (0x40000, EPERM), (1 << 32, EPERM)]
        {
            let errno = errno(Profile::Launcher, libc::SYS_personality, [value, 0, 0]);
            assert_eq!(errno, wanted, "{value:#x}");
        }
    }

    #[test]
    fn socket_is_allowed_by_its_family() {
        let stream = 1;
        for (family, wanted) in
            [(libc::AF_UNIX, 0), (libc::AF_INET, 0), (libc::AF_VSOCK, EPERM), (libc::AF_ALG, EPERM)]
        {
            let family = u64::from(family.cast_unsigned());
            let errno = errno(Profile::Launcher, libc::SYS_socket, [family, stream, 0]);
            assert_eq!(errno, wanted, "family {family}");
        }
    }

    #[test]
    fn clone_is_allowed_without_new_namespaces_and_clone3_not_known() {
        let new_user = u64::from(libc::CLONE_NEWUSER.cast_unsigned());
        // CLONE_THREAD without CLONE_SIGHAND: the kernel refuses what the filter lets through.
        let refused = u64::from(libc::CLONE_THREAD.cast_unsigned());
        assert_eq!(errno(Profile::Launcher, libc::SYS_clone, [new_user, 0, 0]), EPERM);
        assert_eq!(errno(Profile::Launcher, libc::SYS_clone, [refused, 0, 0]), libc::EINVAL);
        assert_eq!(errno(Profile::Launcher, libc::SYS_clone3, [0; 3]), ENOSYS);
        assert_eq!(errno(Profile::Default, libc::SYS_clone3, [0; 3]), ENOSYS);
    }

    #[test]
    fn newer_calls_and_x32_are_not_known() {
        const X32: i64 = 0x4000_0000;
        for number in [467, 5000, X32 | libc::SYS_getpid] {
            assert_eq!(errno(Profile::Launcher, number, [0; 3]), ENOSYS, "{number}");
        }
    }

    #[test]
    fn conditions_of_one_entry_must_all_hold() {
        let filters = filters(
            r#"[{"names": ["getpriority", "no_such_call"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77, "args": [
                {"index": 0, "value": 0, "op": "SCMP_CMP_EQ"},
                {"index": 1, "value": 0, "op": "SCMP_CMP_EQ"}]}]"#,
        );
        let itself = u64::from(std::process::id());
        assert_eq!(errno_under(&filters, libc::SYS_getpriority, [0, 0, 0]), 77);
        assert_eq!(errno_under(&filters, libc::SYS_getpriority, [0, itself, 0]), 0);
        assert_eq!(errno_under(&filters, libc::SYS_getpriority, [1, 0, 0]), 0);
    }

    #[test]
    fn entries_of_one_call_and_conditions_on_one_argument_are_alternatives() {
        let two_entries = filters(
            r#"[{"names": ["alarm"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77,
                 "args": [{"index": 0, "value": 100, "op": "SCMP_CMP_EQ"}]},
                {"names": ["alarm"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77,
                 "args": [{"index": 0, "value": 200, "op": "SCMP_CMP_GE"}]}]"#,
        );
        let one_entry = filters(
            r#"[{"names": ["alarm"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77, "args": [
                {"index": 0, "value": 100, "op": "SCMP_CMP_EQ"},
                {"index": 0, "value": 200, "op": "SCMP_CMP_GE"}]}]"#,
        );
        for filters in [two_entries, one_entry] {
            for (seconds, wanted) in [(100, 77), (200, 77), (300, 77), (101, 0)] {
                assert_eq!(errno_under(&filters, libc::SYS_alarm, [seconds, 0, 0]), wanted);
            }
        }
    }

    #[test]
    fn unconditional_entry_beats_a_conditional_one_in_either_order() {
        let always = r#"{"names": ["alarm"], "action": "SCMP_ACT_ERRNO"}"#;
        let sometimes = r#"{"names": ["alarm"], "action": "SCMP_ACT_ERRNO",
            "args": [{"index": 0, "value": 9, "op": "SCMP_CMP_EQ"}]}"#;
        for entries in [[always, sometimes], [sometimes, always]] {
            let filters = filters(&format!("[{}]", entries.join(",")));
            assert_eq!(errno_under(&filters, libc::SYS_alarm, [0; 3]), EPERM);
        }
    }

    #[test]
    fn what_cannot_be_expressed_is_refused() {
        let refused = [
            r#"{"names": ["read"], "action": "SCMP_ACT_NOTIFY"}"#,
            r#"{"names": ["read"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 6, "value": 0, "op": "SCMP_CMP_EQ"}]}"#,
            r#"{"names": ["read"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": 0, "op": "LIKE"}]}"#,
        ];
        for entry in refused {
            let document = Document {
                default_action: "SCMP_ACT_ALLOW".into(),
                default_errno_ret: None,
                architectures: vec!["SCMP_ARCH_X86_64".into()],
                syscalls: vec![serde_json::from_str(entry).unwrap()],
            };
            assert!(compile(&document).is_err(), "{entry}");
        }
    }
}
