//! Fixture: one pass over one object, with defaults for everything that a test does not set.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus,
};
use serde_json::{Value, json};

use crate::hpa::pod::{Container, Pod, ReadyCondition, ReadyStatus, Resources};
use crate::hpa::samples::{PodMetrics, PodValue};
use crate::hpa::{
    Answer, Config, Decision, Fetched, Fixes, HpaOptions, HpaState, MetricRequest, Observed,
    ScaleError, ScaleValues, Selector, Spec, decide, defaults, metric_requests, scale_decision,
};
use crate::scaling::{ScaleDecision, pod_readiness::Phase};
use crate::types::{Quantity, Time};

/// The time of a pass.
pub(super) const NOW: Time = Time::from_secs(1_000_000);

/// The given number of seconds earlier.
pub(super) fn ago(seconds: i64) -> Time {
    Time::from_secs(1_000_000 - seconds)
}

pub(super) fn quantity(text: &str) -> Quantity {
    text.parse().expect("a quantity")
}

pub(super) fn requests(cpu_milli: i64) -> Resources {
    [("cpu".to_owned(), Quantity::from_milli(cpu_milli, crate::types::quantity::Format::DecimalSi))]
        .into()
}

/// A pod that has been ready for an hour, with two containers.
pub(super) fn pod(index: usize, cpu_milli: i64) -> Pod {
    let container = |name: &str| Container {
        name: name.to_owned(),
        requests: requests(cpu_milli),
        ..Container::default()
    };
    Pod {
        name: format!("p{index}"),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        phase: Phase::Running,
        start_time: Some(ago(3600)),
        ready: Some(ReadyCondition { status: ReadyStatus::True, since: Some(ago(3600)) }),
        containers: vec![container("app"), container("side")],
        ..Pod::default()
    }
}

pub(super) fn pods(count: usize) -> Vec<Pod> {
    (0..count).map(|index| pod(index, 1000)).collect()
}

/// Sets a pod to one of the states of the vectors.
pub(super) fn put(pod: &mut Pod, state: &str) {
    match state {
        "unready" => {
            pod.ready = Some(ReadyCondition { status: ReadyStatus::False, since: Some(ago(3600)) });
        }
        "hot" => {
            pod.start_time = Some(NOW);
            pod.ready = Some(ReadyCondition { status: ReadyStatus::True, since: Some(NOW) });
        }
        "pending" => pod.phase = Phase::Pending,
        "failed" => pod.phase = Phase::Failed,
        "deleted" => pod.is_terminating = true,
        other => panic!("no state {other}"),
    }
}

/// Usage of both containers of a pod.
pub(super) fn usage(pod: &str, milli: i64) -> PodMetrics {
    PodMetrics {
        pod: pod.to_owned(),
        timestamp: NOW,
        window: Duration::from_mins(1),
        containers: ["app", "side"].map(|name| (name.to_owned(), requests(milli))).to_vec(),
    }
}

pub(super) fn pod_value(pod: &str, milli: i64) -> PodValue {
    let value = Quantity::from_milli(milli, crate::types::quantity::Format::DecimalSi);
    PodValue { pod: pod.to_owned(), value, timestamp: NOW, window_seconds: None }
}

/// The flags that upstream's own tests run with.
pub(super) fn test_config() -> Config {
    Config {
        cpu_initialization_period: Duration::from_mins(2),
        initial_readiness_delay: Duration::from_secs(10),
        ..Config::default()
    }
}

/// All inputs of a pass.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) spec: Value,
    pub(super) status: Value,
    pub(super) scale: Result<ScaleValues, ScaleError>,
    pub(super) pods: Vec<Pod>,
    pub(super) usage: Result<Vec<PodMetrics>, String>,
    pub(super) values: Result<Vec<PodValue>, String>,
    pub(super) object: Result<&'static str, String>,
    pub(super) external: Result<Vec<&'static str>, String>,
    pub(super) others: Vec<(String, Selector)>,
    pub(super) memory: HpaState,
    pub(super) uid: Option<&'static str>,
    pub(super) config: Config,
    pub(super) fixes: Fixes,
    pub(super) options: HpaOptions,
    pub(super) queried: Result<Vec<&'static str>, String>,
    pub(super) now: Time,
    pub(super) no_defaults: bool,
}

impl Case {
    /// An object with 2 to 6 replicas, the given number of ready pods, and these metrics.
    #[expect(clippy::needless_pass_by_value, reason = "tables name their metrics in place")]
    pub(super) fn new(replicas: i32, metrics: Value) -> Self {
        Self {
            spec: json!({"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 2,
                "maxReplicas": 6, "metrics": metrics}),
            status: json!({"desiredReplicas": 0}),
            scale: Ok(ScaleValues {
                replicas,
                status_replicas: replicas,
                selector: "app=web".to_owned(),
            }),
            pods: pods(usize::try_from(replicas).expect("a number of pods")),
            usage: Ok(Vec::new()),
            values: Ok(Vec::new()),
            object: Err("no such object".to_owned()),
            external: Ok(Vec::new()),
            others: Vec::new(),
            // An old recommendation: it delays nothing, and prevents seeding.
            memory: serde_json::from_value(
                json!({"recommendations": [{"replicas": 1, "at": ago(99_999)}]}),
            )
            .expect("a memory"),
            uid: None,
            config: test_config(),
            fixes: Fixes::UPSTREAM,
            options: HpaOptions::default(),
            queried: Ok(Vec::new()),
            now: NOW,
            no_defaults: false,
        }
    }

