//! No value can inject syntax: every generated query parses and means what it was built from.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll_storage::prometheus::decode::IgnoreSeries;
use plimsoll_storage::prometheus::promql::{Aggregation, Query, RangeFunction};
use plimsoll_storage::prometheus::selector::{
    LabelMatcher, LabelMatchers, MatchOperator, Pattern, Selector,
};
use promql_parser::label::MatchOp;
use promql_parser::parser::{self, Expr, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use proptest::prelude::*;

use super::releases::releases;
use super::series_collector::{client, short_limits};
use crate::support::clock::wall_now;
use crate::support::prometheus_server::{History, PrometheusServer};
use crate::support::tier;

/// All selectors of a query.
#[derive(Default)]
struct Selectors(Vec<VectorSelector>);

impl ExprVisitor for Selectors {
    type Error = std::convert::Infallible;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, Self::Error> {
        match expr {
            Expr::VectorSelector(selector) => self.0.push(selector.clone()),
            Expr::MatrixSelector(selector) => self.0.push(selector.vs.clone()),
            _ => {}
        }
        Ok(true)
    }
}

fn selectors(query: &str) -> Vec<VectorSelector> {
    let expr = parser::parse(query).unwrap_or_else(|why| panic!("{query}: {why}"));
    let mut selectors = Selectors::default();
    let Ok(_) = walk_expr(&mut selectors, &expr);
    selectors.0
}

/// Texts with many quotes, escapes, braces and control characters.
fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        proptest::collection::vec(
            proptest::sample::select(vec![
                "\"", "'", "`", "\\", "{", "}", "=", "~", ",", "\n", "\r", "\t", "\0", "\u{7f}",
                "\u{85}", "(", ")", "[", "]", "|", ".", "*", "+", "?", "^", "$", "-", "\\n", "\\Q",
                "ü", "😀", "a", "0", " ", "#", "/",
            ]),
            0..12
        )
        .prop_map(|parts| parts.concat()),
    ]
}

proptest! {
    #![proptest_config(tier::properties(48, 4_000))]

    #[test]
    fn a_printed_selector_parses_to_its_parts(
        metric in "[a-z_:][a-z0-9_:]{5,9}",
        value in hostile(),
        others in proptest::collection::vec(hostile(), 1..5),
        label in "[a-z_][a-z0-9_]{3,6}",
    ) {
        let pattern = Pattern::any_literal(others.iter().map(String::as_str));
        let selector = Selector::metric(&metric)
            .equals("first", &value)
            .not_equals(&label, &value)
            .matches("third", pattern.clone());
        let read = selectors(&selector.to_string());
        prop_assert_eq!(read.len(), 1);
        prop_assert_eq!(read[0].name.as_deref(), Some(metric.as_str()));
        let matchers = &read[0].matchers.matchers;
        prop_assert_eq!(matchers.len(), 3);
        prop_assert_eq!((&*matchers[0].name, &matchers[0].op, &*matchers[0].value), ("first", &MatchOp::Equal, &*value));
        prop_assert_eq!((&*matchers[1].name, &matchers[1].op, &*matchers[1].value), (&*label, &MatchOp::NotEqual, &*value));
        prop_assert_eq!(&*matchers[2].value, pattern.as_str());
        // The pattern matches these values and no others.
        for other in &others {
            prop_assert!(matchers[2].is_match(other), "{:?} {}", other, pattern.as_str());
        }
        prop_assert_eq!(matchers[2].is_match(&value), others.contains(&value));
        // Parsed as a user's matcher, it is the same.
        let printed = LabelMatcher::new(&label, MatchOperator::NotEquals, &value).to_string();
        prop_assert_eq!(printed.parse::<LabelMatcher>(), Ok(LabelMatcher::new(&label, MatchOperator::NotEquals, &value)));
    }

    #[test]
    fn a_matcher_is_added_to_every_selector_of_a_query(
        value in hostile(),
        which in proptest::sample::select(vec![
            "up",
            "up{}",
            "{job=~\".+\"}",
            "kube_pod_labels{job=\"kube-state-metrics\",}[8d]",
            "sum by (pod, by) (rate(a_total{x=\"}\"}[5m] offset 1h)) / on (pod) group_left (node) b > bool 0.5",
            "max_over_time(rate(a[2m])[1h:1m]) and on () (c or d unless e{f!~\"g\"}) # up",
            "label_replace(a, \"up\", \"$1 {}\", 'by', `(.*)`) + -b ^ 2 - Inf",
            "histogram_quantile(0.9, sum(rate(a_bucket[5m] @ end())) by (le))",
            "a * ignoring (x) group_right b{c=\"d\"} % 5m",
            "count_values without (a) (\"version\", build_info) == bool 1e3",
        ]),
    ) {
        let matchers: LabelMatchers = [LabelMatcher::new("cluster", MatchOperator::Equals, &value)].into_iter().collect();
        let before = selectors(which);
        let query = Query::from_user(which, &matchers).expect(which);
        let after = selectors(query.as_str());
        prop_assert_eq!(before.len(), after.len());
        for (before, mut after) in before.into_iter().zip(after) {
            let own = after.matchers.matchers.iter().position(|matcher| matcher.name == "cluster");
            let own = after.matchers.matchers.remove(own.expect("the matcher"));
            prop_assert_eq!((own.op, own.value), (MatchOp::Equal, value.clone()));
            prop_assert_eq!(after, before, "nothing else has changed");
        }
        let unchanged = Query::from_user(which, &LabelMatchers::default()).expect(which);
        prop_assert_eq!(unchanged.as_str(), which);
    }
}

