//! One object follows a series: the code and the formulas, step by step.

use plimsoll_core::types::Time;
use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    scaling::{
        Answer, Pod, Scale, SourceKind,
        pods::{Named, Phase},
    },
    types::compat::{Compat, Fixes},
    watermark::{
        Band, Memory, Question, Restriction, Rules, Setting, Source, conditions,
        outcome::{Made, Writing},
    },
};
use serde_json::json;

use super::plain::{Plain, State};

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Followed {
    /// Steps that were made.
    pub steps: u64,
    /// Steps that changed replicas.
    pub changes: u64,
    /// Steps that ended with fewer or more replicas than the metric asked for.
    pub restricted: u64,
}

/// Whose ways are followed, and from where.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Whose ways.
    pub compat: Compat,
    /// Replicas at first.
    pub replicas: i64,
    /// When they were last changed, in seconds as the series has it.
    pub last: Option<i64>,
}

/// Follows a series of values in thousandths, each with its second. `Err`: where the two part.
pub fn follow(plain: &Plain, series: &[(i64, i64)], start: Start) -> Result<Followed, String> {
    let fixes = Fixes::of(start.compat);
    let mut fields = plain.fields();
    fields["scaleTargetRef"] =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec: WatermarkPodAutoscalerSpec =
        serde_json::from_value(fields).map_err(|why| why.to_string())?;
    let rules = Rules::of(&spec);
    let never = (false, i64::MIN / 4);
    let mut state =
        State { replicas: start.replicas, last: start.last, above: never, below: never };
    let mut status = WatermarkPodAutoscalerStatus {
        last_scale_time: start.last.map(|second| conditions::stamp(Time::from_secs(second))),
        ..WatermarkPodAutoscalerStatus::default()
    };
    let mut has = start.replicas as i32;
    let mut followed = Followed::default();
    for &(second, sum) in series {
        let now = Time::from_secs(second);
        let pods: Vec<Pod> = (0..has).map(|_| ready(now)).collect();
        let object = Named { namespace: "shop", name: "web" };
        let readiness = rules.readiness(object, now, fixes);
        let scale = Scale { wanted: has, current: has };
        let setting = Setting {
            rules: &rules,
            readiness,
            selector: "app=web",
            pods: &pods,
            scale,
            oldest: None,
            fixes,
        };
        let source = Source {
            kind: SourceKind::External,
            label: "load".to_owned(),
            name: "load{map[]}".to_owned(),
            selector: String::new(),
            address: None,
            band: Some(Band { low: plain.low, high: plain.high, tolerance: rules.tolerance }),
            asked: Ok(Answer::Sum { sum, at: Some(now) }),
        };
        let sources = [source];
        let question = Question {
            rules: &rules,
            setting,
            sources: &sources,
            blocked: None,
            status: &status,
            memory: &Memory::default(),
            now,
            fixes,
        };
        let decision = question.decide();
        let made = if decision.change.is_some() { Made::Done } else { Made::Nothing };
        let writing = Writing {
            spec: &spec,
            namespace: "shop",
            compat: start.compat,
            skips_idle_events: true,
            now,
            fixes,
        };
        status = writing.status(&status, &decision, &made);
        followed.steps += 1;
        followed.changes += u64::from(decision.desired != has);
        let is_restricted = |it: &Restriction| *it != Restriction::WithinBounds;
        followed.restricted += u64::from(decision.restrictions(&rules).iter().any(is_restricted));
        has = decision.desired;
        let expected = plain.step(&mut state, sum, second);
        if i64::from(has) != expected {
            return Err(format!(
                "{has} replicas and not {expected} at second {second}, for {sum}: {plain:?}, {start:?}"
            ));
        }
    }
    Ok(followed)
}

fn ready(now: Time) -> Pod {
    Pod {
        name: "any".into(),
        is_own: true,
        phase: Phase::Running,
        ready: Some((true, now)),
        started: Some(now),
        is_leaving: false,
    }
}
