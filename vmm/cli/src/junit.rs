//! The outcome of a run as a test report: one test case, in the form that CI systems read.

use std::fmt::Write;
use std::time::Duration;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The guest did what it should.
    Passed,
    /// It did not: why.
    Failed(String),
    /// Whether it would have is not known: what went wrong.
    Error(String),
}

/// What is reported.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The VM's name.
    pub name: &'a str,
    /// How long it took.
    pub time: Duration,
    /// What came of it.
    pub verdict: &'a Verdict,
    /// The end of what the guest said.
    pub console: &'a [u8],
}

impl Case<'_> {
    /// The report.
    pub fn to_xml(self) -> String {
        let (name, time) = (escape(self.name), format!("{:.3}", self.time.as_secs_f64()));
        let (failures, errors, why) = match self.verdict {
            Verdict::Passed => (0, 0, None),
            Verdict::Failed(why) => (1, 0, Some(("failure", why))),
            Verdict::Error(why) => (0, 1, Some(("error", why))),
        };
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let counts =
            format!("tests=\"1\" failures=\"{failures}\" errors=\"{errors}\" time=\"{time}\"");
        // Writing to a String does not fail.
        let _ = writeln!(xml, "<testsuites {counts}>\n  <testsuite name=\"corten\" {counts}>");
        let _ = writeln!(
            xml,
            "    <testcase classname=\"corten.run\" name=\"{name}\" time=\"{time}\">"
        );
        if let Some((element, why)) = why {
            // In an attribute a parser would make a space of it.
            let _ = writeln!(
                xml,
                "      <{element} message=\"{}\"/>",
                escape(why).replace('\n', "&#10;")
            );
        }
        let console = escape(&String::from_utf8_lossy(self.console));
        let _ = writeln!(xml, "      <system-out>{console}</system-out>\n    </testcase>");
        xml + "  </testsuite>\n</testsuites>\n"
    }
}

/// Text of a guest, which may have anything in it, as XML may have it.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // A parser would make a line feed of it, which stands there anyway.
            '\r' => {}
            '\n' | '\t' => escaped.push(character),
            // XML has no way to say these.
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {
                escaped.push('\u{fffd}');
            }
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_case_says_why_and_what_the_guest_said() {
        let console = b"a < b & \x1b[1m\r\nbad \xff end\0\n";
        let case = Case {
            name: "first",
            time: Duration::from_millis(1500),
            verdict: &Verdict::Failed("the guest told status 3".into()),
            console,
        };
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
            <testsuites tests=\"1\" failures=\"1\" errors=\"0\" time=\"1.500\">\n  \
            <testsuite name=\"corten\" tests=\"1\" failures=\"1\" errors=\"0\" time=\"1.500\">\n    \
            <testcase classname=\"corten.run\" name=\"first\" time=\"1.500\">\n      \
            <failure message=\"the guest told status 3\"/>\n      \
            <system-out>a &lt; b &amp; \u{fffd}[1m\nbad \u{fffd} end\u{fffd}\n</system-out>\n    \
            </testcase>\n  </testsuite>\n</testsuites>\n";
        assert_eq!(case.to_xml(), expected);
    }

    #[test]
    fn passed_case_has_no_failure() {
        let verdict = &Verdict::Passed;
        let case = Case { name: "a", time: Duration::ZERO, verdict, console: b"" };
        let xml = case.to_xml();
        assert!(xml.contains("failures=\"0\"") && !xml.contains("<failure"), "{xml}");
    }

    #[test]
    fn case_that_could_not_be_tried_is_an_error_and_no_failure() {
        let verdict = &Verdict::Error("no \"KVM\"\nhere".into());
        let xml = Case { name: "a", time: Duration::ZERO, verdict, console: b"" }.to_xml();
        assert!(xml.contains("failures=\"0\" errors=\"1\""), "{xml}");
        assert!(xml.contains("<error message=\"no &quot;KVM&quot;&#10;here\"/>"), "{xml}");
    }
}
