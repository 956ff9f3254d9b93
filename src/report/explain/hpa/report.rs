//! The report about a HorizontalPodAutoscaler. `--output json` prints it, and the text output is rendered from it alone.

use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscalerCondition, MetricValueStatus};
use plimsoll_core::{
    api::annotations::InvalidAnnotation,
    coordination::{RequestRange, ScalePointSource, request_range::Floor},
    hpa::{
        Decision, HpaRecord, Observed,
        conditions::SCALING_ACTIVE,
        evaluation::Evaluation,
        lint::{contested_warning, spec_warnings},
        pod_groups::{NotCounted, PodGroups},
        spec::{Metric as MetricSpec, Source, Target},
        takeover::{ObjectMode, Takeover},
        vpa_rules::{FollowedScalePoint, VpaRules},
    },
    types::{
        Time,
        quantity::{Format, Quantity},
    },
};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::report::explain::report_parts::{Finding, ReportHeader};

const KIND: &str = "explain-hpa";

/// A HorizontalPodAutoscaler, and the decision that follows from what the cluster has now.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HpaReport {
    /// The object of the report, of kind `explain-hpa`.
    #[serde(flatten)]
    pub header: ReportHeader,
    /// Kind and name of the workload.
    pub target: String,
    /// Who changes the replicas: the HPA controller in `shadow`, both in `assist`, Plimsoll in `drive`.
    #[serde(default)]
    pub mode: ObjectMode,
    /// What Plimsoll has changed last, in another mode than `shadow`.
    pub last_scale: Option<LastScale>,
    /// The minimum and maximum number of replicas.
    pub bounds: (i32, i32),
    /// `spec.replicas` of the workload; `None` if its scale cannot be read.
    pub replicas: Option<i32>,
    /// The replicas that the HPA controller wanted last, from the status.
    pub desired_by_controller: i32,
    /// The replicas that it would want now; `None` if it would change nothing because of an error.
    pub desired: Option<i32>,
    /// Why replicas would change.
    pub reason: String,
    /// The error of the decision. It may change replicas anyway.
    pub error: Option<String>,
    /// Since when replicas cannot be computed.
    pub failing_since: Option<Time>,
    /// The metrics, in the order of the spec; empty if they are not used.
    pub metrics: Vec<Metric>,
    /// How the proposal of the metrics becomes the desired replicas.
    pub steps: Option<Steps>,
    /// Why the replicas differ from what the metrics ask for.
    pub restrictions: Vec<String>,
    /// The pods that the selector matches but the workload does not own.
    pub foreign_pods: Vec<String>,
    /// The replicas with each of Plimsoll's fixes that changes them.
    pub fixes: Vec<FixEffect>,
    pub conditions: Vec<HorizontalPodAutoscalerCondition>,
    /// Problems. The exit code is 1 if there are any.
    pub findings: Vec<Finding>,
    pub notes: Vec<String>,
}

/// A change of replicas by Plimsoll.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastScale {
    pub from: i32,
    pub to: i32,
    pub at: Time,
    /// Whether its outcome is unknown. The next reconcile finds out.
    pub pending: bool,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metric {
    /// The name in events and conditions.
    pub name: String,
    /// The type of the source, as in the spec.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where the value comes from: `metrics.k8s.io` or `status`.
    pub origin: String,
    /// The target, such as `60%` or `500m per pod`.
    pub target: String,
    pub value: Option<String>,
    /// The value relative to the target.
    pub ratio: Option<f64>,
    /// The same with pods filled in that are not ready or have no value.
    pub padded_ratio: Option<f64>,
    /// Within these ratios replicas are not changed.
    pub tolerated: (f64, f64),
    pub proposal: Option<i32>,
    pub chosen: bool,
    /// Why it proposes the current replicas.
    pub kept: Option<String>,
    /// Why there is no proposal.
    pub error: Option<String>,
    pub pods: Option<PodCounts>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCounts {
    /// The number of pods that count with their own value.
    pub counted: usize,
    /// Pods that count as 0 when scaling up, and not at all otherwise.
    pub unready: Vec<UncountedPod>,
    /// Pods that count as 0 when scaling up, and as the target when scaling down.
    pub missing: Vec<UncountedPod>,
    /// Pods that do not count.
    pub ignored: Vec<UncountedPod>,
}

/// A pod that does not count with its own value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncountedPod {
    pub name: String,
    pub why: String,
}

