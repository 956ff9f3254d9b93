//! What there is to say about a watermark autoscaler, as data: `--output json` prints it, and the text is made from
//! nothing else.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_core::types::Time;
use serde::{Deserialize, Serialize};

use crate::report::explain::report::Finding;
use plimsoll_core::{
    api::{
        scale_decision::ScaleDecision,
        wpa::{Condition, WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    },
    watermark::{
        EffectiveSpec, WpaOptions, conditions, spec::with_defaults, validation::validate, warnings,
    },
};

/// Raised whenever a field changes its meaning or goes away; new fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

/// A watermark autoscaler, and what was last decided about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WpaReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Always `explain-wpa`.
    pub kind: String,
    /// Version of the program.
    pub version: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// When it was looked at.
    pub at: Time,
    /// Kind and name of the workload.
    pub target: String,
    /// The fewest and the most replicas.
    pub bounds: (i32, i32),
    /// Whether nothing is changed.
    pub dry_run: bool,
    /// The last decision, where the object tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<ScaleDecision>,
    /// Replicas that there were and that there were to be.
    pub replicas: (i32, i32),
    /// How often replicas were changed, and when last.
    pub changes: (i32, Option<Time>),
    /// Seconds until replicas may be added and removed again.
    pub left: (i64, i64),
    /// What is said of the object.
    pub conditions: Vec<Condition>,
    /// What is wrong; the exit code is 1 when there is any.
    pub findings: Vec<Finding>,
    /// What is good to know.
    pub notes: Vec<String>,
}

impl WpaReport {
    /// About an object as it is at this time.
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
        // What a period is does not matter to whether an annotation makes sense.
        let (options, bad) = WpaOptions::from_annotations(annotations, Duration::from_secs(15));
        let mut findings = findings(&format!("{namespace}/{name}"), &filled, status);
        findings.extend(bad.iter().map(|bad| Finding::new("annotation_ignored", bad.to_string())));
        Self {
            schema_version: SCHEMA_VERSION,
            kind: "explain-wpa".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            at: now,
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
        findings.push(Finding::new("invalid", format!("{invalid}: correct the object")));
    }
    let sources = status.decision.iter().flat_map(|decision| &decision.sources);
    for source in sources.filter(|source| !source.unknown.is_empty()) {
        let message = format!(
            "{} says nothing, and replicas stay as they are, within their bounds, until it does: {}",
            source.name, source.message
        );
        findings.push(Finding::new("metric_unknown", message));
    }
    if status.conditions.is_empty() {
        let message =
            "nobody has looked at it yet: see whether a controller runs (plimsoll watermark)";
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
            "The object does not tell how its last decision came about: the controller follows upstream, or the \
             definition in the cluster has no room for it (plimsoll crds has)."
                .to_owned(),
        );
    }
    // The same as whoever writes the object is told.
    notes.extend(warnings::collect(filled, options));
    notes
}
