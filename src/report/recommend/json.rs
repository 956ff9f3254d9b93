//! The report itself, as JSON and as YAML. Its schema is `docs/schema/recommend.v1.json`.

use std::io;

use plimsoll_core::rightsizing::report::Report;

/// The report as JSON.
pub(super) fn json(report: &Report) -> serde_json::Result<String> {
    serde_json::to_string_pretty(report).map(|json| json + "\n")
}

/// Writes the report as JSON, without building it in memory: that of a large cluster has tens of megabytes.
pub fn write_json(report: &Report, mut out: impl io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, report)?;
    out.write_all(b"\n")
}

/// The report as YAML.
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
        assert_eq!(serde_json::from_str::<Report>(&text).expect("a report"), report);
        let mut written = Vec::new();
        write_json(&report, &mut written).expect("writes");
        assert_eq!(written, text.into_bytes());
        let text = yaml(&report).expect("YAML");
        assert_eq!(serde_saphyr::from_str::<Report>(&text).expect("a report"), report);
        assert!(text.starts_with("schemaVersion: 1\nkind: recommend\n"), "{text}");
    }
}
