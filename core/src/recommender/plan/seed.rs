//! Starts a plan from a histogram without times of day.

use crate::types::Time;

use super::{
    buckets::plan_buckets,
    cpu_plan::{CpuPlan, DAY_NANOS, HOURS},
    settings::CpuPlanSettings,
};

/// See [`CpuPlan::from_histogram`].
pub(super) fn from_histogram(
    settings: &CpuPlanSettings,
    [first, last]: [Time; 2],
    samples: u64,
    buckets: impl IntoIterator<Item = (f64, f64)>,
) -> CpuPlan {
    let mut plan = CpuPlan::new(first);
    let is_valid = |(cores, weight): &(f64, f64)| {
        cores.is_finite() && *cores >= 0.0 && weight.is_finite() && *weight > 0.0
    };
    let buckets: Vec<(f64, f64)> = buckets.into_iter().filter(is_valid).collect();
    let total: f64 = buckets.iter().map(|(_, weight)| weight).sum();
    if total <= 0.0 {
        return plan;
    }
    // The decayed weights of one sample a minute never add up to more than this.
    let limit = settings.half_life.as_secs_f64() / 60.0 / std::f64::consts::LN_2;
    let scale = (samples.max(1) as f64).min(limit) / total / HOURS as f64;
    plan.adopt_half_life(settings, first);
    plan.hours_reference = last;
    plan.recent_reference = last;
    plan.ratio_at = last;
    plan.last_sample = Some(last);
    plan.samples = samples;
    plan.day = u32::try_from(last.nanos_since(first).div_euclid(DAY_NANOS)).unwrap_or(0);
    for (cores, weight) in buckets {
        let bucket = plan_buckets().find(cores);
        plan.lowest = Some(plan.lowest.map_or(bucket, |lowest| lowest.min(bucket)));
        plan.peaks[0] = plan.peaks[0].max(Some(bucket));
        for hour in 0..HOURS {
            plan.hours.add(hour, bucket, weight * scale);
        }
    }
    plan
}
