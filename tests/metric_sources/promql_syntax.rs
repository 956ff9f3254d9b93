//! What texts pass for queries, beside a parser of PromQL by others.

use plimsoll::cluster::metrics_api::source::promql::{check_query, check_query_in};
use plimsoll_storage::prometheus::schema::Dialect;
use promql_parser::parser::{self, value::ValueType};
use proptest::prelude::*;

use crate::support::tier;

/// Some that people write.
const FINE: [&str; 31] = [
    "up",
    "42",
    "-up",
    "sum(rate(http_requests_total{job=\"web\", code!~\"5..\"}[5m]))",
    "sum by (pod) (rate(a[1h30m] offset -1d))",
    "sum(rate(a[5m])) by (pod) / on (pod) group_left (node) max without (x) (b)",
    "a * ignoring(x) group_right b > bool 3",
    "max_over_time(rate(a[2m])[1h:1m])",
    "max_over_time(a[1h:])",
    "quantile_over_time(0.9, a[1h]) ^ 2 % 3",
    "histogram_quantile(0.95, sum by (le) (rate(b_bucket[5m])))",
    "topk(3, a) or bottomk(2, b) unless c and d",
    "count_values(\"version\", build)",
    "label_replace(up, \"a\", \"$1\", `b`, '(.*)')",
    "label_join(up, \"a\", \",\", \"b\", \"c\", \"d\")",
    "clamp(a, 0, 10) + clamp_min(b, 1) + round(c) + round(c, 0.5)",
    "scalar(sum(a)) / 3",
    "vector(time()) - timestamp(up)",
    "hour() + hour(a)",
    "a @ start() + b @ 1.5e9 + rate(c[5m] @ end())",
    "{__name__=\"up\"}",
    "{\"my.metric\", a=\"b\"}",
    "up{job=\"x\",}",
    "predict_linear(a[1h], 3600) < 0",
    "absent(up{job=\"web\"})",
    "(((up)))",
    "job:rate:sum{a=~\"b|c\"} # a remark (\n + 1",
    "Inf - NaN * 0x1F + 1e-3",
    "quantile(0.9, a) atan2 b",
    "sum(a) == bool on () sum(b)",
    "by + without",
];

/// Some that cannot be right, and what is said.
const WRONG: [(&str, &str); 34] = [
    ("", "it is empty"),
    (" # nothing", "it is empty"),
    ("up[5m]", "it answers a range and no number; put a function such as rate() around it"),
    ("up[1h:1m]", "it answers a range"),
    ("(up[5m])", "it answers a range"),
    ("\"up\"", "it answers a text and no number"),
    ("sum(up", "a bracket is not closed"),
    ("up)", "a bracket is closed that was not opened"),
    ("rate(up)", "rate() wants a window such as x[5m] here and gets series"),
    ("rate(sum(up)[5m])", "a window is only of a selector; of anything else it needs steps"),
    ("abs(up[5m])", "abs() wants series here and gets a window such as x[5m]"),
    ("sum(up[5m])", "sum() wants series here"),
    ("sum(1)", "sum() wants series here and gets a number"),
    ("topk(up)", "topk() wants 2 in its brackets and gets 1"),
    ("topk(up, 3)", "topk() wants a number here and gets series"),
    ("rate(up[5m], 3)", "rate() wants 1 in its brackets and gets 2"),
    ("clamp(up)", "clamp() wants 3 in its brackets and gets 1"),
    ("vector(up)", "vector() wants a number here and gets series"),
    ("up[5m] + 1", "nothing can be calculated with a window"),
    ("1 + \"a\"", "nothing can be calculated with a text"),
    ("-up[5m]", "nothing can be calculated with a window"),
    ("up down", "no operator is known by this name"),
    ("up 3", "an operator is missing before this"),
    ("up +", "something is missing at the end"),
    ("* up", "is missing before this"),
    ("up[5x]", "5x is no duration such as 5m"),
    ("rate(up[])", "a window has no length"),
    ("up{a}", "= or != or =~ or !~ is missing before this"),
    ("up{a=b}", "the value of a label has to be in quotes"),
    ("up{a=\"b\" c=\"d\"}", "a comma is missing before this"),
    ("{}", "the selector is empty and means all there is"),
    ("rate(up[5m]) offset 5m", "offset and @ belong behind a selector"),
    ("sum by (a) rate(up[5m])", "what sum folds has to be in brackets"),
    ("5x", "5x is neither a number nor a duration"),
];

