//! Turns probe results into a report: findings with their evidence, and the flags with which a recommender reads history from
//! the server.

use std::time::Duration;

use plimsoll_storage::prometheus::{
    schema::{CPU_METRIC, MEMORY_METRIC, WithOrigin},
    server_flavor::{ServerFlavor, detect_flavor},
};

use super::{
    DoctorReport, ProbeResults,
    history_findings::{
        cost, history, missing_history_finding, oldest_age, recording_rules_finding,
    },
    probe_results::Stage,
    report::{Evidence, Finding, Level, SCHEMA_VERSION, Server, Topic},
    series_findings::{containers, coverage_finding, pods},
};
use crate::report::style::format_span;

pub fn diagnose(facts: ProbeResults) -> DoctorReport {
    let (kind, version) = detect_flavor(
        &facts.address,
        facts.build.answer.as_ref().ok(),
        facts.flags.answer.as_ref().ok(),
    );
    let server = Server { address: facts.address.clone(), kind, version };
    let mut findings = Vec::new();
    findings.extend(deadline_finding(&facts));
    findings.extend(facts.has_completed(Stage::Server).then(|| server_finding(&facts, &server)));
    findings.extend(limits(&facts));
    findings.extend(retention(&facts));
    if facts.has_completed(Stage::Schema) {
        findings.extend(containers(&facts, kind));
        findings.extend(pods(&facts));
    }
    // If the depth probe did not complete, the oldest sample does not show how far history goes back.
    let oldest = oldest_age(&facts).filter(|_| facts.has_completed(Stage::Depth));
    if facts.has_completed(Stage::Depth) {
        findings.extend(history(&facts, oldest));
    }
    findings.extend(recording_rules_finding(&facts));
    findings.extend(cost(&facts, oldest));
    findings.extend(missing_history_finding(&facts));
    let (comparison, finding) = coverage_finding(&facts.cluster_coverage);
    findings.extend(facts.has_completed(Stage::Comparison).then_some(finding));
    DoctorReport {
        schema_version: SCHEMA_VERSION,
        kind: "doctor-prometheus".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        at: facts.at,
        server,
        wanted_seconds: facts.wanted_history.as_secs(),
        reaches_seconds: oldest.map(|age| age.as_secs()),
        flags: flags(&facts),
        findings,
        queries: facts.sample_read.map(|sample| sample.queries).unwrap_or_default(),
        cluster: comparison,
        secrets: facts.secret_flags,
    }
}

pub(super) fn finding(
    topic: Topic,
    code: &str,
    level: Level,
    message: impl Into<String>,
    evidence: &[Evidence],
) -> Finding {
    let (code, message) = (code.to_owned(), message.into());
    Finding { code, topic, level, message, evidence: evidence.to_vec() }
}

/// Reports the stages that did not complete before the deadline.
fn deadline_finding(facts: &ProbeResults) -> Option<Finding> {
    let rest = facts.stage.remaining();
    if rest.is_empty() {
        return None;
    }
    let message = format!(
        "The deadline of {} passed before all checks completed. Not known: {}. Limit the queries with --namespace, \
         increase --deadline, or check why the server is slow.",
        format_span(facts.deadline),
        rest.join("; ")
    );
    Some(finding(Topic::Server, "deadline", Level::Problem, message, &facts.first_query))
}

fn server_finding(facts: &ProbeResults, server: &Server) -> Finding {
    let evidence = [&facts.first_query[..], &facts.build.evidence].concat();
    let release = server.version.as_deref().map(|version| format!(" {version}"));
    let (level, message) = match server.kind {
        ServerFlavor::Unknown => (
            Level::Warning,
            "It answers queries, but does not identify itself: check that no proxy in front of it changes responses."
                .to_owned(),
        ),
        kind => (Level::Ok, format!("It is {}{}.", kind.name(), release.unwrap_or_default())),
    };
    finding(Topic::Server, "server_kind", level, message, &evidence)
}

fn limits(facts: &ProbeResults) -> Option<Finding> {
    let flags = facts.flags.answer.as_ref().ok()?;
    let samples = flags.get("query.max-samples")?;
    let timeout = flags.get("query.timeout").map(|time| format!(" and take {time}"));
    let level = match samples.parse::<u64>() {
        // About one hour of a namespace with several hundred containers, scraped every 15 seconds.
        Ok(samples) if samples < 100_000 => Level::Warning,
        _ => Level::Ok,
    };
    let message = format!(
        "One query may load {} samples{}: history is asked for in parts below that.",
        grouped(samples),
        timeout.unwrap_or_default()
    );
    Some(finding(Topic::Server, "server_limits", level, message, &facts.flags.evidence))
}

