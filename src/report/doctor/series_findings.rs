//! Findings about the container series, about kube-state-metrics, and about which pods of the cluster have series.

use std::time::Duration;

use plimsoll_storage::prometheus::{
    schema::{LabelValues, Origin, Schema, UsageJob},
    server_flavor::ServerFlavor,
};

use super::{
    ProbeResults,
    diagnose::{finding, grouped},
    probe_results::{ClusterCoverage, KUBE_STATE_METRICS_FAMILIES, ProbeAnswer},
    report::{CoverageReport, Evidence, Finding, Level, PartlyCoveredVpa, Topic},
};
use crate::report::style::{format_span, sentence};

/// With a longer scrape interval, samples miss bursts that throttle or OOM-kill containers.
const COARSE: Duration = Duration::from_mins(2);
/// The maximum number of label values named in a message.
const MAX_NAMED: usize = 6;

pub(super) fn containers(facts: &ProbeResults, kind: ServerFlavor) -> Vec<Finding> {
    let evidence = &facts.schema.evidence;
    let new_finding =
        |code, level, message: String| finding(Topic::Containers, code, level, message, evidence);
    let schema = match &facts.schema.answer {
        Ok(schema) => schema,
        Err(why) => return vec![new_finding("usage_missing", Level::Problem, sentence(why))],
    };
    let mut findings = vec![usage(schema, evidence)];
    findings.extend(sources(schema, evidence));
    findings.push(scrape_interval_finding(schema, evidence));
    for LabelValues { label, values } in &schema.replica_labels {
        let values = list_first(values.iter().map(String::as_str));
        let more = if kind.removes_replicas() {
            format!("; {} can remove them itself, which is cheaper", kind.name())
        } else {
            String::new()
        };
        let message = format!(
            "Series exist in several copies, distinguished by {label} ({values}): the copies are merged when they \
             are read{more}."
        );
        findings.push(new_finding("replicas", Level::Ok, message));
    }
    for LabelValues { label, values } in &schema.cluster_labels {
        findings.push(cluster(label, values, evidence));
    }
    findings.extend(throttled(facts));
    findings
}

fn usage(schema: &Schema, evidence: &[Evidence]) -> Finding {
    let usage = &schema.usage;
    let source = match (&usage.job.value, &usage.metrics_path) {
        (Some(job), Some(path)) => format!("job {job} at {path}"),
        (Some(job), None) => format!("job {job}"),
        (None, _) => "any job".to_owned(),
    };
    let labels = usage.container_labels().join(", ");
    let (level, message) = if usage.containers == 0 {
        let message = format!(
            "There are no series of {} in {source} with the labels {labels} as set by flags: remove those flags to detect \
             the labels.",
            usage.memory.value
        );
        (Level::Problem, message)
    } else {
        let count = grouped(&usage.containers.to_string());
        let exported = if usage.pod.value.starts_with("exported_") {
            " The scrape configuration overwrites their labels; honorLabels would keep them."
        } else {
            ""
        };
        let message = format!(
            "{count} containers are known from {source}, by the labels {labels}.{exported}"
        );
        (Level::Ok, message)
    };
    finding(Topic::Containers, "usage", level, message, evidence)
}

fn sources(schema: &Schema, evidence: &[Evidence]) -> Option<Finding> {
    let usage = &schema.usage;
    if usage.jobs.len() < 2 {
        return None;
    }
    let name = |UsageJob { job, metrics_path: path, containers }: &UsageJob| {
        let job = if job.is_empty() { "(no job)" } else { job };
        let separator = if path.is_empty() { "" } else { " at " };
        format!("{job}{separator}{path} ({} containers)", grouped(&containers.to_string()))
    };
    let sources = list_names(usage.jobs.iter().map(name), MAX_NAMED);
    let message = match &usage.job.value {
        Some(_) => {
            format!(
                "Several sources have these series: {sources}. Only one is read, so that nothing is counted twice."
            )
        }
        None => format!("Several sources each have some of these series: {sources}. All are read."),
    };
    Some(finding(Topic::Containers, "usage_sources", Level::Ok, message, evidence))
}

