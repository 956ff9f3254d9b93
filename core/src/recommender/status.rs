//! What a VPA's status says, and whether it has to be written anew.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Value, json};

use super::{
    policy::ResourceAmounts,
    recommendation::{ContainerRecommendation, Recommendation},
};
use crate::{
    api::{
        ResourceList,
        vpa::{self, Condition, VerticalPodAutoscalerStatus},
    },
    types::quantity::Quantity,
};

/// The status of an object as it was last read, as small as comparing allows: ten thousand are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublishedStatus {
    /// Its conditions, those of others too.
    pub conditions: Vec<Condition>,
    /// Its recommendation, if there is one.
    pub recommendation: Option<RecommendationHash>,
    /// The generation that it is about.
    pub observed_generation: Option<i64>,
}

/// A recommendation to compare with.
#[derive(Clone, Debug)]
pub struct RecommendationHash {
    /// Over everything but the bounds.
    without_bounds: u64,
    /// Over the bounds.
    bounds: u64,
    /// The bounds: of each container lower CPU and memory, upper CPU and memory; NaN where there is none.
    amounts: Box<[f32]>,
}

/// Why a status is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusChange {
    /// Nothing that a reader could see has changed.
    None,
    /// Only bounds moved, and by less than the dead-band.
    WithinDeadBand,
    /// It has to be written.
    Write,
}

/// Amounts of one container: target, lower, upper, uncapped, each by name of the resource.
struct ContainerAmounts<'a, I> {
    container: &'a str,
    amounts: [I; 4],
}

impl PublishedStatus {
    /// From an object.
    pub fn new(status: Option<&VerticalPodAutoscalerStatus>) -> Self {
        let Some(status) = status else { return Self::default() };
        Self {
            conditions: status.conditions.clone(),
            recommendation: status.recommendation.as_ref().map(RecommendationHash::of_object),
            observed_generation: status.observed_generation,
        }
    }

    /// As it will be read once this is written.
    pub fn after_write(
        conditions: Vec<Condition>,
        said: &Recommendation,
        observed_generation: Option<i64>,
    ) -> Self {
        Self {
            conditions,
            recommendation: Some(RecommendationHash::new(said)),
            observed_generation,
        }
    }

    /// What of the status differs from what is wanted now. `band` is the share by which a bound may drift
    /// from what is written before it is written anew.
    pub fn change(
        &self,
        conditions: &[Condition],
        said: &Recommendation,
        generation: Option<i64>,
        band: f64,
    ) -> StatusChange {
        if self.conditions != conditions || self.observed_generation != generation {
            return StatusChange::Write;
        }
        let wanted = RecommendationHash::new(said);
        match &self.recommendation {
            Some(known) if *known == wanted => StatusChange::None,
            // Without a band the smallest move counts, also one that rounding hides from the band.
            Some(known)
                if band > 0.0
                    && known.without_bounds == wanted.without_bounds
                    && known.is_within_dead_band(&wanted, band) =>
            {
                StatusChange::WithinDeadBand
            }
            _ => StatusChange::Write,
        }
    }
}

/// By the hashes alone: the amounts are rounded, and some are none.
impl PartialEq for RecommendationHash {
    fn eq(&self, other: &Self) -> bool {
        (self.without_bounds, self.bounds) == (other.without_bounds, other.bounds)
    }
}

impl RecommendationHash {
    /// Of a decision.
    pub fn new(said: &Recommendation) -> Self {
        let list = |amounts: &ResourceAmounts| {
            let cpu = amounts.cpu.map(|amount| ("cpu", amount));
            cpu.into_iter().chain(amounts.memory.map(|amount| ("memory", amount)))
        };
        Self::from_containers(said.containers.iter().map(|one| ContainerAmounts {
            container: &one.container,
            amounts: [list(&one.target), list(&one.lower), list(&one.upper), list(&one.uncapped)],
        }))
    }

    /// Of what an object says.
    pub fn of_object(said: &vpa::Recommendation) -> Self {
        fn list(list: &ResourceList) -> impl Iterator<Item = (&str, Quantity)> {
            list.iter().map(|(name, amount)| (name.as_str(), amount))
        }
        Self::from_containers(said.container_recommendations.iter().map(|one| ContainerAmounts {
            container: &one.container_name,
            amounts: [
                list(&one.target),
                list(&one.lower_bound),
                list(&one.upper_bound),
                list(&one.uncapped_target),
            ],
        }))
    }

