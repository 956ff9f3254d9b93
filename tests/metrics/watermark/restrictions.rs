//! Series of restrictions and of metrics with the same name: only existing ones, at a cost proportional to the object.

use std::sync::{Arc, Mutex};

use plimsoll::telemetry::{
    Cardinality, ExportedState, LabelSet, Registry, ReplicaKind, ReplicaMetricsSource,
    ReplicaObjectMetrics, ReplicaRow, upstream_series,
};
use plimsoll_core::{scaling::MetricDecision, types::ObjectKey};

use super::{
    WatermarkFixture, WatermarkFixtures, decided, failed, lines_of_family, scrape_text, web,
};

#[test]
fn a_wpa_restriction_that_was_never_active_has_no_series_and_one_that_ended_is_zero() {
    struct ChangingWatermarks(Mutex<Vec<WatermarkFixture>>);
    impl ReplicaMetricsSource for ChangingWatermarks {
        fn visit(
            &self,
            after: Option<&ObjectKey>,
            visit: &mut dyn FnMut(ReplicaRow<'_>),
        ) -> Option<ObjectKey> {
            WatermarkFixtures(self.0.lock().expect("no panic").clone()).visit(after, visit)
        }
    }
    let state = Arc::new(ChangingWatermarks(Mutex::new(vec![web()])));
    let mut registry = Registry::new();
    let objects: Arc<dyn ReplicaMetricsSource> = Arc::clone(&state) as _;
    registry.add_replica_autoscalers(ReplicaObjectMetrics::new(
        ReplicaKind::WATERMARK,
        objects,
        Cardinality::Standard,
        upstream_series(LabelSet::V12, &[]),
    ));
    let registry = Arc::new(registry);
    let held = |object: Option<WatermarkFixture>| {
        *state.0.lock().expect("no panic") = object.into_iter().collect();
        let text: Vec<u8> = Arc::clone(&registry).scrape().flatten().collect();
        let text = String::from_utf8(text).expect("UTF-8");
        let lines = lines_of_family(&text, "plimsoll_restricted_scaling");
        let reasons = lines.into_iter().map(|line| {
            let (_, rest) = line.split_once("reason=\"").expect("a reason");
            rest.replace("\"}", "")
        });
        reasons.collect::<Vec<_>>()
    };
    assert_eq!(held(Some(web())), ["upscale_capping 1", "dry_run 1"]);
    assert_eq!(held(Some(failed())), ["upscale_capping 0", "dry_run 1", "metric_unknown 1"]);
    assert!(held(None).is_empty());
    assert_eq!(held(Some(failed())), ["dry_run 1", "metric_unknown 1"], "another object");
}

#[test]
fn many_metrics_with_the_same_name_are_numbered_in_linear_time() {
    let metric = |value| MetricDecision { value: Some(value), ..MetricDecision::default() };
    let metrics = (0..20_000).map(|number| metric(f64::from(number))).collect();
    let state = ExportedState { decision: Some(decided(metrics, Vec::new())), ..web().state };
    let text = scrape_text(
        vec![WatermarkFixture { state, ..web() }],
        Cardinality::All,
        LabelSet::V12,
        &[],
    );
    let ours = lines_of_family(&text, "plimsoll_value");
    assert_eq!(ours.len(), 20_000);
    assert!(ours[19_999].contains("metric=\"#20000\""), "{}", ours[19_999]);
    let upstreams = lines_of_family(&text, "wpa_controller_value");
    assert!(upstreams.len() == 1 && upstreams[0].ends_with("} 19999"), "{upstreams:?}");
}

#[test]
fn cardinality_restricted_exports_only_restrictions_and_objects_of_ours() {
    let text = scrape_text(vec![web()], Cardinality::Restricted, LabelSet::V12, &[]);
    assert_eq!(lines_of_family(&text, "plimsoll_restricted_scaling").len(), 2);
    assert_eq!(lines_of_family(&text, "plimsoll_effective").len(), 1);
    assert_eq!(lines_of_family(&text, "plimsoll_value").len(), 0);
    assert_eq!(
        lines_of_family(&text, "wpa_controller_value").len(),
        1,
        "upstream's series always exist"
    );
    assert_eq!(lines_of_family(&text, "wpa_controller_restricted_scaling").len(), 3);
}
