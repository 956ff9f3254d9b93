//! What an updater reports besides its actions: Prometheus metrics, and the update priorities in upstream's log.

use std::collections::BTreeMap;

use super::compare::Urgencies;
use crate::metrics::exposition::{Exposition, Family};

/// Prefix of the metric families.
const PREFIX: &str = "vpa_updater_";
/// A family of durations, which differ between runs.
const TIMES: &str = "vpa_updater_execution_latency_seconds";
/// Failed attempts to remove a boost: each side has its own retry interval.
const TRIES: &str = "UnboostError";

/// Returns the lines of a metrics page that are about the updater.
pub fn updater_metrics(page: &str) -> String {
    let lines = page
        .lines()
        .filter(|line| line.strip_prefix("# TYPE ").unwrap_or(line).starts_with(PREFIX));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Returns the value of each series, with labels in alphabetical order. Leaves out durations and series with value 0, which
/// either side may omit: upstream omits VPAs without pods and modes that a metric does not cover, Plimsoll omits VPAs that
/// do not change running pods.
pub fn values(page: &str) -> BTreeMap<String, String> {
    let lines = page.lines().filter(|line| line.starts_with(PREFIX) && !line.starts_with(TIMES));
    let lines = lines.filter(|line| !line.contains(TRIES));
    let parsed = lines.filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        (value != "0").then(|| (sort_labels(series), value.to_owned()))
    });
    parsed.collect()
}

/// Upstream counts a failed resize if it has nothing to write or the replica group is too small, because it checks late.
/// Plimsoll does not try.
pub fn is_expected_extra_count(
    series: &str,
    theirs: Option<&String>,
    ours: Option<&String>,
) -> bool {
    let number = |text: Option<&String>| text.map_or(Some(0.0), |text| text.parse::<f64>().ok());
    series.contains("InPlaceUpdateError") && number(theirs) > number(ours)
}

fn sort_labels(series: &str) -> String {
    let Some((name, labels)) = series.split_once('{') else { return series.to_owned() };
    let mut labels: Vec<_> = labels.trim_end_matches('}').split(',').collect();
    labels.sort_unstable();
    format!("{name}{{{}}}", labels.join(","))
}

/// Returns type, labels and buckets of each family on any of the pages.
pub fn families<'a>(pages: impl Iterator<Item = &'a str>) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::new();
    for page in pages {
        let page = Exposition::parse(page);
        for name in page.names().filter(|name| name.starts_with(PREFIX)) {
            let family = page.family(name).clone();
            let family = Family { series: Vec::new(), ..family };
            families.insert(name.to_owned(), family);
        }
    }
    families
}

/// Returns upstream's priorities of the pods that it accepts for an update.
pub fn urgencies(log: &str) -> Urgencies {
    let accepted =
        log.lines().filter_map(|line| line.split_once("\"Pod accepted for update\" pod=\""));
    let parsed = accepted.filter_map(|(_, rest)| {
        let (pod, rest) = rest.split_once("\" updatePriority=")?;
        let urgency = rest.split_whitespace().next()?;
        Some((pod.to_owned(), urgency.to_owned()))
    });
    parsed.collect()
}
