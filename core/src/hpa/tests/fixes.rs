//! Each named fix, with upstream's behavior and ours. Tests are named after the fixes.

use serde_json::{Value, json};

use super::fixture::{Case, ago, cpu, external, object, pod, requests};
use crate::hpa::hpa_state::HpaState;
use crate::hpa::observed::{Retry, retry};
use crate::scaling::pod_readiness::Phase;
use crate::{
    hpa::{Fix, Fixes, Selector},
    scaling::Restriction,
};

/// Desired replicas, if any, with upstream's behavior and with one fix.
fn both(case: &Case, fix: Fix) -> (Option<i32>, Option<i32>) {
    let with = |fixes| case.clone().with(fixes).decide().desired;
    (with(Fixes::UPSTREAM), with(Fixes::UPSTREAM.with(fix)))
}

#[test]
fn only_own_pods_count() {
    let case = Case::new(3, cpu(50)).using(&[500, 500, 500, 3000, 3000]).change(|case| {
        for index in 3..5 {
            case.pods.push(pod(index, 1000));
            case.pods[index].is_foreign = true;
        }
    });
    assert_eq!(both(&case, Fix::OnlyOwnPodsCount), (Some(6), Some(3)));
    // Three pods at their target, and idle samples of three that are gone.
    let gone = Case::new(3, super::fixture::per_pod("500m")).valued(&[500, 500, 500, 0, 0, 0]);
    assert_eq!(both(&gone, Fix::OnlyOwnPodsCount), (Some(2), Some(3)));
}

#[test]
fn surge_pods_do_not_count() {
    let case = Case::new(4, external("AverageValue", "10")).change(|case| {
        case.external = Ok(vec!["51"]);
        if let Ok(scale) = &mut case.scale {
            scale.status_replicas = 5;
        }
    });
    assert_eq!(both(&case, Fix::SurgePodsDoNotCount), (Some(5), Some(4)));
}

#[test]
fn window_only_holds() {
    let case = Case::new(3, cpu(50)).using(&[500; 3]).change(|case| {
        case.memory =
            serde_json::from_value(json!({"recommendations": [{"replicas": 5, "at": ago(30)}]}))
                .expect("a memory");
    });
    assert_eq!(both(&case, Fix::WindowOnlyHolds), (Some(5), Some(3)));
}

#[test]
fn terminating_pods_are_not_ready() {
    let case = Case::new(3, object("Value", "10"))
        .bounds(2, 20)
        .state(&[(3, "deleted")])
        .change(|case| case.object = Ok("15"));
    assert_eq!(both(&case, Fix::TerminatingPodsAreNotReady), (Some(6), Some(5)));
}

#[test]
fn unready_workload_holds() {
    let states = [(0, "unready"), (1, "unready"), (2, "unready"), (3, "unready")];
    let case =
        Case::new(4, object("Value", "10")).state(&states).change(|case| case.object = Ok("90"));
    assert_eq!(both(&case, Fix::UnreadyWorkloadHolds), (Some(2), Some(4)));
}

#[test]
fn actuated_requests_count() {
    let case = Case::new(3, cpu(50)).using(&[500; 3]).change(|case| {
        for container in case.pods.iter_mut().flat_map(|pod| &mut pod.containers) {
            container.requests = requests(500);
            container.actuated = Some(requests(1000));
        }
    });
    assert_eq!(both(&case, Fix::ActuatedRequestsCount), (Some(6), Some(3)));
}

#[test]
fn containers_without_request_are_left_out() {
    let case = Case::new(3, cpu(50)).using(&[1000; 3]).change(|case| {
        for pod in &mut case.pods {
            pod.containers[1].requests.clear();
        }
        if let Ok(usage) = &mut case.usage {
            for pod in usage {
                pod.containers[1].1 = requests(90_000);
            }
        }
    });
    assert_eq!(both(&case, Fix::ContainersWithoutRequestAreLeftOut), (None, Some(6)));
    let nowhere = case.change(|case| {
        for container in case.pods.iter_mut().flat_map(|pod| &mut pod.containers) {
            container.requests.clear();
        }
    });
    assert_eq!(both(&nowhere, Fix::ContainersWithoutRequestAreLeftOut), (None, None));
}

