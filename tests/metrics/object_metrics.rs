//! Series of single objects: as many as configured, only for known values, and with constant memory for any number of
//! objects.

use std::sync::{Arc, Mutex};

use plimsoll::telemetry::{
    Cardinality, ContainerRow, HistoryState, ObjectMetrics, PodRequests, Registry, UpdateRow,
    VpaMetricsSource, VpaRow, objects::PAGE_SIZE,
};
use plimsoll_core::types::ObjectKey;
use plimsoll_core::{
    recommender::{RecommendationReason, ResourceSummary, estimate::Resource},
    updater::SkipReason,
};

use super::scrape;

/// VPAs of one container each; every tenth is capped and has no pods.
pub struct UniformObjects(usize);

impl UniformObjects {
    pub fn of(vpas: usize) -> Self {
        Self(vpas)
    }

    fn page(
        &self,
        after: Option<&ObjectKey>,
        mut visit: impl FnMut(usize, &ObjectKey),
    ) -> Option<ObjectKey> {
        let first = after.map_or(0, |key| {
            key.name.trim_start_matches("vpa-").parse::<usize>().expect("a key of this subject") + 1
        });
        let end = (first + PAGE_SIZE).min(self.0);
        for number in first..end {
            visit(number, &key(number));
        }
        (end < self.0).then(|| key(end - 1))
    }
}

fn key(number: usize) -> ObjectKey {
    ObjectKey::new("team", format!("vpa-{number:06}"))
}

