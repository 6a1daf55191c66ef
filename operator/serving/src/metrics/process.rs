//! What this process uses, under the names that every exporter has.

use super::family::{Kind, heading, sample};

/// Ticks in a second, as Linux counts a process's time: it tells this number to everybody, whatever it uses itself.
const TICKS: f64 = 100.0;

/// Writes memory and CPU time of this process.
pub fn write(text: &mut String) {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let numbers = [
        (
            "process_resident_memory_bytes",
            "Memory of this process.",
            Kind::Gauge,
            resident(&read("/proc/self/status")),
        ),
        (
            "process_cpu_seconds_total",
            "CPU time of this process.",
            Kind::Counter,
            cpu(&read("/proc/self/stat")),
        ),
    ];
    for (name, help, kind, value) in numbers {
        heading(text, name, help, kind);
        if let Some(value) = value {
            sample(text, name, &[], value);
        }
    }
}

fn resident(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

fn cpu(stat: &str) -> Option<f64> {
    // The second field is a name in parentheses, which may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_time_are_read_as_linux_writes_them() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2_097_152.0));
        assert_eq!(resident(""), None);
        assert_eq!(cpu("1 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 250 50 0 0 20"), Some(3.0));
        assert_eq!(cpu("1 (a"), None);
    }
}
