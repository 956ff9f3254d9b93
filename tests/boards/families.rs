//! Boards use only existing metric families with their labels, and their appearance is documented.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use plimsoll_core::{
    hpa::{self, comparison::Comparison},
    recommender::RecommendationReason,
    watermark::RESTRICTIONS,
};
use strum::VariantArray as _;
use xtask::boards::late_families::APPEARS_WHEN;

use super::{boards, list, query, targets, text};

/// A metric family in docs/metrics.md, which is generated from the code.
pub struct Documented {
    pub kind: String,
    pub labels: Vec<String>,
    pub absent: String,
}

/// How pods count for an HPA.
const POD_STATES: [&str; 5] = ["counted", "foreign", "ignored", "missing", "unready"];
/// Labels that a scrape adds to every series.
const SCRAPE_LABELS: [&str; 3] = ["cluster", "instance", "job"];

/// All families, by name.
pub fn documented() -> BTreeMap<String, Documented> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
    let page = fs::read_to_string(path).expect("a readable page");
    let (_, rest) = page.split_once("<!-- begin families -->").expect("the table begins");
    let (table, _) = rest.split_once("<!-- end families -->").expect("the table ends");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let families: BTreeMap<_, _> = rows
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [name, kind, labels, _, _, _, absent] = cells[..] else { panic!("{row}") };
            let labels = labels.split(", ").map(|label| label.trim_matches('`').to_owned());
            let labels = labels.filter(|label| !label.is_empty()).collect();
            let (kind, absent) = (kind.to_owned(), absent.to_owned());
            (name.trim_matches('`').to_owned(), Documented { kind, labels, absent })
        })
        .collect();
    assert!(families.len() > 90, "only {} families were found", families.len());
    families
}

/// The family of a series; those of histograms have suffixes.
pub fn family_of<'a>(series: &'a str, known: &BTreeMap<String, Documented>) -> Option<&'a str> {
    if known.contains_key(series) {
        return Some(series);
    }
    let endings = ["_bucket", "_sum", "_count"];
    let bare = endings.into_iter().find_map(|ending| series.strip_suffix(ending))?;
    known.get(bare).filter(|family| family.kind == "histogram").map(|_| bare)
}

/// Every query of a board, of panels and of variables.
fn queries(board: &serde_json::Value) -> Vec<String> {
    let of_panels = targets(board).map(|(_, target)| text(target, "expr").to_owned());
    let of_variables = list(&board["templating"], "list").filter_map(|variable| {
        let inside = text(variable, "query").strip_prefix("label_values(")?;
        Some(inside.rsplit_once(',')?.0.to_owned())
    });
    of_panels.chain(of_variables).collect()
}

#[test]
fn boards_use_only_existing_families_and_labels() {
    let known = documented();
    let mut wrong = BTreeSet::new();
    for (name, board) in boards() {
        for text in queries(&board) {
            let expr =
                query::parse(&text).unwrap_or_else(|error| panic!("{name}: {text}: {error}"));
            let mut labels: BTreeSet<&str> = SCRAPE_LABELS.into();
            for selector_use in query::selectors(&expr) {
                let Some(family) = family_of(selector_use.name(), &known) else {
                    wrong.insert(format!("{name}: there is no family {}", selector_use.name()));
                    continue;
                };
                let family_labels = known[family].labels.iter().map(String::as_str);
                let own: BTreeSet<&str> =
                    family_labels.chain(SCRAPE_LABELS).chain(["le"]).collect();
                for matcher in &selector_use.selector.matchers.matchers {
                    if !own.contains(&*matcher.name) {
                        wrong.insert(format!("{name}: {family} has no label {}", matcher.name));
                    }
                }
                labels.extend(own);
            }
            for label in query::grouped_by(&expr) {
                if !labels.contains(&*label) {
                    wrong.insert(format!("{name}: nothing in {text} has a label {label}"));
                }
            }
        }
        for (panel, target) in targets(&board) {
            let expr = query::parse(text(target, "expr")).expect("parsed before");
            let grouped = query::grouped_by(&expr);
            for label in text(target, "legendFormat").split("{{").skip(1) {
                let label = label.split("}}").next().unwrap_or_default();
                // Without grouping, a series keeps its labels.
                if !grouped.is_empty() && !grouped.iter().any(|known| known == label) {
                    let title = text(panel, "title");
                    wrong.insert(format!(
                        "{name}: {title}: a legend with {label}, which the query drops"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn label_values_in_boards_exist_in_the_code() {
    let of_vpas = RecommendationReason::RESTRICTIONS.map(|reason| reason.into_str());
    let of_replicas = [&RESTRICTIONS[..], &hpa::RESTRICTIONS].concat();
    let reasons: Vec<&str> = of_vpas
        .into_iter()
        .chain(of_replicas.into_iter().map(|reason| reason.into_str()))
        .collect();
    let results: Vec<&str> = Comparison::VARIANTS.iter().map(|result| result.as_str()).collect();
    for (name, board) in boards() {
        for text in queries(&board) {
            let expr = query::parse(&text).expect("parsed before");
            for selector_use in query::selectors(&expr) {
                for matcher in &selector_use.selector.matchers.matchers {
                    let known: &[&str] = match &*matcher.name {
                        "kind" if selector_use.name().starts_with("plimsoll_") => {
                            &["vpa", "wpa", "hpa"]
                        }
                        "resource" => &["cpu", "memory"],
                        "transition" => &["upscale", "downscale"],
                        "outcome" => &["ok", "empty"],
                        "condition" => &["able_to_scale", "scaling_limited", "scaling_blocked"],
                        "reason" if matcher.value == "$reason" => &["$reason"],
                        "reason" => &reasons,
                        "result" => &results,
                        "state" if selector_use.name() == "plimsoll_pods" => &POD_STATES,
                        _ => continue,
                    };
                    let words = matcher.value.split('|');
                    let strange: Vec<&str> = words.filter(|word| !known.contains(word)).collect();
                    assert!(strange.is_empty(), "{name}: {} {strange:?} in {text}", matcher.name);
                }
            }
        }
    }
}

#[test]
fn every_family_that_is_absent_at_first_has_a_documented_cause() {
    let known = documented();
    let mut used = BTreeSet::new();
    for (_, board) in boards() {
        for (_, target) in targets(&board) {
            let expr = query::parse(text(target, "expr")).expect("parsed before");
            for selector_use in query::selectors(&expr) {
                used.extend(family_of(selector_use.name(), &known).map(str::to_owned));
            }
        }
    }
    let absent = used.iter().filter(|name| !known[*name].absent.is_empty());
    let absent: Vec<&str> = absent.map(String::as_str).collect();
    let listed: Vec<&str> = APPEARS_WHEN.iter().map(|(name, _)| *name).collect();
    assert!(listed.is_sorted(), "the list is in alphabetical order");
    assert_eq!(listed, absent, "left: documented, right: used and absent at first");
}