#[test]
fn ended_pods_do_not_count() {
    let case = Case::new(3, cpu(50)).using(&[1000; 3]).change(|case| {
        for index in 3..6 {
            case.pods.push(pod(index, 1000));
            case.pods[index].phase = Phase::Succeeded;
        }
    });
    assert_eq!(both(&case, Fix::EndedPodsDoNotCount), (Some(3), Some(6)));
}

#[test]
fn proposals_saturate() {
    let metrics = json!([{"type": "Pods", "pods": {"metric": {"name": "rps"},
        "target": {"type": "AverageValue", "averageValue": "1m"}}}]);
    let case = Case::new(3, metrics).valued(&[i64::MAX / 4; 3]);
    assert_eq!(both(&case, Fix::ProposalsSaturate), (Some(2), Some(6)));
    let value =
        Case::new(3, external("Value", "10")).change(|case| case.external = Ok(vec!["10P"]));
    assert_eq!(both(&value, Fix::ProposalsSaturate), (Some(2), Some(6)));
}

#[test]
fn negative_is_unknown() {
    let case =
        Case::new(5, external("Value", "10")).change(|case| case.external = Ok(vec!["7", "-8"]));
    assert_eq!(both(&case, Fix::NegativeIsUnknown), (Some(2), None));
    let decision = case.with(Fixes::ALL).decide();
    assert_eq!(decision.restrictions, [Restriction::MetricUnknown]);
    for metrics in [object("Value", "1"), super::fixture::per_pod("1"), cpu(50)] {
        let case = Case::new(5, metrics)
            .valued(&[-1; 5])
            .using(&[-1; 5])
            .change(|case| case.object = Ok("-1"));
        assert_eq!(both(&case, Fix::NegativeIsUnknown).1, None);
    }
}

#[test]
fn negative_usage_of_one_container_makes_the_metric_unknown() {
    let case = Case::new(5, cpu(50)).using(&[400; 5]).change(|case| {
        let usage = case.usage.as_mut().expect("usage");
        usage[0].containers[0].1 = requests(-399);
    });
    assert_eq!(both(&case, Fix::NegativeIsUnknown), (Some(4), None));
}

#[test]
fn stale_usage_is_unknown() {
    let aged = |ages: &[i64]| {
        let case = Case::new(5, cpu(50)).using(&[100; 5]);
        case.change(|case| {
            for (usage, age) in case.usage.as_mut().expect("usage").iter_mut().zip(ages) {
                usage.timestamp = ago(*age);
            }
        })
    };
    assert_eq!(both(&aged(&[300; 5]), Fix::StaleUsageIsUnknown), (Some(2), Some(2)));
    let stale = aged(&[301; 5]);
    assert_eq!(both(&stale, Fix::StaleUsageIsUnknown), (Some(2), None));
    let error = stale.with(Fixes::ALL).decide().error.expect("an error");
    assert!(error.ends_with("from resource metrics API are more than 5 minutes old"), "{error}");
    // Pods with stale usage count as missing: as fully used.
    assert_eq!(both(&aged(&[301, 301, 301, 301, 0]), Fix::StaleUsageIsUnknown), (Some(2), Some(5)));
}

#[test]
fn no_metric_holds() {
    let case = Case::new(5, json!([])).change(|case| case.no_defaults = true);
    assert_eq!(both(&case, Fix::NoMetricHolds), (Some(2), None));
}

