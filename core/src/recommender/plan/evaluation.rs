//! Computes a CPU plan: the cost of every request level over the next hours, with a price for each change of level.

use crate::types::Time;

use super::{
    buckets::plan_buckets,
    cpu_plan::{CpuPlan, HOURS, hour_of_day},
    decision::{HourCost, PlanEvaluation},
    settings::CpuPlanSettings,
};

/// Cores requested for each core used are counted within these limits.
const FILL_LIMITS: [f64; 2] = [1.2, 3.0];

/// The value while nothing is known.
const DEFAULT_FILL: f64 = 2.0;

/// The smallest mean usage that costs are related to, in cores.
const MIN_MEAN: f64 = 1e-9;

const SECONDS_PER_HOUR: i64 = 3600;

/// Usage from the lowest to the highest bucket, one row for each hour of the day.
struct Usage {
    low: u8,
    middles: Vec<f64>,
    hours: Vec<Vec<f64>>,
    totals: [f64; HOURS],
    day: Vec<f64>,
    day_total: f64,
    recent: Vec<f64>,
    recent_total: f64,
    mean: f64,
}

impl Usage {
    fn new(state: &CpuPlan, (low, high): (u8, u8)) -> Self {
        let width = usize::from(high - low) + 1;
        let row = |entries: &mut dyn Iterator<Item = (u8, f64)>| {
            let mut row = vec![0.0; width];
            for (bucket, weight) in entries.filter(|(bucket, _)| (low..=high).contains(bucket)) {
                row[usize::from(bucket - low)] = weight;
            }
            row
        };
        let hours: Vec<Vec<f64>> =
            (0..HOURS).map(|hour| row(&mut state.hours.slot(hour))).collect();
        let recent = row(&mut state.recent.slot(0));
        let middles: Vec<f64> = (low..=high).map(|bucket| plan_buckets().middle(bucket)).collect();
        let mut day = vec![0.0; width];
        for hour in &hours {
            for (sum, weight) in day.iter_mut().zip(hour) {
                *sum += weight;
            }
        }
        let day_total: f64 = day.iter().sum();
        let weighted: f64 = day.iter().zip(&middles).map(|(weight, middle)| weight * middle).sum();
        Self {
            low,
            totals: std::array::from_fn(|hour| hours[hour].iter().sum()),
            recent_total: recent.iter().sum(),
            // Without any weight the mean is unknown and the smallest one makes every level dear.
            mean: if day_total > 0.0 { weighted / day_total } else { 0.0 }.max(MIN_MEAN),
            middles,
            hours,
            day,
            day_total,
            recent,
        }
    }

    /// The usage of one hour of the day, or of whole days if that hour was never seen or hours are not distinguished.
    fn of_hour(&self, hour: usize, hourly: bool) -> (&[f64], f64) {
        if hourly && self.totals[hour] > 0.0 {
            (&self.hours[hour], self.totals[hour])
        } else {
            (&self.day, self.day_total)
        }
    }
}

/// The expected usage of one hour, and the costs of requests in it.
struct HourForecast<'a> {
    shares: Vec<f64>,
    middles: &'a [f64],
    settings: &'a CpuPlanSettings,
    /// The price of an idle core.
    idle: f64,
    /// The usage of a day that costs are related to, in core-hours.
    scale: f64,
}

impl<'a> HourForecast<'a> {
    fn new(
        usage: &'a Usage,
        settings: &'a CpuPlanSettings,
        idle: f64,
        hour: usize,
        ahead: u32,
    ) -> Self {
        let recent_weight = if usage.recent_total > 0.0 {
            settings.recent_weight * (-f64::from(ahead) / settings.recent_fade_hours).exp()
        } else {
            0.0
        };
        let (weights, total) = usage.of_hour(hour, settings.hourly);
        let share = |weight: f64, total: f64| if total > 0.0 { weight / total } else { 0.0 };
        let shares: Vec<f64> = weights
            .iter()
            .zip(&usage.recent)
            .map(|(weight, recent)| {
                recent_weight * share(*recent, usage.recent_total)
                    + (1.0 - recent_weight) * share(*weight, total)
            })
            .collect();
        let mean: f64 =
            shares.iter().zip(&usage.middles).map(|(share, middle)| share * middle).sum();
        let scale = usage.mean.max(0.5 * mean) * 24.0;
        Self { shares, middles: &usage.middles, settings, idle, scale }
    }

    fn cost(&self, request: f64, share_above: f64, usage_above: f64) -> f64 {
        (self.idle * request + self.settings.price_short * (usage_above - request * share_above))
            / self.scale
            + self.settings.price_above * share_above / 24.0
    }

