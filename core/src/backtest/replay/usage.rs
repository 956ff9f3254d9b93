//! The grid of a recording: minutes of CPU, and windows of five minutes of memory.

use std::ops::Range;

use crate::{
    backtest::recording::{
        CPU_STEP_SECONDS, Evaluation, MEMORY_STEP_SECONDS, PodContainer, PodRecording,
        WorkloadRecording,
    },
    types::Time,
};

pub(super) const MINUTES_PER_WINDOW: u32 = (MEMORY_STEP_SECONDS / CPU_STEP_SECONDS) as u32;

/// The time of a minute of the grid.
pub(super) fn time_of(recording: &WorkloadRecording, minute: u32) -> Time {
    Time::from_secs(recording.from.as_secs() + i64::from(minute) * CPU_STEP_SECONDS)
}

/// When a window of memory is over.
pub(super) fn end_of(recording: &WorkloadRecording, window: u32) -> Time {
    Time::from_secs(recording.from.as_secs() + (i64::from(window) + 1) * MEMORY_STEP_SECONDS)
}

/// The first minute of the grid that is not before a time.
pub(super) fn minute_at(recording: &WorkloadRecording, at: Time) -> u32 {
    let nanos = at.nanos_since(recording.from).max(0) as u64;
    let minutes = nanos.div_ceil(CPU_STEP_SECONDS as u64 * 1_000_000_000);
    u32::try_from(minutes).unwrap_or(u32::MAX)
}

/// The minutes of the evaluation in which a pod exists.
pub(super) fn minutes_of(
    recording: &WorkloadRecording,
    pod: &PodRecording,
    evaluation: &Evaluation,
) -> Range<u32> {
    let from = minute_at(recording, pod.born.max(evaluation.from));
    let gone = pod.gone.later(std::time::Duration::from_nanos(1)).min(evaluation.until);
    from..minute_at(recording, gone).max(from)
}

#[inline]
pub(super) fn cpu_at(usage: &PodContainer, minute: u32) -> Option<f32> {
    value_at(&usage.cpu, usage.first_minute, minute)
}

/// The peak of memory of a window in bytes.
#[inline]
pub(super) fn memory_at(usage: &PodContainer, window: u32) -> Option<f32> {
    value_at(&usage.memory, usage.first_window, window)
}

#[inline]
fn value_at(values: &[f32], first: u32, index: u32) -> Option<f32> {
    let value = *values.get(index.checked_sub(first)? as usize)?;
    (!value.is_nan()).then_some(value)
}
