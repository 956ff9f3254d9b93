//! How many replicas a workload gets: golden vectors, fixes, and what holds for any object.

mod advice;
mod calculator;
mod fixes;
mod gates;
mod limits;
mod options;
mod outcomes;
mod passes;
mod pods;
mod properties;
mod replay;
mod texts;
mod validation;
mod written;

use std::time::Duration;

use plimsoll_core::types::Time;
use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    scaling::{
        Answer, Pod, Scale, SourceKind, Unknown,
        pods::{Named, Phase, Usage},
    },
    types::compat::{Compat, Fixes},
    watermark::{
        Band, Decision, Memory, Options, Question, Rules, Setting, Source,
        conditions::{self, Fact, Said},
    },
};
use serde_json::{Value, json};

pub const NOW: Time = Time::from_secs(1_800_000_000);
pub const OBJECT: Named<'static> = Named { namespace: "shop", name: "web" };

/// Both ways, where the same is expected of them.
pub fn both() -> [Fixes; 2] {
    [Fixes::of(Compat::Upstream), Fixes::of(Compat::Plimsoll)]
}

pub fn ago(seconds: u64) -> Time {
    NOW.earlier(Duration::from_secs(seconds))
}

/// An object with these fields beside the least that it needs.
pub fn spec(fields: Value) -> WatermarkPodAutoscalerSpec {
    let mut whole = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 1_000_000,
    });
    let Value::Object(fields) = fields else { panic!("{fields} is no object") };
    for (key, value) in fields {
        whole[key] = value;
    }
    serde_json::from_value(whole).expect("a spec")
}

/// A pod that has been ready for an hour.
pub fn pod(number: usize) -> Pod {
    Pod {
        name: format!("web-{number}").into(),
        is_own: true,
        phase: Phase::Running,
        ready: Some((true, ago(3_600))),
        started: Some(ago(3_660)),
        is_leaving: false,
    }
}

pub fn pods(count: usize) -> Vec<Pod> {
    (0..count).map(pod).collect()
}

/// A pod that nobody has started yet, for so many seconds.
pub fn pending(number: usize, seconds: u64) -> Pod {
    Pod {
        phase: Phase::Pending,
        ready: Some((false, ago(seconds))),
        started: Some(ago(seconds)),
        ..pod(number)
    }
}

/// A metric of this sum, between these marks.
pub fn external(sum: i64, low: i64, high: i64) -> Source {
    source("requests", Ok(Answer::Sum { sum, at: None }), (low, high))
}

pub fn source(name: &str, asked: Result<Answer, Unknown>, (low, high): (i64, i64)) -> Source {
    Source {
        kind: SourceKind::External,
        label: name.to_owned(),
        name: format!("{name}{{map[]}}"),
        selector: String::new(),
        address: None,
        band: Some(Band { low, high, tolerance: 0 }),
        asked,
    }
}

/// What the pods use of CPU, each so much; what is nothing is no sample.
pub fn cpu(samples: &[i64], low: i64, high: i64) -> Source {
    let usage: Usage = samples
        .iter()
        .enumerate()
        .filter(|(_, amount)| **amount != 0)
        .map(|(number, amount)| (format!("web-{number}").into(), *amount))
        .collect();
    let asked = Ok(Answer::Usage { usage, is_cpu: true, at: None });
    Source { kind: SourceKind::Resource, ..source("cpu", asked, (low, high)) }
}

/// An object with all that a decision about it hangs on.
#[derive(Clone, Debug)]
pub struct Case {
    pub rules: Rules,
    pub scale: Scale,
    pub pods: Vec<Pod>,
    pub sources: Vec<Source>,
    pub status: WatermarkPodAutoscalerStatus,
    pub memory: Memory,
    pub now: Time,
    pub fixes: Fixes,
}

impl Case {
    pub fn new(fixes: Fixes, fields: Value, wanted: i32, sources: Vec<Source>) -> Self {
        let rules = Rules::of(&spec(fields));
        let tolerance = rules.tolerance;
        let with = |source: Source| Source {
            band: source.band.map(|band| Band { tolerance, ..band }),
            ..source
        };
        Self {
            rules,
            scale: Scale { wanted, current: wanted },
            pods: pods(wanted.try_into().unwrap_or(0)),
            sources: sources.into_iter().map(with).collect(),
            status: WatermarkPodAutoscalerStatus::default(),
            memory: Memory::default(),
            now: NOW,
            fixes,
        }
    }

    /// Replicas were changed so many seconds ago.
    pub fn scaled(mut self, seconds: u64) -> Self {
        self.status.last_scale_time = Some(conditions::stamp(ago(seconds)));
        self
    }

    /// Asks for this beyond its fields.
    pub fn with(mut self, options: Options) -> Self {
        self.rules = self.rules.with(options);
        self
    }

    /// This is so, or not, for so many seconds.
    pub fn said(mut self, said: &Said, seconds: u64) -> Self {
        conditions::set(&mut self.status, said, ago(seconds));
        self
    }

    pub fn setting(&self) -> Setting<'_> {
        Setting {
            rules: &self.rules,
            readiness: self.rules.readiness(OBJECT, self.now, self.fixes),
            selector: "app=web",
            pods: &self.pods,
            scale: self.scale,
            oldest: None,
            fixes: self.fixes,
        }
    }

    pub fn decide(&self) -> Decision {
        let setting = self.setting();
        let (rules, now, fixes) = (&self.rules, self.now, self.fixes);
        let (sources, status) = (self.sources.as_slice(), &self.status);
        let memory = &self.memory;
        Question { rules, setting, sources, blocked: None, status, memory, now, fixes }.decide()
    }
}

/// What was said last of a fact in a decision.
pub fn last(decision: &Decision, fact: Fact) -> Option<&Said> {
    decision.said.iter().rfind(|said| said.fact == fact)
}
