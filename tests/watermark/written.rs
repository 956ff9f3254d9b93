//! Owns upstream's words in what is written after a pass: events, conditions of a change, and the order of conditions.

use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    scaling::{Advice, Answer, SourceKind, Unknown},
    types::compat::{Compat, Fixes},
    watermark::{
        Decision, Source,
        conditions::{self, Fact, Said},
        lifecycle::{Monitor, judge},
        outcome::{Event, Made, UNWRITTEN, Writing},
    },
};
use serde_json::{Value, json};

use super::{Case, NOW, ago, external, pods, source, spec};

const COMPATS: [Compat; 2] = [Compat::Upstream, Compat::Plimsoll];

fn writing(spec: &WatermarkPodAutoscalerSpec, compat: Compat) -> Writing<'_> {
    let fixes = Fixes::of(compat);
    Writing { spec, namespace: "shop", compat, skips_idle_events: false, now: NOW, fixes }
}

/// Reason and message of one of the conditions.
fn message(status: &WatermarkPodAutoscalerStatus, fact: Fact) -> (String, String) {
    let found = status.conditions.iter().find(|one| one.kind == fact.name()).expect("said");
    (found.reason.clone(), found.message.clone())
}

fn order(status: &WatermarkPodAutoscalerStatus) -> Vec<&str> {
    status.conditions.iter().map(|one| one.kind.as_str()).collect()
}

fn event(is_warning: bool, reason: &'static str, message: &str) -> Event {
    Event { is_warning, reason, message: message.to_owned() }
}

/// A decision about so many replicas, at a metric of this sum between one and two. Four pods are there in any case.
fn decision(compat: Compat, fields: &Value, wanted: i32, sum: i64) -> Decision {
    let sources = vec![external(sum, 1_000, 2_000)];
    let mut case = Case::new(Fixes::of(compat), fields.clone(), wanted, sources).scaled(3_600);
    (case.pods, case.scale.current) = (pods(4), 4);
    case.decide()
}

/// Steps 8 of section 6 and section 13.3.
#[test]
fn a_change_is_told_in_upstreams_words_whatever_came_of_it() {
    let fields = json!({"maxReplicas": 10});
    let spec = spec(fields.clone());
    for compat in COMPATS {
        let writing = writing(&spec, compat);
        let grows = decision(compat, &fields, 4, 4_000);
        let before = WatermarkPodAutoscalerStatus::default();
        let able = |made: &Made| message(&writing.status(&before, &grows, made), Fact::AbleToScale);
        let pair = |reason: &str, message: &str| (reason.to_owned(), message.to_owned());
        let done = "the WPA controller was able to update the target scale to 6";
        assert_eq!(able(&Made::Done), pair("SuccessfulScale", done));
        let scaled = event(false, "Scaling", "New size: 6; reason: requests{map[]} above target");
        assert_eq!(writing.events(&grows, &Made::Done, None), [scaled]);

        let refused = Made::Refused("a conflict".to_owned());
        let failed = "the WPA controller was unable to update the target scale: a conflict";
        assert_eq!(able(&refused), pair("FailedScale", failed));
        let told = "New size: 6; reason: requests{map[]} above target; error: a conflict";
        assert_eq!(writing.events(&grows, &refused, None), [event(true, "FailedScale", told)]);

        let old = "the last scaling time was sufficiently old as to warrant a new scale";
        assert_eq!(able(&Made::DryRun), pair("ReadyForScale", old));
        assert_eq!(writing.events(&grows, &Made::DryRun, None), []);
    }
}

