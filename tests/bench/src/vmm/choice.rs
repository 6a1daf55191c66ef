//! Which VMMs are compared, as `--against` names them.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{Corten, Machine, Qemu, Vmm};

/// One name of the list: a known VMM, or another build of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    name: String,
    kind: Kind,
    /// Where it is, if not where [`Programs`] says.
    pub program: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Corten,
    Qemu(Machine),
}

/// How names begin. What comes after that tells builds of one VMM apart.
const KINDS: [(&str, Kind); 3] = [
    ("corten", Kind::Corten),
    ("qemu-q35", Kind::Qemu(Machine::Q35)),
    ("qemu-microvm", Kind::Qemu(Machine::Microvm)),
];

/// Where VMMs are that were named without a path.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Corten's VM process.
    pub corten: PathBuf,
    /// QEMU.
    pub qemu: PathBuf,
}

impl FromStr for Choice {
    type Err = String;

    /// `corten`, `qemu-q35`, `qemu-microvm`, or such a name with more behind it and the path of a program:
    /// `corten-base=/path/to/corten-vmm`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, program) = match text.split_once('=') {
            Some((name, path)) => (name, Some(PathBuf::from(path))),
            None => (text, None),
        };
        let known = KINDS.iter().find(|(start, _)| {
            let rest = name.strip_prefix(start);
            rest.is_some_and(|rest| rest.is_empty() || program.is_some() && rest.starts_with('-'))
        });
        let Some((_, kind)) = known else {
            let names = KINDS.map(|(name, _)| name).join(", ");
            return Err(format!(
                "{text}: not one of {names}, nor NAME-WORD=PATH that starts with one of them"
            ));
        };
        Ok(Self { name: name.into(), kind: *kind, program })
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.program {
            Some(program) => write!(f, "{}={}", self.name, program.display()),
            None => f.write_str(&self.name),
        }
    }
}

impl Choice {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that is run.
    pub fn program<'a>(&'a self, programs: &'a Programs) -> &'a Path {
        let usual = match self.kind {
            Kind::Corten => &programs.corten,
            Kind::Qemu(_) => &programs.qemu,
        };
        self.program.as_ref().unwrap_or(usual)
    }

    /// The VMM of this name, from the file `program`.
    pub fn vmm(&self, program: &Path) -> Box<dyn Vmm> {
        match self.kind {
            Kind::Corten => Box::new(Corten::new(&self.name, program)),
            Kind::Qemu(machine) => Box::new(Qemu::new(&self.name, program, machine)),
        }
    }

    /// Whether the program is one file that may be copied to memory first. QEMU is libraries and firmware too.
    pub fn is_one_file(&self) -> bool {
        self.kind == Kind::Corten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_and_further_builds_of_them_are_taken() {
        for text in ["corten", "qemu-q35", "qemu-microvm=/usr/bin/qemu", "corten-base=/tmp/vmm"] {
            assert_eq!(text.parse::<Choice>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn unknown_names_are_refused_with_those_that_are_known() {
        for text in ["", "firecracker", "cortenx=/tmp/vmm", "corten-base", "qemu=/usr/bin/qemu"] {
            let error = text.parse::<Choice>().unwrap_err();
            assert!(error.contains("corten, qemu-q35, qemu-microvm"), "{error}");
        }
    }

    #[test]
    fn path_of_a_choice_goes_before_the_usual_one() {
        let programs = Programs { corten: "/c".into(), qemu: "/q".into() };
        let program = |text: &str| text.parse::<Choice>().unwrap().program(&programs).to_owned();
        assert_eq!(program("corten"), Path::new("/c"));
        assert_eq!(program("corten-new=/n"), Path::new("/n"));
        assert_eq!(program("qemu-q35"), Path::new("/q"));
    }
}
