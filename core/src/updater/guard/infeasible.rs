//! Resizes that were found impossible: for which pods, by whom, and for how long that is believed.

use std::{sync::Arc, time::Duration};

use crate::types::Time;
use serde::{Deserialize, Serialize};

use crate::{
    api::{ResourceList, vpa::Recommendation},
    types::quantity::Quantity,
};

/// Who found a resize impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectedBy {
    /// The node, by a condition of the pod.
    Node,
    /// The API server, which did not take the resize.
    Server,
}

/// What was wanted of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecommendedTarget {
    /// Its name.
    #[serde(rename = "c")]
    pub container: Arc<str>,
    /// What its target was.
    #[serde(rename = "t")]
    pub target: ResourceList,
}

/// One answer, for all pods that got it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InfeasibleResize {
    /// When the first of them got it.
    pub at: Time,
    /// Who gave it.
    pub by: RejectedBy,
    /// What was wanted.
    pub wanted: Vec<RecommendedTarget>,
    /// The pods, by uid. A pod stays on its node, so this is an answer of the node too.
    pub pods: Vec<Box<str>>,
}

/// Equal answers within this time are kept as one, and expire as one.
const MERGE_WITHIN: Duration = Duration::from_mins(5);

/// Pods that are remembered in all.
const MAX_PODS: usize = 128;

/// Resizes that were found impossible.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InfeasibleResizes(Vec<InfeasibleResize>);

/// What a recommendation wants.
pub fn recommended_targets(recommendation: &Recommendation) -> Vec<RecommendedTarget> {
    let containers = recommendation.container_recommendations.iter();
    let wanted = containers.map(|one| RecommendedTarget {
        container: one.container_name.as_str().into(),
        target: one.target.clone(),
    });
    wanted.collect()
}

/// Whether anything is wanted less of than before. What is not named on both sides says nothing.
pub fn asks_for_less(now: &[RecommendedTarget], before: &[RecommendedTarget]) -> bool {
    now.iter().any(|now| {
        let before = before.iter().find(|before| before.container == now.container);
        before.is_some_and(|before| {
            let lower = |name, was: Quantity| now.target.get(name).is_some_and(|is| is < was);
            before.target.iter().any(|(name, was)| lower(name, was))
        })
    })
}

/// Whether the same is wanted of the same containers, but for a twentieth.
pub fn is_similar(now: &[RecommendedTarget], before: &[RecommendedTarget]) -> bool {
    let close = |is: Quantity, was: Quantity| {
        let (is, was) = (is.as_f64(), was.as_f64());
        (is - was).abs() <= was.abs() / 20.0
    };
    now.len() == before.len()
        && now.iter().zip(before).all(|(now, before)| {
            let mut amounts = now.target.iter();
            now.container == before.container
                && now.target.iter().count() == before.target.iter().count()
                && amounts.all(|(name, is)| before.target.get(name).is_some_and(|it| close(is, it)))
        })
}

impl InfeasibleResizes {
    /// None.
    pub const NONE: Self = Self(Vec::new());

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last answer that a pod got, if it is still believed.
    pub fn find(
        &self,
        uid: &str,
        expiry: Option<Duration>,
        now: Time,
    ) -> Option<&InfeasibleResize> {
        let is_its = |refusal: &&InfeasibleResize| refusal.pods.iter().any(|pod| **pod == *uid);
        let believed = |refusal: &&InfeasibleResize| {
            expiry.is_none_or(|expiry| refusal.at.later(expiry) > now)
        };
        self.0.iter().rev().find(is_its).filter(believed)
    }

