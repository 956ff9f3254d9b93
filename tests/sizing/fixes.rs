//! Each fix that changes a pod's resources: upstream's result, Plimsoll's, and Plimsoll's with the fix disabled.

use plimsoll_core::{
    admission::{AdmissionSettings, patch_pod},
    api::VerticalPodAutoscaler,
    sizing::{NamespaceLimitRanges, Pod, SizedContainer, SizingRules, SizingSpec},
    types::compat::{Compat, Fix},
};
use serde_json::{Value, json};

use super::{pod, quantity, ranges, text, vpa};

/// Expected container resources, as `requests; limits`.
struct FixCase {
    pod: Pod,
    vpa: VerticalPodAutoscaler,
    ranges: NamespaceLimitRanges,
    max_boost: &'static str,
}

impl FixCase {
    fn new(current: &[&str], vpa: VerticalPodAutoscaler, items: Value) -> Self {
        Self { pod: pod(current), vpa, ranges: ranges(items), max_boost: "0" }
    }

    fn boosted(mut self, boost: Value) -> Self {
        self.vpa.spec.startup_boost = serde_json::from_value(boost).expect("a boost");
        self
    }

    fn resources_with(&self, rules: SizingRules) -> Vec<String> {
        let admission = AdmissionSettings {
            rules,
            startup_boost: true,
            max_boosted_cpu: quantity(self.max_boost),
        };
        let plan = SizingSpec::from_vpa(&self.vpa);
        let line = |size: &SizedContainer| {
            format!("{}; {}", text(&size.requests), text(&size.limits)).trim().to_owned()
        };
        match patch_pod(&self.pod, &plan, Some(&self.ranges), &admission) {
            Ok(admitted) => admitted.sized_containers.iter().map(line).collect(),
            Err(refusal) => vec![refusal.into_str().to_owned()],
        }
    }

    /// Asserts upstream's result, Plimsoll's, and Plimsoll's with the fix disabled.
    fn assert_fix(&self, fix: Fix, upstream: &[&str], ours: &[&str], without: &[&str]) {
        assert_eq!(
            self.resources_with(SizingRules::for_compat(Compat::Upstream)),
            upstream,
            "{fix}: upstream"
        );
        let rules = SizingRules::for_compat(Compat::Plimsoll);
        assert_eq!(self.resources_with(rules), ours, "{fix}: ours");
        let rules = SizingRules { fixes: rules.fixes.without(fix), ..rules };
        assert_eq!(self.resources_with(rules), without, "{fix}: without it");
    }
}

#[test]
fn pod_range_spares_others() {
    let vpa = || vpa(Value::Null, &["c1: memory 3Gi"]);
    let case = FixCase::new(
        &["memory 1Gi; memory 1Gi"; 2],
        vpa(),
        json!([{"type": "Pod", "max": {"memory": "2Gi"}}]),
    );
    let scaled = ["memory 1536Mi; memory 1536Mi", "memory 512Mi; memory 512Mi"];
    case.assert_fix(Fix::PodRangeSparesOthers, &scaled, &["memory 1Gi; memory 1Gi", ";"], &scaled);
    let case = FixCase::new(
        &["memory 1Gi; memory 1Gi", ""],
        vpa(),
        json!([{"type": "Pod", "max": {"memory": "1Gi"}}]),
    );
    let crash = ["crashes_upstream"];
    case.assert_fix(Fix::PodRangeSparesOthers, &crash, &["memory 1Gi; memory 1Gi", ";"], &crash);
}

#[test]
fn pod_range_is_met() {
    let case = FixCase::new(
        &["memory 50M; memory 50M"; 2],
        vpa(Value::Null, &["c1: memory 1Gi", "c2: memory 2Gi"]),
        json!([{"type": "Pod", "min": {"memory": "4Gi"}}]),
    );
    let short = [
        "memory 1431655765; memory 1431655765", // a byte less than 4Gi together
        "memory 2863311530; memory 2863311530",
    ];
    let met = ["memory 1431655766; memory 1431655766", "memory 2863311531; memory 2863311531"];
    // The pod would be rejected unchanged too, so nothing is lost.
    case.assert_fix(Fix::PodRangeIsMet, &short, &met, &short);

    // The policy raises one of the two after the sums were capped.
    let policy = json!([{"containerName": "c1", "minAllowed": {"cpu": "800m"}}]);
    let case = FixCase::new(
        &["cpu 100m; cpu 100m"; 2],
        vpa(policy, &["c1: cpu 1", "c2: cpu 1"]),
        json!([{"type": "Pod", "max": {"cpu": "1"}}]),
    );
    let above = ["cpu 800m; cpu 800m", "cpu 500m; cpu 500m"];
    let inside = ["cpu 800m; cpu 800m", "cpu 200m; cpu 200m"];
    case.assert_fix(Fix::PodRangeIsMet, &above, &inside, &["would_be_rejected"]);
}

