//! The exported metrics are well-formed and include upstream's.

pub mod exposition;
mod horizontal;
mod object_metrics;
mod upstream;
mod watermark;

use std::{fmt::Write as _, io::Write as _, process, process::Stdio, sync::Arc, time::Duration};

use plimsoll::cluster::server::webhook::{CompletedReview, ReviewObserver as _, ReviewStatus};
use plimsoll::telemetry::{
    AdmissionMetrics, ApiRequestMetrics, ApiTrafficMetrics, Cardinality, Definition, HistoryState,
    LabelSet, ObjectMetrics, PassTotals, RecommenderHealthMetrics, RecommenderMetrics, Registry,
    ReplicaKind, ReplicaObjectMetrics, UpdatedVpa, UpdaterMetrics, VpaTotals, VpaTraits,
    WatermarkMetrics, upstream_series,
};
use plimsoll_core::types::{ObjectKey, Time};
use plimsoll_core::{
    recommender::{RecommendationReason, estimate::Resource},
    updater::SkipReason,
    watermark::RESTRICTIONS,
};
use xtask::test_programs::{self, PrometheusRelease};

use crate::support::skipped::report_skipped;
use exposition::Exposition;
use object_metrics::UniformObjects;
use watermark::{WatermarkFixtures, web};

/// Renders all metrics as one scrape.
fn scrape(registry: Registry) -> String {
    Arc::new(registry).scrape().fold(String::new(), |mut text, chunk| {
        text.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
        text
    })
}

/// A registry in which everything has happened once, so that every family has series.
fn registry() -> Registry {
    let mut registry = Registry::new();
    let recommender = RecommenderMetrics::new(&mut registry);
    recommender.steps.with_labels(["LoadVPAs"]).observe_duration(Duration::from_millis(15));
    recommender.count_fetch(false);
    recommender.count_fetch(true);
    recommender.latency.observe_duration(Duration::from_secs(61));
    recommender.observe_query(200, "POST", Duration::from_millis(20));
    recommender.set_requests_read([1, 1, 1, 1]);
    recommender.states.set(3.0);
    recommender.set_vpa_counts([vpa(Some("Off")), vpa(None)]);
    for resource in [Resource::Cpu, Resource::Memory] {
        for recommendation in [None, Some(3.0), Some(0.5)] {
            let mode = Some("Auto");
            recommender.quality.observe_sample(mode, resource, false, 1.0, recommendation);
        }
        recommender.quality.observe_change(None, resource, [2.0, 3.0], 5);
    }
    let health = RecommenderHealthMetrics::new(&mut registry);
    health.loop_metrics.set_leader(true);
    health.loop_metrics.set_last_success(Time::from_secs(1_767_225_600));
    health.loop_metrics.set_lag(Duration::from_millis(3));
    health.set_history_state(HistoryState::Loaded);
    health.prometheus.init_outcomes(&["ok"]);
    health.prometheus.observe("ok", Duration::from_millis(2));
    let traffic = ApiTrafficMetrics::new(&mut registry);
    traffic.set_watch_objects("pods", 7);
    traffic.watch_synced.with_labels(["pods"]);
    traffic.watch_malformed.with_labels(["pods"]);
    traffic.watch_restarts.with_labels(["pods"]);
    traffic.watch_errors.with_labels(["pods"]);
    traffic.watch_silence.with_labels(["pods"]).set(Duration::from_secs(3).as_secs_f64());
    traffic.writes.with_labels(["status", "200"]).set_total(1);
    ApiRequestMetrics::new(&mut registry).observe("patch", Some(200), Duration::from_millis(2));
    health.set_write_queue("status", 2);
    health.samples.with_labels(["counted"]).add(12);
    health.count_oom_kills("pod", "counted", 1);
    health.count_checkpoints("loaded", 3);
    health.checkpoints_saved.with_labels([]).set_time(Time::from_secs(1_767_225_601));
    let admission = AdmissionMetrics::new(&mut registry);
    let [read, admit, build, write, total] = [Duration::ZERO; 5];
    for (resource, status, outcome) in [
        ("Pod", ReviewStatus::Applied, "patched"),
        ("Pod", ReviewStatus::Skipped, "no_vpa"),
        ("unknown", ReviewStatus::Error, "x"),
    ] {
        let review =
            CompletedReview { resource, status, outcome, read, admit, build, write, total };
        admission.on_review(&review);
    }
    admission.on_rejected("handshake");
    admission.set_certificate_expiry(Time::from_secs(1_767_225_602));
    admission.count_certificate_rejected();
    admission.registered.with_labels([]).set_bool(true);
    admission.reachable.set_bool(true);
    updater(&mut registry);
    watermark(&mut registry);
    horizontal::add_to(&mut registry, Cardinality::All);
    registry.add_objects(ObjectMetrics::new(Arc::new(UniformObjects::of(3)), Cardinality::All));
    registry
}

