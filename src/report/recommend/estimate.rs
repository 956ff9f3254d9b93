//! What a report would ask a server, before anything is asked.

use std::{collections::HashMap, time::Duration};

use plimsoll_core::rightsizing::survey::Survey;

use super::strategy::Strategy;

/// Bytes of a point in a response, as measured.
const BYTES_PER_POINT: u64 = 35;
/// The factor by which gzip makes responses smaller, as measured.
const GZIP_FACTOR: f64 = 3.7;
/// Queries to detect the names of series.
const DETECTION_QUERIES: u64 = 13;
/// Queries of a group of workloads besides those of their histories: owners of pods (twice), OOM kills, throttling, page
/// cache and peaks.
const QUERIES_PER_GROUP: u64 = 26;
/// Workloads and namespaces of a group.
const WORKLOADS_PER_GROUP: u64 = 1_000;
const NAMESPACES_PER_GROUP: u64 = 50;
/// The usual length of the pattern of a workload's pods, and the longest pattern of a query.
const PATTERN_BYTES: u64 = 50;
const LONGEST_PATTERN: u64 = 4096;
/// With more points than this, CPU is read at five minutes: directly, and through the API server's proxy.
const MAX_FINE_POINTS: u64 = 30_000_000;
const MAX_FINE_POINTS_PROXIED: u64 = 10_000_000;
const MEMORY_STEP: Duration = Duration::from_mins(5);

/// The step of CPU samples (`--step`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// One minute, or five minutes if there are many points.
    #[default]
    Auto,
    Fixed(Duration),
}

impl Step {
    pub fn choose(self, series: u64, length: Duration, proxied: bool) -> Duration {
        match self {
            Self::Fixed(step) => step,
            Self::Auto => {
                let fine = Duration::from_mins(1);
                let max = if proxied { MAX_FINE_POINTS_PROXIED } else { MAX_FINE_POINTS };
                if points(series, length, fine) <= max { fine } else { Duration::from_mins(5) }
            }
        }
    }
}

/// The number of series of a survey: containers of existing pods.
pub fn series(survey: &Survey) -> u64 {
    let pods = |count: usize, replicas: Option<u32>| {
        (count as u64).max(u64::from(replicas.unwrap_or_default())).max(1)
    };
    let of = survey.workloads.iter().map(|workload| {
        pods(workload.pods.len(), workload.replicas) * workload.containers.len().max(1) as u64
    });
    of.fold(0, u64::saturating_add)
}

/// The points of a history.
fn points(series: u64, length: Duration, step: Duration) -> u64 {
    let steps = |step: Duration| length.as_secs() / step.as_secs().max(1);
    series.saturating_mul(steps(step) + steps(step.max(MEMORY_STEP)))
}

/// What a report would ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    pub workloads: usize,
    /// Containers of pods that exist now.
    pub series: u64,
    /// The step of CPU samples.
    pub step: Duration,
    /// Points of the history.
    pub points: u64,
    pub queries: u64,
    /// Bytes of the responses.
    pub bytes: u64,
}

impl Estimate {
    /// Estimates the queries for a survey. `point_budget` is the number of points of one slice of a history.
    pub fn new(
        survey: &Survey,
        (step, length): (Step, Duration),
        point_budget: u64,
        proxied: bool,
    ) -> Self {
        let series = series(survey);
        let step = step.choose(series, length, proxied);
        let points = points(series, length, step);
        let mut patterns: HashMap<&str, u64> = HashMap::new();
        for workload in &survey.workloads {
            *patterns.entry(&workload.namespace).or_default() += PATTERN_BYTES;
        }
        let batches: u64 = patterns.values().map(|bytes| bytes.div_ceil(LONGEST_PATTERN)).sum();
        let namespaces = patterns.len() as u64;
        let groups = (survey.workloads.len() as u64)
            .div_ceil(WORKLOADS_PER_GROUP)
            .max(namespaces.div_ceil(NAMESPACES_PER_GROUP));
        // Two queries for each slice, and the last slice of a batch is seldom full.
        let slices = points.div_ceil(point_budget.max(1)) + batches;
        Self {
            workloads: survey.workloads.len(),
            series,
            step,
            points,
            queries: DETECTION_QUERIES + groups * QUERIES_PER_GROUP + 2 * slices,
            bytes: points.saturating_mul(BYTES_PER_POINT),
        }
    }

    pub fn text(&self, server: &str, strategy: Strategy) -> String {
        let Self { workloads, series, step, points, queries, bytes } = self;
        let mebibytes = |bytes: f64| bytes / f64::from(1 << 20);
        let bytes = *bytes as f64;
        let foreign =
            if strategy.is_foreign() { format!("Strategy {strategy}.\n") } else { String::new() };
        format!(
            "{server}\n  {workloads} workloads, about {series} series of containers\n  about {queries} queries, {points} points at a step \
             of {} s\n  about {:.0} MiB of responses, {:.0} MiB compressed\n{foreign}Nothing else has been queried.\n",
            step.as_secs(),
            mebibytes(bytes),
            mebibytes(bytes / GZIP_FACTOR),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_core::rightsizing::survey::{Container, Workload};

    use super::*;

    const WEEK: Duration = Duration::from_hours(8 * 24);

    fn survey(workloads: usize, pods: usize, replicas: Option<u32>) -> Survey {
        let workload = |index: usize| {
            Arc::new(Workload {
                namespace: format!("ns-{}", index % 20).into(),
                kind: "Deployment".into(),
                name: format!("web-{index}").into(),
                replicas,
                pods: (0..pods).map(|pod| format!("web-{index}-{pod}").into()).collect(),
                containers: [Container::default()].into(),
                ..Workload::default()
            })
        };
        Survey { workloads: (0..workloads).map(workload).collect(), ..Survey::default() }
    }

    #[test]
    fn many_points_are_read_at_five_minutes_and_earlier_through_the_proxy() {
        let (minute, five) = (Duration::from_mins(1), Duration::from_mins(5));
        for (series, proxied, step) in
            [(2_000, false, minute), (2_200, false, five), (700, true, minute), (800, true, five)]
        {
            assert_eq!(Step::Auto.choose(series, WEEK, proxied), step, "{series} {proxied}");
        }
        assert_eq!(Step::Fixed(minute).choose(100_000, WEEK, true), minute);
    }

    #[test]
    fn an_estimate_counts_pods_or_replicas() {
        assert_eq!(series(&survey(10, 3, None)), 30);
        assert_eq!(series(&survey(10, 0, Some(4))), 40);
        assert_eq!(series(&survey(10, 0, None)), 10);
        let estimate = Estimate::new(&survey(1_000, 1, None), (Step::Auto, WEEK), 262_144, false);
        assert_eq!(estimate.points, 1_000 * (11_520 + 2_304));
        assert_eq!(estimate.queries, 13 + 26 + 2 * (53 + 20));
        let text = estimate.text("http://prometheus:9090", Strategy::Plimsoll);
        assert!(text.contains("1000 workloads, about 1000 series"), "{text}");
    }
}