    /// CPU usage of each container of each pod.
    pub(super) fn using(mut self, per_container: &[i64]) -> Self {
        let each = per_container.iter().enumerate();
        self.usage = Ok(each.map(|(index, milli)| usage(&format!("p{index}"), *milli)).collect());
        self
    }

    /// A custom metric of each pod.
    pub(super) fn valued(mut self, values: &[i64]) -> Self {
        let each = values.iter().enumerate();
        self.values =
            Ok(each.map(|(index, milli)| pod_value(&format!("p{index}"), *milli)).collect());
        self
    }

    pub(super) fn bounds(mut self, min: i32, max: i32) -> Self {
        self.spec["minReplicas"] = json!(min);
        self.spec["maxReplicas"] = json!(max);
        self
    }

    pub(super) fn state(mut self, states: &[(usize, &str)]) -> Self {
        for (index, state) in states {
            while self.pods.len() <= *index {
                let next = self.pods.len();
                self.pods.push(pod(next, 1000));
            }
            put(&mut self.pods[*index], state);
        }
        self
    }

    pub(super) fn change(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(super) fn with(mut self, fixes: Fixes) -> Self {
        self.fixes = fixes;
        self
    }

    /// With these annotations.
    pub(super) fn annotated(mut self, annotations: &[(&str, &str)]) -> Self {
        let pairs = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let (options, invalid) =
            HpaOptions::from_annotations(&pairs.collect(), Duration::from_secs(15));
        assert_eq!(invalid, [], "{annotations:?}");
        self.options = options;
        self
    }

    pub(super) fn decide(&self) -> Decision {
        self.decide_and_record().0
    }

    /// Calls a function with what is observed.
    pub(super) fn with_observed<T>(&self, call: impl FnOnce(&Observed<'_>) -> T) -> T {
        let mut api: HorizontalPodAutoscalerSpec =
            serde_json::from_value(self.spec.clone()).expect("a spec");
        if !self.no_defaults {
            defaults::complete(&mut api);
        }
        let spec = Spec::read(&api).expect("amounts");
        let status: HorizontalPodAutoscalerStatus =
            serde_json::from_value(self.status.clone()).expect("a status");
        call(&Observed {
            namespace: "shop",
            name: "web",
            uid: self.uid,
            spec: &spec,
            status: &status,
            scale: self.scale.as_ref(),
            pods: &self.pods,
            others: &self.others,
            memory: &self.memory,
            config: &self.config,
            fixes: self.fixes,
            options: &self.options,
            now: self.now,
        })
    }

    /// The decision, and the record that all kinds share.
    pub(super) fn decide_and_record(&self) -> (Decision, ScaleDecision) {
        let answer = |request: MetricRequest| -> Fetched {
            Ok(match request {
                MetricRequest::Resource { .. } => Answer::Resource(self.usage.clone()?),
                MetricRequest::Pods { .. } => Answer::Pods(self.values.clone()?),
                MetricRequest::Object { .. } => Answer::Object(quantity(self.object.clone()?)),
                MetricRequest::External { .. } => {
                    Answer::External(self.external.clone()?.into_iter().map(quantity).collect())
                }
                MetricRequest::Prometheus { .. } => {
                    Answer::External(self.queried.clone()?.into_iter().map(quantity).collect())
                }
            })
        };
        self.with_observed(|observed| {
            let requests = metric_requests(observed).into_iter();
            let answers: Vec<_> = requests.map(|request| request.map(answer)).collect();
            let decision = decide(observed, &answers);
            let record = scale_decision(&decision, observed, &ScaleDecision::default());
            (decision, record)
        })
    }

    /// The decision after its outcome was recorded.
    pub(super) fn written(&self) -> Decision {
        let mut decision = self.decide();
        decision.record_write(Ok(()), self.now);
        decision
    }
}

/// Type, status and reason of a condition.
pub(super) fn condition(decision: &Decision, kind: &str) -> Option<(String, String)> {
    let conditions = decision.status.conditions.iter().flatten();
    let mut matching = conditions.filter(|condition| condition.type_ == kind);
    matching
        .next()
        .map(|condition| (condition.status.clone(), condition.reason.clone().unwrap_or_default()))
}

pub(super) fn reason(decision: &Decision, kind: &str) -> String {
    condition(decision, kind).map(|(_, reason)| reason).unwrap_or_default()
}

pub(super) fn cpu(percent: i32) -> Value {
    json!([{"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": percent}}}])
}

pub(super) fn container_cpu(percent: i32) -> Value {
    json!([{"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "app",
        "target": {"type": "Utilization", "averageUtilization": percent}}}])
}

pub(super) fn per_pod(average: &str) -> Value {
    json!([{"type": "Pods", "pods": {"metric": {"name": "rps"},
        "target": {"type": "AverageValue", "averageValue": average}}}])
}

pub(super) fn object(kind: &str, amount: &str) -> Value {
    let field = if kind == "Value" { "value" } else { "averageValue" };
    json!([{"type": "Object", "object": {"metric": {"name": "hits"},
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "front"},
        "target": {"type": kind, field: amount}}}])
}

pub(super) fn external(kind: &str, amount: &str) -> Value {
    let field = if kind == "Value" { "value" } else { "averageValue" };
    json!([{"type": "External", "external": {"metric": {"name": "queue"},
        "target": {"type": kind, field: amount}}}])
}