fn watermark(registry: &mut Registry) {
    let watermark = WatermarkMetrics::new(registry);
    watermark.begin_reconcile(Duration::ZERO);
    watermark.end_reconcile("held", "requeue_after", Duration::from_millis(15));
    watermark.count_metric_result("external", Ok(()));
    watermark.calls.begin("http://recommender/").on_response(
        "POST",
        200,
        Duration::from_millis(15),
    );
    let objects = Arc::new(WatermarkFixtures(vec![web()]));
    registry.add_replica_autoscalers(ReplicaObjectMetrics::new(
        ReplicaKind::WATERMARK,
        objects,
        Cardinality::All,
        upstream_series(LabelSet::V12, &[]),
    ));
}

fn updater(registry: &mut Registry) {
    let updater = UpdaterMetrics::new(registry);
    let key = ObjectKey::new("shop", "web");
    let of = UpdatedVpa { vpa: &key, mode: "Recreate", pods: 3 };
    updater.init_counters(of);
    updater.count_evicted(of, 1);
    updater.count_resized(of, 1);
    updater.count_failed_eviction(of, "EvictionError");
    updater.count_failed_resize(of, "InPlaceUpdateError");
    updater.count_infeasible(of, 1);
    updater.admission_invalid.with_labels(["invalid"]).increment();
    updater.steps.with_labels(["total"]).observe_duration(Duration::from_millis(15));
    updater.actions.with_labels(["evict", "done"]).increment();
    updater.regressions.with_labels(["pending"]).increment();
    updater.rewritten.increment();
    updater.unreadable.increment();
    updater.set_budget("disruption", 3, Some(100));
    updater.set_budget("resize", 0, Some(500));
    updater.cluster_open.set_bool(false);
    let mut totals = PassTotals::default();
    for in_place in [false, true] {
        totals.add(of, VpaTotals { candidates: 2, evicted: 1, resized: 1, in_place });
    }
    totals.skipped.insert("cool_down", 1.0);
    totals.heartbeats.insert("fresh", 1.0);
    totals.open_breakers = 1;
    updater.set_pass_totals(&totals);
}

fn vpa(update_mode: Option<&str>) -> VpaTraits<'_> {
    VpaTraits {
        update_mode,
        has_recommendation: true,
        matches_pods: true,
        unsupported_config: false,
    }
}

/// The definitions of all families.
pub fn definitions() -> Vec<Definition> {
    registry().definitions()
}

/// A scrape in which every family has series.
pub fn own_exposition() -> Exposition {
    Exposition::parse(&scrape(registry()))
}

/// The families as documented, with a table for each group.
pub fn documentation() -> String {
    let mut text = String::from(
        "| family | type | labels | unit | series | description | absent while |\n|---|---|---|---|---|---|---|\n",
    );
    for definition in registry().definitions() {
        let labels: Vec<_> = definition.labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = labels.join(", ");
        let kind = definition.kind.to_string();
        let (name, unit, series) = (definition.name, definition.unit, definition.series_count);
        let (help, absent) = (definition.help, definition.absent_when);
        writeln!(text, "| `{name}` | {kind} | {labels} | {unit} | {series} | {help} | {absent} |")
            .expect("fits");
    }
    text
}

#[test]
fn metric_families_have_unique_names_and_sorted_labels() {
    let definitions = registry().definitions();
    assert!(definitions.len() > 40, "only {} families", definitions.len());
    let printed = Exposition::parse(&scrape(registry()));
    for definition in &definitions {
        assert!(definition.labels.is_sorted(), "{}", definition.name);
        let same = definitions.iter().filter(|other| other.name == definition.name).count();
        assert_eq!(same, 1, "{}", definition.name);
        let family = printed.family(definition.name);
        assert_eq!(family.kind, definition.kind.to_string(), "{}", definition.name);
        assert_eq!(family.labels, definition.labels, "{}", definition.name);
    }
    assert_eq!(printed.names().count(), definitions.len());
}

/// The maximum number of series of a process according to this text; `None` if it depends on the number of objects.
fn allowed(words: &str) -> Option<usize> {
    let whole = words.split(" of ").next().unwrap_or(words).trim_start_matches("up to ");
    whole.rsplit(" to ").next()?.replace(',', "").parse().ok()
}