    /// Writes the cost of each bucket's end, and returns that of the present request.
    fn costs(&self, low: u8, request: f64, levels: &mut [f64]) -> f64 {
        let (mut share_above, mut usage_above, mut present) = (0.0, 0.0, None);
        for (index, level) in levels.iter_mut().enumerate().rev() {
            let end = plan_buckets().end(low + index as u8);
            *level = self.cost(end, share_above, usage_above);
            if present.is_none() && self.middles[index] <= request {
                present = Some(self.cost(request, share_above, usage_above));
            }
            share_above += self.shares[index];
            usage_above += self.shares[index] * self.middles[index];
        }
        present.unwrap_or_else(|| self.cost(request, share_above, usage_above))
    }

    /// The parts of the cost of a request, as shares of an hour's usage.
    fn parts(&self, request: f64) -> HourCost {
        let above = self.shares.iter().zip(self.middles).filter(|(_, middle)| **middle > request);
        let (share, short) = above.fold((0.0, 0.0), |(share, short), (weight, middle)| {
            (share + weight, short + weight * (middle - request))
        });
        HourCost {
            request,
            idle: self.idle * request / self.scale * 24.0,
            short: self.settings.price_short * short / self.scale * 24.0,
            above: self.settings.price_above * share,
        }
    }
}

/// The share of the recent usage above a request.
pub(super) fn recent_share_above(state: &CpuPlan, (low, high): (u8, u8), request: f64) -> f64 {
    let mut sums = [0.0; 2];
    for (bucket, weight) in state.recent.slot(0) {
        if (low..=high).contains(&bucket) {
            sums[0] += weight;
            if plan_buckets().middle(bucket) > request {
                sums[1] += weight;
            }
        }
    }
    if sums[0] > 0.0 { sums[1] / sums[0] } else { 0.0 }
}

pub(super) fn evaluate(
    state: &CpuPlan,
    settings: &CpuPlanSettings,
    range: (u8, u8),
    now: Time,
    request: f64,
) -> PlanEvaluation {
    let usage = Usage::new(state, range);
    let fill = if state.used > 0.0 {
        (state.requested / state.used.max(MIN_MEAN)).clamp(FILL_LIMITS[0], FILL_LIMITS[1])
    } else {
        DEFAULT_FILL
    };
    let idle = 1.0 / (fill * fill);
    let horizon = settings.horizon_hours.clamp(1, CpuPlanSettings::MAX_HORIZON_HOURS);
    let forecast = |ahead: u32| {
        let then = Time::from_nanos(
            now.as_nanos().saturating_add(i64::from(ahead) * SECONDS_PER_HOUR * 1_000_000_000),
        );
        HourForecast::new(&usage, settings, idle, hour_of_day(then), ahead)
    };
    let width = usage.middles.len();
    let (mut costs, mut values) = (vec![0.0; width], vec![0.0; width]);
    let (mut present_value, mut from_next_hour) = (0.0, None);
    for ahead in (0..horizon).rev() {
        let after_change =
            values.iter().copied().fold(f64::INFINITY, f64::min) + settings.price_change;
        let present_cost = forecast(ahead).costs(usage.low, request, &mut costs);
        for (value, cost) in values.iter_mut().zip(&costs) {
            *value = cost + value.min(after_change);
        }
        present_value = present_cost + f64::min(present_value, after_change);
        if ahead == 1 {
            from_next_hour = Some(values.clone());
        }
    }
    let best = lowest(&values);
    let end = |index: usize| plan_buckets().end(usage.low + index as u8);
    let level = |index: usize| end(index).max(settings.floor_cores);
    let next_hour = from_next_hour.map_or(best, |values| {
        let other = lowest(&values);
        if values[other] + settings.price_change < values[best] { other } else { best }
    });
    let is_within = |value: &f64| *value <= values[best] + settings.price_change;
    let present_hour = forecast(0);
    let hour = hour_of_day(now);
    let (weights, total) = usage.of_hour(hour, settings.hourly);
    let below: f64 = weights[..=best].iter().sum();
    PlanEvaluation {
        best: level(best),
        gain: present_value - values[best],
        price: settings.price_change,
        horizon_hours: horizon,
        lower: level(values.iter().position(is_within).unwrap_or(best)),
        upper: level(values.iter().rposition(is_within).unwrap_or(best)),
        next_hour: level(next_hour),
        best_cost: present_hour.parts(level(best)),
        present_cost: present_hour.parts(request),
        fill,
        hour: hour as u8,
        share_below_best: if total > 0.0 { below / total } else { 0.0 },
        highest: plan_buckets().end(range.1),
        days: settings.peak_days() as u32,
        forgotten: state
            .hours
            .bucket_range()
            .filter(|(_, high)| *high > range.1)
            .map(|(_, high)| plan_buckets().end(high)),
    }
}

/// The index of the least value, the first of equal ones.
fn lowest(values: &[f64]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value < values[best] {
            best = index;
        }
    }
    best
}
