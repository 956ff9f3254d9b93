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
pub enum RefusedBy {
    /// The node, by a condition of the pod.
    Node,
    /// The API server, which did not take the resize.
    Server,
}

/// What was wanted of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Its name.
    #[serde(rename = "c")]
    pub container: Arc<str>,
    /// What its target was.
    #[serde(rename = "t")]
    pub target: ResourceList,
}

/// One answer, for all pods that got it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// When the first of them got it.
    pub at: Time,
    /// Who gave it.
    pub by: RefusedBy,
    /// What was wanted.
    pub wanted: Vec<Wanted>,
    /// The pods, by uid. A pod stays on its node, so this is an answer of the node too.
    pub pods: Vec<Box<str>>,
}

/// Equal answers within this time are kept as one, and expire as one.
const TOGETHER: Duration = Duration::from_mins(5);

/// Pods that are remembered in all.
const MOST_PODS: usize = 128;

/// Resizes that were found impossible.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Refusals(Vec<Refusal>);

/// What a recommendation wants.
pub fn wanted(recommendation: &Recommendation) -> Vec<Wanted> {
    let containers = recommendation.container_recommendations.iter();
    let wanted = containers.map(|one| Wanted {
        container: one.container_name.as_str().into(),
        target: one.target.clone(),
    });
    wanted.collect()
}

/// Whether anything is wanted less of than before. What is not named on both sides says nothing.
pub fn is_lower(now: &[Wanted], before: &[Wanted]) -> bool {
    now.iter().any(|now| {
        let before = before.iter().find(|before| before.container == now.container);
        before.is_some_and(|before| {
            let lower = |name, was: Quantity| now.target.get(name).is_some_and(|is| is < was);
            before.target.iter().any(|(name, was)| lower(name, was))
        })
    })
}

/// Whether the same is wanted of the same containers, but for a twentieth.
pub fn is_close(now: &[Wanted], before: &[Wanted]) -> bool {
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

impl Refusals {
    /// None.
    pub const NONE: Self = Self(Vec::new());

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last answer that a pod got, if it is still believed.
    pub fn of(&self, uid: &str, expiry: Option<Duration>, now: Time) -> Option<&Refusal> {
        let is_its = |refusal: &&Refusal| refusal.pods.iter().any(|pod| **pod == *uid);
        let believed =
            |refusal: &&Refusal| expiry.is_none_or(|expiry| refusal.at.later(expiry) > now);
        self.0.iter().rev().find(is_its).filter(believed)
    }

    /// Remembers an answer, in place of the one before.
    pub fn remember(&mut self, uid: &str, by: RefusedBy, wanted: Vec<Wanted>, now: Time) {
        self.forget(uid);
        let same = |known: &&mut Refusal| known.by == by && known.wanted == wanted;
        match self.0.iter_mut().filter(|known| known.at.later(TOGETHER) > now).find(same) {
            Some(known) => known.pods.push(uid.into()),
            None => self.0.push(Refusal { at: now, by, wanted, pods: vec![uid.into()] }),
        }
        let mut too_many =
            self.0.iter().map(|known| known.pods.len()).sum::<usize>().saturating_sub(MOST_PODS);
        for known in &mut self.0 {
            let gone = too_many.min(known.pods.len());
            known.pods.drain(..gone);
            too_many -= gone;
        }
        self.0.retain(|known| !known.pods.is_empty());
    }

    /// Forgets what a pod was answered: a resize of it succeeded.
    pub fn forget(&mut self, uid: &str) {
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

    fn amounts(cpu: &str, memory: &str) -> Vec<Wanted> {
        let target = ResourceList::of(cpu.parse().ok(), memory.parse().ok());
        vec![Wanted { container: "app".into(), target }]
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
            assert_eq!(is_lower(&amounts(cpu, memory), &before), expected, "{cpu} {memory}");
        }
        assert!(!is_lower(&[], &before));
        assert!(!is_lower(&before, &[]));
        let other = vec![Wanted { container: "other".into(), ..amounts("1m", "1Mi").remove(0) }];
        assert!(!is_lower(&other, &before));
    }

    #[test]
    fn an_answer_is_believed_for_its_time_and_forgotten_with_its_pod() {
        let (now, hour) = (Time::from_secs(1_000_000), Duration::from_hours(1));
        let mut refusals = Refusals::default();
        for uid in ["a", "b"] {
            refusals.remember(uid, RefusedBy::Node, amounts("1", "1Gi"), now);
        }
        refusals.remember("c", RefusedBy::Server, amounts("1", "1Gi"), now);
        assert_eq!(refusals.0.len(), 2, "pods with one answer share it");
        let by = |refusals: &Refusals, uid, at| refusals.of(uid, Some(hour), at).map(|it| it.by);
        assert_eq!(by(&refusals, "b", now), Some(RefusedBy::Node));
        assert_eq!(by(&refusals, "c", now), Some(RefusedBy::Server));
        assert_eq!(by(&refusals, "b", now.later(hour)), None);
        assert!(refusals.of("b", None, now.later(hour)).is_some(), "upstream never forgets");
        refusals.forget("b");
        assert_eq!(by(&refusals, "b", now), None);
        refusals.retain(|pod| pod == "a");
        assert_eq!(by(&refusals, "c", now), None);
        assert_eq!(by(&refusals, "a", now), Some(RefusedBy::Node));
        for pod in 0..1000 {
            refusals.remember(&pod.to_string(), RefusedBy::Node, amounts("2", "1Gi"), now);
        }
        let text = serde_json::to_string(&refusals).expect("serialises");
        assert_eq!(serde_json::from_str::<Refusals>(&text).expect("reads"), refusals);
        assert!(refusals.of("999", None, now).is_some() && refusals.of("0", None, now).is_none());
    }
}