/// Fragments of queries, including ones that servers parse differently. Offsets that are not durations are left out:
/// the reference parser panics on them.
fn pieces() -> impl Strategy<Value = String> {
    let pieces = proptest::sample::select(vec![
        "up",
        "secret",
        "bool",
        "by",
        "or",
        "and",
        "on",
        "inf",
        "info",
        "sum",
        "topk",
        "rate",
        "group_left",
        "{",
        "}",
        "{}",
        "{a=\"b\"}",
        "{namespace=\"other\"}",
        "{or a=\"b\"}",
        "{namespace=\"shop\"}",
        "a=\"b\"",
        ",",
        "(",
        ")",
        "(a)",
        "[5m]",
        "[1h:1m]",
        "[",
        "]",
        "+",
        "-",
        "==",
        "=",
        "=~",
        "@ 5",
        "offset 5m",
        "5m",
        "1",
        "0x1F",
        "\"",
        "'",
        "`",
        "\\",
        "`\\`",
        "\"}\"",
        "#",
        "# x\n",
        "\n",
        "\r",
        "\r\n",
        "\t",
        " ",
        " ",
        " ",
        "é",
        ".",
        ":",
    ]);
    proptest::collection::vec(pieces, 1..14).prop_map(|pieces| pieces.concat())
}

/// Valid nested queries.
fn expression() -> impl Strategy<Value = String> {
    let selector = proptest::sample::select(vec![
        "up",
        "secret{a=\"}\"}",
        "job:rate:sum{}",
        "{__name__=\"x\",}",
        "by",
        "sum",
        "a{b!~`c|d`} # e {\n",
    ]);
    selector.prop_map(ToOwned::to_owned).prop_recursive(5, 24, 2, |inner| {
        (inner.clone(), inner, 0..10_usize).prop_map(|(one, other, how)| match how {
            0 => format!("({one})"),
            1 => format!("sum by (or, \"b\") ({one})"),
            2 => format!("sum ({one}) without (on # )\n)"),
            3 => format!("max_over_time(({one}) [1h:1m])"),
            4 => format!("-{one}"),
            5 => format!("label_replace({one}, \"a\", `{{}}`, 'up', \"\\\"\")"),
            6 => format!("({one}) or ({other})"),
            7 => format!("({one}) / on (or, by) group_left (and) ({other})"),
            8 => format!("({one}) > bool ({other})"),
            _ => format!("{one} + \r\n{other} * 1e-3 - Inf"),
        })
    })
}

/// Asserts with a third-party PromQL parser that all selectors of an accepted tenant query have the matcher. Returns
/// whether there were any.
fn is_confined(text: &str) -> bool {
    let tenant = LabelMatcher::new("namespace", MatchOperator::Equals, "shop");
    let Ok(query) = Query::from_tenant(text, &LabelMatchers::default(), &tenant) else {
        return false;
    };
    let Ok(expr) = parser::parse(query.as_str()) else { return false };
    let mut found = Selectors::default();
    let Ok(_) = walk_expr(&mut found, &expr);
    for selector in &found.0 {
        let is_own = selector.matchers.or_matchers.is_empty()
            && selector.matchers.matchers.iter().any(|matcher| {
                matcher.name == "namespace"
                    && matcher.op == MatchOp::Equal
                    && matcher.value == "shop"
            });
        assert!(is_own, "{text:?} reads other tenants' series as {query}");
    }
    !found.0.is_empty()
}

proptest! {
    #![proptest_config(tier::properties(256, 50_000))]

    #[test]
    fn no_query_reads_series_of_another_tenant(text in pieces()) {
        is_confined(&text);
    }

    #[test]
    fn every_selector_of_a_tenants_query_has_the_tenants_matcher(text in expression()) {
        prop_assert!(is_confined(&text), "{text} is rejected");
    }
}

#[tokio::test]
async fn real_servers_find_exactly_the_series_with_unusual_labels() {
    let worst = [
        "a\"b",
        "a\\b",
        "a\nb",
        "a'b`c",
        "{a=\"b\"}",
        "a|b",
        "a.b",
        "a*",
        "(a",
        "[a-z]+",
        "^a$",
        "\u{1}\u{7f}ü😀",
        "\\d",
        "$1",
        " ",
    ];
    let end =
        Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("valid timestamp");
    for release in releases() {
        let start = end - SignedDuration::from_hours(1);
        let mut history = History::new(start, end, SignedDuration::from_mins(1));
        for value in worst.into_iter().chain(["aXb", "azzz", "d"]) {
            history = history.series("x", &[("l", value)], |_| Some(1.0));
        }
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let client = client(&server.url(), short_limits());
        for value in worst {
            for selector in [
                Selector::metric("x").equals("l", value),
                Selector::metric("x").matches("l", Pattern::any_literal([value, "not there"])),
                Selector::any_metric().equals("l", value),
            ] {
                let stats =
                    client.instant(&selector.clone().into(), end.into(), &mut IgnoreSeries).await;
                assert_eq!(stats.expect("a query").series, 1, "{selector}");
            }
        }
        let minutes = Duration::from_mins;
        let all = Selector::metric("x").matches("l", Pattern::any_literal(worst));
        let none = Selector::metric("x").matches("l", Pattern::any_of([]));
        let count = Query::range_function(RangeFunction::Count, &all, minutes(5));
        for (query, series) in [
            (all.clone().into(), worst.len()),
            (none.into(), 0),
            (count.aggregate(Aggregation::Sum, &[]), 1),
            (Query::from(all.clone()).last_within(minutes(60)), worst.len()),
            (Query::from(all).timestamps(), worst.len()),
        ] {
            let stats = client.instant(&query, end.into(), &mut IgnoreSeries).await;
            assert_eq!(stats.expect("a query").series, series as u64, "{query}");
        }
    }
}
