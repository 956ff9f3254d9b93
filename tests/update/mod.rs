//! Which pods an updater touches, how, and in which order: golden vectors, fixes, and lives of small groups.

mod acceptance;
mod fixes;
mod harms;
mod in_place;
mod lives;
mod passes;
mod priorities;
mod quotas;
mod requirements;
mod rests;
mod storms;
mod surges;
mod windows;
mod worlds;

use std::time::Duration;

use plimsoll_core::types::{Time, VpaKey};
use plimsoll_core::{
    api::{
        VerticalPodAutoscalerSpec,
        vpa::{ContainerRecommendation, Recommendation},
    },
    sizing::{Container, LimitPolicy, Plan, Ranges, Rules, quota::Quota},
    types::compat::Compat,
    updater::{
        Decision, Groups, Life, Owner, Pod, Readiness, Recall, Settings, Sizing, Skip, Subject,
        Verdict, Wanted, World,
        guard::{Heartbeat, ledger::Sizes},
    },
};
use serde_json::json;

use crate::fit::{list, resources};

pub const NOW: Time = Time::from_secs(1_800_000_000);

pub fn ago(minutes: u64) -> Time {
    NOW.earlier(Duration::from_mins(minutes))
}

/// A VPA of this mode.
pub fn spec(mode: &str) -> VerticalPodAutoscalerSpec {
    serde_json::from_value(json!({
        "targetRef": {"kind": "Deployment", "name": "web"},
        "updatePolicy": {"updateMode": mode},
    }))
    .expect("a spec")
}

/// Containers c1, c2, ... with these targets; bounds follow after `;`.
pub fn recommended(containers: &[&str]) -> Recommendation {
    let one = |(index, text): (usize, &&str)| {
        let mut parts = text.split(';');
        let mut next = || parts.next().map(list).unwrap_or_default();
        ContainerRecommendation {
            container_name: format!("c{}", index + 1),
            target: next(),
            lower_bound: next(),
            upper_bound: next(),
            ..ContainerRecommendation::default()
        }
    };
    let recommended = containers.iter().enumerate().filter(|(_, text)| !text.is_empty());
    Recommendation { container_recommendations: recommended.map(one).collect() }
}

/// A pod of containers c1, c2, ... with these requests, that has been ready for a day.
pub fn pod(number: usize, containers: &[&str]) -> Pod {
    let container = |(index, text): (usize, &&str)| Container {
        name: format!("c{}", index + 1).into(),
        spec: resources(text),
        ..Container::default()
    };
    let mut pod = Pod::default();
    pod.size.namespace = "default".into();
    pod.size.name = format!("web-{number}").into();
    pod.size.uid = format!("uid-{number}").into();
    pod.size.containers = containers.iter().enumerate().map(container).collect();
    pod.size.ready_since = Some(ago(24 * 60));
    pod.life = Life {
        owner: Some(owner()),
        created: ago(24 * 60),
        started: Some(ago(24 * 60)),
        readiness: Readiness::Ready(ago(24 * 60)),
        generation: Some(1),
        ..Life::default()
    };
    pod
}

pub fn owner() -> Owner {
    Owner { kind: "ReplicaSet".into(), name: "web-1".into() }
}

/// A VPA with its pods, and all that is asked with it.
#[derive(Clone, Debug)]
pub struct Case {
    pub settings: Settings,
    pub spec: VerticalPodAutoscalerSpec,
    pub recommendation: Option<Recommendation>,
    pub pods: Vec<Pod>,
    pub wanted: Wanted,
    pub recall: Recall,
    pub is_admission_ready: bool,
    pub can_resize: bool,
    pub heartbeat: Heartbeat,
    pub namespace: String,
    pub quotas: Vec<Quota>,
    /// Pods in the whole cluster, if these are not all.
    pub cluster: Option<u32>,
    pub now: Time,
}

impl Case {
    /// So many pods, all of which request `cpu 1, memory 100M` and should have twice that (section 6.12).
    pub fn new(compat: Compat, mode: &str, pods: usize) -> Self {
        let mut recall = Recall::default();
        // Evictions are known to have an effect.
        recall.ledger.prove(ago(1));
        Self {
            settings: Settings::of(compat),
            spec: spec(mode),
            recommendation: Some(recommended(&["cpu 2, memory 200M"])),
            pods: (0..pods).map(|number| pod(number, &["cpu 1, memory 100M"])).collect(),
            wanted: Wanted::Pods(pods as u32),
            recall,
            is_admission_ready: true,
            can_resize: true,
            heartbeat: Heartbeat::Fresh { history_loaded: true },
            namespace: "default".into(),
            quotas: Vec::new(),
            cluster: None,
            now: NOW,
        }
    }

    /// With a pass of it.
    pub fn with<T>(&self, pass: impl FnOnce(Subject<'_>, World<'_>) -> T) -> T {
        let key = VpaKey { namespace: (&*self.namespace).into(), name: "web".into() };
        let ranges = Ranges::default();
        let plan = Plan {
            vpa: "web",
            spec: &self.spec,
            recommendation: self.recommendation.as_ref(),
            limits: LimitPolicy::Ratio,
            injected: &[],
        };
        let rules = Rules { fixes: self.settings.fixes, sidecars: false, ..Rules::default() };
        let sizing = Sizing { plan, ranges: Some(&ranges), quotas: &self.quotas, rules };
        let subject = Subject {
            vpa: &key,
            generation: Some(1),
            sizing,
            window: self.settings.guards.windows.at(self.now),
            surges: true,
            pods: &self.pods,
        };
        let wanted = |_: &Owner| self.wanted;
        let pods = self.pods.len() as u32;
        let world = World {
            wanted: &wanted,
            sizes: Sizes { cluster: self.cluster.unwrap_or(pods), namespace: pods },
            heartbeat: self.heartbeat,
            is_admission_ready: self.is_admission_ready,
            can_resize: self.can_resize,
            now: self.now,
        };
        pass(subject, world)
    }

    pub fn decide(&self) -> Decision {
        self.with(|subject, world| {
            plimsoll_core::updater::decide(subject, world, &self.settings, self.recall.clone())
        })
    }

    /// Why the first pod is left alone, if it is.
    pub fn why(&self) -> Option<Skip> {
        match &self.decide().verdicts[0] {
            Verdict::Skipped(skip) => Some(skip.clone()),
            Verdict::Changed(_) => None,
        }
    }
}

/// How many steps of a word there are.
pub fn steps(decision: &Decision, word: &str) -> usize {
    decision.steps.iter().filter(|(step, _)| step.action.word() == word).count()
}

/// The groups of some pods.
pub fn groups(pods: &[Pod], wanted: Wanted, min: i64, settings: &Settings) -> Groups {
    let rules = plimsoll_core::updater::GroupRules {
        min_replicas: min,
        tolerance: settings.eviction_tolerance,
        skips_budget: settings.skips_budget_in_place,
        surges: false,
    };
    let members = pods.iter().map(|pod| plimsoll_core::updater::group::Member {
        life: &pod.life,
        boosted: false,
        given_up: false,
    });
    Groups::count(members, |_| wanted, &rules, settings)
}
