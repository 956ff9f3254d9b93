//! The recommender's part of a VPA's status, and whether it has to be written.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Value, json};

use super::{
    policy::ResourceAmounts,
    recommendation::{ContainerRecommendation, Recommendation},
};
use crate::api::{
    ResourceList, ResourceName,
    vpa::{self, Condition, VerticalPodAutoscalerStatus},
};

/// The status of an object as last read, reduced to what a comparison needs: ten thousand are in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublishedStatus {
    /// All conditions, including those of other controllers.
    pub conditions: Vec<Condition>,
    pub recommendation: Option<RecommendationHash>,
    pub observed_generation: Option<i64>,
}

/// A recommendation, reduced to what a comparison needs.
#[derive(Clone, Debug)]
pub struct RecommendationHash {
    /// Hash of everything except the bounds.
    without_bounds: u64,
    bounds: u64,
    /// The bounds of each container: lower CPU and memory, upper CPU and memory; NaN if missing.
    amounts: Box<[f32]>,
}

/// Whether a status has to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusChange {
    None,
    /// Only bounds changed, and by less than the dead-band.
    WithinDeadBand,
    Write,
}

impl PublishedStatus {
    pub fn new(status: Option<&VerticalPodAutoscalerStatus>) -> Self {
        let Some(status) = status else { return Self::default() };
        Self {
            conditions: status.conditions.clone(),
            recommendation: status.recommendation.as_ref().map(RecommendationHash::of_object),
            observed_generation: status.observed_generation,
        }
    }

    /// Returns the status as it will be read after this write.
    pub fn after_write(
        conditions: Vec<Condition>,
        recommendation: &Recommendation,
        observed_generation: Option<i64>,
    ) -> Self {
        Self {
            conditions,
            recommendation: Some(RecommendationHash::new(recommendation)),
            observed_generation,
        }
    }

    /// Compares the status with the desired one. `dead_band` is the fraction by which a bound may differ from the written
    /// value before it is written again.
    pub fn change(
        &self,
        conditions: &[Condition],
        recommendation: &Recommendation,
        generation: Option<i64>,
        dead_band: f64,
    ) -> StatusChange {
        if self.conditions != conditions || self.observed_generation != generation {
            return StatusChange::Write;
        }
        let desired = RecommendationHash::new(recommendation);
        match &self.recommendation {
            Some(known) if *known == desired => StatusChange::None,
            // Without a dead-band every change counts, even one that is lost in the rounded amounts.
            Some(known)
                if dead_band > 0.0
                    && known.without_bounds == desired.without_bounds
                    && known.is_within_dead_band(&desired, dead_band) =>
            {
                StatusChange::WithinDeadBand
            }
            _ => StatusChange::Write,
        }
    }
}

/// Compares only the hashes: the amounts are rounded and may be NaN.
impl PartialEq for RecommendationHash {
    fn eq(&self, other: &Self) -> bool {
        (self.without_bounds, self.bounds) == (other.without_bounds, other.bounds)
    }
}

impl RecommendationHash {
    /// Hashes a computed recommendation.
    pub fn new(recommendation: &Recommendation) -> Self {
        Self::of_object(&to_object(recommendation))
    }