fn scrape_interval_finding(schema: &Schema, evidence: &[Evidence]) -> Finding {
    let interval = schema.scrape_interval.value.interval;
    let every = format_span(interval);
    let (level, message) = match schema.scrape_interval.origin {
        Origin::Assumed => {
            let message = format!(
                "There are too few samples to determine the scrape interval: {every} is assumed."
            );
            (Level::Warning, message)
        }
        _ if interval > COARSE => {
            let message = format!(
                "They are scraped every {every}: shorter CPU bursts and memory peaks are missed. Scrape every {} or more often.",
                format_span(COARSE)
            );
            (Level::Warning, message)
        }
        _ => (Level::Ok, format!("They are scraped every {every}.")),
    };
    finding(Topic::Containers, "interval", level, message, evidence)
}

fn cluster(
    label: &str,
    values: &std::collections::BTreeSet<String>,
    evidence: &[Evidence],
) -> Finding {
    let (code, level, message) = if let (1, Some(only)) = (values.len(), values.first()) {
        ("cluster", Level::Ok, format!("All series are from one cluster: {label} is {only}."))
    } else {
        let example = values.iter().find(|value| !value.is_empty()).map_or("", String::as_str);
        let message = format!(
            "The server has series of several clusters, distinguished by {label} ({}): pods of the same name would be \
             mixed. Select one, for example with --prometheus-matcher='{label}=\"{example}\"'.",
            list_first(values.iter().map(String::as_str))
        );
        ("clusters", Level::Problem, message)
    };
    finding(Topic::Containers, code, level, message, evidence)
}

fn throttled(facts: &ProbeResults) -> Option<Finding> {
    let probe = facts.throttled.as_ref()?;
    let count = *probe.answer.as_ref().ok()?;
    let message = if count > 0 {
        format!("There are throttling series for {} containers.", grouped(&count.to_string()))
    } else {
        "Throttling is not known: container_cpu_cfs_throttled_periods_total is dropped, or no container has a limit \
         of CPU."
            .to_owned()
    };
    Some(finding(Topic::Containers, "throttling", Level::Ok, message, &probe.evidence))
}

pub(super) fn pods(facts: &ProbeResults) -> Vec<Finding> {
    let Ok(schema) = &facts.schema.answer else { return Vec::new() };
    let evidence = &facts.schema.evidence;
    let new_finding = |code, level, message| finding(Topic::Pods, code, level, message, evidence);
    let Some(kube_state_metrics) = &schema.kube_state_metrics else {
        let message = "There is no kube-state-metrics: past OOM kills are not counted, and deleted pods are matched to \
                       workloads by name alone. Scrape kube-state-metrics into this server.";
        return vec![new_finding("states_missing", Level::Warning, message.to_owned())];
    };
    let job =
        kube_state_metrics.job.as_ref().map_or_else(String::new, |job| format!(" of job {job}"));
    let message = format!(
        "kube-state-metrics{job} is there, with the labels {}.",
        kube_state_metrics.container_labels().join(", ")
    );
    let mut findings = vec![new_finding("states", Level::Ok, message)];
    let Some(ProbeAnswer { evidence, answer: Ok(families) }) = &facts.families else {
        return findings;
    };
    for (family, level, loss) in KUBE_STATE_METRICS_FAMILIES {
        if !families.contains(family) {
            let message = format!("{family} is not among its series: {loss}.");
            findings.push(finding(Topic::Pods, "states_family", level, message, evidence));
        }
    }
    findings
}

/// Joins the first few values, and the number of the remaining ones.
fn list_first<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let shown = |value: &str| if value.is_empty() { "(none)".to_owned() } else { value.to_owned() };
    list_names(values.map(shown), MAX_NAMED)
}