#[test]
fn policy_leaves_zero() {
    let policies = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
    let case = Case::new(0, external("Value", "10")).bounds(0, 6).change(|case| {
        case.spec["behavior"] = json!({"scaleUp": {"policies": policies}});
        case.config.scale_to_zero = true;
        case.external = Ok(vec!["50"]);
        case.status = json!({"desiredReplicas": 0, "conditions": [{"type": "ScaledToZero", "status": "True"}]});
    });
    assert_eq!(both(&case, Fix::PolicyLeavesZero), (Some(0), Some(1)));
    let disabled =
        case.change(|case| case.spec["behavior"]["scaleUp"]["selectPolicy"] = json!("Disabled"));
    assert_eq!(both(&disabled, Fix::PolicyLeavesZero), (Some(0), Some(0)));
}

fn remembered(uid: Option<&str>) -> Value {
    json!({"uid": uid, "recommendations": [{"replicas": 6, "at": ago(60)}]})
}

#[test]
fn memory_survives_restart() {
    let persisted: HpaState = serde_json::from_value(remembered(None)).expect("a memory");
    let case = Case::new(4, cpu(50)).using(&[250; 4]);
    let after = |fixes| {
        let case = case
            .clone()
            .change(|case| case.memory = HpaState::restored(Some(persisted.clone()), fixes));
        let decision = case.decide();
        (decision.stabilization.map(|stabilization| stabilization.stabilized), decision.desired)
    };
    // Upstream starts over with the current replicas.
    assert_eq!(after(Fixes::UPSTREAM), (Some(4), Some(4)));
    assert_eq!(after(Fixes::UPSTREAM.with(Fix::MemorySurvivesRestart)), (Some(6), Some(6)));
}

#[test]
fn new_object_new_memory() {
    let case = Case::new(4, cpu(50)).using(&[500; 4]).change(|case| {
        case.memory = serde_json::from_value(remembered(Some("old"))).expect("a memory");
        case.uid = Some("new");
    });
    assert_eq!(both(&case, Fix::NewObjectNewMemory), (Some(6), Some(4)));
    let same = case.change(|case| case.uid = Some("old"));
    assert_eq!(both(&same, Fix::NewObjectNewMemory), (Some(6), Some(6)));
}

#[test]
fn manual_change_stays() {
    let fixed = Fixes::UPSTREAM.with(Fix::ManualChangeStays);
    assert_eq!(retry(4, 4, Fixes::UPSTREAM), Retry::Write);
    assert_eq!(retry(4, 4, fixed), Retry::Write);
    assert_eq!(retry(4, 0, Fixes::UPSTREAM), Retry::Write);
    assert_eq!(retry(4, 0, fixed), Retry::GiveUp);
}

#[test]
fn messages_stand_still() {
    let everything = || Selector::parse("app").expect("a selector");
    let message = |names: [&str; 2], fixes| {
        let others = names.map(|name| (name.to_owned(), everything())).to_vec();
        let case =
            Case::new(1, cpu(50)).bounds(1, 6).using(&[100]).change(|case| case.others = others);
        case.with(fixes).decide().error.expect("an error")
    };
    let fixed = Fixes::UPSTREAM.with(Fix::MessagesStandStill);
    assert_ne!(message(["a", "z"], Fixes::UPSTREAM), message(["z", "a"], Fixes::UPSTREAM));
    assert_eq!(message(["a", "z"], fixed), message(["z", "a"], fixed));
    let lacking = |order: [usize; 2], fixes| {
        let case = Case::new(2, cpu(50)).using(&[100; 2]).change(|case| {
            case.pods = order.map(|index| pod(index, 1000)).to_vec();
            for pod in &mut case.pods {
                pod.containers[0].requests.clear();
            }
        });
        case.with(fixes).decide().error.expect("an error")
    };
    assert_ne!(lacking([0, 1], Fixes::UPSTREAM), lacking([1, 0], Fixes::UPSTREAM));
    assert_eq!(lacking([0, 1], fixed), lacking([1, 0], fixed));
}
