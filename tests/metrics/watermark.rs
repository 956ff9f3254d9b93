//! Series of WatermarkPodAutoscalers: byte for byte what dashboards for upstream use, for known values of existing
//! objects.

mod restrictions;

use std::{collections::HashSet, sync::Arc, time::Duration};

use plimsoll::telemetry::{
    Cardinality, ExportedMonitor, ExportedState, LabelSet, ObjectMetrics, Registry, ReplicaKind,
    ReplicaMetricsSource, ReplicaObjectMetrics, ReplicaRow, WatermarkMetrics, objects::PAGE_SIZE,
    upstream_series,
};
use plimsoll_core::{
    scaling::{MetricBounds, MetricDecision, MetricError, Restriction, ScaleDecision},
    types::{ObjectKey, Time},
    watermark::RESTRICTIONS,
};

use super::{object_metrics::UniformObjects, scrape};

/// One object of the watermark controller.
#[derive(Clone)]
pub struct WatermarkFixture {
    key: ObjectKey,
    state: ExportedState,
}

const NOW: Time = Time::from_secs(1_000_000);

/// The objects of a controller, ordered by key.
pub struct WatermarkFixtures(pub Vec<WatermarkFixture>);

pub fn decided(metrics: Vec<MetricDecision>, restrictions: Vec<Restriction>) -> Arc<ScaleDecision> {
    Arc::new(ScaleDecision { metrics, restrictions, ..ScaleDecision::default() })
}

/// An object whose values are all known.
pub fn web() -> WatermarkFixture {
    let requests = MetricDecision {
        label: "requests".to_owned(),
        value: Some(212_500.0),
        bounds: Some(MetricBounds { low: 100_000, high: 150_000, ..MetricBounds::default() }),
        proposal: Some(15),
        ..MetricDecision::default()
    };
    let restrictions = vec![Restriction::UpscaleCapping, Restriction::DryRun];
    let state = ExportedState {
        target: ("Deployment".to_owned(), "web-server".to_owned()),
        dry_run: true,
        bounds: (2, 40),
        tolerance: 50,
        desired_replicas: Some(13),
        scaling_active: true,
        conditions: vec![("able_to_scale", true), ("scaling_limited", true)],
        within_bounds: Some(false),
        upscale_capping: Some(true),
        downscale_capping: Some(false),
        cooldown_seconds: Some((0.0, 287.5)),
        replicas_moved: Some((12, 0)),
        labels: vec![("team/name".to_owned(), "front".to_owned())],
        monitor: Some(ExportedMonitor { name: "errors".to_owned(), blocks: false }),
        decision: Some(decided(vec![requests], restrictions)),
        reconciled_at: NOW,
        last_value_at: Some(NOW.earlier(Duration::from_millis(2500))),
        update_mode: "",
        pods: None,
        shadow_difference: None,
    };
    WatermarkFixture { key: ObjectKey::new("shop", "web"), state }
}

/// An object with a failed metric, so that most values are unknown.
fn failed() -> WatermarkFixture {
    let WatermarkFixture { key, state } = web();
    let ExportedState { target, dry_run, bounds, tolerance, labels, decision, .. } = state;
    let state = ExportedState {
        target,
        dry_run,
        bounds,
        tolerance,
        labels,
        decision: Some(decided(
            decision.expect("a decision").metrics.clone(),
            vec![Restriction::MetricUnknown, Restriction::DryRun],
        )),
        conditions: vec![("able_to_scale", true)],
        ..ExportedState::default()
    };
    WatermarkFixture { key, state }
}

impl ReplicaMetricsSource for WatermarkFixtures {
    fn visit(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(ReplicaRow<'_>),
    ) -> Option<ObjectKey> {
        let rest = self.0.iter().filter(|object| after.is_none_or(|after| object.key > *after));
        let page: Vec<&WatermarkFixture> = rest.take(PAGE_SIZE).collect();
        for object in &page {
            visit(ReplicaRow { key: &object.key, state: &object.state, now: NOW });
        }
        page.last().filter(|_| page.len() == PAGE_SIZE).map(|last| last.key.clone())
    }
}

fn scrape_text(
    objects: Vec<WatermarkFixture>,
    cardinality: Cardinality,
    set: LabelSet,
    tags: &[&str],
) -> String {
    let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
    let mut registry = Registry::new();
    registry.add_replica_autoscalers(ReplicaObjectMetrics::new(
        ReplicaKind::WATERMARK,
        Arc::new(WatermarkFixtures(objects)),
        cardinality,
        upstream_series(set, &tags),
    ));
    scrape(registry)
}

/// The lines about objects, without comments.
fn series(text: &str) -> Vec<&str> {
    let is_of_objects = |line: &&str| line.starts_with("wpa_") || line.contains("kind=\"wpa\"");
    text.lines().filter(is_of_objects).collect()
}

fn lines_of_family<'a>(text: &'a str, family: &str) -> Vec<&'a str> {
    let begin = format!("{family}{{");
    text.lines().filter_map(|line| line.strip_prefix(&begin)).collect()
}

