//! The units of Grafana that the boards use.

/// Names of Grafana units. A board that needs another one adds it here after checking Grafana's list, and
/// xtask/src/pictures/units.rs learns to format it.
pub const UNITS: [&str; 11] = [
    "bytes",
    "cps",
    "d",
    "dateTimeAsIsoNoDateIfToday",
    "none",
    "percentunit",
    "reqps",
    "s",
    "short",
    "string",
    "wps",
];
