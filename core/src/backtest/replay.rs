//! Replays a workload under each policy.
//!
//! ```text
//! for each policy, minute by minute:
//!   usage of the minute before ──▶ rule ──▶ recommendation ──▶ updater's pass, or a calendar ──▶ virtual pods
//!                                                                                                    │
//!   usage of this minute, against their requests and limits ──▶ Tally ──▶ ContainerDay ◀─────────────┘
//! ```
//!
//! A value of CPU of minute `m` is of the time up to `m`, as a Prometheus answers it, and is known at `m + 60 s`.
//! A peak of memory of window `k` is of the five minutes that begin with `k`, and is known 60 s after they ended. A
//! kill that happened in fact is known 60 s after it; one that happens only under a policy is at the end of its
//! window. Nothing that is decided at a time depends on anything later.

mod amounts;
mod facts;
mod held;
mod life;
mod pods;
mod replicas;
mod scaling;
mod sizer;
mod tally;
mod updating;
mod usage;

pub(crate) use facts::{ContainerFacts, Facts};

#[cfg(test)]
mod tests;

use crate::{
    backtest::{
        account::WorkloadAccount,
        policy::Policy,
        recording::{Evaluation, WorkloadRecording},
        replica_model::{ReplicaRule, WorkloadScaling},
    },
    recommender,
    types::compat::Compat,
    updater,
};

/// Settings of a replay that are the same for all policies.
#[derive(Clone, Debug)]
pub struct ReplaySettings {
    /// The model of the policies that use ours.
    pub model: recommender::Settings,
    /// The updater of the policies that use ours, with its guards.
    pub updater: updater::Settings,
    /// Whether pods are resized in place where possible, and not evicted.
    pub in_place: bool,
    /// When passes of the updater run.
    pub passes: PassCadence,
    /// Where the number of replicas comes from.
    pub replicas: ReplicaRule,
}

/// When passes of the updater run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PassCadence {
    /// Only when a pass can change something. The result is the same as with one each minute, as a test proves.
    #[default]
    WhenDue,
    /// Each minute, as in a cluster.
    EveryMinute,
}

impl Default for ReplaySettings {
    fn default() -> Self {
        Self {
            model: recommender::Settings::for_compat(Compat::Plimsoll),
            updater: updater::Settings::for_compat(Compat::Plimsoll),
            in_place: false,
            passes: PassCadence::default(),
            replicas: ReplicaRule::default(),
        }
    }
}

/// Replays a workload whose replicas do not depend on requests under each of the policies, one after the other.
pub fn replay(
    recording: &WorkloadRecording,
    evaluation: &Evaluation,
    policies: &[Policy],
    settings: &ReplaySettings,
) -> WorkloadAccount {
    replay_scaled(recording, &WorkloadScaling::Independent, evaluation, policies, settings)
}

/// Replays a workload under each of the policies, one after the other.
pub fn replay_scaled(
    recording: &WorkloadRecording,
    scaling: &WorkloadScaling,
    evaluation: &Evaluation,
    policies: &[Policy],
    settings: &ReplaySettings,
) -> WorkloadAccount {
    let facts = facts::Facts::new(recording, evaluation);
    let modelled = match (scaling, settings.replicas) {
        (WorkloadScaling::Utilization(scaling), ReplicaRule::Model) => Some(scaling),
        _ => None,
    };
    let live =
        |policy| life::Life::new(recording, &facts, evaluation, policy, settings, modelled).live();
    let policies = policies.iter().map(live).collect();
    WorkloadAccount {
        cluster: recording.cluster.clone(),
        namespace: recording.key.namespace.as_ref().into(),
        kind: recording.kind.clone(),
        name: recording.key.name.as_ref().into(),
        containers: recording.containers.iter().map(|container| container.name.clone()).collect(),
        elastic_containers: recording
            .containers
            .iter()
            .filter(|found| found.is_memory_elastic)
            .count() as u32,
        unknown_requests: facts.unknown_requests(),
        missing_minutes: facts.missing_minutes,
        sampled_minutes: facts.sampled_minutes,
        replicas: scaling.source(settings.replicas),
        policies,
    }
}