/// Upstream's series of [`web`]. `@` is replaced by labels, which differ between releases.
const UPSTREAMS: &str = r#"wpa_controller_conditions{condition="able_to_scale",@,wpa_name="web",wpa_namespace="shop"} 1
wpa_controller_conditions{condition="scaling_limited",@,wpa_name="web",wpa_namespace="shop"} 1
wpa_controller_downscale_replicas_total{@,wpa_name="web",wpa_namespace="shop"} 0
wpa_controller_dry_run{@,wpa_name="web",wpa_namespace="shop"} 1
wpa_controller_high_watermak{@metric,wpa_name="web",wpa_namespace="shop"} 150000
wpa_controller_high_watermark{@metric,wpa_name="web",wpa_namespace="shop"} 150000
wpa_controller_labels_info{@labels,wpa_name="web",wpa_namespace="shop"} 1
wpa_controller_lifecycle_control_status{@lifecycle,monitor_name="errors",monitor_namespace="shop",wpa_name="web",wpa_namespace="shop"} 0
wpa_controller_low_watermak{@metric,wpa_name="web",wpa_namespace="shop"} 100000
wpa_controller_low_watermark{@metric,wpa_name="web",wpa_namespace="shop"} 100000
wpa_controller_max_replicas{@,wpa_name="web",wpa_namespace="shop"} 40
wpa_controller_min_replicas{@,wpa_name="web",wpa_namespace="shop"} 2
wpa_controller_replicas_scaling_effective{@,wpa_name="web",wpa_namespace="shop"} 13
wpa_controller_replicas_scaling_proposal{@metric,wpa_name="web",wpa_namespace="shop"} 15
wpa_controller_restricted_scaling{@downscale_capping,wpa_name="web",wpa_namespace="shop"} 0
wpa_controller_restricted_scaling{@upscale_capping,wpa_name="web",wpa_namespace="shop"} 1
wpa_controller_restricted_scaling{@within_bounds,wpa_name="web",wpa_namespace="shop"} 0
wpa_controller_scaling_active{@,wpa_name="web",wpa_namespace="shop"} 1
wpa_controller_transition_countdown{@,transition="downscale",wpa_name="web",wpa_namespace="shop"} 287.5
wpa_controller_transition_countdown{@,transition="upscale",wpa_name="web",wpa_namespace="shop"} 0
wpa_controller_upscale_replicas_total{@,wpa_name="web",wpa_namespace="shop"} 12
wpa_controller_value{@metric,wpa_name="web",wpa_namespace="shop"} 212500
"#;

/// A release, and the labels that were added over time; empty if the release does not have them.
struct Release {
    set: LabelSet,
    dry_run: &'static str,
    namespace: &'static str,
    target: &'static str,
}

const RESOURCE: &str =
    r#"resource_kind="Deployment",resource_name="web-server",resource_namespace="shop""#;

impl Release {
    fn upstreams(&self) -> String {
        let Self { dry_run, namespace, target, .. } = self;
        let mut text = UPSTREAMS.to_owned();
        for reason in ["downscale_capping", "upscale_capping", "within_bounds"] {
            let labels = format!("{dry_run}{namespace}reason=\"{reason}\",{RESOURCE}{target}");
            text = text.replace(&format!("@{reason}"), &labels);
        }
        let metric = format!("{dry_run}metric_name=\"requests\",{namespace}{RESOURCE}{target}");
        text.replace("@metric", &metric)
            .replace("@lifecycle", &format!("{dry_run}lifecycle_status=\"blocked\""))
            .replace(
                "@labels",
                &format!("{dry_run}{namespace}resource_namespace=\"shop\",team_name=\"front\""),
            )
            .replace('@', &format!("{dry_run}{namespace}{RESOURCE}{target}"))
    }
}

