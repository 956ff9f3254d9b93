//! How many replicas follow from what a recommender answered.

use super::{
    band::{Milli, Position},
    converge::{Convergence, Direction},
    propose::{Proposal, Question},
};

/// What a recommender answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advice {
    /// Replicas that it recommends.
    pub replicas: i32,
    /// The fewest that would do; nothing is 0.
    pub lower: i32,
    /// The most that would make sense; nothing is 0.
    pub upper: i32,
    /// What it observed of its first target.
    pub observed: f64,
    /// Why.
    pub reason: String,
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
