//! Infeasible resizes: their pods, the component that rejected them, and when they expire.

use std::{sync::Arc, time::Duration};

use crate::types::Time;
use serde::{Deserialize, Serialize};

use crate::{
    api::{ResourceList, vpa::Recommendation},
    types::quantity::Quantity,
};

/// The component that rejected a resize as infeasible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectedBy {
    /// The kubelet, with a condition of the pod.
    Node,
    Server,
}

/// The recommended target of a container at the time of a resize.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecommendedTarget {
    #[serde(rename = "c")]
    pub container: Arc<str>,
    #[serde(rename = "t")]
    pub target: ResourceList,
}

/// One rejected resize, with all pods for which it was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InfeasibleResize {
    /// When the resize of the first pod was rejected.
    pub at: Time,
    pub by: RejectedBy,
    pub wanted: Vec<RecommendedTarget>,
    /// The pods, by uid. A pod stays on its node, so this identifies the node too.
    pub pods: Vec<Box<str>>,
}

/// Equal rejections within this time are merged, and expire together.
const MERGE_WITHIN: Duration = Duration::from_mins(5);

/// Maximum number of stored pods.
const MAX_PODS: usize = 128;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InfeasibleResizes(Vec<InfeasibleResize>);

pub fn recommended_targets(recommendation: &Recommendation) -> Vec<RecommendedTarget> {
    let containers = recommendation.container_recommendations.iter();
    let targets = containers.map(|recommendation| RecommendedTarget {
        container: recommendation.container_name.as_str().into(),
        target: recommendation.target.clone(),
    });
    targets.collect()
}

/// Whether any resource is lower than before. Resources that are not in both lists are ignored.
pub fn asks_for_less(now: &[RecommendedTarget], before: &[RecommendedTarget]) -> bool {
    now.iter().any(|now| {
        let before = before.iter().find(|before| before.container == now.container);
        before.is_some_and(|before| {
            let lower = |name, was: Quantity| now.target.get(name).is_some_and(|is| is < was);
            before.target.iter().any(|(name, was)| lower(name, was))
        })
    })
}

/// Whether the targets of the same containers differ by at most 5 %.
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
                && amounts
                    .all(|(name, is)| before.target.get(name).is_some_and(|was| close(is, was)))
        })
}

impl InfeasibleResizes {
    /// No infeasible resizes.
    pub const NONE: Self = Self(Vec::new());

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the last rejection of a pod's resize, if it has not expired.
    pub fn find(
        &self,
        uid: &str,
        expiry: Option<Duration>,
        now: Time,
    ) -> Option<&InfeasibleResize> {
        let has_pod = |refusal: &&InfeasibleResize| refusal.pods.iter().any(|pod| **pod == *uid);
        let is_valid = |refusal: &&InfeasibleResize| {
            expiry.is_none_or(|expiry| refusal.at.later(expiry) > now)
        };
        self.0.iter().rev().find(has_pod).filter(is_valid)
    }

    /// Records a rejection of a pod's resize, and replaces the last one.
    pub fn record(&mut self, uid: &str, by: RejectedBy, wanted: Vec<RecommendedTarget>, now: Time) {
        self.remove(uid);
        let is_same = |known: &&mut InfeasibleResize| known.by == by && known.wanted == wanted;
        match self.0.iter_mut().filter(|known| known.at.later(MERGE_WITHIN) > now).find(is_same) {
            Some(known) => known.pods.push(uid.into()),
            None => self.0.push(InfeasibleResize { at: now, by, wanted, pods: vec![uid.into()] }),
        }
        let mut too_many =
            self.0.iter().map(|known| known.pods.len()).sum::<usize>().saturating_sub(MAX_PODS);
        for known in &mut self.0 {
            let removed = too_many.min(known.pods.len());
            known.pods.drain(..removed);
            too_many -= removed;
        }
        self.0.retain(|known| !known.pods.is_empty());
    }

    /// Removes a pod, because a resize of it succeeded.
    pub fn remove(&mut self, uid: &str) {
        self.retain(|pod| pod != uid);
    }

    /// Removes deleted pods.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        for known in &mut self.0 {
            known.pods.retain(|pod| is_there(pod));
        }
        self.0.retain(|known| !known.pods.is_empty());
    }

    /// Removes expired rejections.
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
    fn only_a_strictly_lower_amount_of_a_resource_counts_as_less() {
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
    fn a_rejection_is_remembered_for_its_time_and_dropped_with_its_pod() {
        let (now, hour) = (Time::from_secs(1_000_000), Duration::from_hours(1));
        let mut refusals = InfeasibleResizes::default();
        for uid in ["a", "b"] {
            refusals.record(uid, RejectedBy::Node, amounts("1", "1Gi"), now);
        }
        refusals.record("c", RejectedBy::Server, amounts("1", "1Gi"), now);
        assert_eq!(refusals.0.len(), 2, "pods with one answer share it");
        let by = |refusals: &InfeasibleResizes, uid, at| {
            refusals.find(uid, Some(hour), at).map(|refusal| refusal.by)
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
