//! Owns which tier of the suite runs: the gate, which every change passes, or deep, with more cases and longer scenarios.

use proptest::test_runner::{Config, FileFailurePersistence};

/// Set to `deep` by `cargo xtask deep`; everything else is the gate.
pub const TIER: &str = "PLIMSOLL_TIER";

/// Whether this is a run of `cargo xtask deep`.
pub fn is_deep() -> bool {
    std::env::var(TIER).is_ok_and(|tier| tier == "deep")
}

/// How many cases a test runs, or how large its scenario is.
pub fn cases<T>(gate: T, deep: T) -> T {
    if is_deep() { deep } else { gate }
}

/// The configuration of a property test with that many cases. A case that fails is written beside the source of its test,
/// to `NAME.proptest-regressions`, and both tiers play it from then on.
pub fn properties(gate: u32, deep: u32) -> Config {
    let cases = cases(gate, deep);
    Config {
        cases,
        // Strategies reject a share of what they draw, so the limits are in proportion.
        max_local_rejects: cases.saturating_mul(256).max(65_536),
        max_global_rejects: cases.saturating_mul(4).max(1_024),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource(
            "proptest-regressions",
        ))),
        ..Config::default()
    }
}
