//! What an updater tells besides what it does: figures for Prometheus, and in upstream's log how urgent each pod is.

use std::collections::BTreeMap;

use super::compare::Urgencies;
use crate::metrics::exposition::{Exposition, Family};

/// What its families begin with.
const PREFIX: &str = "vpa_updater_";
/// Times, which differ.
const TIMES: &str = "vpa_updater_execution_latency_seconds";
/// How often the end of a boost was tried in vain: each takes its own pauses in between.
const TRIES: &str = "UnboostError";

/// What of a page is about updaters.
pub fn updater_metrics(page: &str) -> String {
    let lines = page
        .lines()
        .filter(|line| line.strip_prefix("# TYPE ").unwrap_or(line).starts_with(PREFIX));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Each series with its value, labels in alphabetical order; without those that are a matter of time, and without those
/// that are 0, which either side may leave out: upstream of VPAs without pods and of modes that a figure is not about, ours
/// of VPAs that leave running pods alone.
pub fn values(page: &str) -> BTreeMap<String, String> {
    let lines = page.lines().filter(|line| line.starts_with(PREFIX) && !line.starts_with(TIMES));
    let lines = lines.filter(|line| !line.contains(TRIES));
    let parsed = lines.filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        (value != "0").then(|| (sort_labels(series), value.to_owned()))
    });
    parsed.collect()
}

/// Upstream counts it as a failed resize when it has nothing to write, or finds a group too small: it notices late. Ours
/// does not try.
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

/// Type, labels and buckets of each family that some page has.
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

/// How urgent upstream finds the pods that it accepts.
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
