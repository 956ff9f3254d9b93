//! SARIF 2.1.0 for code scanning: a rule for each kind of risk and for waste, a result for each resource that has it.

use std::collections::HashMap;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use plimsoll_core::rightsizing::{
    report::{Level, Report, ResourceReport, RiskReason},
    severity::reason_levels,
    survey::Resource,
};
use serde_json::{Value, json};

use super::{
    amounts::{amount, and_more, change_percent, count, percent_change},
    escape::one_line,
    names,
    selection::{Entry, cost_change, entries},
    words,
};

/// GitHub accepts this many results in a run.
const MAX_RESULTS: usize = 25_000;
/// The maximum of messages about what could not be read.
const MAX_NOTIFICATIONS: usize = 100;

/// The place at which a manifest sets a resource of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The file, relative to the root of the repository.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The index of the workload in [`Report::workloads`].
    pub workload: usize,
    pub container: String,
    pub resource: Resource,
}

/// A kind of finding.
struct Rule {
    id: &'static str,
    name: &'static str,
    description: &'static str,
    help: &'static str,
}

const RULES: [Rule; 7] = [
    Rule {
        id: "oomKilled",
        name: "OomKilled",
        description: "The container was OOM-killed under a limit that still applies",
        help: "Raise the memory limit and the request.",
    },
    Rule {
        id: "peakNearLimit",
        name: "PeakNearLimit",
        description: "The peak of memory is close to the limit",
        help: "Raise the memory limit before the container is OOM-killed.",
    },
    Rule {
        id: "throttled",
        name: "Throttled",
        description: "CPU is throttled",
        help: "Raise or remove the CPU limit.",
    },
    Rule {
        id: "usageAboveRequest",
        name: "UsageAboveRequest",
        description: "The container often uses more CPU than it requests",
        help: "Raise the request, so that the node reserves what the container uses.",
    },
    Rule {
        id: "belowNeed",
        name: "BelowNeed",
        description: "The request is too low for the usage",
        help: "Raise the request to the recommendation.",
    },
    Rule {
        id: "noRequest",
        name: "NoRequest",
        description: "The container has no request",
        help: "Add a request: without one the scheduler does not reserve anything.",
    },
    Rule {
        id: "overprovisioned",
        name: "Overprovisioned",
        description: "More is requested than needed",
        help: "Lower the request to the recommendation.",
    },
];

/// The index of the last rule, which is about waste.
const WASTE: usize = RULES.len() - 1;

/// Characters that paths in URIs cannot contain.
const PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

type Places<'a> = HashMap<(usize, &'a str, Resource), &'a Placement>;

/// Renders the findings. Those that `placements` do not name have no line.
pub(super) fn render(report: &Report, placements: &[Placement]) -> serde_json::Result<String> {
    let places: Places<'_> = placements
        .iter()
        .map(|place| ((place.workload, &*place.container, place.resource), place))
        .collect();
    let mut results = Vec::new();
    let mut left_out = 0_usize;
    for entry in entries(report) {
        for resource in &entry.container.resources {
            for result in results_of(report, &entry, resource, &places) {
                if results.len() < MAX_RESULTS {
                    results.push(result);
                } else {
                    left_out += 1;
                }
            }
        }
    }
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "plimsoll",
                "semanticVersion": report.version,
                "rules": RULES.iter().map(rule).collect::<Vec<_>>(),
            }},
            "automationDetails": {"id": "plimsoll/recommend/"},
            "invocations": [{
                "executionSuccessful": report.unread.is_empty(),
                "endTimeUtc": report.at,
                "toolExecutionNotifications": notifications(report, left_out),
            }],
            "columnKind": "unicodeCodePoints",
            "results": results,
            "properties": {
                "workloads": report.totals.workloads,
                "containers": report.totals.containers,
                "withoutRecommendation": report.totals.unsaid,
            },
        }],
    });
    serde_json::to_string_pretty(&log).map(|json| json + "\n")
}

fn rule(rule: &Rule) -> Value {
    json!({
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.description},
        "fullDescription": {"text": format!("{}.", rule.description)},
        "help": {"text": rule.help},
        "properties": {"tags": ["kubernetes", "resources"]},
    })
}

fn results_of(
    report: &Report,
    entry: &Entry<'_>,
    resource: &ResourceReport,
    places: &Places<'_>,
) -> Vec<Value> {
    let mut results = Vec::new();
    if resource.risk > Level::Ok {
        for (reason, level) in reason_levels(resource) {
            let Some(severity) = severity(level) else { continue };
            let index = RULES.iter().position(|rule| rule.id == words::risk_code(reason));
            let text = risk_text(report, resource, reason, level);
            let index = index.unwrap_or_default();
            results.push(result(index, severity, &text, entry, resource, places));
        }
    }
    if let Some(level) = severity(resource.waste) {
        // Waste costs money, but it breaks nothing.
        let level = if level == "error" { "warning" } else { level };
        results.push(result(WASTE, level, &waste_text(report, resource), entry, resource, places));
    }
    results
}

