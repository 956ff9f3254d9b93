//! What the series of a server are good for: those of containers, and those of kube-state-metrics.

use std::time::Duration;

use plimsoll_storage::prometheus::schema::{LabelValues, Origin, Schema, UsageJob};

use super::{
    ProbeResults,
    diagnose::{finding, grouped},
    probe_results::{KUBE_STATE_METRICS_FAMILIES, ProbeAnswer},
    report::{Evidence, Finding, Level, Topic},
    server_flavor::ServerFlavor,
};
use crate::report::style::format_span;

/// A longer time between two samples hides bursts that containers are throttled or killed by.
const COARSE: Duration = Duration::from_mins(2);
/// Values of a label that are named in a message.
const MAX_NAMED: usize = 6;

pub(super) fn containers(facts: &ProbeResults, kind: ServerFlavor) -> Vec<Finding> {
    let evidence = &facts.schema.evidence;
    let told =
        |code, level, message: String| finding(Topic::Containers, code, level, message, evidence);
    let schema = match &facts.schema.answer {
        Ok(schema) => schema,
        Err(why) => return vec![told("usage_missing", Level::Problem, sentence(why))],
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
            "Series are there in several copies, told apart by {label} ({values}): they are folded into one when they \
             are read{more}."
        );
        findings.push(told("replicas", Level::Ok, message));
    }
    for LabelValues { label, values } in &schema.cluster_labels {
        findings.push(cluster(label, values, evidence));
    }
    findings.extend(throttled(facts));
    findings
}

fn usage(schema: &Schema, evidence: &[Evidence]) -> Finding {
    let usage = &schema.usage;
    let of = match (&usage.job.value, &usage.metrics_path) {
        (Some(job), Some(path)) => format!("job {job} at {path}"),
        (Some(job), None) => format!("job {job}"),
        (None, _) => "any job".to_owned(),
    };
    let labels = usage.container_labels().join(", ");
    let told = |level, message| finding(Topic::Containers, "usage", level, message, evidence);
    if usage.containers == 0 {
        let message = format!(
            "There are no series of {} in {of} by the labels {labels} as they were set: leave those flags out, and \
             they are looked for.",
            usage.memory.value
        );
        return told(Level::Problem, message);
    }
    let count = grouped(&usage.containers.to_string());
    let exported = if usage.pod.value.starts_with("exported_") {
        " The scrape puts labels of its own in the place of theirs; honorLabels would keep them."
    } else {
        ""
    };
    let message =
        format!("{count} containers are known from {of}, by the labels {labels}.{exported}");
    told(Level::Ok, message)
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
    let all = list_first_owned(usage.jobs.iter().map(name));
    let message = match &usage.job.value {
        Some(_) => {
            format!("Several sources have them: {all}. One is read, so that nothing counts twice.")
        }
        None => format!("Several sources have a part of them: {all}. All are read."),
    };
    Some(finding(Topic::Containers, "usage_sources", Level::Ok, message, evidence))
}

fn scrape_interval_finding(schema: &Schema, evidence: &[Evidence]) -> Finding {
    let told = |level, message| finding(Topic::Containers, "interval", level, message, evidence);
    let interval = schema.scrape_interval.value.interval;
    match schema.scrape_interval.origin {
        Origin::Assumed => {
            let message = format!(
                "How often they are scraped cannot be seen from the few samples that there are: {} is assumed.",
                format_span(interval)
            );
            told(Level::Warning, message)
        }
        _ if interval > COARSE => {
            let message = format!(
                "They are scraped every {}: shorter bursts of CPU and peaks of memory are missed. Scrape every {} or \
                 less.",
                format_span(interval),
                format_span(COARSE)
            );
            told(Level::Warning, message)
        }
        _ => told(Level::Ok, format!("They are scraped every {}.", format_span(interval))),
    }
}

fn cluster(
    label: &str,
    values: &std::collections::BTreeSet<String>,
    evidence: &[Evidence],
) -> Finding {
    let told = |code, level, message| finding(Topic::Containers, code, level, message, evidence);
    if let (1, Some(only)) = (values.len(), values.first()) {
        return told("cluster", Level::Ok, format!("They are of one cluster: {label} is {only}."));
    }
    let example = values.iter().find(|value| !value.is_empty()).map_or("", String::as_str);
    let message = format!(
        "Several clusters are in one server, told apart by {label} ({}): pods of the same name would be mixed. Say \
         which one is meant, as in --prometheus-matcher='{label}=\"{example}\"'.",
        list_first(values.iter().map(String::as_str))
    );
    told("clusters", Level::Problem, message)
}

fn throttled(facts: &ProbeResults) -> Option<Finding> {
    let asked = facts.throttled.as_ref()?;
    let count = *asked.answer.as_ref().ok()?;
    let message = if count > 0 {
        format!("Throttling is known of {} containers.", grouped(&count.to_string()))
    } else {
        "Throttling is not known: container_cpu_cfs_throttled_periods_total is dropped, or no container has a limit \
         of CPU."
            .to_owned()
    };
    Some(finding(Topic::Containers, "throttling", Level::Ok, message, &asked.evidence))
}

pub(super) fn pods(facts: &ProbeResults) -> Vec<Finding> {
    let Ok(schema) = &facts.schema.answer else { return Vec::new() };
    let evidence = &facts.schema.evidence;
    let told = |code, level, message| finding(Topic::Pods, code, level, message, evidence);
    let Some(states) = &schema.kube_state_metrics else {
        let message = "There is no kube-state-metrics: kills for memory that are past are not counted, and pods that \
                       are gone are told from others by their names alone. Have it scraped into this server.";
        return vec![told("states_missing", Level::Warning, message.to_owned())];
    };
    let of = states.job.as_ref().map_or_else(String::new, |job| format!(" of job {job}"));
    let message = format!(
        "kube-state-metrics{of} is there, with the labels {}.",
        states.container_labels().join(", ")
    );
    let mut findings = vec![told("states", Level::Ok, message)];
    let Some(ProbeAnswer { evidence, answer: Ok(families) }) = &facts.families else {
        return findings;
    };
    for family in KUBE_STATE_METRICS_FAMILIES {
        if families.contains(family) {
            continue;
        }
        let (level, loss) = match family {
            "kube_pod_owner" => {
                (Level::Warning, "pods that are gone are told from others by their names alone")
            }
            "kube_pod_container_status_restarts_total" => {
                (Level::Warning, "kills for memory in the past do not count")
            }
            "kube_pod_labels" => {
                (Level::Ok, "upstream's recommender could not tell whose a pod was that is gone")
            }
            // It begins with the first container that ends.
            _ => (
                Level::Ok,
                "either no container has ended, or it is dropped and kills for memory in the past do not count",
            ),
        };
        let message = format!("{family} is not among its series: {loss}.");
        findings.push(finding(Topic::Pods, "states_family", level, message, evidence));
    }
    findings
}

/// The first few of these, as a list.
fn list_first<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let shown = |value: &str| if value.is_empty() { "(none)".to_owned() } else { value.to_owned() };
    list_first_owned(values.map(shown))
}

fn list_first_owned(values: impl Iterator<Item = String>) -> String {
    let mut values: Vec<_> = values.collect();
    if values.len() > MAX_NAMED {
        let more = values.len() - MAX_NAMED;
        values.truncate(MAX_NAMED);
        values.push(format!("and {more} more"));
    }
    values.join(", ")
}

/// An error as a sentence of its own.
fn sentence(error: &str) -> String {
    let mut letters = error.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}
