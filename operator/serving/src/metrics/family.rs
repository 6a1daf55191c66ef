//! A metric with its series, and how it is written (Prometheus text format 0.0.4).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

/// What kind of number it is.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It is what it is.
    Gauge,
    /// How often it was how much; these are the upper edges.
    Histogram(&'static [f64]),
}

/// A metric: one series for each combination of its labels' values.
#[derive(Debug)]
pub struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    series: Mutex<BTreeMap<Vec<String>, Series>>,
}

#[derive(Clone, Debug, Default)]
struct Series {
    /// The number; of a histogram the sum.
    value: f64,
    /// Of a histogram: how many fell below each edge, and above the one before. The last is beyond all edges.
    counts: Vec<u64>,
}

impl Family {
    /// One without any series.
    pub const fn new(
        name: &'static str,
        help: &'static str,
        kind: Kind,
        labels: &'static [&'static str],
    ) -> Self {
        Self { name, help, kind, labels, series: Mutex::new(BTreeMap::new()) }
    }

    /// One more.
    pub fn add(&self, values: &[&str]) {
        self.change(values, |series| series.value += 1.0);
    }

    /// It is this.
    pub fn set(&self, values: &[&str], value: f64) {
        self.change(values, |series| series.value = value);
    }

    /// It was this, once more.
    pub fn observe(&self, values: &[&str], value: f64) {
        let Kind::Histogram(edges) = self.kind else { return };
        let bucket = edges.iter().position(|edge| value <= *edge).unwrap_or(edges.len());
        self.change(values, |series| {
            series.counts.resize(edges.len() + 1, 0);
            if let Some(count) = series.counts.get_mut(bucket) {
                *count += 1;
            }
            series.value += value;
        });
    }

    fn change(&self, values: &[&str], change: impl FnOnce(&mut Series)) {
        debug_assert_eq!(values.len(), self.labels.len(), "{}", self.name);
        let mut all = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let key: Vec<_> = values.iter().map(|value| (*value).to_owned()).collect();
        change(all.entry(key).or_default());
    }

    /// Writes it with all its series.
    pub fn write(&self, text: &mut String) {
        heading(text, self.name, self.help, self.kind);
        let all = self.series.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (values, series) in all {
            let labels: Vec<_> =
                self.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
            match self.kind {
                Kind::Counter | Kind::Gauge => sample(text, self.name, &labels, series.value),
                Kind::Histogram(edges) => histogram(text, self.name, &labels, edges, &series),
            }
        }
    }
}

fn histogram(
    text: &mut String,
    name: &str,
    labels: &[(&str, &str)],
    edges: &[f64],
    series: &Series,
) {
    let mut below = 0;
    let edges = edges.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
    for (edge, count) in edges.zip(&series.counts) {
        below += count;
        let with_edge: Vec<_> = labels.iter().copied().chain([("le", edge.as_str())]).collect();
        whole(text, &format!("{name}_bucket"), &with_edge, below);
    }
    sample(text, &format!("{name}_sum"), labels, series.value);
    whole(text, &format!("{name}_count"), labels, below);
}

/// What stands before the samples of a metric.
pub fn heading(text: &mut String, name: &str, help: &str, kind: Kind) {
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    };
    // Writing to a String does not fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// One sample.
pub fn sample(text: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    let _ = writeln!(text, "{name}{} {value}", Braces(labels));
}

/// One that has no fraction.
pub fn whole(text: &mut String, name: &str, labels: &[(&str, &str)], value: u64) {
    let _ = writeln!(text, "{name}{} {value}", Braces(labels));
}

struct Braces<'a>(&'a [(&'a str, &'a str)]);

impl std::fmt::Display for Braces<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(f, "{before}{name}=\"{value}\"")?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_char('}') }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(family: &Family) -> String {
        let mut text = String::new();
        family.write(&mut text);
        text
    }

    #[test]
    fn a_counter_has_a_series_for_each_combination() {
        let family = Family::new("c_total", "Counts.", Kind::Counter, &["a", "b"]);
        family.add(&["x", "y"]);
        family.add(&["x", "y"]);
        family.add(&["q\"\\\n", ""]);
        assert_eq!(
            written(&family),
            "# HELP c_total Counts.\n# TYPE c_total counter\n\
             c_total{a=\"q\\\"\\\\\\n\",b=\"\"} 1\nc_total{a=\"x\",b=\"y\"} 2\n"
        );
    }

    #[test]
    fn buckets_of_a_histogram_hold_those_below_too() {
        let family = Family::new("h", "Measures.", Kind::Histogram(&[0.5, 2.0]), &["a"]);
        for value in [0.1, 0.5, 1.0, 9.0] {
            family.observe(&["x"], value);
        }
        assert_eq!(
            written(&family),
            "# HELP h Measures.\n# TYPE h histogram\n\
             h_bucket{a=\"x\",le=\"0.5\"} 2\nh_bucket{a=\"x\",le=\"2\"} 3\nh_bucket{a=\"x\",le=\"+Inf\"} 4\n\
             h_sum{a=\"x\"} 10.6\nh_count{a=\"x\"} 4\n"
        );
    }

    #[test]
    fn a_gauge_without_labels_has_no_braces() {
        let family = Family::new("g", "Is.", Kind::Gauge, &[]);
        family.set(&[], 1.0);
        family.set(&[], 0.0);
        assert_eq!(written(&family), "# HELP g Is.\n# TYPE g gauge\ng 0\n");
    }
}
