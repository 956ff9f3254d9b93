//! Metrics that rules may use: families, labels and label values that are exported. This finds misspelled names, which
//! would otherwise be an alert that never fires.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll::telemetry::{Definition, MetricType};
use plimsoll_core::{
    hpa,
    recommender::RecommendationReason,
    scaling::Restriction,
    updater::SkipReason,
    watermark::{RESTRICTIONS, conditions::ConditionType},
};
use promql_parser::{
    label::{MatchOp, Matcher},
    parser::{self, Expr, VectorSelector},
};
use strum::VariantNames as _;

use super::{ROOT, alerts, rules};
use crate::metrics;

/// Labels that a scrape adds.
const OF_TARGETS: [&str; 5] = ["cluster", "instance", "job", "namespace", "pod"];
/// Labels with the same values in every family; after one of every event, a scrape contains all of them.
const ALWAYS: [&str; 7] =
    ["charge", "controller", "harm", "is_error", "kind", "state", "transition"];
/// Labels whose values are HTTP status codes.
const CODES: [(&str, &str); 2] =
    [("plimsoll_api_requests_total", "code"), ("plimsoll_writes_total", "outcome")];

/// Everything that is exported, by family.
pub struct KnownMetrics {
    labels: BTreeMap<String, BTreeSet<String>>,
    words: BTreeMap<(String, String), BTreeSet<String>>,
}

impl KnownMetrics {
    pub fn read() -> Self {
        let mut known = Self { labels: BTreeMap::new(), words: BTreeMap::new() };
        let exposition = metrics::own_exposition();
        for definition in metrics::definitions() {
            for name in names(&definition) {
                let labels = definition.labels.iter().map(|&label| label.to_owned());
                let bound = name.ends_with("_bucket").then(|| "le".to_owned());
                known.labels.entry(name).or_default().extend(labels.chain(bound));
            }
            for pair in
                exposition.family(definition.name).series.iter().flat_map(|it| it.split("\","))
            {
                let Some((label, word)) = pair.split_once("=\"") else { continue };
                if ALWAYS.contains(&label) {
                    known.add(definition.name, label, [word.trim_end_matches('"')]);
                }
            }
        }
        known.read_documented();
        let skipped = SkipReason::VARIANTS.iter().copied();
        let reasons = RecommendationReason::RESTRICTIONS.iter().map(RecommendationReason::into_str);
        let reasons = reasons
            .chain(skipped.clone())
            .chain(RESTRICTIONS.map(|reason| reason.into_str()))
            .chain(hpa::RESTRICTIONS.map(|reason| reason.into_str()));
        known.add("plimsoll_restricted_scaling", "reason", reasons);
        known.add("plimsoll_updater_skipped_pods", "reason", skipped);
        let capping =
            [Restriction::WithinBounds, Restriction::UpscaleCapping, Restriction::DownscaleCapping];
        known.add(
            "wpa_controller_restricted_scaling",
            "reason",
            capping.map(|reason| reason.into_str()),
        );
        let facts = ConditionType::ALL.iter().copied().filter_map(ConditionType::label);
        known.add("wpa_controller_conditions", "condition", facts);
        for (family, label) in CODES {
            known.add(family, label, ["none"]);
        }
        // Recorded series count as well, with the labels that their expression leaves.
        for rule in rules() {
            let Some(name) = rule.record else { continue };
            let expr = parse(&rule.expr);
            let mut labels = known.labels_after_aggregation(&expr);
            labels.extend(rule.labels.keys().cloned());
            known.labels.entry(name.clone()).or_default().extend(labels);
            for (label, word) in &rule.labels {
                known.add(&name, label, [word.as_str()]);
            }
        }
        known
    }

