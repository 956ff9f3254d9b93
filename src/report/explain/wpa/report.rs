//! The report about a WatermarkPodAutoscaler. `--output json` prints it, and the text output is rendered from it alone.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_core::{
    api::{
        scale_decision::ScaleDecisionStatus,
        wpa::{Condition, WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    },
    types::Time,
    watermark::{
        EffectiveSpec, WpaOptions, conditions, spec::with_defaults, validation::validate, warnings,
    },
};
use serde::{Deserialize, Serialize};

use crate::report::explain::report_parts::{Finding, ReportHeader};

/// A WatermarkPodAutoscaler, and the last decision about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WpaReport {
    /// The object of the report, of kind `explain-wpa`.
    #[serde(flatten)]
    pub header: ReportHeader,
    /// Kind and name of the workload.
    pub target: String,
    /// The minimum and maximum number of replicas.
    pub bounds: (i32, i32),
    pub dry_run: bool,
    /// The last decision, if the status has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<ScaleDecisionStatus>,
    /// The current and desired number of replicas.
    pub replicas: (i32, i32),
    /// The number of scaling events, and the time of the last one.
    pub changes: (i32, Option<Time>),
    /// Seconds until the upscale and downscale windows end.
    pub left: (i64, i64),
    pub conditions: Vec<Condition>,
    /// Problems. The exit code is 1 if there are any.
    pub findings: Vec<Finding>,
    pub notes: Vec<String>,
}

impl WpaReport {
    /// Builds the report about an object at the given time.
    pub fn of(
        (namespace, name): (&str, &str),
        annotations: &BTreeMap<String, String>,
        spec: &WatermarkPodAutoscalerSpec,
        status: &WatermarkPodAutoscalerStatus,
        now: Time,
    ) -> Self {
        let filled = with_defaults(spec);
        let rules = EffectiveSpec::from_spec(&filled);
        let last = status.last_scale_time.as_ref().map(conditions::from_timestamp);
        let left = |window: Duration| {
            let until = last.map(|last| last.later(window));
            until.map_or(0, |until| (until.nanos_since(now).max(0) + 999_999_999) / 1_000_000_000)
        };
        let target = &spec.scale_target_ref;
        // The validity of an annotation does not depend on the period.
        let (options, bad) = WpaOptions::from_annotations(annotations, Duration::from_secs(15));
        let mut findings = findings(&format!("{namespace}/{name}"), &filled, status);
        findings.extend(bad.iter().map(|bad| Finding::new("annotation_ignored", bad.to_string())));
        Self {
            header: ReportHeader::new("explain-wpa", namespace, name, now),
            target: format!("{} {}", target.kind, target.name),
            bounds: (rules.limits.min, rules.limits.max),
            dry_run: spec.dry_run,
            decision: status.decision.clone(),
            replicas: (status.current_replicas, status.desired_replicas),
            changes: (status.scaling_events_count, last),
            left: (left(rules.upscale_window), left(rules.downscale_window)),
            conditions: status.conditions.clone(),
            findings,
            notes: notes(&filled, &options, status),
        }
    }
}

fn findings(
    object: &str,
    filled: &WatermarkPodAutoscalerSpec,
    status: &WatermarkPodAutoscalerStatus,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(invalid) = validate(filled, object) {
        findings.push(Finding::new("invalid", format!("{invalid}: fix the object")));
    }
    let sources = status.decision.iter().flat_map(|decision| &decision.sources);
    for source in sources.filter(|source| !source.unknown.is_empty()) {
        let message = format!(
            "{} is not available, so replicas stay unchanged within their bounds: {}",
            source.name, source.message
        );
        findings.push(Finding::new("metric_unknown", message));
    }
    if status.conditions.is_empty() {
        let message = "not reconciled yet: check that a controller is running (plimsoll watermark)";
        findings.push(Finding::new("never_looked_at", message.to_owned()));
    }
    findings
}

fn notes(
    filled: &WatermarkPodAutoscalerSpec,
    options: &WpaOptions,
    status: &WatermarkPodAutoscalerStatus,
) -> Vec<String> {
    let mut notes = Vec::new();
    if status.decision.is_none() && !status.conditions.is_empty() {
        notes.push(
            "The status does not contain the last decision: the controller runs with --compat=upstream, or the \
             CustomResourceDefinition in the cluster lacks the field (apply the output of plimsoll crds)."
                .to_owned(),
        );
    }
    // The same warnings that the admission controller returns to the writer of the object.
    notes.extend(warnings::collect(filled, options));
    notes
}
