//! Upstream's metrics of the recommender under upstream's names, so that its dashboards and alerts continue to work.

use std::{sync::Arc, time::Duration};

use super::{
    definition::{Definition, RESPONSE_SECONDS, STEP_SECONDS, counter, gauge, histogram},
    family::{Family, OVERFLOW_LABEL},
    instruments::{Counter, Gauge, Histogram},
    labels::{MODES, bool_label, known_mode},
    quality::{Quality, QualitySample, RecommendationChange},
    registry::Registry,
};

const OBJECTS: Definition = gauge("vpa_recommender_vpa_objects_count", "VPAs in the latest pass.")
    .labels(
        &["api", "has_recommendation", "matches_pods", "unsupported_config", "update_mode"],
        "144 to 152",
    );
const LATENCY: Definition = histogram(
    "vpa_recommender_recommendation_latency_seconds",
    "Time from the creation of a VPA to its first recommendation.",
    &[
        1.0, 2.0, 5.0, 7.5, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 90.0, 120.0, 150.0, 180.0, 240.0,
        300.0, 600.0, 900.0, 1800.0,
    ],
)
.labels(&[], "1 of 22")
.unit("seconds");
const STEPS: Definition = histogram(
    "vpa_recommender_execution_latency_seconds",
    "Duration of each step of a pass, and in total (`total`).",
    STEP_SECONDS,
)
.labels(&["step"], "up to 16 of 26")
.unit("seconds")
.absent("the step was never done");
const STATES: Definition =
    gauge("vpa_recommender_aggregate_container_states_count", "Containers of VPAs with history.");
const FETCHES: Definition = counter(
    "vpa_recommender_metric_server_responses",
    "Responses of the metrics API, and failed queries.",
)
.labels(&["client_name", "is_error"], "2 per client")
.absent("there was no such response");
const QUERIES: Definition = counter(
    "vpa_recommender_prometheus_client_api_requests_count",
    "Prometheus responses to history queries.",
)
.labels(&["code", "method"], "up to 32")
.absent("there was no such response");
const QUERY_TIMES: Definition = histogram(
    "vpa_recommender_prometheus_client_api_requests_duration_seconds",
    "Duration of Prometheus history queries.",
    RESPONSE_SECONDS,
)
.labels(&["code", "method"], "up to 32 of 24")
.unit("seconds")
.absent("there was no such response");
const REQUESTS_READ: Definition =
    counter("vpa_resources_get_resources_count", "Where the requests of containers were read.")
        .labels(&["source"], "4")
        .absent("none was read there");

/// The only API version in which objects are served. The other two have series because upstream has them.
const API: &str = "v1";
const APIS: [&str; 3] = [API, "v1beta1", "v1beta2"];
/// The name of upstream's only client of the metrics API.
const CLIENT: &str = "default-metrics-client";
const BOTH: [bool; 2] = [false, true];

/// The labels by which a VPA is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VpaTraits<'a> {
    /// The update mode as in the object, if set.
    pub update_mode: Option<&'a str>,
    /// Whether the VPA has a recommendation.
    pub has_recommendation: bool,
    /// Whether the selector matches pods, as far as known.
    pub matches_pods: bool,
    /// Whether the spec uses something that is not supported.
    pub unsupported_config: bool,
}

/// Upstream's metrics of a recommender.
#[derive(Clone, Debug)]
pub struct RecommenderMetrics {
    objects: Arc<Family<Gauge, 5>>,
    latency: Arc<Histogram>,
    steps: Arc<Family<Histogram, 1>>,
    states: Arc<Gauge>,
    fetches: Arc<Family<Counter, 2>>,
    queries: Arc<Family<Counter, 2>>,
    query_times: Arc<Family<Histogram, 2>>,
    requests_read: Arc<Family<Counter, 1>>,
    quality: Quality,
}

impl RecommenderMetrics {
    /// Adds the families to a registry.
    pub fn new(registry: &mut Registry) -> Self {
        let max_series = (APIS.len() * MODES.len() + 1) * 8;
        let metrics = Self {
            objects: registry.family(OBJECTS, max_series),
            latency: registry.histogram(LATENCY),
            steps: registry.family(STEPS, 16),
            states: registry.gauge(STATES),
            fetches: registry.family(FETCHES, 8),
            queries: registry.family(QUERIES, 32),
            query_times: registry.family(QUERY_TIMES, 32),
            requests_read: registry.family(REQUESTS_READ, 4),
            quality: Quality::new(registry),
        };
        for api in APIS {
            for traits in all_traits(&MODES) {
                metrics.objects.with_labels(labels(api, &traits));
            }
        }
        metrics
    }

