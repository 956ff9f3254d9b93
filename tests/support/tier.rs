//! The tier of the suite: the gate, which every change must pass, or deep, with more cases and longer scenarios.

use proptest::test_runner::{Config, FileFailurePersistence};

/// Set to `deep` by `cargo xtask deep`; any other value is the gate.
pub const TIER: &str = "PLIMSOLL_TIER";

/// Whether this is a run of `cargo xtask deep`.
pub fn is_deep() -> bool {
    std::env::var(TIER).is_ok_and(|tier| tier == "deep")
}

/// The number of cases or the size of a scenario in this tier.
pub fn cases<T>(gate: T, deep: T) -> T {
    if is_deep() { deep } else { gate }
}

/// The configuration of a property test with this many cases. A failing case is written to
/// `NAME.proptest-regressions` next to the source of its test, and both tiers replay it from then on.
pub fn properties(gate: u32, deep: u32) -> Config {
    let cases = cases(gate, deep);
    Config {
        cases,
        // Strategies reject a share of what they generate, so the limits are proportional.
        max_local_rejects: cases.saturating_mul(256).max(65_536),
        max_global_rejects: cases.saturating_mul(4).max(1_024),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource(
            "proptest-regressions",
        ))),
        ..Config::default()
    }
}
