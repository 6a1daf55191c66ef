//! The disk on which a guest reads how its host is doing (`downwardMetrics`), as vhostmd has it and `vm-dump-metrics` reads it.
//!
//! ```text
//!  0      4      8     12       16
//!  | mvbd | busy | sum | length | XML ...                              | zeroes, up to 256 KiB |
//! ```
//!
//! Numbers are big-endian; the sum is that of the XML's bytes. A guest reads the header, the document and the header again, and
//! begins anew if it was busy in between or its sum has changed. The file is a sealed part of memory: nobody can make it larger or
//! smaller, the VM process has it for reading only, and whoever keeps [`MetricsDisk`] writes it anew every [`PERIOD`].
//!
//! What is told is what KubeVirt tells, under the same names (`host.rs` collects it): nothing of other VMs, but the node's name, its
//! memory and its processors' time. So the volume is for guests that may know that much of their host.

mod host;

pub use self::host::{Collector, HostFacts, VmFacts};

use std::fmt::Write;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Bytes of the disk.
pub const SIZE: u64 = 256 << 10;
/// How often it is to be written.
pub const PERIOD: Duration = Duration::from_secs(5);
const HEADER: usize = 16;

/// Whom a metric is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// The node.
    Host,
    /// The guest's own machine.
    Vm,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `string`.
    Text(String),
    /// `uint64`.
    Count(u64),
    /// `int64`.
    Time(i64),
    /// `real64`, with six digits behind the point.
    Real(f64),
}

/// One line of the document.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Whom it is about.
    pub context: Context,
    /// `TotalCPUTime`.
    pub name: &'static str,
    /// `KiB`, `s`, or empty for none.
    pub unit: &'static str,
    /// What was measured.
    pub value: Value,
}

/// The disk, for whoever writes it.
#[derive(Debug)]
pub struct MetricsDisk(File);

impl MetricsDisk {
    /// A new one, with an empty document.
    pub fn new() -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create("downward-metrics", flags)?);
        file.set_len(SIZE)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        let disk = Self(file);
        disk.write(&[])?;
        Ok(disk)
    }

    /// The disk as a guest gets it: for reading.
    pub fn reader(&self) -> io::Result<File> {
        OpenOptions::new().read(true).open(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// Writes these metrics in the place of those before.
    pub fn write(&self, metrics: &[Metric]) -> io::Result<()> {
        let document = document(metrics);
        let too_long = || io::Error::new(io::ErrorKind::FileTooLarge, "the metrics are too many");
        let length = u32::try_from(document.len()).map_err(|_| too_long())?;
        if u64::from(length) > SIZE - HEADER as u64 {
            return Err(too_long());
        }
        let sum = document.bytes().fold(0_u32, |sum, byte| sum.wrapping_add(byte.into()));
        self.0.write_all_at(&header(true, sum, length), 0)?;
        self.0.write_all_at(document.as_bytes(), HEADER as u64)?;
        self.0.write_all_at(&header(false, sum, length), 0)
    }
}

fn header(is_busy: bool, sum: u32, length: u32) -> [u8; HEADER] {
    let mut bytes = *b"mvbd\0\0\0\0\0\0\0\0\0\0\0\0";
    bytes[4..8].copy_from_slice(&u32::from(is_busy).to_be_bytes());
    bytes[8..12].copy_from_slice(&sum.to_be_bytes());
    bytes[12..].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn document(metrics: &[Metric]) -> String {
    let mut xml = String::from("<metrics>\n");
    for Metric { context, name, unit, value } in metrics {
        let context = match context {
            Context::Host => "host",
            Context::Vm => "vm",
        };
        let (kind, value) = match value {
            Value::Text(text) => ("string", escaped(text)),
            Value::Count(number) => ("uint64", number.to_string()),
            Value::Time(number) => ("int64", number.to_string()),
            Value::Real(number) => ("real64", format!("{number:.6}")),
        };
        let unit = if unit.is_empty() { String::new() } else { format!(" unit=\"{unit}\"") };
        let line = format!(
            "  <metric type=\"{kind}\" context=\"{context}\"{unit}>\n    <name>{name}</name>\n    <value>{value}</value>\n  </metric>"
        );
        writeln!(xml, "{line}").expect("text can be written to a string");
    }
    // vm-dump-metrics adds no end of line of its own.
    xml.push_str("</metrics>\n");
    xml
}

/// Text that an XML document can have, whatever it was.
fn escaped(text: &str) -> String {
    let mut xml = String::new();
    for letter in text.chars() {
        match letter {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            letter if letter.is_control() => xml.push(' '),
            letter => xml.push(letter),
        }
    }
    xml
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &File) -> ([u32; 3], String) {
        let mut bytes = vec![0; SIZE.try_into().unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..4], b"mvbd");
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let fields = [word(4), word(8), word(12)];
        let length = usize::try_from(fields[2]).unwrap();
        assert!(bytes[HEADER + length..].iter().all(|byte| *byte == 0));
        (fields, String::from_utf8(bytes[HEADER..HEADER + length].to_vec()).unwrap())
    }

    #[test]
    fn the_document_and_its_sum_are_as_guests_want_them() {
        let disk = MetricsDisk::new().unwrap();
        let reader = disk.reader().unwrap();
        assert_eq!(read(&reader).1, "<metrics>\n</metrics>\n");
        let metrics = [
            Metric {
                context: Context::Host,
                name: "HostName",
                unit: "",
                value: Value::Text("a&b".into()),
            },
            Metric {
                context: Context::Vm,
                name: "TotalCPUTime",
                unit: "s",
                value: Value::Real(1.5),
            },
        ];
        disk.write(&metrics).unwrap();
        let ([busy, sum, _], xml) = read(&reader);
        assert_eq!(busy, 0);
        assert_eq!(sum, xml.bytes().map(u32::from).sum::<u32>());
        let expected = "<metrics>\n  <metric type=\"string\" context=\"host\">\n    <name>HostName</name>\n    \
            <value>a&amp;b</value>\n  </metric>\n  <metric type=\"real64\" context=\"vm\" unit=\"s\">\n    \
            <name>TotalCPUTime</name>\n    <value>1.500000</value>\n  </metric>\n</metrics>\n";
        assert_eq!(xml, expected);
    }

    #[test]
    fn what_is_shorter_leaves_nothing_of_what_was_longer_in_the_document() {
        let disk = MetricsDisk::new().unwrap();
        let name = |length| Value::Text("x".repeat(length));
        let metric = |length| Metric {
            context: Context::Host,
            name: "HostName",
            unit: "",
            value: name(length),
        };
        disk.write(&[metric(100)]).unwrap();
        disk.write(&[metric(1)]).unwrap();
        let mut bytes = [0; 200];
        disk.0.read_exact_at(&mut bytes, 0).unwrap();
        let length =
            usize::try_from(u32::from_be_bytes(bytes[12..16].try_into().unwrap())).unwrap();
        assert!(bytes[HEADER..HEADER + length].ends_with(b"</metrics>\n"));
    }

    #[test]
    fn more_than_fits_is_refused_and_the_guest_cannot_write() {
        let disk = MetricsDisk::new().unwrap();
        let text = Value::Text("x".repeat(SIZE.try_into().unwrap()));
        let metric = Metric { context: Context::Host, name: "HostName", unit: "", value: text };
        assert!(disk.write(&[metric]).is_err());
        let reader = disk.reader().unwrap();
        assert!(reader.write_all_at(b"x", 0).is_err());
        assert!(disk.0.set_len(1 << 20).is_err());
        assert_eq!(read(&reader).1, "<metrics>\n</metrics>\n");
    }
}