    pub fn of_object(recommendation: &vpa::Recommendation) -> Self {
        let (mut without_bounds, mut bounds) = (DefaultHasher::new(), DefaultHasher::new());
        let mut amounts = Vec::new();
        for container in &recommendation.container_recommendations {
            container.container_name.hash(&mut without_bounds);
            let of_container = amounts.len();
            amounts.resize(of_container + 4, f32::NAN);
            let lists = [
                &container.target,
                &container.lower_bound,
                &container.upper_bound,
                &container.uncapped_target,
            ];
            for (index, list) in lists.into_iter().enumerate() {
                let is_bound = matches!(index, 1 | 2);
                let hasher = if is_bound { &mut bounds } else { &mut without_bounds };
                index.hash(hasher);
                for (name, amount) in list.iter() {
                    name.as_str().hash(hasher);
                    amount.hash(hasher);
                    let resource = match name {
                        ResourceName::Cpu => 0,
                        ResourceName::Memory => 1,
                        ResourceName::Other(_) => continue,
                    };
                    if is_bound {
                        amounts[of_container + (index - 1) * 2 + resource] = amount.as_f64() as f32;
                    }
                }
            }
        }
        Self {
            without_bounds: without_bounds.finish(),
            bounds: bounds.finish(),
            amounts: amounts.into(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.amounts.is_empty()
    }

    /// Whether both have the same bounds, and none differs by more than this fraction of its written value.
    fn is_within_dead_band(&self, other: &Self, dead_band: f64) -> bool {
        let is_near = |(&known, &desired): (&f32, &f32)| {
            let (known, desired) = (f64::from(known), f64::from(desired));
            (known.is_nan() && desired.is_nan())
                || (desired - known).abs() <= dead_band * known.abs()
        };
        self.amounts.len() == other.amounts.len()
            && self.amounts.iter().zip(&other.amounts).all(is_near)
    }
}

/// Converts a computed recommendation to the API type.
pub fn to_object(recommendation: &Recommendation) -> vpa::Recommendation {
    let list =
        |amounts: &ResourceAmounts| ResourceList::cpu_and_memory(amounts.cpu, amounts.memory);
    let convert = |container: &ContainerRecommendation| vpa::ContainerRecommendation {
        container_name: container.container.as_ref().to_owned(),
        target: list(&container.target),
        lower_bound: list(&container.lower),
        upper_bound: list(&container.upper),
        uncapped_target: list(&container.uncapped),
    };
    vpa::Recommendation {
        container_recommendations: recommendation.containers.iter().map(convert).collect(),
    }
}

/// Returns the merge patch for the status. Unknown fields of the status stay as they are.
pub fn patch(
    conditions: &[Condition],
    recommendation: &Recommendation,
    generation: Option<i64>,
) -> Value {
    let recommendation = if recommendation.containers.is_empty() {
        // A merge patch keeps fields that it does not name. This leaves an empty object, as upstream writes.
        json!({ "containerRecommendations": null })
    } else {
        json!(to_object(recommendation))
    };
    json!({
        "status": {
            "conditions": conditions,
            "recommendation": recommendation,
            "observedGeneration": generation,
        }
    })
}

/// Returns the merge patch for only the conditions; the recommendation stays as it is.
pub fn conditions_patch(conditions: &[Condition]) -> Value {
    json!({ "status": { "conditions": conditions } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recommender::Explanation;

    fn recommendation(target: &str, upper: &str) -> Recommendation {
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

    fn published(recommendation: &Recommendation) -> PublishedStatus {
        let status = VerticalPodAutoscalerStatus {
            recommendation: Some(to_object(recommendation)),
            observed_generation: Some(3),
            ..VerticalPodAutoscalerStatus::default()
        };
        PublishedStatus::new(Some(&status))
    }

    #[test]
    fn a_bound_is_written_when_it_leaves_the_dead_band_and_a_target_at_once() {
        let known = published(&recommendation("200m", "1"));
        for (target, upper, band, change) in [
            ("200m", "1000m", 0.0, StatusChange::None),
            ("200m", "1040m", 0.05, StatusChange::WithinDeadBand),
            ("200m", "960m", 0.05, StatusChange::WithinDeadBand),
            ("200m", "1040m", 0.0, StatusChange::Write),
            ("200m", "1000000001n", 0.0, StatusChange::Write),
            ("200m", "1060m", 0.05, StatusChange::Write),
            ("201m", "1", 0.05, StatusChange::Write),
        ] {
            let actual = known.change(&[], &recommendation(target, upper), Some(3), band);
            assert_eq!(actual, change, "{target} {upper} {band}");
        }
    }

    #[test]
    fn an_empty_recommendation_replaces_an_existing_one() {
        let empty = patch(&[], &Recommendation::default(), None);
        let list = &empty["status"]["recommendation"];
        assert_eq!(
            *list,
            json!({ "containerRecommendations": null }),
            "a merge patch keeps fields that it does not name"
        );
        let full = patch(&[], &recommendation("200m", "1"), None);
        assert!(full["status"]["recommendation"]["containerRecommendations"].is_array());
        let none = RecommendationHash::new(&Recommendation::default());
        assert!(
            none.is_empty() && !RecommendationHash::new(&recommendation("200m", "1")).is_empty()
        );
    }

    #[test]
    fn a_changed_generation_container_or_condition_is_written() {
        let now = recommendation("200m", "1");
        let known = published(&now);
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