/// How the proposal becomes the desired replicas.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Steps {
    /// The replicas that the metrics ask for.
    pub recommended: i32,
    /// The replicas after the stabilization windows.
    pub stabilized: i32,
    /// Which past recommendation delays the change.
    pub held: Option<Hold>,
    /// The replicas after bounds and policies.
    pub limited: i32,
    /// What limited them: `min`, `max`, `scale_up_rate`, `scale_down_rate` or `nothing`.
    pub limited_by: String,
    /// The replicas that the policies allow in the direction of the change.
    pub allowed_by_policies: Option<i32>,
}

/// A delayed change.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// `up` or `down`.
    pub direction: String,
    /// The past recommendation that applies instead.
    pub replicas: i32,
    /// When it leaves the window at the latest.
    pub until: Option<Time>,
}

/// The effect of one of Plimsoll's fixes.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixEffect {
    pub fix: String,
    pub desired: Option<i32>,
}

#[derive(Clone, Copy, Debug)]
pub struct HpaInput<'a> {
    pub observed: &'a Observed<'a>,
    /// Kind and name of the target.
    pub target: (&'a str, &'a str),
    /// The decision of the HPA controller of the cluster.
    pub decision: &'a Decision,
    /// The decisions with each fix that changes the desired replicas.
    pub fixes: &'a [FixEffect],
    /// The pods that the selector matches but the target does not own.
    pub foreign_pods: &'a [String],
    /// VPAs of the target that change requests which the decision follows.
    pub contested: &'a [Contested<'a>],
    /// What the VPAs of the target mean for an adopted object.
    pub vpa_rules: &'a VpaRules,
    /// Who scales the object.
    pub takeover: &'a Takeover,
    /// Annotations of an adopted object that are ignored.
    pub invalid: &'a [InvalidAnnotation],
    /// The names of the metrics that annotations add, which are not in the decision.
    pub queried: &'a [&'a str],
    /// What Plimsoll has stored of an adopted object.
    pub record: Option<&'a HpaRecord>,
}

/// A VPA of the target that changes requests which the replicas follow.
#[derive(Clone, Debug)]
pub struct Contested<'a> {
    pub vpa: String,
    pub resources: Vec<&'a str>,
    /// The targets that do not depend on requests, as `cpu: averageValue: 300m`, as far as they are known.
    pub average_values: Vec<String>,
}

impl HpaReport {
    pub fn of(input: &HpaInput<'_>) -> Self {
        let HpaInput { decision, .. } = *input;
        let Observed { namespace, name, spec, status, now, .. } = *input.observed;
        let conditions = status.conditions.clone().unwrap_or_default();
        let failing = conditions
            .iter()
            .find(|condition| condition.type_ == SCALING_ACTIVE && condition.status == "False");
        Self {
            header: ReportHeader::new(KIND, namespace, name, now),
            target: format!("{} {}", input.target.0, input.target.1),
            mode: input.takeover.mode,
            last_scale: input.record.and_then(last_scale),
            bounds: (spec.min_replicas, spec.max_replicas),
            replicas: decision.current,
            desired_by_controller: status.desired_replicas,
            desired: decision.desired,
            reason: decision.rescale_reason.clone(),
            error: decision.error.clone(),
            failing_since: failing
                .and_then(|condition| Some(condition.last_transition_time.as_ref()?.0.into())),
            metrics: metrics(input),
            steps: steps(decision),
            restrictions: decision.restrictions.iter().map(word).collect(),
            foreign_pods: input.foreign_pods.to_vec(),
            fixes: input.fixes.to_vec(),
            findings: findings(input),
            notes: notes(input),
            conditions,
        }
    }
}

