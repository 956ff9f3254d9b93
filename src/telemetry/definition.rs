//! Definitions of metric families: name, labels and documentation.

use strum::Display;

/// Upstream's buckets for the duration of steps of a pass or review.
pub(super) const STEP_SECONDS: &[f64] = &[
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0,
    90.0, 100.0, 120.0, 150.0, 240.0, 300.0,
];

/// Upstream's buckets for response times.
pub(super) const RESPONSE_SECONDS: &[f64] = &[
    0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0,
    60.0, 120.0, 300.0,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[strum(serialize_all = "lowercase")]
pub enum MetricType {
    /// Only increases, and starts at zero with the process.
    Counter,
    /// Can go up and down.
    Gauge,
    /// Observations counted in buckets.
    Histogram,
}

/// A metric family. The table in `docs/metrics.md` is generated from these.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    pub name: &'static str,
    /// The HELP text, on one line.
    pub help: &'static str,
    pub kind: MetricType,
    /// The label names in alphabetical order, as client libraries print them.
    pub labels: &'static [&'static str],
    /// Upper bounds of the buckets, without `+Inf`. Empty except for histograms.
    pub buckets: &'static [f64],
    /// The unit of the values; empty for plain numbers.
    pub unit: &'static str,
    /// When there is no series; empty if there always is one.
    pub absent_when: &'static str,
    /// The possible number of series, in words.
    pub series_count: &'static str,
}

/// A counter without labels.
pub const fn counter(name: &'static str, help: &'static str) -> Definition {
    Definition::new(MetricType::Counter, name, help)
}

/// A gauge without labels.
pub const fn gauge(name: &'static str, help: &'static str) -> Definition {
    Definition::new(MetricType::Gauge, name, help)
}

/// A histogram without labels.
pub const fn histogram(
    name: &'static str,
    help: &'static str,
    buckets: &'static [f64],
) -> Definition {
    Definition { buckets, ..Definition::new(MetricType::Histogram, name, help) }
}

impl Definition {
    const fn new(kind: MetricType, name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            help,
            kind,
            labels: &[],
            buckets: &[],
            unit: "",
            absent_when: "",
            series_count: "1",
        }
    }

    #[must_use]
    pub const fn labels(self, labels: &'static [&'static str], series: &'static str) -> Self {
        Self { labels, series_count: series, ..self }
    }

    #[must_use]
    pub const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// Sets when there is no series.
    #[must_use]
    pub const fn absent(self, when: &'static str) -> Self {
        Self { absent_when: when, ..self }
    }

    /// There is no series before the first observation.
    #[must_use]
    pub const fn absent_at_first(self) -> Self {
        self.absent("it has not happened yet")
    }
}