    fn from_containers<'a, I: Iterator<Item = (&'a str, Quantity)>>(
        containers: impl Iterator<Item = ContainerAmounts<'a, I>>,
    ) -> Self {
        let (mut firm, mut bounds) = (DefaultHasher::new(), DefaultHasher::new());
        let mut amounts = Vec::new();
        for ContainerAmounts { container, amounts: of } in containers {
            container.hash(&mut firm);
            let of_container = amounts.len();
            amounts.resize(of_container + 4, f32::NAN);
            for (which, list) in of.into_iter().enumerate() {
                let bound = matches!(which, 1 | 2);
                let hasher = if bound { &mut bounds } else { &mut firm };
                which.hash(hasher);
                for (name, amount) in list {
                    name.hash(hasher);
                    amount.hash(hasher);
                    let resource = match name {
                        "cpu" => 0,
                        "memory" => 1,
                        _ => continue,
                    };
                    if bound {
                        amounts[of_container + (which - 1) * 2 + resource] = amount.as_f64() as f32;
                    }
                }
            }
        }
        Self { without_bounds: firm.finish(), bounds: bounds.finish(), amounts: amounts.into() }
    }

    /// Whether it names no container.
    pub fn is_empty(&self) -> bool {
        self.amounts.is_empty()
    }

    /// Whether the same bounds are there, and none moved by more than this share of what is written.
    fn is_within_dead_band(&self, other: &Self, band: f64) -> bool {
        let near = |(&known, &wanted): (&f32, &f32)| {
            let (known, wanted) = (f64::from(known), f64::from(wanted));
            (known.is_nan() && wanted.is_nan()) || (wanted - known).abs() <= band * known.abs()
        };
        self.amounts.len() == other.amounts.len()
            && self.amounts.iter().zip(&other.amounts).all(near)
    }
}

/// A decision as objects show it.
pub fn to_object(said: &Recommendation) -> vpa::Recommendation {
    let list =
        |amounts: &ResourceAmounts| ResourceList::cpu_and_memory(amounts.cpu, amounts.memory);
    let one = |one: &ContainerRecommendation| vpa::ContainerRecommendation {
        container_name: one.container.as_ref().to_owned(),
        target: list(&one.target),
        lower_bound: list(&one.lower),
        upper_bound: list(&one.upper),
        uncapped_target: list(&one.uncapped),
    };
    vpa::Recommendation { container_recommendations: said.containers.iter().map(one).collect() }
}

/// The merge patch that brings a status to what is wanted. Fields of a status that this program does not
/// know stay as they are.
pub fn patch(conditions: &[Condition], said: &Recommendation, generation: Option<i64>) -> Value {
    let recommendation = if said.containers.is_empty() {
        // A list that is not named stays as it was; what is left is an empty object, as upstream writes it.
        json!({ "containerRecommendations": null })
    } else {
        json!(to_object(said))
    };
    json!({
        "status": {
            "conditions": conditions,
            "recommendation": recommendation,
            "observedGeneration": generation,
        }
    })
}

/// The merge patch that says nothing but these conditions: what is recommended stays as it is.
pub fn conditions_patch(conditions: &[Condition]) -> Value {
    json!({ "status": { "conditions": conditions } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recommender::Explanation;

    fn said(target: &str, upper: &str) -> Recommendation {
        let cpu = |text: &str| ResourceAmounts { cpu: text.parse().ok(), memory: None };
        Recommendation {
            containers: vec![ContainerRecommendation {
                container: "app".into(),
                target: cpu(target),
                lower: cpu("100m"),
                upper: cpu(upper),
                uncapped: cpu(target),
                explanation: Explanation::default(),
            }],
            stale: Vec::new(),
        }
    }

    fn reported(said: &Recommendation) -> PublishedStatus {
        let status = VerticalPodAutoscalerStatus {
            recommendation: Some(to_object(said)),
            observed_generation: Some(3),
            ..VerticalPodAutoscalerStatus::default()
        };
        PublishedStatus::new(Some(&status))
    }

    #[test]
    fn a_drifting_bound_is_written_when_it_leaves_the_band_and_a_target_at_once() {
        let known = reported(&said("200m", "1"));
        for (target, upper, band, change) in [
            ("200m", "1000m", 0.0, StatusChange::None),
            ("200m", "1040m", 0.05, StatusChange::WithinDeadBand),
            ("200m", "960m", 0.05, StatusChange::WithinDeadBand),
            ("200m", "1040m", 0.0, StatusChange::Write),
            ("200m", "1000000001n", 0.0, StatusChange::Write),
            ("200m", "1060m", 0.05, StatusChange::Write),
            ("201m", "1", 0.05, StatusChange::Write),
        ] {
            let wanted = known.change(&[], &said(target, upper), Some(3), band);
            assert_eq!(wanted, change, "{target} {upper} {band}");
        }
    }

    #[test]
    fn an_empty_recommendation_takes_the_place_of_one_that_was_not() {
        let empty = patch(&[], &Recommendation::default(), None);
        let list = &empty["status"]["recommendation"];
        assert_eq!(
            *list,
            json!({ "containerRecommendations": null }),
            "a merge patch keeps what is not named"
        );
        let full = patch(&[], &said("200m", "1"), None);
        assert!(full["status"]["recommendation"]["containerRecommendations"].is_array());
        let none = RecommendationHash::new(&Recommendation::default());
        assert!(none.is_empty() && !RecommendationHash::new(&said("200m", "1")).is_empty());
    }

    #[test]
    fn another_generation_container_or_condition_is_written() {
        let now = said("200m", "1");
        let known = reported(&now);
        assert_eq!(known.change(&[], &now, Some(4), 1.0), StatusChange::Write);
        let mut renamed = now.clone();
        renamed.containers[0].container = "web".into();
        assert_eq!(known.change(&[], &renamed, Some(3), 1.0), StatusChange::Write);
        assert_eq!(known.change(&[Condition::default()], &now, Some(3), 1.0), StatusChange::Write);
        let empty = PublishedStatus::default();
        assert_eq!(
            empty.change(&[], &Recommendation::default(), None, 1.0),
            StatusChange::Write,
            "an empty recommendation is not the same as none"
        );
    }
}
