//! Owns which tier of the suite runs: the gate, which every change passes, or deep, with more cases and longer scenarios.

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

/// The configuration of a property test with that many cases.
pub fn properties(gate: u32, deep: u32) -> proptest::test_runner::Config {
    proptest::test_runner::Config::with_cases(cases(gate, deep))
}