    /// Remembers an answer, in place of the one before.
    pub fn record(&mut self, uid: &str, by: RejectedBy, wanted: Vec<RecommendedTarget>, now: Time) {
        self.remove(uid);
        let same = |known: &&mut InfeasibleResize| known.by == by && known.wanted == wanted;
        match self.0.iter_mut().filter(|known| known.at.later(MERGE_WITHIN) > now).find(same) {
            Some(known) => known.pods.push(uid.into()),
            None => self.0.push(InfeasibleResize { at: now, by, wanted, pods: vec![uid.into()] }),
        }
        let mut too_many =
            self.0.iter().map(|known| known.pods.len()).sum::<usize>().saturating_sub(MAX_PODS);
        for known in &mut self.0 {
            let gone = too_many.min(known.pods.len());
            known.pods.drain(..gone);
            too_many -= gone;
        }
        self.0.retain(|known| !known.pods.is_empty());
    }

    /// Forgets what a pod was answered: a resize of it succeeded.
    pub fn remove(&mut self, uid: &str) {
        self.retain(|pod| pod != uid);
    }

    /// Forgets pods that are gone.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        for known in &mut self.0 {
            known.pods.retain(|pod| is_there(pod));
        }
        self.0.retain(|known| !known.pods.is_empty());
    }

    /// Forgets answers that are not believed any more.
    pub fn expire(&mut self, expiry: Duration, now: Time) {
        self.0.retain(|known| known.at.later(expiry) > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu: &str, memory: &str) -> Vec<RecommendedTarget> {
        let target = ResourceList::cpu_and_memory(cpu.parse().ok(), memory.parse().ok());
        vec![RecommendedTarget { container: "app".into(), target }]
    }

    /// Section 6.8, infeasible memory.
    #[test]
    fn only_a_resource_that_is_strictly_less_than_before_is_lower() {
        let before = amounts("200m", "512Mi");
        for (cpu, memory, expected) in [
            ("200m", "512Mi", false),
            ("300m", "1Gi", false),
            ("100m", "512Mi", true),
            ("200m", "256Mi", true),
            ("100m", "1Gi", true),
        ] {
            assert_eq!(asks_for_less(&amounts(cpu, memory), &before), expected, "{cpu} {memory}");
        }
        assert!(!asks_for_less(&[], &before));
        assert!(!asks_for_less(&before, &[]));
        let other =
            vec![RecommendedTarget { container: "other".into(), ..amounts("1m", "1Mi").remove(0) }];
        assert!(!asks_for_less(&other, &before));
    }

    #[test]
    fn an_answer_is_believed_for_its_time_and_forgotten_with_its_pod() {
        let (now, hour) = (Time::from_secs(1_000_000), Duration::from_hours(1));
        let mut refusals = InfeasibleResizes::default();
        for uid in ["a", "b"] {
            refusals.record(uid, RejectedBy::Node, amounts("1", "1Gi"), now);
        }
        refusals.record("c", RejectedBy::Server, amounts("1", "1Gi"), now);
        assert_eq!(refusals.0.len(), 2, "pods with one answer share it");
        let by = |refusals: &InfeasibleResizes, uid, at| {
            refusals.find(uid, Some(hour), at).map(|it| it.by)
        };
        assert_eq!(by(&refusals, "b", now), Some(RejectedBy::Node));
        assert_eq!(by(&refusals, "c", now), Some(RejectedBy::Server));
        assert_eq!(by(&refusals, "b", now.later(hour)), None);
        assert!(refusals.find("b", None, now.later(hour)).is_some(), "upstream never forgets");
        refusals.remove("b");
        assert_eq!(by(&refusals, "b", now), None);
        refusals.retain(|pod| pod == "a");
        assert_eq!(by(&refusals, "c", now), None);
        assert_eq!(by(&refusals, "a", now), Some(RejectedBy::Node));
        for pod in 0..1000 {
            refusals.record(&pod.to_string(), RejectedBy::Node, amounts("2", "1Gi"), now);
        }
        let text = serde_json::to_string(&refusals).expect("serialises");
        assert_eq!(serde_json::from_str::<InfeasibleResizes>(&text).expect("reads"), refusals);
        assert!(
            refusals.find("999", None, now).is_some() && refusals.find("0", None, now).is_none()
        );
    }
}
