//! The report itself, as JSON and as YAML. Its schema is `docs/schema/recommend.v1.json`.

use plimsoll_core::rightsizing::report::Report;

/// The report as JSON.
pub(super) fn json(report: &Report) -> serde_json::Result<String> {
    serde_json::to_string_pretty(report).map(|json| json + "\n")
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
        let text = yaml(&report).expect("YAML");
        assert_eq!(serde_saphyr::from_str::<Report>(&text).expect("a report"), report);
        assert!(text.starts_with("schemaVersion: 1\nkind: recommend\n"), "{text}");
    }
}