#[test]
fn unlimited_containers_obey_range_max() {
    let case = FixCase::new(
        &["cpu 250m"],
        vpa(Value::Null, &["c1: cpu 2"]),
        json!([{"type": "Container", "max": {"cpu": "1"}}]),
    );
    case.assert_fix(Fix::UnlimitedContainersObeyRangeMax, &["cpu 2;"], &["cpu 1;"], &["cpu 2;"]);
}

#[test]
fn limits_obey_ranges() {
    // The policy overrides the range's bound of the request; the proportional limit would exceed the range.
    let policy = json!([{"containerName": "c1", "minAllowed": {"memory": "2G"}}]);
    let case = FixCase::new(
        &["memory 1G; memory 2G"],
        vpa(policy, &["c1: memory 2G"]),
        json!([{"type": "Container", "max": {"memory": "3G"}}]),
    );
    let beyond = ["memory 2G; memory 4G"];
    case.assert_fix(
        Fix::LimitsObeyRanges,
        &beyond,
        &["memory 2G; memory 3G"],
        &["would_be_rejected"],
    );
    // With a fixed limit and a falling request, the ratio of limit to request grows.
    let only = json!([{"containerName": "c1", "controlledValues": "RequestsOnly"}]);
    let case = FixCase::new(
        &["cpu 500m; cpu 1"],
        vpa(only, &["c1: cpu 100m"]),
        json!([{"type": "Container", "maxLimitRequestRatio": {"cpu": "3"}}]),
    );
    case.assert_fix(Fix::LimitsObeyRanges, &["cpu 100m;"], &["cpu 334m;"], &["would_be_rejected"]);
}

#[test]
fn requests_only_stays_burstable() {
    let only = json!([{"containerName": "c1", "controlledValues": "RequestsOnly"}]);
    let case = FixCase::new(
        &["cpu 100m, memory 1Gi; cpu 1, memory 1500Mi"],
        vpa(only, &["c1: cpu 2, memory 2Gi"]),
        json!([]),
    );
    let guaranteed = ["cpu 1, memory 1500Mi;"];
    let ours = ["cpu 999m, memory 1500Mi;"];
    case.assert_fix(Fix::RequestsOnlyStaysBurstable, &guaranteed, &ours, &guaranteed);
}

fn factor(factor: i32) -> Value {
    json!({"cpu": {"type": "Factor", "factor": factor}})
}

#[test]
fn boost_takes_default_limit_along() {
    let case = FixCase::new(
        &["cpu 100m"],
        vpa(Value::Null, &["c1: cpu 100m"]),
        json!([{"type": "Container", "default": {"cpu": "200m"}}]),
    );
    let case = case.boosted(factor(3));
    let ours = ["cpu 300m; cpu 600m"];
    let fix = Fix::BoostTakesDefaultLimitAlong;
    case.assert_fix(fix, &["cpu 300m; cpu 200m"], &ours, &["would_be_rejected"]);
}

#[test]
fn boost_of_nothing_is_none() {
    let case = FixCase::new(&["memory 1Gi"], vpa(Value::Null, &[]), json!([])).boosted(factor(2));
    case.assert_fix(Fix::BoostOfNothingIsNone, &["cpu 0;"], &[";"], &["cpu 0;"]);
}

#[test]
fn boost_never_lowers() {
    let case = FixCase::new(&["cpu 100m"], vpa(Value::Null, &["c1: cpu 800m"]), json!([]));
    let case = FixCase { max_boost: "400m", ..case.boosted(factor(2)) };
    case.assert_fix(Fix::BoostNeverLowers, &["cpu 400m;"], &["cpu 800m;"], &["cpu 400m;"]);
}

#[test]
fn boost_in_mode_off() {
    let off = json!([{"containerName": "c1", "mode": "Off"}]);
    let case = FixCase::new(&["cpu 1; cpu 1"], vpa(off, &[]), json!([])).boosted(factor(2));
    case.assert_fix(Fix::BoostInModeOff, &[";"], &["cpu 2; cpu 2"], &[";"]);
}
