//! What a family of series is: its name, its labels, and what somebody who reads it must know.

/// Buckets of upstream's for how long steps of a pass or of a review take.
pub(super) const STEP_SECONDS: &[f64] = &[
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0,
    90.0, 100.0, 120.0, 150.0, 240.0, 300.0,
];

/// Buckets of upstream's for how long answers take, given or waited for.
pub(super) const RESPONSE_SECONDS: &[f64] = &[
    0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0,
    60.0, 120.0, 300.0,
];

/// How the values of a family behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    /// Only grows, and begins at zero with the process.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Observations counted in buckets.
    Histogram,
}

impl MetricType {
    /// The word of the text format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A family of series. The table in `docs/metrics.md` is made from these.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// What it counts or measures, on one line.
    pub help: &'static str,
    /// How its values behave.
    pub kind: MetricType,
    /// Names of its labels in alphabetical order, as client libraries print them.
    pub labels: &'static [&'static str],
    /// Upper ends of the buckets without the last, which is infinite. Empty for anything but histograms.
    pub buckets: &'static [f64],
    /// What its values are counted in; empty for plain numbers.
    pub unit: &'static str,
    /// When there is no series; empty when there always is.
    pub absent_when: &'static str,
    /// How many series there can be, in words.
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
    let mut definition = Definition::new(MetricType::Histogram, name, help);
    definition.buckets = buckets;
    definition
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

    /// With these labels, and as many series as `series` says.
    #[must_use]
    pub const fn labels(mut self, labels: &'static [&'static str], series: &'static str) -> Self {
        self.labels = labels;
        self.series_count = series;
        self
    }

    /// Counted in this.
    #[must_use]
    pub const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// Without a series in this case.
    #[must_use]
    pub const fn absent(mut self, when: &'static str) -> Self {
        self.absent_when = when;
        self
    }
}
