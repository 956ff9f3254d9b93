//! A response decodes to the same result for any chunking of its bytes, a truncated one never counts, and nothing else
//! is accepted as a response.

use std::fmt::Write as _;

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::decode::{
    DecodeError, IgnoreSeries, ResponseKind, ResponseSummary, ResultType,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::series_collector::{SeriesByLabels, SeriesCollector, decode};
use crate::support::tier;

type Read = (Result<ResponseSummary, DecodeError>, SeriesCollector);

fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Read {
    let mut collector = SeriesCollector::default();
    (decode(pieces, ResponseKind::QueryResult, &mut collector), collector)
}

fn whole(text: &str) -> Read {
    read([text.as_bytes()])
}

/// A response with everything: labels with escapes, all kinds of values, histograms, warnings.
const MIXED: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[
 {"metric":{"__name__":"a","pod":"web-0","odd":"q\"b\\s\u00fc\ud83d\ude00\n"},
  "values":[[1700000000,"1"],[1700000060.5,"NaN"],[1700000120,"+Inf"],[1700000180,"-Inf"],[1700000240.123,"1.5e-7"]]},
 {"metric":{},"values":[]},
 {"metric":{"le":"x"},"values":[[1700000000,"0"]],"histograms":[[1700000000,{"count":"1","sum":"2","buckets":[[0,"1","2","1"]]}],[1700000060,{}]]}
 ]},"warnings":["PromQL warning: \"a\" is odd"],"infos":["an info"],"stats":{"a":[1,{"b":"]}"}]}}
"#;

#[test]
fn every_part_of_a_response_is_read() {
    let (summary, collector) = whole(MIXED);
    let summary = summary.expect("response");
    assert_eq!(summary.kind, Some(ResultType::Matrix));
    assert_eq!((summary.series, summary.points, summary.histograms), (3, 6, 2));
    assert_eq!(summary.bytes, MIXED.len() as u64);
    assert_eq!(summary.warnings, ["PromQL warning: \"a\" is odd"]);
    let at = |millis: i64| Time::from_nanos(millis * 1_000_000);
    let odd = r#"{"__name__": "a", "odd": "q\"b\\sü😀\n", "pod": "web-0"}"#;
    let expected: SeriesByLabels = [
        (
            odd.to_owned(),
            vec![
                (at(1_700_000_000_000), 1_f64.to_bits()),
                (at(1_700_000_060_500), f64::NAN.to_bits()),
                (at(1_700_000_120_000), f64::INFINITY.to_bits()),
                (at(1_700_000_180_000), f64::NEG_INFINITY.to_bits()),
                (at(1_700_000_240_123), 1.5e-7_f64.to_bits()),
            ],
        ),
        ("{}".to_owned(), vec![]),
        (r#"{"le": "x"}"#.to_owned(), vec![(at(1_700_000_000_000), 0)]),
    ]
    .into();
    assert_eq!(collector.complete, expected);
    assert_eq!((collector.finishes, collector.discards), (1, 0));
}

#[test]
fn every_result_type_is_read_in_any_order_of_keys() {
    for (text, kind, points) in [
        (
            r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1.5,"2"]}]}}"#,
            ResultType::Vector,
            1,
        ),
        (
            r#"{"data":{"result":[{"metric":{"a":"b"},"value":[1.5,"2"]}],"resultType":"vector"},"isPartial":false,"status":"success"}"#,
            ResultType::Vector,
            1,
        ),
        (
            r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#,
            ResultType::Vector,
            0,
        ),
        (
            r#"{"status":"success","data":{"resultType":"matrix","result":null},"warnings":null}"#,
            ResultType::Matrix,
            0,
        ),
        (
            r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{"count":"3"}]}]}}"#,
            ResultType::Vector,
            0,
        ),
        (
            r#"{"status":"success","data":{"resultType":"scalar","result":[1.5,"2"]}}"#,
            ResultType::Scalar,
            1,
        ),
        (
            r#"{"status":"success","data":{"result":[1.5,"2"],"resultType":"scalar"}}"#,
            ResultType::Scalar,
            1,
        ),
        (
            r#"{"status":"success","data":{"resultType":"string","result":[1.5,"a\"b"]}}"#,
            ResultType::String,
            0,
        ),
    ] {
        let (summary, collector) = whole(text);
        let summary = summary.expect(text);
        assert_eq!((summary.kind, summary.points), (Some(kind), points), "{text}");
        assert_eq!(collector.finishes, 1);
        if points == 1 {
            let read: Vec<_> = collector.complete.into_values().flatten().collect();
            assert_eq!(read, [(Time::from_nanos(1_500_000_000), 2_f64.to_bits())], "{text}");
        }
    }
    let partial =
        r#"{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}"#;
    assert_eq!(whole(partial).0.expect("response").warnings, ["the result is partial"]);
}

