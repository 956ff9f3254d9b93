//! How many replicas follow from what a recommender answered.

use super::{
    band::Position,
    converge::{ConvergeTowards, Convergence},
    propose::{Proposal, ProposalInput},
};
use crate::{
    api::wpa::{RecommenderSpec, WatermarkPodAutoscalerSpec},
    scaling::{Milli, RecommendResponse, recommender_protocol::RecommendRequest},
};

/// What an object says that its recommender is told.
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
    /// What follows from advice. Where the value lies is told by the bounds, which way to go by the recommendation: one
    /// that lies within the bounds is followed without any delay.
    pub fn propose_recommendation(&self, advice: &RecommendResponse) -> Proposal {
        let wanted = self.spec_replicas;
        let (replicas, convergence) = match advice.replicas.cmp(&wanted) {
            std::cmp::Ordering::Greater => {
                (self.at_least_current(advice.replicas), Convergence::Outside(Position::Above))
            }
            std::cmp::Ordering::Less => {
                (self.at_most_current(advice.replicas), Convergence::Outside(Position::Below))
            }
            std::cmp::Ordering::Equal => match self.converge {
                Some(ConvergeTowards::High) => {
                    self.step_towards(ConvergeTowards::High, advice.lower_bound)
                }
                Some(ConvergeTowards::Low) => {
                    self.step_towards(ConvergeTowards::Low, advice.upper_bound)
                }
                None => (wanted, Convergence::Off),
            },
        };
        let position = if advice.replicas == wanted {
            Position::Inside
        } else if wanted > advice.upper_bound {
            Position::Below
        } else if wanted < advice.lower_bound {
            Position::Above
        } else {
            Position::Inside
        };
        let utilisation = (advice.observed_target * 1000.0) as Milli;
        Proposal {
            replicas,
            position,
            value: utilisation as f64,
            utilization: utilisation,
            convergence,
        }
    }
}
