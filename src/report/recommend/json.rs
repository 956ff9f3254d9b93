//! The report itself, as JSON and as YAML. Its schema is `docs/schema/recommend.v1.json`.

use std::io;

use plimsoll_core::rightsizing::report::Report;

/// Writes the report as JSON. As a text, that of a large cluster would need more memory than the report itself.
pub fn write_json(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    out.write_all(b"\n")
}

pub(super) fn json(report: &Report) -> serde_json::Result<String> {
    serde_json::to_string_pretty(report).map(|json| json + "\n")
}

pub(super) fn yaml(report: &Report) -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::recommend::test_reports::sample;

    #[test]
    fn both_are_read_back_as_the_same_report() {
        let report = sample();
        let text = json(&report).expect("JSON");
        let mut written = Vec::new();
        write_json(&report, &mut written).expect("a vector is writable");
        assert_eq!(String::from_utf8(written).expect("UTF-8"), text);
        assert_eq!(serde_json::from_str::<Report>(&text).expect("a report"), report);
        let text = yaml(&report).expect("YAML");
        assert_eq!(serde_saphyr::from_str::<Report>(&text).expect("a report"), report);
        assert!(text.starts_with("schemaVersion: 1\nkind: recommend\n"), "{text}");
    }

    /// Counts what is written.
    #[derive(Default)]
    struct ByteCount(usize);

    impl io::Write for ByteCount {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_report_of_megabytes_is_written_in_kilobytes() {
        let mut report = sample();
        report.workloads = vec![report.workloads[0].clone(); 2_000];
        let mut written = ByteCount::default();
        let used = allocation_counter::measure(|| {
            write_json(&report, &mut written).expect("a count is writable");
        });
        assert!(written.0 > 2_000_000, "{}", written.0);
        assert!(used.bytes_max < 16 << 10, "{} bytes", used.bytes_max);
    }
}