#[test]
fn every_family_has_at_most_its_documented_number_of_series() {
    let printed = Exposition::parse(&scrape(registry()));
    let mut counted = 0;
    for definition in registry().definitions() {
        let (name, words) = (definition.name, definition.series_count);
        if !definition.buckets.is_empty() {
            // The listed buckets, the infinite one, the sum and the count.
            let lines = format!(" of {}", definition.buckets.len() + 3);
            assert!(words.contains(&lines), "{name}: documented as {words}, but it has{lines}");
        }
        let mut series = printed.family(name).series.clone();
        series.sort_unstable();
        series.dedup();
        assert!(!series.is_empty(), "{name}");
        if let Some(most) = allowed(words) {
            assert!(series.len() <= most, "{name}: {} series, documented as {words}", series.len());
            counted += 1;
        }
    }
    assert!(counted > 60, "only {counted} families document a fixed number of series");
    assert_eq!(allowed("144 to 152"), Some(152));
    assert_eq!(allowed("up to 8 of 26"), Some(8));
    assert_eq!(allowed("1 per role"), None);
}

#[test]
fn the_metrics_page_lists_every_restriction_reason() {
    let page = include_str!("../docs/metrics.md");
    let begin = page.find("- `plimsoll_restricted_scaling` is").expect("reported");
    let section = &page[begin..];
    let section = &section[..section.find("\n- ").expect("another")];
    let mut words: Vec<&str> = SkipReason::restriction_names()
        .chain(RESTRICTIONS.map(|reason| reason.into_str()))
        .chain(plimsoll_core::hpa::RESTRICTIONS.map(|reason| reason.into_str()))
        .chain(RecommendationReason::RESTRICTIONS.map(|reason| reason.into_str()))
        .collect();
    words.sort_unstable();
    words.dedup();
    let missing: Vec<_> =
        words.iter().filter(|word| !section.contains(&format!("`{word}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let per_vpa = SkipReason::restriction_names().count();
    let definitions = registry().definitions();
    let family = definitions.iter().find(|one| one.name == "plimsoll_restricted_scaling");
    let series = family.expect("exists").series_count;
    for stated in [
        format!("{} for each of 2 per container", RecommendationReason::RESTRICTIONS.len()),
        format!("{per_vpa} per VPA of an updater"),
        format!("{} per WPA", RESTRICTIONS.len()),
    ] {
        assert!(series.contains(&stated), "{series}: documented as {stated}");
    }
    assert!(page.contains(&format!("{per_vpa} reasons per VPA")));
    let rules = include_str!("../deploy/monitoring/recording.yaml");
    assert!(rules.contains(&format!("documented, at most {} per cluster", words.len())));
}

#[test]
fn unknown_update_modes_share_a_series_that_returns_to_zero() {
    let mut registry = Registry::new();
    let recommender = RecommenderMetrics::new(&mut registry);
    recommender.set_vpa_counts([vpa(Some("Sometimes")), vpa(Some("Never")), vpa(Some(""))]);
    let registry = Arc::new(registry);
    let text = || {
        let text: Vec<u8> = registry.scrape().flatten().collect();
        String::from_utf8(text).expect("UTF-8")
    };
    let line = |mode: &str, count: usize| {
        format!(
            "vpa_recommender_vpa_objects_count{{api=\"v1\",has_recommendation=\"true\",matches_pods=\"true\",\
             unsupported_config=\"false\",update_mode=\"{mode}\"}} {count}\n"
        )
    };
    assert!(
        text().contains(&line("other", 2)) && text().contains(&line("Recreate", 1)),
        "{}",
        text()
    );
    recommender.set_vpa_counts([]);
    assert!(
        text().contains(&line("other", 0)) && text().contains(&line("Recreate", 0)),
        "{}",
        text()
    );
}

#[test]
fn promtool_reports_only_lints_about_upstreams_names() {
    let tool = match test_programs::prometheus(PrometheusRelease::V3) {
        Ok(programs) => programs.tool,
        Err(why) => return report_skipped(why),
    };
    let mut promtool = process::Command::new(tool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let text = scrape(registry());
    promtool.stdin.take().expect("piped").write_all(text.as_bytes()).expect("promtool reads");
    let output = promtool.wait_with_output().expect("promtool ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lints: Vec<_> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    assert!(output.status.success() || output.status.code() == Some(3), "{stderr}");
    // Counters without _total and gauges with _count: upstream's names, kept for its dashboards.
    let upstreams = |line: &&str| line.starts_with("vpa_") || line.starts_with("wpa_");
    assert!(lints.iter().any(upstreams), "promtool checked nothing: {stderr}");
    let ours: Vec<_> = lints.iter().filter(|line| !upstreams(line)).collect();
    assert!(ours.is_empty(), "{ours:#?}");
}