    fn add<'a>(&mut self, family: &str, label: &str, words: impl IntoIterator<Item = &'a str>) {
        let known = self.words.entry((family.to_owned(), label.to_owned())).or_default();
        known.extend(words.into_iter().map(ToOwned::to_owned));
    }

    /// Parses the table of label values in the documentation: a row may cover several families, and a row without one
    /// continues the row before.
    fn read_documented(&mut self) {
        let path = std::path::Path::new(ROOT).join("docs/metrics.md");
        let page = std::fs::read_to_string(path).expect("a page");
        let (_, table) = page.split_once("| family | label | words |\n").expect("a table");
        let families: Vec<String> = self.labels.keys().cloned().collect();
        let mut of: Vec<String> = Vec::new();
        for row in table.lines().skip(1).take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = row.trim_matches('|').splitn(3, '|').collect();
            let [family_cell, labels, words] = cells[..] else { panic!("three cells: {row}") };
            let patterns: Vec<&str> = quoted(family_cell).collect();
            if !patterns.is_empty() {
                let fits = |family: &&String| {
                    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                        Some(start) => family.starts_with(start),
                        None => family.as_str() == *pattern,
                    })
                };
                of = families.iter().filter(fits).cloned().collect();
                assert!(!of.is_empty(), "{family_cell} is not a family");
            }
            for family in of.clone() {
                for label in quoted(labels) {
                    self.add(&family, label, quoted(words));
                }
            }
        }
    }

    /// Descriptions of all unknown names in an expression.
    pub fn unknown_names(&self, text: &str) -> Vec<String> {
        match parser::parse(text) {
            Ok(expr) => {
                let mut found = Vec::new();
                self.check_expression(&expr, &mut found);
                found
            }
            Err(error) => vec![format!("{text}: {error}")],
        }
    }

    fn check_expression(&self, expr: &Expr, found: &mut Vec<String>) {
        let mut labels: BTreeSet<&String> = BTreeSet::new();
        match expr {
            Expr::VectorSelector(selector) => self.check_selector(selector, found),
            Expr::MatrixSelector(selector) => self.check_selector(&selector.vs, found),
            Expr::Aggregate(it) => {
                labels.extend(it.modifier.iter().flat_map(|by| &by.labels().labels));
            }
            Expr::Binary(it) => {
                let modifier = it.modifier.iter();
                for one in modifier {
                    labels.extend(one.matching.iter().flat_map(|on| &on.labels().labels));
                    labels.extend(one.card.labels().iter().flat_map(|more| &more.labels));
                }
            }
            _ => {}
        }
        let known = self.all_labels(expr);
        for label in labels {
            if !known.contains(label) {
                found.push(format!("nothing has the label {label}: {expr}"));
            }
        }
        for inner in inside(expr) {
            self.check_expression(inner, found);
        }
    }

    fn check_selector(&self, selector: &VectorSelector, found: &mut Vec<String>) {
        let Some(name) = &selector.name else {
            found.push(format!("{selector} names no family"));
            return;
        };
        let Some(labels) = self.labels.get(name) else {
            found.push(format!("there is no {name}"));
            return;
        };
        for Matcher { name: label, value, op } in &selector.matchers.matchers {
            if !labels.contains(label) {
                if !OF_TARGETS.contains(&label.as_str()) {
                    found.push(format!("{name} has no label {label}"));
                }
                continue;
            }
            let key = (name.clone(), label.clone());
            let Some(words) = self.words.get(&key) else { continue };
            let is_pattern = matches!(op, MatchOp::Re(_) | MatchOp::NotRe(_));
            let values: Vec<&str> =
                if is_pattern { value.split('|').collect() } else { vec![value.as_str()] };
            let may_be_code = CODES.contains(&(name.as_str(), label.as_str()));
            for word in values {
                let is_known = words.contains(word) || (may_be_code && is_code(word));
                if !is_known {
                    found.push(format!("{name} has no {label}={word:?}"));
                }
            }
        }
    }

    /// Labels of all selectors in the expression, and those that it creates.
    fn all_labels(&self, expr: &Expr) -> BTreeSet<String> {
        let mut labels: BTreeSet<String> = OF_TARGETS.map(ToOwned::to_owned).into();
        match expr {
            Expr::VectorSelector(selector) => labels.extend(self.exported_labels(selector)),
            Expr::MatrixSelector(selector) => labels.extend(self.exported_labels(&selector.vs)),
            Expr::Call(call) if call.func.name == "label_replace" => {
                if let Some(Expr::StringLiteral(made)) = call.args.args.get(1).map(|it| &**it) {
                    labels.insert(made.val.clone());
                }
            }
            _ => {}
        }
        for inner in inside(expr) {
            labels.extend(self.all_labels(inner));
        }
        labels
    }

    /// Labels that its result can have.
    fn labels_after_aggregation(&self, expr: &Expr) -> BTreeSet<String> {
        match expr {
            Expr::Aggregate(it) => match &it.modifier {
                Some(by) if by.is_include() => by.labels().labels.iter().cloned().collect(),
                Some(_) => self.labels_after_aggregation(&it.expr),
                None => BTreeSet::new(),
            },
            // The right side of a set operation only filters.
            Expr::Binary(it) if ["and", "unless"].contains(&it.op.to_string().as_str()) => {
                self.labels_after_aggregation(&it.lhs)
            }
            Expr::VectorSelector(selector) => self.exported_labels(selector),
            Expr::MatrixSelector(selector) => self.exported_labels(&selector.vs),
            _ => inside(expr)
                .into_iter()
                .flat_map(|inner| self.labels_after_aggregation(inner))
                .collect(),
        }
    }

    fn exported_labels(&self, selector: &VectorSelector) -> BTreeSet<String> {
        let name = selector.name.as_deref().unwrap_or_default();
        self.labels.get(name).cloned().unwrap_or_default()
    }
}

/// The names of the series of a family.
fn names(definition: &Definition) -> Vec<String> {
    let name = definition.name;
    match definition.kind {
        MetricType::Histogram => {
            ["_bucket", "_count", "_sum"].map(|end| format!("{name}{end}")).into()
        }
        MetricType::Counter | MetricType::Gauge => vec![name.to_owned()],
    }
}

