//! Which releases of Prometheus a test uses, by tier. Their known difference, the edges of ranges, is tested on both
//! releases in both tiers.

use crate::support::prometheus_server::PrometheusRelease;
use crate::support::tier;

/// Releases for tests of common behaviour: both in the deep tier, the newer one in the gate.
pub fn releases() -> impl Iterator<Item = PrometheusRelease> {
    tier::cases(&[PrometheusRelease::V3][..], &[PrometheusRelease::V3, PrometheusRelease::V2])
        .iter()
        .copied()
}

/// Each case on both releases in the deep tier; in the gate on one, where every second case uses the older release.
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
