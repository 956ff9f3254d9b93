//! What recorded pods request at a time, and their limits.

use super::held::Held;
use crate::{
    backtest::recording::{PodRecording, RecordedStep, WorkloadRecording, amounts_at},
    types::Time,
};

/// What new pods have at a time, and when that changes.
pub(super) fn amounts_of_new_pods(
    recording: &WorkloadRecording,
    now: Time,
) -> (Vec<Held>, Option<Time>) {
    let steps = recording.containers.iter().map(|of| [&*of.requests, &*of.limits]);
    amounts_and_next_step(steps, now)
}

/// What a recorded pod has at a time, and when that changes.
pub(super) fn amounts_of(
    recording: &WorkloadRecording,
    pod: &PodRecording,
    now: Time,
) -> (Vec<Held>, Option<Time>) {
    let containers = recording.containers.iter().enumerate().map(|(index, container)| {
        pod.containers.get(index).map_or_else(
            || [&*container.requests, &*container.limits],
            |of_pod| of_pod.steps(container),
        )
    });
    amounts_and_next_step(containers, now)
}

/// The amounts of each container at a time, and when the next step is.
fn amounts_and_next_step<'s>(
    containers: impl Iterator<Item = [&'s [RecordedStep]; 2]>,
    now: Time,
) -> (Vec<Held>, Option<Time>) {
    let mut next: Option<Time> = None;
    let amounts = containers.map(|[requests, limits]| {
        let later = requests.iter().chain(limits).map(|step| step.at).filter(|at| *at > now).min();
        next = next.into_iter().chain(later).min();
        Held::new(amounts_at(requests, now), amounts_at(limits, now))
    });
    (amounts.collect(), next)
}
