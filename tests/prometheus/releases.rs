//! Owns on which releases of Prometheus a test runs, by tier. What differs between the two, the edges of ranges, is tested
//! on both in both tiers.

use crate::support::prometheus_server::PrometheusRelease;
use crate::support::tier;

/// For what the releases do alike: both in deep, the newer one in the gate.
pub fn releases() -> impl Iterator<Item = PrometheusRelease> {
    tier::cases(&[PrometheusRelease::V3][..], &[PrometheusRelease::V3, PrometheusRelease::V2])
        .iter()
        .copied()
}

/// Each of these on both releases in deep; on one in the gate, where every other one is on the older release.
pub fn by_turns<T: Copy>(these: impl IntoIterator<Item = T>) -> Vec<(T, PrometheusRelease)> {
    let turns = [
        [PrometheusRelease::V3, PrometheusRelease::V2],
        [PrometheusRelease::V2, PrometheusRelease::V3],
    ];
    let each = these.into_iter().zip(turns.into_iter().cycle());
    let count = tier::cases(1, 2);
    each.flat_map(|(one, turn)| turn.into_iter().take(count).map(move |release| (one, release)))
        .collect()
}
