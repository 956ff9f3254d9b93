//! The replica proposal for the response of an external recommender.

use super::{
    converge::{ConvergeTowards, Convergence},
    propose::{Proposal, ProposalInput},
};
use crate::scaling::{Milli, Position, RecommendResponse};

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