fn last_scale(record: &HpaRecord) -> Option<LastScale> {
    let pending = record.pending.as_ref();
    let change = pending.or(record.last_scale.as_ref())?;
    let (from, to, at) = (change.from, change.to, change.at);
    Some(LastScale { from, to, at, pending: pending.is_some() })
}

/// The word that a closed set uses for a value in JSON.
fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

fn metrics(input: &HpaInput<'_>) -> Vec<Metric> {
    let Observed { spec, config, .. } = *input.observed;
    let tolerance = config.tolerances(spec.behavior.as_ref());
    let tolerated = (1.0 - tolerance.down, 1.0 + tolerance.up);
    let evaluations = input.decision.evaluations.iter().zip(&spec.metrics).enumerate();
    evaluations
        .map(|(index, (evaluation, spec))| {
            let proposal = evaluation.outcome.as_ref().ok();
            let is_usage =
                matches!(spec.source, Source::Resource { .. } | Source::ContainerResource { .. });
            Metric {
                name: evaluation.name.clone(),
                kind: spec.type_name.clone(),
                origin: if is_usage { "metrics.k8s.io" } else { "status" }.to_owned(),
                target: target_text(spec),
                value: proposal.and_then(|_| value_text(evaluation)),
                ratio: proposal.map(|proposal| proposal.ratio),
                padded_ratio: proposal.and_then(|proposal| proposal.padded_ratio),
                tolerated,
                proposal: proposal.map(|proposal| proposal.replicas),
                chosen: input.decision.winner == Some(index),
                kept: proposal.and_then(|proposal| Some(word(&proposal.kept?))),
                error: evaluation.outcome.as_ref().err().map(|failed| failed.error.to_string()),
                pods: proposal.and_then(|proposal| Some(PodCounts::of(proposal.groups.as_ref()?))),
            }
        })
        .collect()
}

impl PodCounts {
    fn of(groups: &PodGroups) -> Self {
        let pods = |names: &std::collections::BTreeSet<String>| {
            let why = |name: &String| groups.reasons.get(name).map_or("", |why| reason(*why));
            let pod =
                |name: &String| UncountedPod { name: name.clone(), why: why(name).to_owned() };
            names.iter().map(pod).collect()
        };
        Self {
            counted: groups.ready,
            unready: pods(&groups.unready),
            missing: pods(&groups.missing),
            ignored: pods(&groups.ignored),
        }
    }
}

const fn reason(why: NotCounted) -> &'static str {
    match why {
        NotCounted::Terminating => "it is being deleted",
        NotCounted::Failed => "it has failed",
        NotCounted::Succeeded => "it has succeeded",
        NotCounted::Pending => "it is pending",
        NotCounted::NoSample => "the metrics API has no value for it",
        NotCounted::NoReadiness => "it has no condition Ready yet",
        NotCounted::Starting => "it is starting, and its value may be that of the start",
        NotCounted::NeverReady => "it has not been ready since it started",
        NotCounted::Foreign => "the workload does not own it",
    }
}

fn target_text(metric: &MetricSpec) -> String {
    let (target, is_memory) = match &metric.source {
        Source::Resource { resource, target }
        | Source::ContainerResource { resource, target, .. } => (target, resource == "memory"),
        Source::Pods { target, .. }
        | Source::Object { target, .. }
        | Source::External { target, .. }
        | Source::Prometheus { target, .. } => (target, false),
        Source::Unknown => return "unknown".to_owned(),
    };
    let format = if is_memory { Format::BinarySi } else { Format::DecimalSi };
    let amount = |milli: i64| Quantity::from_milli(milli, format);
    match *target {
        Target { average_value: Some(average), .. } => format!("{} per pod", amount(average)),
        Target { average_utilization: Some(percent), .. } => format!("{percent}%"),
        Target { value: Some(value), .. } => amount(value).to_string(),
        _ => "none".to_owned(),
    }
}

