//! The report about a HorizontalPodAutoscaler depends only on its inputs.

use plimsoll::report::{
    explain::{HpaReport, hpa::text},
    style::{Glyphs, Style},
};
use serde_json::Value;

use crate::schema::{faults, schema};

fn sample() -> Value {
    serde_json::from_str(include_str!("../../data/explain-hpa.json")).expect("JSON")
}

fn text_of(report: &HpaReport) -> String {
    let style =
        Style { width: 80, colour: false, glyphs: Glyphs::Ascii, command: "plimsoll".to_owned() };
    text::render(report, &style)
}

#[test]
fn the_sample_follows_its_schema_and_its_text_has_each_step() {
    let value = sample();
    assert_eq!(faults(&schema("explain-hpa.v1.json"), &value), Vec::<String>::new());
    let report: HpaReport = serde_json::from_value(value.clone()).expect("a report");
    assert_eq!(serde_json::to_value(&report).expect("JSON"), value);
    let text = text_of(&report);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "Deployment web, 3 to 12 replicas",
        "UNCHANGED, RESTRICTED stabilized_down",
        "44%, 220m per pod; the target is 60%",
        "0.733, 0.811 with pods filled in",
        "from 0.900 to 1.100 replicas are not changed",
        "4 counted, 1 without a value (web-6f5d8b7c9-x2p7k: the metrics API has no value for it)",
        "1 ignored (web-6f5d8b7c9-4xk2p: it is being deleted)",
        "external metric queue_length another metric proposes more",
        "a past recommendation of 6 delays scaling down, until in 5 min at the latest",
        "[vpa_same_resource]",
    ] {
        assert!(words.contains(expected), "{expected} is not in\n{text}");
    }
    assert!(text.is_ascii(), "{text}");
}

#[test]
fn an_error_is_shown_with_its_start_and_a_long_list_of_pods_is_cut() {
    let mut value = sample();
    value.as_object_mut().expect("an object").remove("desired");
    value["error"] = "no metrics returned".into();
    value["failingSince"] = "2026-11-27T19:00:00Z".into();
    let pod = value["metrics"][0]["pods"]["missing"][0].clone();
    value["metrics"][0]["pods"]["missing"] = vec![pod; 7].into();
    let report: HpaReport = serde_json::from_value(value).expect("a report");
    let text = text_of(&report);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "UNCHANGED, BECAUSE OF AN ERROR",
        "no metrics returned, since 1 h ago",
        "7 without a value",
        "and 2 more",
    ] {
        assert!(words.contains(expected), "{expected} is not in\n{text}");
    }
}
