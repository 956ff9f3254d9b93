//! Golden vectors 127 to 143: the update priority of a pod, and the resulting order.

use plimsoll_core::{
    sizing::Resources,
    updater::{ObservedContainers, Priority},
};

use super::{pod, recommended};
use crate::sizing::list;

fn priority_of(requests: &[&str], targets: &[&str]) -> Priority {
    let pod = pod(0, requests);
    Priority::new(&pod.spec, &recommended(targets), &ObservedContainers::All, false)
}

#[test]
fn the_priority_is_the_relative_difference_of_summed_requests_and_targets() {
    for (row, requests, targets, outside_range, difference, scale_up) in [
        (127, &["cpu 2"][..], &["cpu 10"][..], false, 4.0, true),
        (129, &["cpu 4"], &["cpu 2"], false, 0.5, false),
        (130, &["cpu 2"], &["cpu 2"], false, 0.0, false),
        (131, &["cpu 10m"], &["cpu 900m"], false, 89.0, true),
        (132, &["cpu 4"], &["cpu 10;cpu 6;cpu 14"], true, 1.5, true),
        (133, &["cpu 8"], &["cpu 2;cpu 1;cpu 3"], true, 0.75, false),
        (134, &["cpu 3,memory 10M"], &["cpu 6,memory 20M"], false, 2.0, true),
        (135, &["cpu 4,memory 10M"], &["cpu 2,memory 20M"], false, 1.5, true),
        (136, &["cpu 4,memory 20M"], &["cpu 2,memory 10M"], false, 1.0, false),
        (
            137,
            &["cpu 4,memory 20M"],
            &["cpu 2,memory 10M;cpu 1,memory 5M;cpu 3,memory 30M"],
            true,
            1.0,
            false,
        ),
        (138, &["cpu 1", "cpu 2"], &["cpu 4", "cpu 8"], false, 3.0, true),
        (139, &["cpu 3", "cpu 7"], &["cpu 1", "cpu 2"], false, 0.7, false),
        (140, &["cpu 1", "cpu 2"], &["cpu 4;cpu 1", "cpu 8;cpu 3;cpu 10"], true, 3.0, true),
        (
            141,
            &["cpu 6,memory 10M", "cpu 4,memory 30M"],
            &["cpu 8,memory 20M", "cpu 7,memory 30M"],
            false,
            0.75,
            true,
        ),
    ] {
        let found = priority_of(requests, targets);
        assert_eq!(
            found,
            Priority {
                outside_recommended_range: outside_range,
                scale_up,
                resource_diff: difference
            },
            "row {row}"
        );
    }
}

#[test]
fn resources_in_the_container_status_override_the_spec() {
    let mut pod = pod(0, &["cpu 10000"]);
    let status = Resources { requests: Some(list("cpu 2")), limits: None };
    pod.spec.containers[0].status = Some(status);
    let found =
        Priority::new(&pod.spec, &recommended(&["cpu 10"]), &ObservedContainers::All, false);
    assert_eq!(found.resource_diff, 4.0);
}

#[test]
fn containers_that_were_not_observed_do_not_count() {
    let mut pod = pod(0, &["cpu 1"]);
    for (annotation, difference) in
        [(None, 9.0), (Some("c1"), 9.0), (Some("not a list!"), 9.0), (Some(""), 0.0)]
    {
        pod.spec.annotations =
            annotation.map(|text| [("vpaObservedContainers".into(), text.into())].into());
        let observed = ObservedContainers::from_pod(&pod.spec, &[]);
        let found = Priority::new(&pod.spec, &recommended(&["cpu 10"]), &observed, false);
        assert_eq!(found.resource_diff, difference, "{annotation:?}");
    }
}

#[test]
fn a_missing_request_is_outside_the_range_and_counts_as_scale_up() {
    let found = priority_of(&["cpu 1"], &["cpu 1,memory 1k"]);
    assert_eq!(
        found,
        Priority { outside_recommended_range: true, scale_up: true, resource_diff: 999_999.0 }
    );
}

#[test]
fn scale_ups_come_first_and_then_the_larger_difference() {
    let priority = |scale_up, difference| Priority {
        outside_recommended_range: false,
        scale_up,
        resource_diff: difference,
    };
    let sorted = |mut priorities: Vec<(bool, f64)>| {
        priorities
            .sort_by(|left, right| priority(left.0, left.1).compare(&priority(right.0, right.1)));
        priorities
    };
    assert_eq!(
        sorted(vec![(true, 4.0), (true, 1.5), (true, 9.0), (true, 2.33)]),
        [(true, 9.0), (true, 4.0), (true, 2.33), (true, 1.5)]
    );
    assert_eq!(
        sorted(vec![(false, 0.25), (true, 0.25), (false, 0.5)]),
        [(true, 0.25), (false, 0.5), (false, 0.25)]
    );
}