fn severity(level: Level) -> Option<&'static str> {
    match level {
        Level::Unsaid | Level::Ok => None,
        Level::Low => Some("note"),
        Level::Medium => Some("warning"),
        Level::High | Level::Critical => Some("error"),
    }
}

fn risk_text(
    report: &Report,
    resource: &ResourceReport,
    reason: &RiskReason,
    level: Level,
) -> String {
    let reason = words::risk_reason(reason, report.at);
    format!("{} risk: {reason}{}", words::level(level), advice(resource))
}

fn waste_text(report: &Report, resource: &ResourceReport) -> String {
    let cost = report.currency.as_deref().zip(cost_change(resource));
    let cost = cost.map(|(currency, change)| {
        format!(", {currency} {} a month", super::amounts::money_change(change))
    });
    format!(
        "{} waste: more is requested than needed{}{}",
        words::level(resource.waste),
        advice(resource),
        cost.unwrap_or_default()
    )
}

/// The change of the request and of the limit.
fn advice(resource: &ResourceReport) -> String {
    let of = |value: i64| amount(resource.resource, value);
    let change = match (resource.request, resource.new_request()) {
        (Some(from), Some(to)) => {
            let percent = change_percent(from, to).map(percent_change).unwrap_or_default();
            Some(format!("request {} -> {} ({percent})", of(from), of(to)))
        }
        (None, Some(to)) => Some(format!("request {}", of(to))),
        (_, None) => None,
    };
    let parts =
        change.into_iter().chain(words::limit_change(resource)).chain(words::held(resource));
    parts.map(|part| format!("; {part}")).collect::<Vec<_>>().concat()
}

fn result(
    rule: usize,
    level: &str,
    text: &str,
    entry: &Entry<'_>,
    resource: &ResourceReport,
    places: &Places<'_>,
) -> Value {
    let name = one_line(&names::workload(entry.workload));
    let container = one_line(&entry.container.name);
    let kind: &str = resource.resource.into();
    let id = RULES[rule].id;
    let place = places.get(&(entry.index, &*entry.container.name, resource.resource));
    let what = words::resource(resource.resource);
    let mut result = json!({
        "ruleId": id,
        "ruleIndex": rule,
        "level": level,
        "message": {"text": message(&format!("{name}, container {container}, {what}: {text}"))},
        "partialFingerprints": {"plimsoll/v1": format!("{id}/{kind}/{name}/{container}")},
    });
    // GitHub rejects a file with a location that is not in a file.
    if let Some(place) = place {
        result["locations"] = json!([{
            "physicalLocation": physical(place),
            "logicalLocations": [{
                "name": container,
                "fullyQualifiedName": format!("{name}/{container}"),
                "kind": "resource",
            }],
        }]);
    }
    result
}

fn physical(place: &Placement) -> Value {
    let path = place.file.replace('\\', "/");
    let encoded = utf8_percent_encode(&path, PATH).to_string();
    let artifact = if path.starts_with('/') {
        json!({"uri": format!("file://{encoded}")})
    } else {
        json!({"uri": encoded.trim_start_matches("./"), "uriBaseId": "%SRCROOT%"})
    };
    json!({"artifactLocation": artifact, "region": {"startLine": place.line.max(1)}})
}

fn notifications(report: &Report, left_out: usize) -> Vec<Value> {
    let notification =
        |level: &str, text: &str| json!({"level": level, "message": {"text": message(text)}});
    let unread = report.unread.iter().take(MAX_NOTIFICATIONS);
    let mut notifications: Vec<Value> = unread
        .map(|unread| notification("error", &format!("{}: {}", unread.what, unread.why)))
        .collect();
    if report.unread.len() > MAX_NOTIFICATIONS {
        let more = and_more(report.unread.len() - MAX_NOTIFICATIONS, "message");
        notifications.push(notification("error", &more));
    }
    if left_out > 0 {
        let text = format!("{} results are left out: use another form", count(left_out));
        notifications.push(notification("warning", &text));
    }
    notifications
}