#[test]
fn upstreams_series_have_the_labels_of_the_selected_release() {
    let (none, namespace, target) = ("", "namespace=\"shop\",", ",target_name=\"web-server\"");
    let releases = [
        Release { set: LabelSet::V10, dry_run: none, namespace: none, target: none },
        Release { set: LabelSet::V11, dry_run: none, namespace, target },
        Release { set: LabelSet::V12, dry_run: "dry_run=\"true\",", namespace, target },
    ];
    for release in releases {
        let text = scrape_text(vec![web()], Cardinality::Off, release.set, &["team/name"]);
        let expected = release.upstreams();
        assert_eq!(series(&text), expected.lines().collect::<Vec<_>>(), "{:?}", release.set);
    }
}

#[test]
fn a_family_has_its_help_text_once_and_before_its_series() {
    let other = WatermarkFixture { key: ObjectKey::new("shop", "worker"), ..web() };
    let text = scrape_text(vec![web(), other], Cardinality::Off, LabelSet::V10, &[]);
    let (_, text) = text.split_once("# HELP wpa_controller_value").expect("exists");
    let expected = concat!(
        " The value that is compared with the watermarks.
",
        "# TYPE wpa_controller_value gauge\n",
        "wpa_controller_value{metric_name=\"requests\",resource_kind=\"Deployment\",resource_name=\"web-server\",",
        "resource_namespace=\"shop\",wpa_name=\"web\",wpa_namespace=\"shop\"} 212500\n",
        "wpa_controller_value{metric_name=\"requests\",resource_kind=\"Deployment\",resource_name=\"web-server\",",
        "resource_namespace=\"shop\",wpa_name=\"worker\",wpa_namespace=\"shop\"} 212500\n",
    );
    assert_eq!(text, expected);
}

#[test]
fn our_series_describe_the_whole_state() {
    let text = scrape_text(vec![web()], Cardinality::All, LabelSet::V12, &[]);
    let ours: Vec<_> =
        series(&text).into_iter().filter(|line| line.starts_with("plimsoll_")).collect();
    let expected = r#"plimsoll_object_info{dry_run="true",kind="wpa",name="web",namespace="shop",target_kind="Deployment",target_name="web-server"} 1
plimsoll_staleness_seconds{kind="wpa",name="web",namespace="shop"} 2.5
plimsoll_value{kind="wpa",metric="requests",name="web",namespace="shop"} 212.5
plimsoll_low{kind="wpa",metric="requests",name="web",namespace="shop"} 100
plimsoll_high{kind="wpa",metric="requests",name="web",namespace="shop"} 150
plimsoll_tolerance{kind="wpa",name="web",namespace="shop"} 0.05
plimsoll_proposal{kind="wpa",metric="requests",name="web",namespace="shop"} 15
plimsoll_effective{kind="wpa",name="web",namespace="shop"} 13
plimsoll_min_replicas{kind="wpa",name="web",namespace="shop"} 2
plimsoll_max_replicas{kind="wpa",name="web",namespace="shop"} 40
plimsoll_transition_countdown_seconds{kind="wpa",name="web",namespace="shop",transition="downscale"} 287.5
plimsoll_transition_countdown_seconds{kind="wpa",name="web",namespace="shop",transition="upscale"} 0
"#;
    let expected: Vec<String> = expected.lines().map(str::to_owned).collect();
    let restrictions = RESTRICTIONS.map(|reason| {
        let holds = [Restriction::UpscaleCapping, Restriction::DryRun].contains(&reason);
        let (reason, holds) = (reason.into_str(), u8::from(holds));
        format!(
            "plimsoll_restricted_scaling{{kind=\"wpa\",name=\"web\",namespace=\"shop\",reason=\"{reason}\"}} {holds}"
        )
    });
    let expected: Vec<String> = expected.into_iter().chain(restrictions).collect();
    assert_eq!(ours, expected);
}

