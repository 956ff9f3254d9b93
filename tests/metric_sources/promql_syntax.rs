//! Which strings are accepted as queries, and which series the accepted ones may read.

use plimsoll_storage::prometheus::promql::Query;
use plimsoll_storage::prometheus::schema::Dialect;
use plimsoll_storage::prometheus::selector::{LabelMatcher, LabelMatchers, MatchOperator};
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
    ("rate(up)", "expected a range vector such as x[5m] in call to function 'rate', got vector"),
    ("rate(sum(up)[5m])", "ranges only allowed for vector selectors"),
    ("abs(up[5m])", "expected type vector in call to function 'abs', got matrix"),
    ("sum(up[5m])", "expected type vector in aggregation expression, got matrix"),
    ("sum(1)", "expected type vector in aggregation expression, got scalar"),
    ("topk(up)", "expected 2, got 1"),
    ("topk(up, 3)", "expected type vector in aggregation expression, got scalar"),
    ("rate(up[5m], 3)", "expected 1 argument(s) in call to 'rate', got 2"),
    ("clamp(up)", "expected 3 argument(s) in call to 'clamp', got 1"),
    ("vector(up)", "expected type scalar in call to function 'vector', got vector"),
    ("up[5m] + 1", "must contain only scalar and instant vector types"),
    ("1 + \"a\"", "must contain only scalar and instant vector types"),
    ("-up[5m]", "unary expression only allowed"),
    ("up down", "unknown operator"),
    ("up 3", "syntax error in the expression"),
    ("up +", "syntax error in the expression"),
    ("* up", "syntax error in the expression"),
    ("up[5x]", "bad number or duration syntax: 5x"),
    ("rate(up[])", "missing unit character in duration"),
    ("up{a}", "expected label matching operator after 'a'"),
    ("up{a=b}", "unexpected identifier 'b' in label matching, expected string"),
    ("up{a=\"b\" c=\"d\"}", "syntax error in the expression"),
    ("{}", "must contain at least one non-empty matcher"),
    ("rate(up[5m]) offset 5m", "offset modifier must be preceded by"),
    ("sum by (a) rate(up[5m])", "syntax error in the expression"),
    ("5x", "bad number or duration syntax: 5x"),
];

fn check_query(text: &str) -> Result<(), String> {
    check_query_in(text, Dialect::PromQl)
}

fn check_query_in(text: &str, dialect: Dialect) -> Result<(), String> {
    Query::validate(text, dialect).map_err(|why| why.to_string())
}

#[test]
fn common_queries_are_accepted() {
    for query in FINE {
        assert_eq!(check_query(query), Ok(()), "{query}");
    }
    for newer in [
        "brand_new_function(up, 5m, \"x\")",
        "rate(new(up))",
        "rate(a[5m * 2]) or b",
        "rate(a[5m] anchored)",
        "a offset (5m * 2) + b offset 0s",
        "up{a=~\"\\\\Qx.y\\\\E\"}",
        "holt_winters(a[1h], 0.5, 0.5)",
    ] {
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
    }
    let error = check_query("sum(é) + rate(up)").expect_err("invalid query");
    assert!(error.contains("at character 5"), "{error}");
    let inner = "sum(rate(a[5m])) / on (pod) (topk by (x) (3, up) + rate(b))";
    let error = check_query(inner).expect_err("invalid query");
    assert!(error.contains("at character 52"), "{error}");
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

/// Fragments of queries, some of which make the parser panic unless they are kept from it.
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
        "offset",
        "# r\n 1e400",
        "-1e400",
        "Inf",
        "[1e30]",
        "info",
        "a{namespace=\"shop\"}",
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

    /// No query crashes the process, and one that a namespace may send reads only series of that namespace.
    #[test]
    fn no_selector_escapes_its_namespace(pieces in proptest::collection::vec(piece(), 1..9)) {
        let query = pieces.join(" ");
        let tenant = LabelMatcher::new("namespace", MatchOperator::Equals, "shop");
        let sent = Query::from_tenant(&query, &LabelMatchers::default(), &tenant);
        if let Ok(sent) = sent {
            prop_assert!(check_query(&query).is_ok(), "{:?}", query);
            prop_assert!(Query::every_selector_has_label(sent.as_str(), "namespace"), "{:?}: {}", query, sent);
        } else if let Err(error) = check_query(&query) {
            prop_assert!(!error.contains('\n'), "{}", error);
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
