//! The report of `--junit`: there from the moment the command begins, and true at each moment until it ends.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::run::absolute;
use crate::failure::Failure;
use crate::junit::{Case, Verdict};
use crate::phase;

/// What a report says of a command that was killed before it could say more.
const UNFINISHED: &str = "corten was ended before the VM was";

/// How a run came out.
#[derive(Debug)]
pub(super) struct Outcome {
    /// With which status the command ends.
    pub(super) status: u8,
    /// What that means.
    pub(super) verdict: Verdict,
}

/// A report, or none.
#[derive(Debug)]
pub(super) struct Report {
    file: Option<(PathBuf, File)>,
    /// What is reported on: the VM's name, once it is known.
    pub(super) name: String,
    /// The end of what the guest said.
    pub(super) tail: Vec<u8>,
    begun: u64,
}

impl Report {
    /// Opens the file, so that nothing is begun that could not be reported. Of `what` until the VM's name is known.
    pub(super) fn open(path: Option<&Path>, what: &Path, begun: u64) -> Result<Self, Failure> {
        let file = match path {
            Some(path) => {
                let path = absolute(path)?;
                let file = create(&path)?;
                Some((path, file))
            }
            None => None,
        };
        let name = what.display().to_string();
        let mut report = Self { file, name, tail: Vec::new(), begun };
        // What is no file takes one report, which is the last.
        if report.file.as_ref().is_some_and(|(_, file)| is_file(file)) {
            report.write(&Verdict::Error(UNFINISHED.into()))?;
        }
        Ok(report)
    }

    /// Reports what came of the command, whatever it is; the status to end with.
    pub(super) fn finish(mut self, outcome: Result<Outcome, Failure>) -> Result<u8, Failure> {
        match outcome {
            Ok(Outcome { status, verdict }) => {
                self.write(&verdict)?;
                Ok(status)
            }
            Err(failure) => {
                let text = corten_launcher::log::chain(&failure);
                // The failure itself is what the user has to know.
                if let Err(error) = self.write(&Verdict::Error(text)) {
                    super::say(&corten_launcher::log::chain(&error));
                }
                Err(failure)
            }
        }
    }

    fn write(&mut self, verdict: &Verdict) -> Result<(), Failure> {
        let time = Duration::from_nanos(phase::now().saturating_sub(self.begun));
        let case = Case { name: &self.name, time, verdict, console: &self.tail };
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let written = replace(file, case.to_xml().as_bytes());
        written.map_err(|source| Failure::Write { path: path.clone(), source })
    }
}

fn is_file(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.is_file())
}

fn replace(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    if is_file(file) {
        file.set_len(0)?;
        file.rewind()?;
    }
    file.write_all(bytes)
}

/// Opens a file to be written to that the command line names. One in a directory that is not there says so.
pub(super) fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|source| {
        let missing = path.parent().filter(|parent| !parent.is_dir());
        match (source.kind(), missing) {
            (io::ErrorKind::NotFound | io::ErrorKind::NotADirectory, Some(parent)) => {
                let (path, directory) = (path.display(), parent.display());
                Failure::Said(format!(
                    "cannot write {path}: there is no directory {directory}; make it first"
                ))
            }
            _ => Failure::Write { path: path.into(), source },
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn open(path: &Path) -> Result<Report, Failure> {
        Report::open(Some(path), Path::new("vm.yaml"), phase::now())
    }

    #[test]
    fn report_is_there_from_the_start_and_says_what_went_wrong_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.xml");
        fs::write(&path, "x".repeat(10_000)).unwrap();
        let report = open(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(UNFINISHED) && text.contains("name=\"vm.yaml\""), "{text}");
        assert!(text.ends_with("</testsuites>\n"), "{text}");
        let failure = Failure::Said("something is wrong".into());
        assert!(report.finish(Err(failure)).is_err());
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("<error message=\"something is wrong\"/>"), "{text}");
        assert!(text.contains("errors=\"1\"") && !text.contains(UNFINISHED), "{text}");
    }

    #[test]
    fn outcome_of_the_vm_stands_under_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.xml");
        let mut report = open(&path).unwrap();
        report.name = "first".into();
        report.tail = b"hello\n".to_vec();
        let outcome = Outcome { status: 0, verdict: Verdict::Passed };
        assert_eq!(report.finish(Ok(outcome)).unwrap(), 0);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("name=\"first\"") && text.contains("errors=\"0\""), "{text}");
        assert!(text.contains("<system-out>hello\n</system-out>"), "{text}");
    }

    #[test]
    fn file_that_cannot_be_written_is_refused_at_once_and_says_what_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        let error = open(&directory.path().join("no/result.xml")).unwrap_err().to_string();
        assert!(error.contains("there is no directory"), "{error}");
        let error = open(directory.path()).unwrap_err();
        assert!(matches!(error, Failure::Write { .. }), "{error}");
        fs::write(directory.path().join("file"), "").unwrap();
        let error = open(&directory.path().join("file/result.xml")).unwrap_err().to_string();
        assert!(error.contains("there is no directory"), "{error}");
    }
}
