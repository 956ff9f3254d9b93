//! What the controller has only where it replaces the HPA controller of the cluster: metrics that no other controller reads, the
//! sentinel, and upstream's series.

use std::{sync::Arc, time::Duration};

use plimsoll_core::{
    hpa::{Decision, labels::Action},
    types::ObjectKey,
};

use super::{config::HorizontalConfig, own_metrics::OwnMetrics, sentinel::SentinelKeeper};
use crate::{
    controllers::runtime::context::ControllerContext, telemetry::ReplacedControllerMetrics,
};

/// The parts of `--mode=replace`.
pub(super) struct Replacement {
    pub own_metrics: OwnMetrics,
    pub sentinel: Arc<SentinelKeeper>,
    pub metrics: Arc<ReplacedControllerMetrics>,
}

impl Replacement {
    /// Nothing is read or written yet.
    pub fn new(config: &HorizontalConfig, context: &mut ControllerContext) -> Self {
        let metrics = Arc::new(ReplacedControllerMetrics::new(&mut context.registry));
        let (client, stats) = (context.client.clone(), Arc::clone(&context.write_stats));
        let sentinel = SentinelKeeper::new(config, client.clone(), stats, Arc::clone(&metrics));
        Self { own_metrics: OwnMetrics::new(config, client), sentinel: Arc::new(sentinel), metrics }
    }

    /// Counts a decision that took `took` and the evaluations in it, whose values were fetched in these times.
    pub fn count(
        &self,
        key: &ObjectKey,
        decision: &Decision,
        took: Duration,
        fetched: &[Duration],
    ) {
        // What was decided: the scale is updated after this.
        let change = decision.current.zip(decision.write);
        let action = change.map_or(Action::None, |(from, to)| Action::between(from, to));
        self.metrics.count_reconcile(key, (action, decision.failure), decision.desired, took);
        // Upstream knows those of the spec, which come first.
        let in_spec = decision.evaluations.iter().filter(|evaluation| evaluation.is_in_spec);
        for (index, evaluation) in in_spec.enumerate() {
            let took = fetched.get(index).copied().unwrap_or_default();
            self.metrics.count_evaluation(&evaluation.computed, took);
        }
    }
}