/// The words in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// `403`, or `5..` in a pattern.
fn is_code(word: &str) -> bool {
    word.len() == 3
        && word.starts_with(|first| matches!(first, '1'..='5'))
        && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn parse(text: &str) -> Expr {
    parser::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The direct subexpressions of an expression.
fn inside(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Aggregate(it) => vec![&it.expr],
        Expr::Unary(it) => vec![&it.expr],
        Expr::Binary(it) => vec![&it.lhs, &it.rhs],
        Expr::Paren(it) => vec![&it.expr],
        Expr::Subquery(it) => vec![&it.expr],
        Expr::Call(it) => it.args.args.iter().map(|argument| &**argument).collect(),
        _ => Vec::new(),
    }
}

/// The labels that distinguish the results of an expression.
pub fn labels_of(text: &str) -> BTreeSet<String> {
    KnownMetrics::read().labels_after_aggregation(&parse(text))
}

/// Whether an alert may fire if only third-party controllers are scraped.
pub fn holds_for_others(text: &str) -> bool {
    let mut recorded: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for rule in rules() {
        if let Some(name) = rule.record {
            recorded.entry(name).or_default().push(rule.expr);
        }
    }
    holds_by(&parse(text), &recorded)
}

/// Several rules may record the same name, such as one for each role.
fn holds_by(expr: &Expr, recorded: &BTreeMap<String, Vec<String>>) -> bool {
    let is_theirs = |selector: &VectorSelector| {
        let name = selector.name.as_deref().unwrap_or_default();
        match recorded.get(name) {
            Some(exprs) => exprs.iter().any(|expr| holds_by(&parse(expr), recorded)),
            None => !name.starts_with("plimsoll_"),
        }
    };
    match expr {
        Expr::VectorSelector(selector) => is_theirs(selector),
        Expr::MatrixSelector(selector) => is_theirs(&selector.vs),
        Expr::Binary(it) => match it.op.to_string().as_str() {
            "or" => holds_by(&it.lhs, recorded) || holds_by(&it.rhs, recorded),
            "unless" => holds_by(&it.lhs, recorded),
            _ => holds_by(&it.lhs, recorded) && holds_by(&it.rhs, recorded),
        },
        _ => inside(expr).into_iter().all(|inner| holds_by(inner, recorded)),
    }
}

#[test]
fn rules_use_only_exported_families_labels_and_values() {
    let known = KnownMetrics::read();
    let found: Vec<String> = rules()
        .into_iter()
        .flat_map(|rule| {
            let name = rule.alert.or(rule.record).unwrap_or_default();
            let unknown = known.unknown_names(&rule.expr);
            unknown.into_iter().map(move |unknown_name| format!("{name}: {unknown_name}"))
        })
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn unknown_names_in_an_expression_are_found() {
    let known = KnownMetrics::read();
    for (expr, expected) in [
        ("plimsoll_targets", "there is no plimsoll_targets"),
        ("plimsoll:targets:sum", "there is no plimsoll:targets:sum"),
        ("plimsoll_watermark_lateness_seconds", "there is no plimsoll_watermark_lateness_seconds"),
        ("plimsoll_target{target=\"web\"}", "plimsoll_target has no label target"),
        ("plimsoll_target{kind=\"vpas\"}", "plimsoll_target has no kind=\"vpas\""),
        (
            "rate(plimsoll_restricted_scaling{reason=~\"infeasible|unfeasible\"}[5m])",
            "plimsoll_restricted_scaling has no reason=\"unfeasible\"",
        ),
        (
            "plimsoll_writes_total{outcome=~\"4.|none\"}",
            "plimsoll_writes_total has no outcome=\"4.\"",
        ),
        (
            "sum by (wpa_name) (plimsoll_effective)",
            "nothing has the label wpa_name: sum by (wpa_name) (plimsoll_effective)",
        ),
        (
            "plimsoll_effective == on (wpa_name) plimsoll_max_replicas",
            "nothing has the label wpa_name: plimsoll_effective == on (wpa_name) plimsoll_max_replicas",
        ),
    ] {
        assert_eq!(known.unknown_names(expr), [expected], "{expr}");
    }
    let fine = "sum by (cluster, kind) (plimsoll_watermark_lateness_seconds_count)";
    assert_eq!(known.unknown_names(fine).len(), 1, "{:?}", known.unknown_names(fine));
    assert!(known.unknown_names("plimsoll_writes_total{outcome=~\"5..|none|409\"}").is_empty());
}

#[test]
fn alerts_that_work_with_upstreams_metrics_are_distinguished_from_others() {
    for (name, expected) in [
        ("WpaUpscaleCapped", true),
        ("WpaAtMax", true),
        ("WpaNotActive", true),
        ("WpaMetricStale", false),
        ("VpaEvictionStorm", true),
        ("VpaAdmissionDown", true),
        ("VpaBreakerOpen", false),
        ("PlimsollRoleAbsent", true),
    ] {
        assert_eq!(holds_for_others(&alerts()[name].expr), expected, "{name}");
    }
}