/// A message of SARIF, in which braces are placeholders and brackets are links.
fn message(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        match c {
            '\\' | '[' | ']' => {
                escaped.push('\\');
                escaped.push(c);
            }
            '{' | '}' => {
                escaped.push(c);
                escaped.push(c);
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::recommend::test_reports::{named, sample};

    fn run(report: &Report, placements: &[Placement]) -> Value {
        let text = render(report, placements).expect("JSON");
        let log: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            (&log["version"], log["runs"].as_array().map(Vec::len)),
            (&json!("2.1.0"), Some(1))
        );
        log["runs"][0].clone()
    }

    fn results(run: &Value) -> &Vec<Value> {
        run["results"].as_array().expect("results")
    }

    #[test]
    fn every_rule_is_named_as_the_code_of_its_reason() {
        let reasons = [
            RiskReason::OomKilled { kills: 1, last: None },
            RiskReason::PeakNearLimit { share: 1.0 },
            RiskReason::Throttled { share: 1.0 },
            RiskReason::UsageAboveRequest { share: 1.0 },
            RiskReason::BelowNeed,
            RiskReason::NoRequest,
        ];
        let codes: Vec<&str> = reasons.iter().map(words::risk_code).collect();
        assert_eq!(RULES[..WASTE].iter().map(|rule| rule.id).collect::<Vec<_>>(), codes);
    }

    #[test]
    fn each_finding_has_a_rule_a_level_and_a_place() {
        let report = sample();
        let checkout = report.workloads.iter().position(|workload| workload.name == "checkout");
        let place = Placement {
            file: "deploy/shop/check out.yaml".to_owned(),
            line: 34,
            workload: checkout.expect("the workload"),
            container: "main".to_owned(),
            resource: Resource::Memory,
        };
        let run = run(&report, &[place]);
        let result = results(&run)
            .iter()
            .find(|result| result["ruleId"] == "oomKilled")
            .expect("the finding");
        assert_eq!(
            *result,
            json!({
                "ruleId": "oomKilled",
                "ruleIndex": 0,
                "level": "error",
                "message": {"text": "shop/Deployment/checkout, container main, memory: critical risk: 9 OOM kills, the \
                    last 2 d ago; request 512Mi -> 844Mi (+65 %); limit 512Mi -> 844Mi"},
                "locations": [{
                    "physicalLocation": {
                        "artifactLocation": {"uri": "deploy/shop/check%20out.yaml", "uriBaseId": "%SRCROOT%"},
                        "region": {"startLine": 34},
                    },
                    "logicalLocations": [{
                        "name": "main",
                        "fullyQualifiedName": "shop/Deployment/checkout/main",
                        "kind": "resource",
                    }],
                }],
                "partialFingerprints": {"plimsoll/v1": "oomKilled/memory/shop/Deployment/checkout/main"},
            })
        );
        assert!(
            results(&run).iter().any(|result| result.get("locations").is_none()),
            "a finding without a place has no location"
        );
        for result in results(&run) {
            let locations = result["locations"].as_array();
            let mut locations = locations.into_iter().flatten();
            assert!(locations.all(|location| location["physicalLocation"].is_object()), "{result}");
            let index = result["ruleIndex"].as_u64().expect("an index") as usize;
            assert_eq!(run["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
        }
    }

    #[test]
    fn each_reason_has_its_own_level() {
        let mut report = sample();
        report.workloads.truncate(1);
        report.workloads[0].containers.truncate(1);
        let resources = &mut report.workloads[0].containers[0].resources;
        resources.truncate(1);
        let cpu = &mut resources[0];
        cpu.resource = Resource::Cpu;
        (cpu.request, cpu.lower, cpu.target) = (Some(80), Some(70), Some(100));
        (cpu.risk, cpu.waste) = (Level::High, Level::Ok);
        cpu.risk_reasons = vec![RiskReason::Throttled { share: 0.15 }, RiskReason::BelowNeed];
        let run = run(&report, &[]);
        let levels: Vec<_> =
            results(&run).iter().map(|result| (&result["ruleId"], &result["level"])).collect();
        let [throttled, below] = ["throttled", "belowNeed"].map(Value::from);
        let [error, warning] = ["error", "warning"].map(Value::from);
        assert_eq!(levels, [(&throttled, &error), (&below, &warning)]);
        let text = results(&run)[1]["message"]["text"].as_str().expect("a text");
        assert!(text.contains("medium risk: "), "{text}");
    }

    #[test]
    fn every_risk_and_waste_is_a_result() {
        let report = sample();
        let expected: usize = entries(&report)
            .flat_map(|entry| &entry.container.resources)
            .map(|resource| {
                let risks = if resource.risk > Level::Ok { resource.risk_reasons.len() } else { 0 };
                risks + usize::from(resource.waste > Level::Ok)
            })
            .sum();
        let run = run(&report, &[]);
        assert_eq!(results(&run).len(), expected);
        assert_eq!(run["invocations"][0]["executionSuccessful"], false);
        assert!(
            run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"].is_string()
        );
    }

    #[test]
    fn hostile_names_are_neither_links_nor_placeholders() {
        let run = run(&named("[x](http://example.org) {0}\n"), &[]);
        let text = results(&run)[0]["message"]["text"].as_str().expect("a text").to_owned();
        assert!(text.contains("\\[x\\](http://example.org) {{0}}\\\\n"), "{text}");
    }
}