    /// Records the duration of a step of a pass. The whole pass is the step `total`.
    pub fn observe_step(&self, step: &'static str, took: Duration) {
        self.steps.with_labels([step]).observe(took.as_secs_f64());
    }

    /// Counts a response of the metrics API, or an error.
    pub fn count_fetch(&self, is_error: bool) {
        self.fetches.with_labels([CLIENT, bool_label(is_error)]).increment();
    }

    /// Records the time from the creation of a VPA to its first recommendation.
    pub fn observe_first_recommendation(&self, latency: Duration) {
        self.latency.observe(latency.as_secs_f64());
    }

    /// Sets the number of containers of VPAs with history.
    pub fn set_container_states(&self, count: usize) {
        self.states.set(count as f64);
    }

    /// Records a response of Prometheus with its status code.
    pub fn observe_query(&self, code: u16, method: &str, took: Duration) {
        let (code, method) = (code.to_string(), method.to_ascii_lowercase());
        self.queries.with_labels([&code, &method]).increment();
        self.query_times.with_labels([&code, &method]).observe(took.as_secs_f64());
    }

    /// Sets how often requests were read from the statuses of containers and init containers, and from their specs.
    pub fn set_requests_read(&self, totals: [u64; 4]) {
        let sources = [
            "Pod.Status.ContainerStatuses",
            "Pod.Status.InitContainerStatuses",
            "Pod.Spec.Containers",
            "Pod.Spec.InitContainers",
        ];
        for (source, total) in sources.into_iter().zip(totals) {
            self.requests_read.with_labels([source]).set_total(total);
        }
    }

    /// Sets the counts from the list of all VPAs. Combinations without a VPA become zero, including unknown modes.
    pub fn set_vpa_counts<'a>(&self, vpas: impl IntoIterator<Item = VpaTraits<'a>>) {
        let slots: Vec<_> = all_traits(&MODES).chain(all_traits(&[OVERFLOW_LABEL])).collect();
        let mut counts = vec![0_u64; slots.len()];
        for vpa in vpas {
            // An unset mode is Recreate.
            let mode =
                vpa.update_mode.filter(|mode| !mode.is_empty()).map_or("Recreate", known_mode);
            let vpa = VpaTraits { update_mode: Some(mode), ..vpa };
            if let Some(slot) = slots.iter().position(|slot| *slot == vpa) {
                counts[slot] += 1;
            }
        }
        for (slot, count) in slots.iter().zip(counts) {
            let labels = labels(API, slot);
            if count > 0 {
                self.objects.with_labels(labels).set(count as f64);
            } else if let Some(gauge) = self.objects.find(labels) {
                gauge.set(0.0);
            }
        }
    }

    /// Records a sample that was added to the history of a container whose scaling mode is not `Off`.
    pub fn observe_sample(&self, sample: &QualitySample<'_>) {
        self.quality.observe_sample(sample);
    }

    /// Records a new recommendation of a container that already had one, changed or not.
    pub fn observe_change(&self, change: &RecommendationChange<'_>) {
        self.quality.observe_change(change);
    }
}

/// All combinations with these modes.
fn all_traits<'a>(modes: &'a [&'static str]) -> impl Iterator<Item = VpaTraits<'a>> {
    let flags = BOTH.iter().flat_map(|&has_recommendation| {
        BOTH.iter().flat_map(move |&matches_pods| {
            BOTH.iter().map(move |&unsupported_config| VpaTraits {
                update_mode: None,
                has_recommendation,
                matches_pods,
                unsupported_config,
            })
        })
    });
    modes.iter().flat_map(move |&mode| {
        flags.clone().map(move |traits| VpaTraits { update_mode: Some(mode), ..traits })
    })
}

fn labels<'a>(api: &'a str, vpa: &VpaTraits<'a>) -> [&'a str; 5] {
    [
        api,
        bool_label(vpa.has_recommendation),
        bool_label(vpa.matches_pods),
        bool_label(vpa.unsupported_config),
        vpa.update_mode.unwrap_or_default(),
    ]
}