/// Vector W6.
#[test]
fn two_metrics_that_burst_at_once_are_told_by_what_came_of_them() {
    let fields = json!({
        "maxReplicas": 5, "upscaleForbiddenWindowSeconds": 30, "scaleUpLimitFactor": 100,
        "downscaleForbiddenWindowSeconds": 60, "downscaleDelayBelowWatermarkSeconds": 60,
        "algorithm": "absolute", "tolerance": "1m",
    });
    let spec = spec(fields.clone());
    for compat in COMPATS {
        let sources = vec![external(1_666, 999, 1_000), external(1_666, 999, 1_000)];
        let case = Case::new(Fixes::of(compat), fields.clone(), 3, sources).scaled(45);
        let decision = case.decide();
        assert_eq!(decision.desired, 5);
        let status = writing(&spec, compat).status(&case.status, &decision, &Made::Done);
        let (reason, message) = message(&status, Fact::AbleToScale);
        assert_eq!(reason, "SuccessfulScale");
        assert_eq!(message, "the WPA controller was able to update the target scale to 5");
    }
}

/// Vector K4.
#[test]
fn advice_is_written_as_one_metric_with_its_reason() {
    let fields = json!({"maxReplicas": 10, "recommender": {"url": "http://recommender:8080"}});
    let spec = spec(fields.clone());
    let name = "recommender{targetType:fake}";
    let advice = Advice {
        replicas: 4,
        observed: 0.5,
        reason: "it is Friday".to_owned(),
        ..Advice::default()
    };
    let asked = Source {
        kind: SourceKind::Recommender,
        label: name.to_owned(),
        name: name.to_owned(),
        ..source(name, Ok(Answer::Advice(advice)), (1, 2))
    };
    for compat in COMPATS {
        let case = Case::new(Fixes::of(compat), fields.clone(), 4, vec![asked.clone()]);
        let decision = case.scaled(3_600).decide();
        let before = WatermarkPodAutoscalerStatus::default();
        let status = writing(&spec, compat).status(&before, &decision, &Made::Nothing);
        let said = "the WPA was able to successfully calculate a replica count from \
                    recommender{targetType:fake} because: it is Friday";
        let active = message(&status, Fact::ScalingActive);
        assert_eq!(active, ("ValidMetricFound".to_owned(), said.to_owned()));
        let metrics = serde_json::to_value(&status.current_metrics).expect("JSON");
        assert_eq!(metrics.as_array().map(Vec::len), Some(1), "{metrics}");
        assert_eq!(metrics[0]["external"]["metricName"], name);
    }
}

/// Steps 9 of section 6 and section 13.3.
#[test]
fn a_pass_without_a_change_is_told_in_upstreams_words_in_an_event_or_a_condition() {
    let fields = json!({"maxReplicas": 10});
    let spec = spec(fields.clone());
    for compat in COMPATS {
        let loud = writing(&spec, compat);
        let quiet = Writing { skips_idle_events: true, ..loud };
        let last = Some(ago(3_600));
        // The tail of both, with the time as Go writes it.
        let tail = |replicas: i32| {
            format!(
                "not to scale Deployment/shop/web to {replicas} (last scale time was 2027-01-15 07:00:00 +0000 UTC )"
            )
        };
        let idle = decision(compat, &fields, 4, 1_500);
        let told = format!("Decided {}", tail(4));
        let events = loud.events(&idle, &Made::Nothing, last);
        assert_eq!(events, [event(false, "NotScaling", &told)]);
        let none = loud.events(&idle, &Made::Nothing, None);
        let told = "Decided not to scale Deployment/shop/web to 4 (last scale time was <nil> )";
        assert_eq!(none, [event(false, "NotScaling", told)]);
        let before = WatermarkPodAutoscalerStatus {
            last_scale_time: last.map(conditions::stamp),
            ..WatermarkPodAutoscalerStatus::default()
        };
        let status = quiet.status(&before, &idle, &Made::Nothing);
        let said = format!(
            "the WPA was able to successfully calculate a replica count and decided {}",
            tail(4)
        );
        assert_eq!(message(&status, Fact::ScalingActive), ("NotScaling".to_owned(), said));
        // Of a target that is scaled to nothing no other number is told.
        let disabled = decision(compat, &fields, 0, 4_000);
        let told = format!("Decided {}", tail(0));
        let events = loud.events(&disabled, &Made::Nothing, last);
        assert_eq!(events, [event(false, "NotScaling", &told)]);
    }
}

