//! From lists of calls to programs for the kernel.

use std::collections::BTreeMap;
use std::process;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use super::SandboxError;
use super::calls::{Call, ThreadKind, When};

/// What becomes of a call that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It ends the process.
    Enforce,
    /// It is done, and the kernel logs it.
    Log,
}

/// The programs of all kinds of threads.
#[derive(Debug)]
pub(super) struct Filters {
    threads: Vec<(ThreadKind, BpfProgram)>,
    without_clone3: BpfProgram,
}

impl Filters {
    pub(super) fn compile(mode: Mode) -> Result<Self, SandboxError> {
        let thread = |kind: ThreadKind| {
            let program = compile(&kind.calls(), mode);
            Ok((kind, program.map_err(|error| SandboxError::Filter(kind.name(), error))?))
        };
        let threads = ThreadKind::ALL.into_iter().map(thread).collect::<Result<_, _>>()?;
        let owner = ThreadKind::Owner.name();
        let without_clone3 =
            without_clone3().map_err(|error| SandboxError::Filter(owner, error))?;
        Ok(Self { threads, without_clone3 })
    }

    /// Narrows the calling thread. What it makes later inherits that.
    pub(super) fn apply(&self, kind: ThreadKind) -> seccompiler::Result<()> {
        if kind == ThreadKind::Owner {
            seccompiler::apply_filter(&self.without_clone3)?;
        }
        let own = self.threads.iter().filter(|(other, _)| *other == kind);
        own.into_iter().try_for_each(|(_, program)| seccompiler::apply_filter(program))
    }
}

fn compile(calls: &[Call], mode: Mode) -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in calls {
        for rule in rules_of(call.when)? {
            let known = rules.entry(call.number).or_default();
            if !known.contains(&rule) {
                known.push(rule);
            }
        }
    }
    // Without a rule a call is allowed with whatever arguments; who says so outdoes who is narrower.
    for call in calls.iter().filter(|call| call.when == When::Always) {
        rules.insert(call.number, Vec::new());
    }
    let otherwise = match mode {
        Mode::Enforce => SeccompAction::Trap,
        Mode::Log => SeccompAction::Log,
    };
    SeccompFilter::new(rules, otherwise, SeccompAction::Allow, TargetArch::x86_64)?.try_into()
}

fn rules_of(when: When) -> Result<Vec<SeccompRule>, BackendError> {
    let rule = |argument: u8, operation: SeccompCmpOp, value: u32| {
        let length = SeccompCmpArgLen::Dword;
        let condition = SeccompCondition::new(argument, length, operation, value.into())?;
        SeccompRule::new(vec![condition])
    };
    match when {
        When::Always => Ok(Vec::new()),
        When::Equals(argument, values) => {
            values.iter().map(|value| rule(argument, SeccompCmpOp::Eq, *value)).collect()
        }
        When::Lacks(argument, bits) => {
            Ok(vec![rule(argument, SeccompCmpOp::MaskedEq(bits.into()), 0)?])
        }
        When::OwnProcess(argument) => Ok(vec![rule(argument, SeccompCmpOp::Eq, process::id())?]),
    }
}

/// The stricter answer of two filters counts: this one lets everything pass but clone3, which the other one allows.
fn without_clone3() -> Result<BpfProgram, BackendError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, missing, TargetArch::x86_64)?.try_into()
}