/// The value as the status shows it.
fn value_text(evaluation: &Evaluation) -> Option<String> {
    let status = &evaluation.status;
    let current = (status.resource.as_ref().map(|entry| &entry.current))
        .or(status.container_resource.as_ref().map(|entry| &entry.current))
        .or(status.pods.as_ref().map(|entry| &entry.current))
        .or(status.object.as_ref().map(|entry| &entry.current))
        .or(status.external.as_ref().map(|entry| &entry.current))?;
    let MetricValueStatus { average_utilization, average_value, value } = current;
    let average = average_value.as_ref().map(|average| format!("{} per pod", average.0));
    match (average_utilization, average, value) {
        (Some(percent), Some(average), _) => Some(format!("{percent}%, {average}")),
        (Some(percent), None, _) => Some(format!("{percent}%")),
        (None, Some(average), _) => Some(average),
        (None, None, value) => Some(value.as_ref()?.0.clone()),
    }
}

fn steps(decision: &Decision) -> Option<Steps> {
    let (stabilization, limited) = (decision.stabilization.as_ref()?, decision.limited.as_ref()?);
    let held = stabilization.held.map(|held| Hold {
        direction: word(&held.direction),
        replicas: stabilization.stabilized,
        until: held.until,
    });
    Some(Steps {
        recommended: stabilization.recommended,
        stabilized: stabilization.stabilized,
        held,
        limited: limited.replicas,
        limited_by: word(&limited.by),
        allowed_by_policies: limited.rate.as_ref().map(|rate| rate.replicas),
    })
}

fn findings(input: &HpaInput<'_>) -> Vec<Finding> {
    let (decision, spec) = (input.decision, input.observed.spec);
    let mut findings = Vec::new();
    if decision.current.is_none()
        && let Some(error) = &decision.error
    {
        let message = format!("the scale of the target cannot be read: {error}");
        findings.push(Finding::new("no_scale", message));
    }
    for Evaluation { name, outcome, .. } in &decision.evaluations {
        if let Err(failed) = outcome {
            let message = format!("{name} is not available: {}", failed.error);
            findings.push(Finding::new("metric_unknown", message));
        }
    }
    if let (Some(error), true, true) =
        (&decision.error, decision.current.is_some(), decision.evaluations.is_empty())
    {
        findings.push(Finding::new("selector", error.clone()));
    }
    if !input.foreign_pods.is_empty() {
        let message = format!(
            "the selector of the target also matches pods that it does not own, and their usage counts: {}; give each \
             workload labels of its own",
            input.foreign_pods.join(", ")
        );
        findings.push(Finding::new("foreign_pods", message));
    }
    for Contested { vpa, resources, average_values } in input.contested {
        let mut finding = Finding::from(contested_warning(vpa, resources));
        finding.message += "; until then, Plimsoll does not change these requests";
        if !average_values.is_empty() {
            finding.message += "; the same target in other words is ";
            finding.message += &average_values.join(", ");
        }
        findings.push(finding);
    }
    findings.extend(input.vpa_rules.warnings.iter().cloned().map(Finding::from));
    let wants_more = decision.limited.as_ref().is_some_and(|limited| {
        limited.wanted > spec.max_replicas && limited.replicas == spec.max_replicas
    });
    if wants_more {
        let message = format!(
            "the metrics ask for {} replicas, but maxReplicas is {}",
            decision.stabilization.map_or(0, |stabilization| stabilization.stabilized),
            spec.max_replicas
        );
        findings.push(Finding::new("at_max", message));
    }
    if let Some(ineffective) = &input.takeover.ineffective {
        findings.push(Finding::new("builtin_acts", ineffective.to_string()));
    }
    let invalid = input.invalid.iter();
    findings.extend(invalid.map(|why| Finding::new("invalid_annotation", why.to_string())));
    findings.extend(spec_warnings(spec).into_iter().map(Finding::from));
    findings
}

