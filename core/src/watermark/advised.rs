//! How many replicas follow from what a recommender answered.

use super::{
    band::Position,
    converge::{Convergence, Direction},
    propose::{Proposal, Question},
};
use crate::{
    api::wpa::{RecommenderSpec, WatermarkPodAutoscalerSpec},
    scaling::{Advice, Milli, consult::Wish},
};

/// What an object says that its recommender is told.
pub fn wish<'a>(
    spec: &'a WatermarkPodAutoscalerSpec,
    recommender: &'a RecommenderSpec,
) -> Wish<'a> {
    Wish {
        target: &spec.scale_target_ref,
        min: spec.min_replicas.unwrap_or(0),
        max: spec.max_replicas,
        target_type: &recommender.target_type,
        low: recommender.low_watermark,
        high: recommender.high_watermark,
        settings: &recommender.settings,
    }
}

impl Question {
    /// What follows from advice. Where the value lies is told by the bounds, which way to go by the recommendation: one
    /// that lies within the bounds is followed without any delay.
    pub fn follow(&self, advice: &Advice) -> Proposal {
        let wanted = self.wanted;
        let (replicas, convergence) = match advice.replicas.cmp(&wanted) {
            std::cmp::Ordering::Greater => {
                (self.no_fewer(advice.replicas), Convergence::Outside(Position::Above))
            }
            std::cmp::Ordering::Less => {
                (self.no_more(advice.replicas), Convergence::Outside(Position::Below))
            }
            std::cmp::Ordering::Equal => match self.converge {
                Some(Direction::High) => self.step_towards(Direction::High, advice.lower),
                Some(Direction::Low) => self.step_towards(Direction::Low, advice.upper),
                None => (wanted, Convergence::Off),
            },
        };
        let position = if advice.replicas == wanted {
            Position::Inside
        } else if wanted > advice.upper {
            Position::Below
        } else if wanted < advice.lower {
            Position::Above
        } else {
            Position::Inside
        };
        let utilisation = (advice.observed * 1000.0) as Milli;
        Proposal { replicas, position, value: utilisation as f64, utilisation, convergence }
    }
}
