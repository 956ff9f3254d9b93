//! Which strings are accepted as queries, compared with a third-party PromQL parser.

use plimsoll::cluster::metrics_api::source::promql::{check_query, check_query_in};
use plimsoll_storage::prometheus::schema::Dialect;
use promql_parser::parser::{self, value::ValueType};
use proptest::prelude::*;

use crate::support::tier;

/// Valid queries of the kind that people write.
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

/// Invalid queries and the error for each.
const WRONG: [(&str, &str); 34] = [
    ("", "it is empty"),
    (" # nothing", "it is empty"),
    ("up[5m]", "the result is a range vector; wrap it in a function such as rate()"),
    ("up[1h:1m]", "the result is a range vector"),
    ("(up[5m])", "the result is a range vector"),
    ("\"up\"", "the result is a string and not a number"),
    ("sum(up", "unclosed parenthesis"),
    ("up)", "unmatched closing parenthesis"),
    ("rate(up)", "rate() expects a window such as x[5m] and got series"),
    ("rate(sum(up)[5m])", "a window after anything but a selector needs a step"),
    ("abs(up[5m])", "abs() expects series and got a window such as x[5m]"),
    ("sum(up[5m])", "sum() expects series"),
    ("sum(1)", "sum() expects series and got a number"),
    ("topk(up)", "topk() expects 2 argument(s) and got 1"),
    ("topk(up, 3)", "topk() expects a number and got series"),
    ("rate(up[5m], 3)", "rate() expects 1 argument(s) and got 2"),
    ("clamp(up)", "clamp() expects 3 argument(s) and got 1"),
    ("vector(up)", "vector() expects a number and got series"),
    ("up[5m] + 1", "operators do not accept a window"),
    ("1 + \"a\"", "operators do not accept a string"),
    ("-up[5m]", "operators do not accept a window"),
    ("up down", "unknown operator"),
    ("up 3", "missing operator"),
    ("up +", "unexpected end of query"),
    ("* up", "missing selector, function or number"),
    ("up[5x]", "5x is not a duration such as 5m"),
    ("rate(up[])", "the window has no length"),
    ("up{a}", "missing =, !=, =~ or !~"),
    ("up{a=b}", "the label value must be quoted"),
    ("up{a=\"b\" c=\"d\"}", "missing comma"),
    ("{}", "the selector is empty and matches all series"),
    ("rate(up[5m]) offset 5m", "offset and @ must directly follow a selector"),
    ("sum by (a) rate(up[5m])", "sum needs its arguments in parentheses"),
    ("5x", "5x is neither a number nor a duration"),
];

#[test]
fn common_queries_are_accepted() {
    for query in FINE {
        assert_eq!(check_query(query), Ok(()), "{query}");
        assert!(parser::parse(query).is_ok(), "the other parser accepts it too: {query}");
    }
    for newer in ["brand_new_function(up, 5m, \"x\")", "rate(new(up))", "rate(a[5m * 2]) or b"] {
        assert_eq!(check_query(newer), Ok(()), "{newer}");
    }
}

#[test]
fn an_invalid_query_is_rejected_in_one_line_with_the_position() {
    for (query, expected) in WRONG {
        let error = check_query(query).expect_err(query);
        assert!(error.starts_with("invalid query: "), "{error}");
        assert!(error.contains(expected) && error.contains("at character "), "{query}: {error}");
        assert!(!error.contains('\n'), "{error}");
        assert!(parser::parse(query).is_err() || expected.starts_with("the result is"), "{query}");
    }
    let error = check_query("sum(é) + rate(up)").expect_err("invalid query");
    assert!(error.contains("at character 5"), "{error}");
}

#[test]
fn metricsql_syntax_is_accepted_only_for_victoriametrics() {
    for query in ["rate(up)", "sum(1, up)", "a default 0", "rate(sum(up)[5m])"] {
        assert_eq!(check_query_in(query, Dialect::MetricsQl), Ok(()), "{query}");
        assert!(check_query(query).is_err(), "{query}");
    }
    assert!(check_query_in("sum(up", Dialect::MetricsQl).is_err());
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let deep = |count: usize| format!("{}up{}", "(".repeat(count), ")".repeat(count));
    assert_eq!(check_query(&deep(90)), Ok(()));
    let error = check_query(&deep(100_000)).expect_err("too deep");
    assert!(error.contains("parentheses are nested too deeply"), "{error}");
    assert_eq!(check_query(&format!("1{}", "+1".repeat(100_000))), Ok(()));
    assert_eq!(check_query(&format!("{}1", "-".repeat(100_000))), Ok(()));
}

/// Fragments of queries. Leaves out what makes the other parser panic: offsets that are not durations.
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

    /// A query that the other parser accepts is rejected only for its result type.
    #[test]
    fn queries_accepted_by_another_parser_are_accepted(pieces in proptest::collection::vec(piece(), 1..9)) {
        let query = pieces.join(" ");
        let checked = check_query(&query);
        if let Ok(read) = parser::parse(&query) {
            let is_number = matches!(read.value_type(), ValueType::Vector | ValueType::Scalar);
            prop_assert_eq!(checked.is_ok(), is_number, "{:?}: {:?}", query, checked);
        }
    }

    #[test]
    fn any_text_is_accepted_or_rejected_without_a_panic(text in "\\PC{0,40}", soup in "[a-c(){}\\[\\]\"'`=~!<>@+,:0-9.# \\n\\\\é-]{0,40}") {
        for text in [text, soup] {
            if let Err(error) = check_query(&text) {
                prop_assert!(!error.contains('\n'), "{}", error);
            }
        }
    }
}