/// Adds thousands separators: `50,000,000`.
pub(super) fn grouped(number: &str) -> String {
    if !number.bytes().all(|digit| digit.is_ascii_digit()) {
        return number.to_owned();
    }
    let mut text = String::new();
    for (at, digit) in number.chars().enumerate() {
        if at > 0 && (number.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn retention(facts: &ProbeResults) -> Option<Finding> {
    let (retention, evidence) = match &facts.runtime.answer {
        Ok(runtime) if runtime.storage_retention.is_some() => {
            (runtime.storage_retention.clone()?, &facts.runtime.evidence)
        }
        _ => {
            let flags = facts.flags.answer.as_ref().ok()?;
            (flags.get("storage.tsdb.retention.time")?.clone(), &facts.flags.evidence)
        }
    };
    let time = retention.split(" or ").find_map(parse_prometheus_duration)?;
    let (level, message) = if time < facts.wanted_history {
        let advice = format!(
            "The server keeps {retention}, and {} are required: increase --storage.tsdb.retention.time there, or use a \
             server with a longer retention.",
            format_span(facts.wanted_history)
        );
        (Level::Warning, advice)
    } else {
        (Level::Ok, format!("The server keeps {retention}."))
    };
    Some(finding(Topic::Server, "retention", level, message, evidence))
}

/// Parses a Prometheus duration above 0: `15d`, `1w2d`, `36h`.
pub fn parse_prometheus_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut seconds = 0_u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, after) = rest.split_at(digits);
        let end = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit = match unit {
            "ms" => 0,
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 86_400,
            "w" => 7 * 86_400,
            "y" => 365 * 86_400,
            _ => return None,
        };
        seconds = seconds.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        rest = after;
    }
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

pub(super) fn flags(facts: &ProbeResults) -> Vec<String> {
    let mut flags = vec!["--storage=prometheus".to_owned()];
    flags.extend(facts.given_flags.iter().cloned());
    let Ok(schema) = &facts.schema.answer else { return flags };
    let usage = &schema.usage;
    // If the job has two metrics paths, the recommender selects one itself when the job is given.
    let job = usage.job.value.as_deref().unwrap_or_default();
    flags.push(shell_flag("prometheus-cadvisor-job-name", job));
    let mut name = |flag_name: &str, WithOrigin { value, .. }: &WithOrigin<String>, usual: &str| {
        if value != usual {
            flags.push(shell_flag(flag_name, value));
        }
    };
    name("history-cpu-metric", &usage.cpu, CPU_METRIC);
    name("history-memory-metric", &usage.memory, MEMORY_METRIC);
    // Given even if they equal upstream's defaults, so that the recommender need not detect them.
    name("container-namespace-label", &usage.namespace, "");
    name("container-pod-name-label", &usage.pod, "");
    name("container-name-label", &usage.container, "");
    flags
}

/// Formats a flag, quoted for a shell if necessary.
pub fn shell_flag(name: &str, value: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._/:=@,+%".contains(letter);
    if value.chars().all(plain) {
        format!("--{name}={value}")
    } else {
        format!("--{name}='{}'", value.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::report::doctor::{
        probe_results::{ClusterCoverage, Depth, ProbeAnswer, RuntimeInfo},
        report::CoverageReport,
    };

    pub(in crate::report::doctor) fn yes<T>(answer: T) -> ProbeAnswer<T> {
        ProbeAnswer { evidence: Vec::new(), answer: Ok(answer) }
    }

    /// Results of a server, given as pairs of hours ago and the number of containers at that time.
    pub(in crate::report::doctor) fn facts(depth: &[(u64, u64)]) -> ProbeResults {
        let depth = depth.iter().map(|&(hours, containers)| Depth {
            age: Duration::from_hours(hours),
            containers: yes(containers),
        });
        ProbeResults {
            address: "http://prometheus".to_owned(),
            wanted_history: Duration::from_hours(192),
            deadline: Duration::from_mins(2),
            stage: Stage::Done,
            depth: depth.collect(),
            ..ProbeResults::default()
        }
    }

    #[test]
    fn skipped_checks_are_reported_and_not_judged() {
        let mut facts = facts(&[(0, 5), (24, 5)]);
        facts.cluster_coverage = ClusterCoverage::Compared(CoverageReport::default(), Vec::new());
        for (stage, words, others) in [
            (Stage::Cluster, "the pods of the cluster; what the server is", &[][..]),
            (Stage::Depth, "Not known: how far back", &["server_kind", "usage_missing"]),
            (
                Stage::Comparison,
                "Not known: which pods have series.",
                &["server_kind", "usage_missing", "history_short"],
            ),
        ] {
            facts.stage = stage;
            let report = diagnose(facts.clone());
            let (first, rest) = report.findings.split_first().expect("a finding");
            assert_eq!((&*first.code, first.level), ("deadline", Level::Problem));
            assert!(first.message.contains(words), "{}", first.message);
            let rest: Vec<_> = rest.iter().map(|finding| &*finding.code).collect();
            assert_eq!(rest, others, "{stage:?}");
        }
        facts.stage = Stage::Done;
        let report = diagnose(facts);
        assert!(report.findings.iter().all(|finding| finding.code != "deadline"));
        assert_eq!(report.findings.last().map(|last| &*last.code), Some("cluster_series"));
    }

    #[test]
    fn a_retention_shorter_than_the_history_length_gives_a_warning() {
        for (retention_text, level) in [
            ("15d", Some(Level::Ok)),
            ("24h", Some(Level::Warning)),
            ("15d or 10GiB", Some(Level::Ok)),
            ("1w or 10GiB", Some(Level::Warning)),
            ("10GiB", None),
        ] {
            let mut facts = facts(&[]);
            facts.runtime = yes(RuntimeInfo { storage_retention: Some(retention_text.to_owned()) });
            assert_eq!(retention(&facts).map(|finding| finding.level), level, "{retention_text}");
        }
    }

    #[test]
    fn prometheus_durations_are_parsed() {
        for (text, hours) in [("15d", 360), ("1w2d", 216), ("36h", 36), ("1y", 8760)] {
            assert_eq!(
                parse_prometheus_duration(text),
                Some(Duration::from_hours(hours)),
                "{text}"
            );
        }
        for text in ["", "0s", "10GB", "1GiB", "d"] {
            assert_eq!(parse_prometheus_duration(text), None, "{text}");
        }
        assert_eq!(
            (&*grouped("50000000"), &*grouped("999"), &*grouped("x")),
            ("50,000,000", "999", "x")
        );
    }
}
