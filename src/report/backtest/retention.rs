//! How far back a server has samples, and the time of a backtest that fits.

use std::time::Duration;

use plimsoll_core::{
    backtest::recording::{Evaluation, MEMORY_STEP_SECONDS},
    types::Time,
};
use plimsoll_storage::prometheus::{
    client::PrometheusClient,
    promql::{Aggregation, Query},
    query_error::QueryError,
    schema::Schema,
};

/// The minimum length of an evaluation: with less, one bad day decides.
pub const MIN_EVALUATION: Duration = Duration::from_hours(3 * 24);
/// The precision to which the oldest sample is searched.
const PRECISION: Duration = Duration::from_hours(1);

/// The time of a backtest, and a remark if it is shorter than what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTime {
    pub evaluation: Evaluation,
    /// Why it is shorter.
    pub remark: Option<String>,
}

/// A server that keeps too little.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{server} has samples of the last {available} only, and an evaluation needs at least 3 days after a warm-up of half \
     of that: let it keep more (--storage.tsdb.retention.time), or wait"
)]
pub struct TooShort {
    pub server: String,
    /// How far back its samples reach.
    pub available: String,
}

/// Plans a backtest with the samples that exist: warm-up and evaluation, if both fit; else both are cut in the ratio 1:2.
/// All times are whole steps, so that every process with the same flags has the same ones.
pub fn plan(
    server: &str,
    until: Time,
    (warm_up, days): (Duration, Duration),
    available: Duration,
) -> Result<PlannedTime, TooShort> {
    let until = floor_to_step(until);
    let wanted = warm_up.saturating_add(days);
    // The oldest sample is known to an hour, and a warm-up with an hour less is still one.
    if available.saturating_add(PRECISION) >= wanted {
        let from = until.earlier(days);
        let evaluation = Evaluation { warm_up_from: from.earlier(warm_up), from, until };
        return Ok(PlannedTime { evaluation, remark: None });
    }
    // A day that is cut would be a container-day with fewer hours.
    let warm_up = whole_steps(available / 3);
    let days = whole_steps(available.saturating_sub(available / 3));
    if days < MIN_EVALUATION {
        return Err(TooShort { server: server.to_owned(), available: in_days(available) });
    }
    let from = until.earlier(days);
    let evaluation = Evaluation { warm_up_from: from.earlier(warm_up), from, until };
    let remark = format!(
        "{server} has samples of the last {} only: {} are evaluated after a warm-up of {}",
        in_days(available),
        in_days(days),
        in_days(warm_up)
    );
    Ok(PlannedTime { evaluation, remark: Some(remark) })
}

/// The last whole step at or before a time.
pub fn floor_to_step(time: Time) -> Time {
    Time::from_secs(time.as_secs().div_euclid(MEMORY_STEP_SECONDS) * MEMORY_STEP_SECONDS)
}

fn whole_steps(length: Duration) -> Duration {
    let step = MEMORY_STEP_SECONDS.unsigned_abs();
    Duration::from_secs(length.as_secs() / step * step)
}

fn in_days(length: Duration) -> String {
    format!("{:.1} d", length.as_secs_f64() / 86_400.0)
}

/// How far back there are samples of memory before a time, at most this far. Those of all containers count: a namespace
/// that is younger than the server's retention does not shorten the backtest.
pub async fn available(
    client: &PrometheusClient,
    schema: &Schema,
    (until, wanted): (Time, Duration),
) -> Result<Duration, QueryError> {
    let has_samples = async |ago: Duration| -> Result<bool, QueryError> {
        let series = schema.usage_selector_in(&schema.usage.memory, &[]);
        let count = Query::from(series).aggregate(Aggregation::Count, &[]);
        Ok(client.count(&count, until.earlier(ago)).await? > 0)
    };
    if has_samples(wanted).await? {
        return Ok(wanted);
    }
    // Between these two is the oldest sample.
    let (mut found, mut missing) = (Duration::ZERO, wanted);
    while missing.saturating_sub(found) > PRECISION {
        let middle = found + missing.saturating_sub(found) / 2;
        if has_samples(middle).await? {
            found = middle;
        } else {
            missing = middle;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn less_history_is_cut_in_the_ratio_of_one_to_two_and_too_little_is_refused() {
        let until = Time::from_secs(1_790_000_123);
        for (available, warm_up, days) in [
            (22 * DAY, 8 * DAY, 14 * DAY),
            ((22 * DAY).saturating_sub(PRECISION), 8 * DAY, 14 * DAY),
            (15 * DAY, 5 * DAY, 10 * DAY),
            (DAY * 9 / 2, DAY * 3 / 2, 3 * DAY),
        ] {
            let planned =
                plan("prometheus", until, (8 * DAY, 14 * DAY), available).expect("enough");
            let Evaluation { warm_up_from, from, until: end } = planned.evaluation;
            assert_eq!(end, Time::from_secs(1_790_000_100), "a whole step");
            assert_eq!((from.earlier(warm_up), from.later(days)), (warm_up_from, end));
            assert_eq!(planned.remark.is_some(), available < 21 * DAY);
        }
        let error = plan("prometheus", until, (8 * DAY, 14 * DAY), 4 * DAY).expect_err("too short");
        assert!(error.to_string().starts_with("prometheus has samples of the last 4.0 d only"));
        let planned = plan("prometheus", until, (8 * DAY, 14 * DAY), 15 * DAY).expect("enough");
        assert_eq!(
            planned.remark.as_deref(),
            Some(
                "prometheus has samples of the last 15.0 d only: 10.0 d are evaluated after a warm-up of 5.0 d"
            )
        );
    }
}
