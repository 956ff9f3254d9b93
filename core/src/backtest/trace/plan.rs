//! The plan of CPU with a price per change on a series.

use super::rule::SeriesRule;
use crate::{
    recommender::plan::{CpuOutcome, CpuPlan, CpuPlanSettings, KeptBecause},
    types::Time,
};

pub(super) struct Plan {
    settings: CpuPlanSettings,
    usage: CpuPlan,
    /// The request in force counts from the first decision on.
    has_decided: bool,
}

fn time(at: f64) -> Time {
    Time::from_nanos((at * 1e9) as i64)
}

impl Plan {
    pub fn new(settings: CpuPlanSettings, start: f64) -> Self {
        Self { settings, usage: CpuPlan::new(time(start)), has_decided: false }
    }
}

impl SeriesRule for Plan {
    fn take(&mut self, at: f64, cores: f64, request: f64) {
        self.usage.add(&self.settings, time(at), cores, self.has_decided.then_some(request));
    }

    fn decide(&mut self, at: f64, request: f64) -> f64 {
        self.has_decided = true;
        let decision = self.usage.decide(&self.settings, time(at), request);
        match (decision.outcome, decision.plan) {
            // The published comparison is of the plan alone: it makes changes too that it undoes within the hour.
            (CpuOutcome::Kept(KeptBecause::UndoneWithinTheHour), Some(plan)) => plan.best,
            _ => decision.target,
        }
    }
}
