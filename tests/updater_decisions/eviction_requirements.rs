//! Golden vectors 216 to 233: eviction requirements.

use plimsoll_core::{
    api::vpa::EvictionRequirement, sizing::Resources, types::compat::Compat,
    updater::requirement::are_met,
};
use serde_json::json;

use super::{PassCase, pod, recommended};
use crate::sizing::list;

fn parse_requirements(text: &str) -> Vec<EvictionRequirement> {
    let requirement = |part: &str| {
        let (resources, change) = part.trim().split_once(' ').expect("resources and a change");
        let resources: Vec<&str> = resources.split('+').collect();
        let change = match change {
            "higher" => "TargetHigherThanRequests",
            _ => "TargetLowerThanRequests",
        };
        json!({"resources": resources, "changeRequirement": change})
    };
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    serde_json::from_value(parts.map(requirement).collect()).expect("valid requirements")
}

#[test]
fn one_container_must_meet_all_eviction_requirements() {
    let same = "cpu 500m,memory 10Gi";
    for (row, required, requests, targets, expected) in [
        (217, "cpu higher", &[""][..], &["cpu 600m,memory 10Gi"][..], true),
        (219, "", &[same], &["cpu 600m,memory 10Gi"], true),
        (220, "cpu higher", &[same], &["cpu 600m,memory 10Gi"], true),
        (221, "cpu lower", &[same], &["cpu 400m,memory 10Gi"], true),
        (222, "cpu+memory higher", &[same], &["cpu 500m,memory 10Gi"], false),
        (223, "cpu+memory higher", &[same], &["cpu 500m,memory 11Gi"], true),
        (224, "memory higher", &[same], &["cpu 500m,memory 11Gi"], true),
        (225, "memory lower", &[same], &["cpu 500m,memory 9Gi"], true),
        (226, "cpu+memory higher", &[same], &["cpu 500m,memory 9Gi"], false),
        (227, "cpu higher,memory lower", &[same], &["cpu 600m,memory 9Gi"], true),
        (228, "cpu lower", &[same], &["cpu 1000m,memory 9Gi"], false),
        (229, "cpu higher,memory higher", &[same], &["cpu 600m,memory 9Gi"], false),
        (230, "cpu higher", &[same, same], &["cpu 600m", "cpu 700m"], true),
        (231, "cpu higher", &[same, same], &["cpu 200m", "cpu 700m"], true),
        (232, "cpu higher", &[same, same], &["cpu 200m", "cpu 300m"], false),
        (233, "cpu higher", &[same, same], &["", "cpu 300m"], false),
    ] {
        let (pod, targets) = (pod(0, requests), recommended(targets));
        let met = are_met(&parse_requirements(required), &pod.spec, &targets, false);
        assert_eq!(met, expected, "row {row}");
    }
    let mut pod = pod(0, &[same]);
    let status = Resources { requests: Some(list("cpu 100m,memory 1Gi")), limits: None };
    pod.spec.containers[0].status = Some(status);
    let targets = recommended(&["cpu 400m,memory 4Gi"]);
    assert!(
        are_met(&parse_requirements("cpu+memory higher"), &pod.spec, &targets, false),
        "row 218"
    );
}

#[test]
fn a_vpa_without_an_update_policy_has_no_eviction_requirements() {
    let mut case = PassCase::new(Compat::Upstream, "Recreate", 5);
    case.spec.update_policy = None;
    assert_eq!(case.decide().candidates, 5, "row 216");
}