/// What the replicas follow in place of a target.
fn scale_point_note(followed: &FollowedScalePoint) -> String {
    let FollowedScalePoint { vpa, resource, point, .. } = followed;
    let amount = |milli| resource.quantity(milli).to_string();
    let why = vpa.as_ref().map_or_else(
        || "plimsoll.dev/utilization-of is template".to_owned(),
        |vpa| {
            format!("VerticalPodAutoscaler {vpa} changes the {resource} requests of the same pods")
        },
    );
    let source = match point.source {
        ScalePointSource::Template => "the target utilization of the request in the pod template",
        ScalePointSource::FirstRequests => {
            "the target utilization of the first requests, as the pod template has none"
        }
        ScalePointSource::RaisedAtMax { base } => {
            &format!("raised from {} because maxReplicas are not enough", amount(base))
        }
    };
    let request = match followed.request_range() {
        _ if vpa.is_none() => String::new(),
        RequestRange { min: Some(min), floor: Some(Floor::AtMaxReplicas), .. } => {
            format!("; requests are at least {}, as maxReplicas are not enough", amount(min))
        }
        RequestRange { min: Some(min), .. } => format!("; requests are at least {}", amount(min)),
        RequestRange { min: None, .. } => {
            "; requests have no lower bound, as the workload is idle".to_owned()
        }
    };
    format!(
        "{why}, so the replicas follow the usage per pod relative to {} ({source}){request}.",
        amount(point.milli)
    )
}