/// Joins the first few names, and the number of the remaining ones.
fn list_names(names: impl Iterator<Item = String>, max: usize) -> String {
    let mut names: Vec<String> = names.collect();
    if names.len() > max {
        let more = names.len() - max;
        names.truncate(max);
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}

/// The maximum number of VPAs named in a message. The report lists all of them.
const MAX_NAMED_VPAS: usize = 5;

pub(super) fn coverage_finding(coverage: &ClusterCoverage) -> (Option<CoverageReport>, Finding) {
    let (code, level, message) = match coverage {
        ClusterCoverage::NoCluster(why) => {
            ("cluster_none", Level::Ok, format!("No cluster to compare with: {why}."))
        }
        ClusterCoverage::Unreadable(why) => {
            ("cluster_unreadable", Level::Warning, format!("Cannot read the cluster: {why}."))
        }
        ClusterCoverage::Empty => {
            let message = "The cluster has no VPAs: there is nothing to compare.".to_owned();
            ("cluster_empty", Level::Ok, message)
        }
        ClusterCoverage::Unmatched(why, _) => {
            let message = format!("Cannot look up the cluster's pods in the Prometheus: {why}");
            ("cluster_unmatched", Level::Problem, message)
        }
        ClusterCoverage::Compared(comparison, _) => assess_coverage(comparison),
    };
    let (comparison, evidence) = match coverage {
        ClusterCoverage::Compared(comparison, evidence) => {
            (Some(comparison.clone()), &evidence[..])
        }
        ClusterCoverage::Unmatched(_, evidence) => (None, &evidence[..]),
        _ => (None, &[][..]),
    };
    (comparison, finding(Topic::Cluster, code, level, message, evidence))
}

fn assess_coverage(comparison: &CoverageReport) -> (&'static str, Level, String) {
    let CoverageReport { vpas, passed_over, pods, with_series, without, .. } = comparison;
    let rest = match passed_over {
        0 => String::new(),
        more => format!(" {more} more VPAs were not compared."),
    };
    let scope = format!("{vpas} {}", if *vpas == 1 { "VPA" } else { "VPAs" });
    if *pods == 0 {
        let message = format!("{scope}, and no pods: there is nothing to compare.{rest}");
        return ("cluster_series", Level::Ok, message);
    }
    if without.is_empty() {
        let message = format!("{scope}: all {pods} pods have series.{rest}");
        return ("cluster_series", Level::Ok, message);
    }
    if *with_series == 0 {
        let message = format!(
            "{scope} with {pods} pods, and none of them has series: check that this Prometheus scrapes that cluster, and \
             that the matchers select it.{rest}"
        );
        return ("cluster_foreign", Level::Problem, message);
    }
    let name = |PartlyCoveredVpa { namespace, name, pods, with_series }: &PartlyCoveredVpa| {
        format!("{namespace}/{name} ({} of {pods} pods)", pods - with_series)
    };
    let message = format!(
        "{scope}, {with_series} of {pods} pods have series. Without: {}. Pods that began a minute ago have none yet; \
         others are not scraped, or are dropped by relabelling.{rest}",
        list_names(without.iter().map(name), MAX_NAMED_VPAS)
    );
    // Single pods may have just started; a VPA without any series is a problem.
    let has_vpa_without_series = without.iter().any(|vpa| vpa.with_series == 0);
    let level = if has_vpa_without_series { Level::Problem } else { Level::Warning };
    ("cluster_without", level, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_without_series_are_a_problem_if_their_vpa_has_no_others() {
        let without = |with_series| PartlyCoveredVpa {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            pods: 3,
            with_series,
        };
        for (with_series, without, code, level) in [
            (5, vec![], "cluster_series", Level::Ok),
            (4, vec![without(2)], "cluster_without", Level::Warning),
            (2, vec![without(0)], "cluster_without", Level::Problem),
            (0, vec![without(0)], "cluster_foreign", Level::Problem),
        ] {
            let vpas = CoverageReport {
                vpas: 2,
                pods: 5,
                with_series,
                without,
                ..CoverageReport::default()
            };
            let (actual_code, actual_level, message) = assess_coverage(&vpas);
            assert_eq!((actual_code, actual_level), (code, level), "{message}");
        }
    }
}
