//! What Grafana knows, as far as boards use it: units.

/// Names of units, of those that Grafana has. A board that needs another one adds it here, after a look into Grafana's
/// list, and xtask/src/pictures/units.rs learns how it is written.
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
