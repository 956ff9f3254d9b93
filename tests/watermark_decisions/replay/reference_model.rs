//! The formulas as plain arithmetic on seconds, integers and floats, independent of the code under test.

use serde_json::json;

use crate::support::random::Random;

/// The fields of an object, as numbers.
#[derive(Clone, Debug)]
pub struct ReferenceModel {
    min: i64,
    max: i64,
    pub average: bool,
    tolerance: i64,
    up: i64,
    down: i64,
    up_window: i64,
    down_window: i64,
    up_delay: i64,
    down_delay: i64,
    modulo: i64,
    converge: &'static str,
    pub low: i64,
    pub high: i64,
    exact: bool,
    first_changes: bool,
}

/// State kept between steps.
#[derive(Clone, Debug)]
pub struct State {
    pub replicas: i64,
    pub last: Option<i64>,
    pub above: (bool, i64),
    pub below: (bool, i64),
}

fn multiple(value: i64, of: i64) -> i64 {
    (value + of - 1).div_euclid(of) * of
}

impl ReferenceModel {
    /// Generates a model.
    pub fn draw(noise: &mut Random, exact: bool) -> Self {
        let low = noise.between(200, 3_000) as i64;
        Self {
            min: noise.between(1, 5) as i64,
            max: noise.between(6, 80) as i64,
            average: noise.chance(60),
            tolerance: noise.between(1, 300) as i64,
            up: *noise.pick(&[0, 1, 10, 30, 50, 100, 250]),
            down: *noise.pick(&[0, 1, 10, 20, 30, 99]),
            up_window: *noise.pick(&[1, 15, 60, 120]),
            down_window: *noise.pick(&[1, 30, 300, 600]),
            up_delay: *noise.pick(&[0, 0, 30, 60, 90]),
            down_delay: *noise.pick(&[0, 0, 60, 300]),
            modulo: *noise.pick(&[1, 1, 1, 2, 3, 5]),
            converge: *noise.pick(&["", "", "highwatermark", "lowwatermark"]),
            low,
            high: low + noise.between(0, 3_000) as i64,
            exact,
            first_changes: !exact,
        }
    }

    /// Returns the fields as in an object.
    pub fn fields(&self) -> serde_json::Value {
        json!({
            "minReplicas": self.min, "maxReplicas": self.max,
            "algorithm": if self.average { "average" } else { "absolute" },
            "tolerance": format!("{}m", self.tolerance),
            "scaleUpLimitFactor": self.up, "scaleDownLimitFactor": self.down,
            "upscaleForbiddenWindowSeconds": self.up_window,
            "downscaleForbiddenWindowSeconds": self.down_window,
            "upscaleDelayAboveWatermarkSeconds": self.up_delay,
            "downscaleDelayBelowWatermarkSeconds": self.down_delay,
            "replicaScalingAbsoluteModulo": self.modulo,
            "convergeTowardsWatermark": self.converge, "tolerateZero": true,
        })
    }

    /// Returns the proposal of the metric, and whether it is above or below its band.
    fn propose(&self, replicas: i64, sum: i64) -> (i64, bool, bool) {
        let upper = self.high + self.high * self.tolerance / 1_000;
        let lower = self.low - self.low * self.tolerance / 1_000;
        let ready = replicas as f64;
        let usage = if self.average { sum as f64 / ready } else { sum as f64 };
        let total = if self.average { sum } else { sum * replicas };
        let (high, low) = (self.high as f64, self.low as f64);
        if usage > upper as f64 {
            let needed = if self.exact {
                multiple(total, self.high) / self.high
            } else {
                (ready * usage / high).ceil() as i64
            };
            return (multiple(needed, self.modulo).max(replicas), true, false);
        }
        if usage < lower as f64 {
            let needed =
                if self.exact { total / self.low } else { (ready * usage / low).floor() as i64 };
            return (multiple(needed.max(1), self.modulo).min(replicas), false, true);
        }
        let bounded = |value: i64| value.min(self.max).max(self.min);
        let fewest = if self.exact {
            multiple(total, self.high) / self.high
        } else {
            (ready / high * usage).ceil() as i64
        };
        let most = if self.exact { total / self.low } else { (ready / low * usage).floor() as i64 };
        let next = match self.converge {
            "highwatermark" => {
                let next = (replicas - self.modulo).max(1);
                if next < bounded(fewest) { replicas } else { next }
            }
            "lowwatermark" => {
                let next = replicas + self.modulo;
                if next > bounded(most) { replicas } else { next }
            }
            _ => replicas,
        };
        (next, false, false)
    }

    fn limit(&self, replicas: i64, proposed: i64) -> i64 {
        let step = |percent: i64| (percent * replicas / 100).max(1);
        let up_to = if self.up == 0 { replicas } else { replicas + step(self.up) };
        let down_to = if self.down == 0 { replicas } else { replicas - step(self.down) };
        let floor = if proposed < down_to { down_to.max(self.min) } else { self.min };
        let ceiling = if proposed > up_to { up_to.min(self.max) } else { self.max };
        if proposed < floor { floor } else { proposed.min(ceiling) }
    }

    /// Returns the replicas after one step at this second.
    pub fn step(&self, state: &mut State, sum: i64, now: i64) -> i64 {
        let (proposed, is_above, is_below) = self.propose(state.replicas, sum);
        for (since, holds) in [(&mut state.above, is_above), (&mut state.below, is_below)] {
            if since.0 != holds {
                *since = (holds, now);
            }
        }
        let limited = self.limit(state.replicas, proposed);
        let inside = !is_above && !is_below;
        let is_outside_long = |since: (bool, i64), delay: i64| {
            delay == 0 || inside || (since.0 && now - since.1 >= delay)
        };
        let is_over = |window: i64| state.last.is_none_or(|last| now - last >= window);
        let may = if state.last.is_none() && self.first_changes {
            true
        } else if limited > state.replicas {
            is_outside_long(state.above, self.up_delay) && is_over(self.up_window)
        } else if limited < state.replicas {
            is_outside_long(state.below, self.down_delay) && is_over(self.down_window)
        } else {
            false
        };
        let forced = state.replicas.clamp(self.min, self.max);
        if forced != state.replicas {
            state.replicas = forced;
            state.last = Some(now);
        } else if may {
            state.replicas = limited;
            state.last = Some(now);
        }
        state.replicas
    }
}
