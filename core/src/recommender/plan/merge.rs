//! Merges the plans of two histories of one container: the live and the stored one.

use std::time::Duration;

use crate::types::Time;

use super::{
    bucket_weights::BucketWeights,
    cpu_plan::{CpuPlan, DAY_NANOS, half_lives},
    settings::CpuPlanSettings,
};

/// Adds the samples of a plan that began later.
pub(super) fn merge_later(plan: &mut CpuPlan, mut other: CpuPlan, settings: &CpuPlanSettings) {
    let Some(last) = other.last_sample else { return };
    plan.adopt_half_life(settings, last);
    other.adopt_half_life(settings, last);
    let latest = plan.last_sample.map_or(last, |ours| ours.max(last));
    merge_weights(
        (&mut plan.hours, &mut plan.hours_reference),
        (&other.hours, other.hours_reference),
        latest,
        settings.half_life,
    );
    merge_weights(
        (&mut plan.recent, &mut plan.recent_reference),
        (&other.recent, other.recent_reference),
        latest,
        settings.recent_half_life,
    );
    plan.lowest = match (plan.lowest, other.lowest) {
        (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
        (ours, theirs) => ours.or(theirs),
    };
    for (age, bucket) in other.peaks.iter().enumerate().rev() {
        if let Some(bucket) = bucket {
            let end = end_of_day(other.start, i64::from(other.day) - age as i64);
            plan.add_peak(settings, end.min(last), *bucket);
        }
    }
    let decay = |at: Time, to: Time| (-half_lives(to, at, settings.half_life)).min(0.0).exp2();
    let at = plan.ratio_at.max(other.ratio_at);
    let [ours, theirs] = [decay(plan.ratio_at, at), decay(other.ratio_at, at)];
    plan.requested = plan.requested * ours + other.requested * theirs;
    plan.used = plan.used * ours + other.used * theirs;
    plan.ratio_at = at;
    plan.last_sample = Some(latest);
    plan.samples = plan.samples.saturating_add(other.samples);
    plan.target = plan.target.or(other.target);
    plan.next_plan = plan.next_plan.or(other.next_plan);
}

/// The last nanosecond of a day that is counted from `start`: a peak of a day of another plan is kept for as long as
/// one at its end.
pub(super) fn end_of_day(start: Time, day: i64) -> Time {
    let nanos = day.saturating_add(1).saturating_mul(DAY_NANOS).saturating_sub(1);
    Time::from_nanos(start.as_nanos().saturating_add(nanos))
}

/// Both weights are related to the last sample first, where neither can grow out of range.
fn merge_weights<const SLOTS: usize>(
    (ours, our_reference): (&mut BucketWeights<SLOTS>, &mut Time),
    (theirs, their_reference): (&BucketWeights<SLOTS>, Time),
    last: Time,
    half_life: Duration,
) {
    ours.scale((-half_lives(last, *our_reference, half_life)).exp2());
    *our_reference = last;
    let factor = (-half_lives(last, their_reference, half_life)).exp2();
    for slot in 0..SLOTS {
        for (bucket, weight) in theirs.slot(slot) {
            ours.add(slot, bucket, weight * factor);
        }
    }
}
