//! Series of restrictions and of metrics of one name: those that there are, at a cost that grows with the object.

use std::sync::{Arc, Mutex};

use plimsoll::metrics::{
    Cardinality, LabelSet, Registry, SourceRow, WatermarkObjects, WatermarkRow, Watermarks,
};
use plimsoll_core::types::VpaKey;

use super::{Herd, Object, of_family, shown, web};

#[test]
fn a_restriction_of_a_wpa_that_never_held_has_no_series_and_one_that_ends_is_zero() {
    struct Changing(Mutex<Vec<Object>>);
    impl Watermarks for Changing {
        fn visit(
            &self,
            after: Option<&VpaKey>,
            visit: &mut dyn FnMut(WatermarkRow<'_>),
        ) -> Option<VpaKey> {
            Herd(self.0.lock().expect("no panic").clone()).visit(after, visit)
        }
    }
    let state = Arc::new(Changing(Mutex::new(vec![web()])));
    let mut registry = Registry::new();
    let objects: Arc<dyn Watermarks> = Arc::clone(&state) as _;
    registry.add_watermarks(WatermarkObjects::new(
        objects,
        Cardinality::Standard,
        LabelSet::V12,
        &[],
    ));
    let registry = Arc::new(registry);
    let held = |object: Option<Object>| {
        *state.0.lock().expect("no panic") = object.into_iter().collect();
        let text: Vec<u8> = Arc::clone(&registry).scrape().flatten().collect();
        let text = String::from_utf8(text).expect("UTF-8");
        let lines = of_family(&text, "plimsoll_restricted_scaling");
        let told = lines.into_iter().map(|line| {
            let (_, told) = line.split_once("reason=\"").expect("a reason");
            told.replace("\"}", "")
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(held(Some(web())), ["upscale_capping 1", "dry_run 1"]);
    let failed = || Object { failed: true, ..web() };
    assert_eq!(held(Some(failed())), ["upscale_capping 0", "dry_run 1", "metric_unknown 1"]);
    assert!(held(None).is_empty());
    assert_eq!(held(Some(failed())), ["dry_run 1", "metric_unknown 1"], "it is another object");
}

#[test]
fn names_that_many_metrics_have_are_told_apart_in_linear_time() {
    let source = |value| SourceRow { value_milli: Some(value), ..SourceRow::default() };
    let sources: Vec<_> = (0..20_000).map(|number| source(f64::from(number))).collect();
    let text = shown(vec![Object { sources, ..web() }], Cardinality::All, LabelSet::V12, &[]);
    let ours = of_family(&text, "plimsoll_value");
    assert_eq!(ours.len(), 20_000);
    assert!(ours[19_999].contains("metric=\"#20000\""), "{}", ours[19_999]);
    let upstreams = of_family(&text, "wpa_controller_value");
    assert!(upstreams.len() == 1 && upstreams[0].ends_with("} 19999"), "{upstreams:?}");
}

#[test]
fn only_restrictions_and_whole_objects_are_left_of_ours_when_asked_so() {
    let text = shown(vec![web()], Cardinality::Restricted, LabelSet::V12, &[]);
    assert_eq!(of_family(&text, "plimsoll_restricted_scaling").len(), 2);
    assert_eq!(of_family(&text, "plimsoll_effective").len(), 1);
    assert_eq!(of_family(&text, "plimsoll_value").len(), 0);
    assert_eq!(of_family(&text, "wpa_controller_value").len(), 1, "upstream's are there anyway");
    assert_eq!(of_family(&text, "wpa_controller_restricted_scaling").len(), 3);
}
