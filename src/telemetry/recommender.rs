//! Upstream's metrics of the recommender under upstream's names, so that its dashboards and alerts continue to work.

use std::time::Duration;

use super::{
    definition::{RESPONSE_SECONDS, STEP_SECONDS, counter, gauge, histogram},
    family::{Family, OVERFLOW_LABEL},
    instruments::{Counter, Gauge, Histogram},
    labels::{MODES, bool_label, known_mode},
    quality::Quality,
    registry::{Registry, metric_families},
};

/// The only API version in which objects are served. The other two have series because upstream has them.
const API: &str = "v1";
const APIS: [&str; 3] = [API, "v1beta1", "v1beta2"];
/// The name of upstream's only client of the metrics API.
const CLIENT: &str = "default-metrics-client";
const NO_RESPONSE: &str = "there was no such response";

/// The labels by which a VPA is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VpaTraits<'a> {
    pub update_mode: Option<&'a str>,
    pub has_recommendation: bool,
    /// Whether the selector matches pods, as far as known.
    pub matches_pods: bool,
    /// Whether the spec uses something that is not supported.
    pub unsupported_config: bool,
}

metric_families! {
    /// Upstream's metrics of a recommender.
    #[derive(Clone, Debug)]
    pub struct RecommenderMetrics via register {
        objects: Family<Gauge, 5>[(APIS.len() * MODES.len() + 1) * 8] =
            gauge("vpa_recommender_vpa_objects_count", "VPAs in the latest pass.")
            .labels(
                &["api", "has_recommendation", "matches_pods", "unsupported_config", "update_mode"],
                "144 to 152"
            );
        latency: Histogram = histogram(
            "vpa_recommender_recommendation_latency_seconds",
            "Time from the creation of a VPA to its first recommendation.",
            &[
                1.0, 2.0, 5.0, 7.5, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 90.0, 120.0, 150.0, 180.0,
                240.0, 300.0, 600.0, 900.0, 1800.0,
            ],
        ).labels(&[], "1 of 22").unit("seconds");
        steps: Family<Histogram, 1>[16] = histogram(
            "vpa_recommender_execution_latency_seconds",
            "Duration of each step of a pass, and in total (`total`).",
            STEP_SECONDS,
        ).labels(&["step"], "up to 16 of 26").unit("seconds").absent("the step was never done");
        states: Gauge = gauge(
            "vpa_recommender_aggregate_container_states_count",
            "Containers of VPAs with history.",
        );
        fetches: Family<Counter, 2>[8] = counter(
            "vpa_recommender_metric_server_responses",
            "Responses of the metrics API, and failed queries.",
        ).labels(&["client_name", "is_error"], "2 per client").absent(NO_RESPONSE);
        queries: Family<Counter, 2>[32] = counter(
            "vpa_recommender_prometheus_client_api_requests_count",
            "Prometheus responses to history queries.",
        ).labels(&["code", "method"], "up to 32").absent(NO_RESPONSE);
        query_times: Family<Histogram, 2>[32] = histogram(
            "vpa_recommender_prometheus_client_api_requests_duration_seconds",
            "Duration of Prometheus history queries.",
            RESPONSE_SECONDS,
        ).labels(&["code", "method"], "up to 32 of 24").unit("seconds").absent(NO_RESPONSE);
        requests_read: Family<Counter, 1>[4] = counter(
            "vpa_resources_get_resources_count", "Where the requests of containers were read."
        ).labels(&["source"], "4").absent("none was read there");
        ..
        quality: Quality = Quality::new;
    }
}

impl RecommenderMetrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::register(registry);
        for api in APIS {
            for traits in all_traits(&MODES) {
                metrics.objects.with_labels(labels(api, &traits));
            }
        }
        metrics
    }

    /// Counts a response of the metrics API, or an error.
    pub fn count_fetch(&self, is_error: bool) {
        self.fetches.with_labels([CLIENT, bool_label(is_error)]).increment();
    }

    /// Records a response of Prometheus with its status code.
    pub fn observe_query(&self, code: u16, method: &str, took: Duration) {
        let (code, method) = (code.to_string(), method.to_ascii_lowercase());
        self.queries.with_labels([&code, &method]).increment();
        self.query_times.with_labels([&code, &method]).observe_duration(took);
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
}

fn all_traits<'a>(modes: &'a [&'static str]) -> impl Iterator<Item = VpaTraits<'a>> {
    modes.iter().flat_map(|&mode| {
        (0..8).map(move |flags| VpaTraits {
            update_mode: Some(mode),
            has_recommendation: flags & 4 > 0,
            matches_pods: flags & 2 > 0,
            unsupported_config: flags & 1 > 0,
        })
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