impl VpaMetricsSource for UniformObjects {
    fn vpas(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(VpaRow<'_>),
    ) -> Option<ObjectKey> {
        self.page(after, |number, vpa| {
            visit(VpaRow {
                vpa,
                update_mode: "Auto",
                history_state: HistoryState::Loaded,
                staleness_seconds: (number % 10 != 0).then_some(12.5),
                pods: if number % 10 == 0 { 0 } else { 3 },
            });
        })
    }

    fn containers(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(ContainerRow<'_>),
    ) -> Option<ObjectKey> {
        self.page(after, |number, vpa| {
            let restricted = number % 10 == 0;
            for resource in [Resource::Cpu, Resource::Memory] {
                visit(ContainerRow {
                    vpa,
                    container: "main",
                    resource,
                    recommendation: ResourceSummary {
                        target: 0.25,
                        lower: 0.125,
                        upper: 1e6,
                        uncapped: 0.5,
                        peak: Some(if restricted { f64::NAN } else { 0.2 }),
                        confidence: 8.0,
                        reason: if restricted {
                            RecommendationReason::MaxAllowed
                        } else {
                            RecommendationReason::Usage
                        },
                    },
                    oom_kills: if restricted { 2 } else { 0 },
                    requests: &|_| {
                        let (largest, smallest, sum) = (Some(0.5), 0.1, 0.7);
                        (!restricted).then_some(PodRequests { largest, smallest, sum })
                    },
                });
            }
        })
    }
}

fn text(vpas: usize, cardinality: Cardinality) -> String {
    let mut registry = Registry::new();
    registry.add_objects(ObjectMetrics::new(Arc::new(UniformObjects::of(vpas)), cardinality));
    scrape(registry)
}

/// Number of lines of this family that contain this text.
fn count(text: &str, family: &str, part: &str) -> usize {
    let name = format!("{family}{{");
    text.lines().filter(|line| line.starts_with(&name) && line.contains(part)).count()
}

#[test]
fn unknown_values_have_no_series() {
    let text = text(200, Cardinality::All);
    let of_cpu = "resource=\"cpu\"";
    assert_eq!(count(&text, "plimsoll_target", of_cpu), 200);
    for (family, value) in [
        ("plimsoll_request", "} 0.5"),
        ("plimsoll_request_min", "} 0.1"),
        ("plimsoll_request_all_pods", "} 0.7"),
    ] {
        assert_eq!(count(&text, family, of_cpu), 180, "{family}");
        assert_eq!(count(&text, family, value), 360, "{family}");
    }
    assert_eq!(count(&text, "plimsoll_staleness_seconds", ""), 180);
    assert_eq!(count(&text, "plimsoll_value", of_cpu), 180, "NaN is an unknown value");
    let expected = "plimsoll_high{container=\"main\",kind=\"vpa\",name=\"vpa-000199\",namespace=\"team\",\
                  resource=\"memory\"} 1e+06";
    assert!(text.lines().any(|line| line == expected), "{text}");
}

#[test]
fn a_restriction_is_one_while_active_and_zero_otherwise() {
    let text = text(200, Cardinality::All);
    let family = "plimsoll_restricted_scaling";
    assert_eq!(count(&text, family, "} 1"), 40);
    assert_eq!(
        count(&text, family, "} 0"),
        200 * 2 * RecommendationReason::RESTRICTIONS.len() - 40
    );
    assert_eq!(count(&text, family, "reason=\"max_allowed\",resource=\"cpu\"} 1"), 20);
}

/// A VPA with one container, which is capped or not.
struct ChangingObjects(Arc<Mutex<RecommendationReason>>);

impl VpaMetricsSource for ChangingObjects {
    fn vpas(&self, _: Option<&ObjectKey>, _: &mut dyn FnMut(VpaRow<'_>)) -> Option<ObjectKey> {
        None
    }

    fn containers(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(ContainerRow<'_>),
    ) -> Option<ObjectKey> {
        let reason = *self.0.lock().expect("no panic");
        UniformObjects::of(1).containers(after, &mut |row| {
            visit(ContainerRow {
                recommendation: ResourceSummary { reason, ..row.recommendation },
                ..row
            });
        })
    }
}

#[test]
fn a_restriction_that_was_never_active_has_no_series_and_one_that_ended_is_zero() {
    for cardinality in [Cardinality::Standard, Cardinality::Restricted] {
        let reason = Arc::new(Mutex::new(RecommendationReason::Usage));
        let mut registry = Registry::new();
        let state = Arc::new(ChangingObjects(Arc::clone(&reason)));
        registry.add_objects(ObjectMetrics::new(state, cardinality));
        let registry = Arc::new(registry);
        let lines_at = |now| {
            *reason.lock().expect("no panic") = now;
            let text: Vec<u8> = Arc::clone(&registry).scrape().flatten().collect();
            let text = String::from_utf8(text).expect("UTF-8");
            let lines =
                text.lines().filter(|line| line.starts_with("plimsoll_restricted_scaling{"));
            let of_cpu = lines.filter(|line| line.contains("resource=\"cpu\""));
            let values = of_cpu.map(|line| {
                let reason = line.split("reason=\"").nth(1).and_then(|rest| rest.split('"').next());
                format!("{} {}", reason.expect("a reason"), &line[line.len() - 1..])
            });
            values.collect::<Vec<_>>()
        };
        assert!(lines_at(RecommendationReason::Usage).is_empty());
        assert_eq!(lines_at(RecommendationReason::MaxAllowed), ["max_allowed 1"]);
        assert_eq!(lines_at(RecommendationReason::Usage), ["max_allowed 0"]);
        assert_eq!(lines_at(RecommendationReason::MinAllowed), ["min_allowed 1", "max_allowed 0"]);
        assert_eq!(lines_at(RecommendationReason::Usage), ["min_allowed 0", "max_allowed 0"]);
    }
}

/// VPAs of two containers each, without any capping.
struct TypicalObjects(UniformObjects);

impl VpaMetricsSource for TypicalObjects {
    fn vpas(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(VpaRow<'_>),
    ) -> Option<ObjectKey> {
        self.0.vpas(after, &mut |row| visit(VpaRow { staleness_seconds: Some(12.5), ..row }))
    }

    fn containers(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(ContainerRow<'_>),
    ) -> Option<ObjectKey> {
        self.0.containers(after, &mut |row| {
            let figures = ResourceSummary {
                reason: RecommendationReason::Usage,
                peak: Some(0.2),
                ..row.recommendation
            };
            let all = PodRequests { largest: Some(0.5), smallest: 0.1, sum: 0.7 };
            for container in ["main", "proxy"] {
                visit(ContainerRow {
                    container,
                    recommendation: figures,
                    requests: &|_| Some(all),
                    ..row
                });
            }
        })
    }

    fn updates(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(UpdateRow<'_>),
    ) -> Option<ObjectKey> {
        let reasons: Vec<(&'static str, bool)> =
            SkipReason::restriction_names().map(|word| (word, false)).collect();
        self.0.page(after, |_, vpa| visit(UpdateRow { vpa, reasons: &reasons }))
    }
}

/// The series of a recommender and the leading updater for ten thousand typical VPAs. The documentation has the number
/// for one.
#[test]
fn ten_thousand_vpas_of_two_containers_have_41_series_each() {
    const VPAS: usize = 10_000;
    let series = |cardinality| {
        let mut registry = Registry::new();
        let state = Arc::new(TypicalObjects(UniformObjects::of(VPAS)));
        registry.add_objects(ObjectMetrics::new(state, cardinality));
        let chunks = Arc::new(registry).scrape();
        let lines = chunks.map(|chunk| {
            let text = std::str::from_utf8(&chunk).expect("whole lines");
            text.lines().filter(|line| line.contains("kind=\"vpa\"")).count()
        });
        lines.sum::<usize>()
    };
    assert_eq!(series(Cardinality::Standard), 41 * VPAS);
    assert_eq!(series(Cardinality::All), 110 * VPAS);
    let page = include_str!("../../docs/metrics.md");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in ["41 per VPA of two containers", "410,000", "110 per VPA of two containers"] {
        assert!(page.contains(expected), "docs/metrics.md does not say: {expected}");
    }
}

#[test]
fn cardinality_restricted_exports_only_restrictions_and_objects() {
    let text = text(200, Cardinality::Restricted);
    assert_eq!(count(&text, "plimsoll_restricted_scaling", "} 1"), 40);
    assert_eq!(count(&text, "plimsoll_object_info", "update_mode=\"Auto\"} 1"), 200);
    assert_eq!(count(&text, "plimsoll_staleness_seconds", ""), 180);
    assert_eq!(count(&text, "plimsoll_replicas", "} 3"), 180);
    assert_eq!(text.matches("kind=\"vpa\"").count(), 620, "{text}");
}

#[test]
fn object_metrics_can_be_disabled() {
    assert_eq!(text(200, Cardinality::Off).matches("kind=\"vpa\"").count(), 0);
}

/// Formats a number as `1,234,567`.
fn in_thousands(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    groups.iter().map(|group| String::from_utf8_lossy(group)).collect::<Vec<_>>().join(",")
}

#[test]
fn the_metrics_page_states_the_number_of_series_per_vpa_and_container() {
    let page = include_str!("../../docs/metrics.md");
    let of_one = |cardinality| {
        let text = text(2, cardinality);
        let own: Vec<&str> =
            text.lines().filter(|line| line.contains("name=\"vpa-000001\"")).collect();
        let of_container = own.iter().filter(|line| line.contains("container=")).count();
        (own.len() - of_container, of_container)
    };
    let (of_vpa, of_container) = of_one(Cardinality::All);
    let reasons = RecommendationReason::RESTRICTIONS.len();
    // Two resources each; OOM kills are of memory alone.
    let families = (of_container - 1) / 2 - reasons;
    let words = ["six", "seven", "eight", "nine", "ten", "eleven"];
    let (families, reasons_told) = (words[families - 6], words[reasons - 6]);
    let updaters = 10_000 * SkipReason::restriction_names().count();
    let recommenders = 10_000 * (of_vpa + 5 * of_container);
    assert_eq!(of_one(Cardinality::Restricted), (of_vpa, 0));
    for expected in [
        format!(
            "{of_vpa} per VPA and {of_container} per container: {families} families and {reasons_told} reasons"
        ),
        format!("| {} |\n", in_thousands(2 * recommenders + updaters)),
        format!("with one it is {} in place of", in_thousands(recommenders + updaters)),
        format!("| `restricted` | {of_vpa} per VPA"),
        format!("| {} and what is restricted |", in_thousands(2 * 10_000 * of_vpa)),
        format!("{} per container of each recommender", 2 * reasons),
        format!(
            "{of_vpa} per VPA and {} per container: {families} families for",
            of_container - 2 * reasons
        ),
        format!(
            "| {} and what has held |",
            in_thousands(2 * 10_000 * (of_vpa + 5 * (of_container - 2 * reasons)))
        ),
    ] {
        assert!(page.contains(&expected), "docs/metrics.md does not say: {expected}");
    }
}

#[test]
fn metrics_of_50000_containers_are_rendered_in_little_memory() {
    let mut registry = Registry::new();
    let objects = Arc::new(UniformObjects::of(50_000));
    registry.add_objects(ObjectMetrics::new(objects, Cardinality::All));
    let registry = Arc::new(registry);
    let (mut bytes, mut largest) = (0, 0);
    let used = allocation_counter::measure(|| {
        for chunk in registry.scrape() {
            bytes += chunk.len();
            largest = largest.max(chunk.len());
        }
    });
    assert!(bytes > 100 << 20, "only {bytes} bytes");
    assert!(largest < 256 << 10, "a chunk of {largest} bytes");
    assert!(used.bytes_max < 1 << 20, "peak of {} bytes", used.bytes_max);
    assert_eq!(used.bytes_current, 0, "memory of the scrape is leaked");
}
