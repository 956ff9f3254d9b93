//! Exclusions from the rules, each with its reason.

/// Upstream gauges named like counters: `target-counter-agg` checks the name alone.
const GAUGES: [&str; 3] = [
    "vpa_updater_controlled_pods_total",
    "vpa_updater_evictable_pods_total",
    "vpa_updater_in_place_updatable_pods_total",
];

/// Whether a metric is excluded from `target-counter-agg`.
pub fn is_gauge(name: &str) -> bool {
    GAUGES.contains(&name)
}

#[test]
fn what_is_left_out_is_used_and_is_what_the_reason_says() {
    let known = super::families::documented();
    for name in GAUGES {
        assert_eq!(known[name].kind, "gauge", "{name}");
        let asks = |(_, board): &(String, serde_json::Value)| board.to_string().contains(name);
        assert!(super::boards().iter().any(asks), "no board uses {name}: remove it");
    }
}