fn notes(input: &HpaInput<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(input.vpa_rules.scale_points.iter().map(scale_point_note));
    let is_read_from_status = |metric: &MetricSpec| {
        matches!(
            metric.source,
            Source::Pods { .. } | Source::Object { .. } | Source::External { .. }
        )
    };
    let mut note = |text: &str| notes.push(text.to_owned());
    if input.observed.spec.metrics.iter().any(is_read_from_status) {
        note(
            "The values of Pods, Object and External metrics are those that the HPA controller wrote to the status; the \
             values of single pods are unknown.",
        );
    }
    if !input.queried.is_empty() {
        note(&format!(
            "The values of queries in annotations ({}) are known to the controller only and left out here: they may ask \
             for more replicas, and without a value nothing is removed.",
            input.queried.join(", ")
        ));
    }
    if input.takeover.mode != ObjectMode::Shadow {
        note(if input.record.is_some() {
            "Past recommendations and changes are those that Plimsoll has stored in the object."
        } else {
            "Plimsoll has stored nothing in the object yet: is `plimsoll horizontal --mode=adopted` running?"
        });
        return notes;
    }
    if input.decision.stabilization.is_some_and(|stabilization| stabilization.held.is_some()) {
        note(
            "Past recommendations are in the memory of the HPA controller only: that the change is delayed is known from \
             the condition AbleToScale, and the time is the latest one at which the delay ends.",
        );
    }
    if input.observed.spec.behavior.is_some() {
        note(
            "Past changes are in the memory of the HPA controller only: policies are applied as if there were none within \
             their periods.",
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;
    use plimsoll_core::{
        coordination::{ContainerRequests, Template},
        hpa::{
            Answer, Config, Fetched, Fixes, HpaState, NO_OPTIONS, Pod, ScaleError, ScaleValues,
            SharedMemory, Spec, decide,
            lint::Warning,
            options::UtilizationOf,
            pod::Container,
            vpa_rules::{TargetVpa, VpaContext},
        },
    };
    use serde_json::json;

    use super::*;

    const NOW: Time = Time::from_secs(1_800_000_000);

    /// What differs from an object with one external metric on target.
    #[derive(Default)]
    struct Case<'a> {
        bounds: Option<(i32, i32)>,
        value: Option<i64>,
        no_scale: bool,
        selector: Option<&'a str>,
        foreign: &'a [String],
        contested: &'a [Contested<'a>],
        vpa_rules: VpaRules,
    }

    fn report(case: &Case<'_>) -> HpaReport {
        let (min, max) = case.bounds.unwrap_or((1, 10));
        let spec = json!({"minReplicas": min, "maxReplicas": max,
            "scaleTargetRef": {"kind": "Deployment", "name": "web"},
            "metrics": [{"type": "External", "external": {"metric": {"name": "queue"},
                "target": {"type": "AverageValue", "averageValue": "10"}}}]});
        let spec = Spec::read(&serde_json::from_value(spec).expect("a spec")).expect("valid");
        let config = Config::default();
        let status = HorizontalPodAutoscalerStatus::default();
        let selector = case.selector.unwrap_or("app=web").to_owned();
        let scale = ScaleValues { replicas: 3, status_replicas: 3, selector };
        let unreadable = ScaleError::Failed("not found".to_owned());
        let memory = HpaState { recommendations: Some(Vec::new()), ..HpaState::default() };
        let observed = Observed {
            namespace: "shop",
            name: "web",
            uid: None,
            spec: &spec,
            status: &status,
            scale: if case.no_scale { Err(&unreadable) } else { Ok(&scale) },
            pods: &[Pod::default()],
            others: &[],
            memory: &memory,
            config: &config,
            fixes: Fixes::UPSTREAM,
            options: &NO_OPTIONS,
            now: NOW,
        };
        let quantity = |value| Quantity::from_units(value, Format::DecimalSi);
        let fetched: Fetched = match case.value {
            Some(value) if value < 0 => Err("the adapter is away".to_owned()),
            value => Ok(Answer::External(vec![quantity(value.unwrap_or(30))])),
        };
        let decision = decide(&observed, &[Some(fetched)]);
        HpaReport::of(&HpaInput {
            observed: &observed,
            target: ("Deployment", "web"),
            decision: &decision,
            fixes: &[],
            foreign_pods: case.foreign,
            contested: case.contested,
            vpa_rules: &case.vpa_rules,
            takeover: &Takeover::default(),
            invalid: &[],
            queried: &[],
            record: None,
        })
    }

    #[test]
    fn each_problem_is_one_finding_and_an_object_without_one_has_none() {
        let foreign = ["api-1".to_owned()];
        let contested = [Contested {
            vpa: "web".to_owned(),
            resources: vec!["cpu"],
            average_values: vec!["cpu: averageValue: 300m".to_owned()],
        }];
        let warned = |code| {
            let warning = Warning { code, message: "it follows requests".to_owned() };
            VpaRules { warnings: vec![warning], ..VpaRules::default() }
        };
        for (case, expected) in [
            (Case::default(), &[][..]),
            (Case { value: Some(90), ..Case::default() }, &[]),
            (Case { value: Some(900), ..Case::default() }, &[]),
            (Case { value: Some(900), bounds: Some((1, 5)), ..Case::default() }, &["at_max"]),
            (Case { value: Some(-1), ..Case::default() }, &["metric_unknown"]),
            (Case { no_scale: true, ..Case::default() }, &["no_scale"]),
            (Case { selector: Some("a b"), ..Case::default() }, &["selector"]),
            (Case { foreign: &foreign, ..Case::default() }, &["foreign_pods"]),
            (Case { contested: &contested, ..Case::default() }, &["vpa_same_resource"]),
            (
                Case { vpa_rules: warned("vpa_same_resource"), ..Case::default() },
                &["vpa_same_resource"],
            ),
            (
                Case { vpa_rules: warned("scale_point_too_low"), ..Case::default() },
                &["scale_point_too_low"],
            ),
            (Case { bounds: Some((3, 3)), ..Case::default() }, &["min_equals_max"]),
        ] {
            let report = report(&case);
            let codes: Vec<_> = report.findings.iter().map(|finding| &*finding.code).collect();
            assert_eq!(codes, expected, "{report:?}");
        }
    }

    /// The note about a scale point, given the CPU requests of template and pods and the stored state.
    fn note_about(
        template: Option<i64>,
        cpu: &str,
        state: &serde_json::Value,
        asks_for_template: bool,
    ) -> String {
        let target = json!({"type": "Utilization", "averageUtilization": 60});
        let spec = json!({"maxReplicas": 10, "scaleTargetRef": {"kind": "Deployment", "name": "web"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]});
        let spec = Spec::read(&serde_json::from_value(spec).expect("a spec")).expect("valid");
        let vpa =
            serde_json::from_value(json!({"targetRef": {"kind": "Deployment", "name": "web"}}));
        let vpa = TargetVpa { name: "web".into(), spec: vpa.expect("a VPA"), updates: None };
        let vpas = if asks_for_template { Vec::new() } else { vec![Arc::new(vpa)] };
        let cpu = [("cpu".to_owned(), cpu.parse::<Quantity>().expect("a quantity"))].into();
        let container = Container { name: "app".to_owned(), requests: cpu, ..Container::default() };
        let pods = [Pod { containers: vec![container], ..Pod::default() }];
        let container = ContainerRequests { name: "app".into(), cpu: template, memory: None };
        let template = Template::Known([container].into_iter().collect());
        let record =
            json!({"sharedRequests": {"target": "Deployment/web", "requests": {"cpu": state}}});
        let record = HpaRecord::parse(&record.to_string()).expect("a record");
        let memory = SharedMemory::restored(&record, None, ("Deployment", "web"), NOW);
        let context = VpaContext {
            vpas: Some(&vpas),
            pods: &pods,
            template: &template,
            is_only_writer: true,
            utilization_of: asks_for_template.then_some(UtilizationOf::Template),
            pod_level_resources: true,
            memory: &memory,
            readiness: Duration::ZERO,
            now: NOW,
        };
        let vpa_rules = VpaRules::new(&spec, context);
        report(&Case { vpa_rules, ..Case::default() }).notes.first().cloned().unwrap_or_default()
    }

    #[test]
    fn a_note_says_where_a_scale_point_is_from_and_what_it_means_for_requests() {
        let vpa = "VerticalPodAutoscaler web changes the cpu requests of the same pods, so the replicas follow the usage per \
                   pod relative to ";
        let raised = json!({"raised": {"request": 460, "base": 300, "since": NOW, "needed": NOW}});
        let long_ago = NOW.earlier(Duration::from_hours(9 * 24));
        let idle = json!({"idle": {"since": long_ago, "last": NOW}});
        for (template, cpu, state, asks_for_template, expected) in [
            (
                Some(500),
                "400m",
                json!({}),
                false,
                format!(
                    "{vpa}300m (the target utilization of the request in the pod template); requests are at least 316m."
                ),
            ),
            (
                None,
                "100m",
                json!({"firstRequests": 400}),
                false,
                format!(
                    "{vpa}240m (the target utilization of the first requests, as the pod template has none); requests are \
                     at least 253m."
                ),
            ),
            (
                Some(500),
                "460m",
                raised,
                false,
                format!(
                    "{vpa}414m (raised from 300m because maxReplicas are not enough); requests are at least 460m, as \
                     maxReplicas are not enough."
                ),
            ),
            (
                Some(500),
                "50m",
                idle,
                false,
                format!(
                    "{vpa}300m (the target utilization of the request in the pod template); requests have no lower bound, \
                     as the workload is idle."
                ),
            ),
            (
                Some(500),
                "400m",
                json!({}),
                true,
                "plimsoll.dev/utilization-of is template, so the replicas follow the usage per pod relative to 300m (the \
                 target utilization of the request in the pod template)."
                    .to_owned(),
            ),
        ] {
            assert_eq!(note_about(template, cpu, &state, asks_for_template), expected);
        }
    }

    #[test]
    fn the_numbers_of_the_report_follow_from_the_decision() {
        let report = report(&Case { value: Some(90), ..Case::default() });
        let metric = &report.metrics[0];
        assert_eq!((metric.ratio, metric.proposal, metric.chosen), (Some(3.0), Some(9), true));
        assert_eq!((&*metric.target, metric.value.as_deref()), ("10 per pod", Some("30 per pod")));
        assert_eq!((&*metric.origin, &metric.pods), ("status", &None));
        assert_eq!(metric.tolerated, (0.9, 1.1));
        let steps = report.steps.expect("a proposal");
        // Without spec.behavior a pass at most doubles the replicas.
        assert_eq!((steps.recommended, steps.stabilized, steps.limited), (9, 9, 6));
        assert_eq!((&*steps.limited_by, steps.allowed_by_policies), ("scale_up_rate", Some(6)));
        assert_eq!((report.desired, report.replicas), (Some(6), Some(3)));
        assert_eq!(report.restrictions, ["scale_up_limit"]);
    }
}