#[test]
fn what_people_write_passes() {
    for query in FINE {
        assert_eq!(check_query(query), Ok(()), "{query}");
        assert!(parser::parse(query).is_ok(), "others read it too: {query}");
    }
    for newer in ["brand_new_function(up, 5m, \"x\")", "rate(new(up))", "rate(a[5m * 2]) or b"] {
        assert_eq!(check_query(newer), Ok(()), "{newer}");
    }
}

#[test]
fn what_cannot_be_right_is_refused_in_one_line_that_says_where() {
    for (query, words) in WRONG {
        let told = check_query(query).expect_err(query);
        assert!(told.starts_with("the query cannot be used: "), "{told}");
        assert!(told.contains(words) && told.contains("at character "), "{query}: {told}");
        assert!(!told.contains('\n'), "{told}");
        assert!(parser::parse(query).is_err() || words.starts_with("it answers"), "{query}");
    }
    let told = check_query("sum(é) + rate(up)").expect_err("is no query");
    assert!(told.contains("at character 5"), "{told}");
}

#[test]
fn what_only_victoriametrics_knows_passes_where_it_is() {
    for query in ["rate(up)", "sum(1, up)", "a default 0", "rate(sum(up)[5m])"] {
        assert_eq!(check_query_in(query, Dialect::MetricsQl), Ok(()), "{query}");
        assert!(check_query(query).is_err(), "{query}");
    }
    assert!(check_query_in("sum(up", Dialect::MetricsQl).is_err());
}

#[test]
fn brackets_do_not_take_the_stack() {
    let deep = |count: usize| format!("{}up{}", "(".repeat(count), ")".repeat(count));
    assert_eq!(check_query(&deep(90)), Ok(()));
    let told = check_query(&deep(100_000)).expect_err("too deep");
    assert!(told.contains("brackets are nested too deep"), "{told}");
    assert_eq!(check_query(&format!("1{}", "+1".repeat(100_000))), Ok(()));
    assert_eq!(check_query(&format!("{}1", "-".repeat(100_000))), Ok(()));
}

/// Pieces that queries are made of. What makes the other parser panic is left out: offsets that are no durations.
fn piece() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "up",
        "a",
        "{",
        "}",
        "x=\"y\"",
        "(",
        ")",
        "[5m]",
        "[1h:1m]",
        ",",
        "+",
        "-",
        "*",
        "==",
        "bool",
        "sum",
        "topk",
        "rate",
        "abs",
        "by",
        "(a)",
        "on",
        "group_left",
        "and",
        "or",
        "1",
        "0.5",
        "\"t\"",
        "offset 5m",
        "@ start()",
        "time()",
        "vector",
        "label_replace",
        "max_over_time",
        "rate(a[5m])",
        "sum(a)",
        "NaN",
        "5m",
        "without",
        "# r\n",
        "histogram_quantile",
        "unless",
    ])
}

proptest! {
    #![proptest_config(tier::properties(256, 50_000))]

    /// A text that others read is never refused, but for what it answers.
    #[test]
    fn whatever_others_read_passes(pieces in proptest::collection::vec(piece(), 1..9)) {
        let query = pieces.join(" ");
        let checked = check_query(&query);
        if let Ok(read) = parser::parse(&query) {
            let is_number = matches!(read.value_type(), ValueType::Vector | ValueType::Scalar);
            prop_assert_eq!(checked.is_ok(), is_number, "{:?}: {:?}", query, checked);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,40}", soup in "[a-c(){}\\[\\]\"'`=~!<>@+,:0-9.# \\n\\\\é-]{0,40}") {
        for text in [text, soup] {
            if let Err(told) = check_query(&text) {
                prop_assert!(!told.contains('\n'), "{}", told);
            }
        }
    }
}