/// Sections 8.4 and 13.3: the source alone is told first, and the whole story after it.
#[test]
fn a_metric_that_says_nothing_is_told_twice_in_upstreams_words() {
    let fields = json!({"maxReplicas": 10});
    let spec = spec(fields.clone());
    for compat in COMPATS {
        let silent = Source {
            selector: "app=web".to_owned(),
            ..source("requests", Err(Unknown::Empty("external")), (1, 2))
        };
        let decision = Case::new(Fixes::of(compat), fields.clone(), 4, vec![silent]).decide();
        let events = writing(&spec, compat).events(&decision, &Made::Nothing, None);
        let inner = "unable to get external metric shop/requests/app=web: no metrics returned from external metrics API";
        let outer =
            format!("failed to compute replicas based on external metric requests: {inner}");
        let first = event(true, "FailedGetExternalMetric", inner);
        let second = event(true, "FailedComputeMetricsReplicas", &outer);
        assert_eq!(events, [first, second]);
    }
}

/// Section 13.3: which of its two reasons it has that a status could not be written.
#[test]
fn a_status_that_cannot_be_written_is_told_by_what_was_to_be_written() {
    let fields = json!({"maxReplicas": 10});
    let grows = decision(Compat::Upstream, &fields, 4, 4_000);
    let refused = Made::Refused("a conflict".to_owned());
    assert_eq!(Writing::unwritten(&grows, &refused), "FailedUpdateReplicas");
    assert_eq!(Writing::unwritten(&grows, &Made::Done), "FailedUpdateStatus");
    assert_eq!(UNWRITTEN, "FailedUpdateStatus");
    let silent = source("requests", Err(Unknown::Empty("external")), (1, 2));
    let silent = Case::new(Fixes::of(Compat::Upstream), fields, 4, vec![silent]).decide();
    assert_eq!(Writing::unwritten(&silent, &Made::Nothing), "FailedUpdateReplicas");
}

/// Vectors M1 and F7: an object that has a monitor which is well, no metrics, and no replicas.
#[test]
fn what_was_said_last_stands_first_even_within_one_second() {
    let fields = json!({"minReplicas": 3, "maxReplicas": 5});
    let spec = spec(fields.clone());
    let case = Case::new(Fixes::of(Compat::Upstream), fields, 0, Vec::new());
    let mut status = WatermarkPodAutoscalerStatus::default();
    let well = judge("bar/baz", &Monitor::State("OK".to_owned()), false);
    assert_eq!(well.blocked, None);
    conditions::set(&mut status, &well.said, NOW);
    let decision = case.decide();
    assert_eq!((decision.desired, &decision.change), (0, &None));
    let status = writing(&spec, Compat::Upstream).status(&status, &decision, &Made::Nothing);
    assert_eq!(
        order(&status),
        [
            "ScalingActive",
            "ScalingLimited",
            "BelowLowWatermark",
            "AboveHighWatermark",
            "AbleToScale",
            "DryRun",
            "ScalingBlocked",
        ]
    );
    assert_eq!(message(&status, Fact::ScalingActive).0, "ScalingDisabled");
    assert!(conditions::since(&status, Fact::AbleToScale).holds);
    assert!(conditions::since(&status, Fact::ScalingLimited).holds);
}

/// Vector F6.
#[test]
fn a_monitor_that_is_in_the_way_stands_first() {
    let mut status = WatermarkPodAutoscalerStatus::default();
    let [inactive, _] = Said::unprocessed();
    conditions::set(&mut status, &inactive, NOW);
    let missing = judge("bar/baz", &Monitor::Unread("gone".to_owned()), false);
    conditions::set(&mut status, &missing.said, NOW);
    assert_eq!(order(&status), ["ScalingBlocked", "ScalingActive"]);
    let first = &status.conditions[0].message;
    assert_eq!(first, "monitor bar/baz not found, blocking the WPA from proceeding");
}