#[test]
fn unknown_values_after_a_failure_have_no_series() {
    let metric = |label: &str| MetricDecision { label: label.to_owned(), ..Default::default() };
    let requests = MetricDecision { value: Some(f64::NAN), ..metric("requests") };
    let errors = MetricDecision { bounds: Some(MetricBounds::default()), ..metric("errors") };
    let WatermarkFixture { key, state } = failed();
    let decision = decided(vec![requests, errors], state.restrictions().to_vec());
    let state = ExportedState { decision: Some(decision), ..state };
    let text =
        scrape_text(vec![WatermarkFixture { key, state }], Cardinality::All, LabelSet::V12, &[]);
    for absent in [
        "wpa_controller_value",
        "wpa_controller_restricted_scaling",
        "wpa_controller_replicas_scaling_effective",
        "wpa_controller_replicas_scaling_proposal",
        "wpa_controller_transition_countdown",
        "wpa_controller_upscale_replicas_total",
        "wpa_controller_lifecycle_control_status",
        "plimsoll_value",
        "plimsoll_effective",
        "plimsoll_staleness_seconds",
    ] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
    let active = lines_of_family(&text, "wpa_controller_scaling_active");
    assert!(active.len() == 1 && active[0].ends_with("} 0"), "{active:?}");
    let marks = lines_of_family(&text, "wpa_controller_high_watermak");
    assert!(
        marks.len() == 1 && marks[0].ends_with("} 0"),
        "a watermark of zero is a known value: {marks:?}"
    );
    let unknown = "reason=\"metric_unknown\"} 1";
    assert!(
        lines_of_family(&text, "plimsoll_restricted_scaling")
            .iter()
            .any(|it| it.ends_with(unknown))
    );
}

#[test]
fn series_of_a_deleted_or_changed_object_are_removed() {
    let live = |dry_run| {
        let state = ExportedState { dry_run, ..web().state };
        scrape_text(vec![WatermarkFixture { state, ..web() }], Cardinality::All, LabelSet::V12, &[])
    };
    assert!(!live(true).contains("dry_run=\"false\"") && !live(false).contains("dry_run=\"true\""));
    let gone = scrape_text(Vec::new(), Cardinality::All, LabelSet::V12, &["team"]);
    assert_eq!(series(&gone), [""; 0]);
    assert!(!gone.contains("wpa_controller"), "a family without series has no HELP: {gone}");
}

#[test]
fn metrics_with_the_same_name_are_merged_in_upstreams_series_and_numbered_in_ours() {
    let of = |value| MetricDecision {
        label: "requests".to_owned(),
        value: Some(value),
        ..MetricDecision::default()
    };
    let decision = decided(vec![of(1000.0), of(2000.0)], Vec::new());
    let state = ExportedState { decision: Some(decision), ..web().state };
    let twice = WatermarkFixture { state, ..web() };
    let text = scrape_text(vec![twice], Cardinality::All, LabelSet::V10, &[]);
    let upstreams = lines_of_family(&text, "wpa_controller_value");
    assert!(upstreams.len() == 1 && upstreams[0].ends_with("} 2000"), "{upstreams:?}");
    let ours = lines_of_family(&text, "plimsoll_value");
    let expected = [
        r#"kind="wpa",metric="requests",name="web",namespace="shop"} 1"#,
        r#"kind="wpa",metric="requests#2",name="web",namespace="shop"} 2"#,
    ];
    assert_eq!(ours, expected);
}

