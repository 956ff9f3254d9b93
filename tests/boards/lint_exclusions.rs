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
fn every_lint_exclusion_is_used_and_correct() {
    let known = super::families::documented();
    for name in GAUGES {
        assert_eq!(known[name].kind, "gauge", "{name}");
        let uses = |(_, board): &(String, serde_json::Value)| board.to_string().contains(name);
        assert!(super::boards().iter().any(uses), "no board uses {name}: remove it");
    }
}
