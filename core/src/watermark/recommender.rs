//! The replica proposal for the response of an external recommender.

use super::{
    band::Position,
    converge::{ConvergeTowards, Convergence},
    propose::{Proposal, ProposalInput},
};
use crate::{
    api::wpa::{RecommenderSpec, WatermarkPodAutoscalerSpec},
    scaling::{Milli, RecommendResponse, recommender_protocol::RecommendRequest},
};

/// Builds the request to the recommender from the spec.
pub fn recommend_request<'a>(
    spec: &'a WatermarkPodAutoscalerSpec,
    recommender: &'a RecommenderSpec,
) -> RecommendRequest<'a> {
    RecommendRequest {
        target: &spec.scale_target_ref,
        min_replicas: spec.min_replicas.unwrap_or(0),
        max_replicas: spec.max_replicas,
        target_type: &recommender.target_type,
        low_watermark: recommender.low_watermark,
        high_watermark: recommender.high_watermark,
        settings: &recommender.settings,
    }
}

impl ProposalInput {
    /// Computes the proposal for a recommendation. The recommendation gives the direction, its bounds give the position: a
    /// recommendation is followed without delay if the current replicas are within its bounds.
    pub fn propose_recommendation(&self, response: &RecommendResponse) -> Proposal {
        let current = self.spec_replicas;
        let (replicas, convergence) = match response.replicas.cmp(&current) {
            std::cmp::Ordering::Greater => {
                (self.at_least_current(response.replicas), Convergence::Outside(Position::Above))
            }
            std::cmp::Ordering::Less => {
                (self.at_most_current(response.replicas), Convergence::Outside(Position::Below))
            }
            std::cmp::Ordering::Equal => match self.converge {
                Some(ConvergeTowards::High) => {
                    self.step_towards(ConvergeTowards::High, response.lower_bound)
                }
                Some(ConvergeTowards::Low) => {
                    self.step_towards(ConvergeTowards::Low, response.upper_bound)
                }
                None => (current, Convergence::Off),
            },
        };
        let position = if response.replicas == current {
            Position::Inside
        } else if current > response.upper_bound {
            Position::Below
        } else if current < response.lower_bound {
            Position::Above
        } else {
            Position::Inside
        };
        let utilization = (response.observed_target * 1000.0) as Milli;
        Proposal { replicas, position, value: utilization as f64, utilization, convergence }
    }
}