#[test]
fn labels_of_objects_become_valid_and_unique_label_names() {
    let labels =
        [("team/name", "front"), ("a.b", "dot"), ("a-b", "dash \"x\""), ("dry_run", "mine")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let state = ExportedState { labels, ..web().state };
    let keys = ["a.b", "dry_run", "team/name", "a-b", "missing"];
    let text = scrape_text(
        vec![WatermarkFixture { state, ..web() }],
        Cardinality::Off,
        LabelSet::V12,
        &keys,
    );
    let wanted = concat!(
        r#"a_b="dash \"x\"",a_b_2="dot",dry_run="true",dry_run_2="mine",missing="",namespace="shop","#,
        r#"resource_namespace="shop",team_name="front",wpa_name="web",wpa_namespace="shop"} 1"#,
    );
    assert_eq!(lines_of_family(&text, "wpa_controller_labels_info"), [wanted]);
}

#[test]
fn objects_of_several_pages_stay_within_their_families() {
    let named = |number| WatermarkFixture {
        key: ObjectKey::new("shop", format!("web-{number:04}")),
        ..web()
    };
    let count = 3 * PAGE_SIZE + 1;
    let fixtures = WatermarkFixtures((0..count).map(named).collect());
    let mut registry = Registry::new();
    registry.add_objects(ObjectMetrics::new(Arc::new(UniformObjects::of(count)), Cardinality::All));
    let objects = ReplicaObjectMetrics::new(
        ReplicaKind::WATERMARK,
        Arc::new(fixtures),
        Cardinality::All,
        upstream_series(LabelSet::V12, &[]),
    );
    registry.add_replica_autoscalers(objects);
    let registry = Arc::new(registry);
    let chunks: Vec<_> = registry.scrape().collect();
    assert!(chunks.len() > 10, "only {} chunks", chunks.len());
    let text: Vec<u8> = chunks.concat();
    let text = String::from_utf8(text).expect("UTF-8");
    // Prometheus would not parse a family that is split.
    let read = super::Exposition::parse(&text);
    let mut seen = HashSet::new();
    assert!(series(&text).into_iter().all(|line| seen.insert(line)), "a series is duplicated");
    let of_wpas = lines_of_family(&text, "plimsoll_high");
    assert_eq!(of_wpas.iter().filter(|line| line.contains("kind=\"wpa\"")).count(), count);
    assert_eq!(of_wpas.iter().filter(|line| line.contains("kind=\"vpa\"")).count(), 2 * count);
    assert_eq!(read.family("wpa_controller_value").series.len(), count);
}

#[test]
fn unused_recommenders_have_no_series() {
    let mut registry = Registry::new();
    let metrics = WatermarkMetrics::new(&mut registry);
    let registry = Arc::new(registry);
    let text = || String::from_utf8(registry.scrape().flatten().collect()).expect("UTF-8");
    let call = metrics.calls.begin("https://user:secret@one/scale?token=secret");
    assert!(text().contains("http_client_requests_inflight{client=\"https://one/scale\"} 1\n"));
    call.on_response("POST", 307, Duration::from_millis(50));
    call.on_response("POST", 200, Duration::from_millis(350));
    call.on_failure();
    drop(call);
    metrics.calls.begin("http://two").on_response("POST", 200, Duration::from_secs(2));
    let text_now = text();
    for expected in [
        r#"http_client_request_duration_seconds_bucket{client="https://one/scale",code="200",method="post",le="0.3"} 0"#,
        r#"http_client_request_duration_seconds_bucket{client="https://one/scale",code="200",method="post",le="0.6"} 1"#,
        r#"http_client_requests_errors_total{client="https://one/scale"} 1"#,
        r#"http_client_requests_errors_total{client="http://two"} 0"#,
        r#"http_client_requests_inflight{client="https://one/scale"} 0"#,
        r#"http_client_requests_total{client="https://one/scale",code="307",method="post"} 1"#,
    ] {
        assert!(text_now.lines().any(|line| line == expected), "{expected} is not in {text_now}");
    }
    assert!(!text_now.contains("secret"), "{text_now}");
    metrics.calls.retain_clients(&HashSet::from(["http://two".to_owned()]));
    let text_now = text();
    assert!(!text_now.contains("https://one") && text_now.contains("http://two"), "{text_now}");
}

#[test]
fn reconciliations_are_counted_like_controller_runtime() {
    let mut registry = Registry::new();
    let metrics = WatermarkMetrics::new(&mut registry);
    metrics.set_workers(4);
    metrics.set_queue_depth(7);
    metrics.begin_reconcile(Duration::from_secs(3));
    metrics.begin_reconcile(Duration::ZERO);
    metrics.end_reconcile("held", "requeue_after", Duration::from_millis(30));
    metrics.end_reconcile("failed", "error", Duration::from_secs(61));
    metrics.begin_reconcile(Duration::ZERO);
    metrics.count_metric_result("external", Ok(()));
    metrics.count_metric_result("prometheus", Err(&MetricError::NotANumber));
    let text = scrape(registry);
    for expected in [
        r#"controller_runtime_active_workers{controller="watermarkpodautoscaler"} 1"#,
        r#"controller_runtime_max_concurrent_reconciles{controller="watermarkpodautoscaler"} 4"#,
        r#"controller_runtime_reconcile_errors_total{controller="watermarkpodautoscaler"} 1"#,
        r#"controller_runtime_reconcile_time_seconds_bucket{controller="watermarkpodautoscaler",le="60"} 1"#,
        r#"controller_runtime_reconcile_total{controller="watermarkpodautoscaler",result="requeue"} 0"#,
        r#"controller_runtime_reconcile_total{controller="watermarkpodautoscaler",result="requeue_after"} 1"#,
        r#"plimsoll_metric_outcomes_total{outcome="not_a_number",source="prometheus"} 1"#,
        r#"plimsoll_metric_outcomes_total{outcome="ok",source="external"} 1"#,
        r#"plimsoll_watermark_lateness_seconds_bucket{le="2"} 2"#,
        r#"plimsoll_watermark_reconciles_total{outcome="held"} 1"#,
        r#"workqueue_depth{controller="watermarkpodautoscaler",name="watermarkpodautoscaler"} 7"#,
    ] {
        assert!(text.lines().any(|line| line == expected), "{expected} is not in {text}");
    }
}