#[test]
fn an_error_response_keeps_the_message_of_the_server() {
    let text =
        r#"{"status":"error","errorType":"execution","error":"too many\nsamples","data":null}"#;
    let (error, collector) = whole(text);
    let (kind, message) = ("execution".to_owned(), "too many samples".to_owned());
    assert_eq!(error, Err(DecodeError::ReportedByServer { kind, message }));
    assert_eq!(collector.finishes, 0);
}

#[test]
fn an_invalid_response_is_rejected_with_the_position() {
    for (text, error) in [
        ("", "the response was truncated after 0 bytes"),
        ("<html>", "byte 0 of the response: expected a response of Prometheus, found \"<html>\""),
        ("[]", "byte 0"),
        ("{}", "expected a status"),
        (r#"{"status":"success"}"#, "expected the result of a query"),
        (r#"{"status":"success","data":["a"]}"#, "byte 27"),
        (r#"{"status":"success","data":{"result":[]}} x"#, "expected the end of the response"),
        (r#"{"status":"success",}"#, "expected a key"),
        (r#"{"data":{"result":[{"values":[]}]}}"#, "expected the labels before the points"),
        (r#"{"data":{"result":[{}]}}"#, "expected the labels of a series"),
        (r#"{"data":{"result":[{"metric":{}},]}}"#, "expected a series"),
        (r#"{"data":{"result":[{"metric":{},"values":[[1,"x"]]}]}}"#, "expected a value"),
        (r#"{"data":{"result":[{"metric":{},"values":[[1,"1"],]}]}}"#, "expected a point"),
        (r#"{"data":{"result":[{"metric":{},"values":[["1","1"]]}]}}"#, "expected a time"),
        (r#"{"data":{"result":[{"metric":{},"values":[[1,1]]}]}}"#, "a quoted value"),
        (
            r#"{"data":{"result":[{"metric":{},"values":[[2,"1"],[2,"1"]]}]}}"#,
            "expected a later point",
        ),
        (r#"{"x":[}"#, "the matching bracket"),
    ] {
        let (read, collector) = whole(text);
        let line = read.expect_err(text).to_string();
        assert!(line.contains(error) && !line.contains('\n'), "{text}: {line}");
        assert_eq!(collector.finishes, 0, "{text}");
    }
    let endless = format!(r#"{{"status":"{}"#, "x".repeat(2 << 20));
    assert!(matches!(whole(&endless).0, Err(DecodeError::TooLong { .. })));
}

#[test]
fn a_response_truncated_at_any_byte_is_discarded() {
    // Trailing whitespace is not part of the document.
    for length in 0..MIXED.trim_end().len() {
        let (error, collector) = read([&MIXED.as_bytes()[..length]]);
        assert_eq!(error, Err(DecodeError::Truncated { bytes: length as u64 }));
        assert_eq!(collector.finishes, 0);
        assert!(collector.complete.is_empty());
    }
}

#[test]
fn a_response_is_read_the_same_byte_by_byte_and_split_anywhere() {
    let (summary, expected) = whole(MIXED);
    let (bytewise, collector) = read(MIXED.as_bytes().chunks(1));
    assert_eq!((&bytewise, &collector.complete), (&summary, &expected.complete));
    for at in 0..MIXED.len() {
        let (halves, collector) = read([&MIXED.as_bytes()[..at], &MIXED.as_bytes()[at..]]);
        assert_eq!((&halves, &collector.complete), (&summary, &expected.complete), "cut at {at}");
    }
}

/// Labels and points of a series; times are steps.
type Generated = Vec<(Vec<String>, Vec<f64>)>;

fn answers() -> impl Strategy<Value = Generated> {
    let value =
        prop_oneof![any::<f64>(), Just(f64::INFINITY), (0..1_000_000_u32).prop_map(f64::from)];
    vec((vec(any::<String>(), 0..4), vec(value, 0..30)), 0..6)
}

fn print(answer: &Generated) -> (String, SeriesByLabels) {
    let mut expected = SeriesByLabels::new();
    let mut text = r#"{"status":"success","data":{"resultType":"matrix","result":["#.to_owned();
    for (number, (labels, points)) in answer.iter().enumerate() {
        let labels: std::collections::BTreeMap<String, String> =
            std::iter::once(number.to_string())
                .chain(labels.iter().cloned())
                .enumerate()
                .map(|(at, value)| (format!("l{at}"), value))
                .collect();
        let comma = if number == 0 { "" } else { "," };
        let metric = serde_json::to_string(&labels).expect("JSON");
        let _ = write!(text, r#"{comma}{{"metric":{metric},"values":["#);
        let mut kept = Vec::new();
        for (step, value) in points.iter().enumerate() {
            let comma = if step == 0 { "" } else { "," };
            let at = 1_700_000_000 + 15 * step as i64;
            let shown = match value {
                value if value.is_nan() => "NaN".to_owned(),
                value if value.is_infinite() => format!("{value:+}").replace("inf", "Inf"),
                value => format!("{value:e}"),
            };
            let _ = write!(text, r#"{comma}[{at},"{shown}"]"#);
            let bits = if value.is_nan() { f64::NAN } else { *value }.to_bits();
            kept.push((Time::from_secs(at), bits));
        }
        text.push_str("]}");
        expected.insert(format!("{labels:?}"), kept);
    }
    text.push_str("]}}");
    (text, expected)
}

proptest! {
    #![proptest_config(tier::properties(48, 4_000))]

    #[test]
    fn any_response_is_read_correctly_in_chunks_of_any_size(
        answer in answers(),
        sizes in vec(1..200_usize, 1..20),
    ) {
        let (text, expected) = print(&answer);
        let mut rest = text.as_bytes();
        let mut pieces = Vec::new();
        for size in sizes.iter().cycle() {
            let (piece, after) = rest.split_at(rest.len().min(*size));
            pieces.push(piece);
            rest = after;
            if rest.is_empty() { break; }
        }
        let (summary, collector) = read(pieces);
        prop_assert!(summary.is_ok(), "{:?}", summary);
        prop_assert_eq!(collector.complete, expected);
    }

    #[test]
    fn garbage_is_rejected_without_a_panic(
        at in 0..MIXED.len(),
        length in 0..20_usize,
        garbage in vec(any::<u8>(), 0..20),
        size in 1..50_usize,
    ) {
        let mut bytes = MIXED.as_bytes().to_vec();
        let end = (at + length).min(bytes.len());
        bytes.splice(at..end, garbage);
        let expected = read(bytes.chunks(size)).0;
        let unwanted = decode(bytes.chunks(size), ResponseKind::QueryResult, &mut IgnoreSeries);
        // Skipped parts are validated less strictly.
        prop_assert!(expected.is_err() || unwanted.is_ok());
    }
}
