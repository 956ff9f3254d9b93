//! Options beyond upstream's fields, each compared with the behaviour without it.

use std::time::Duration;

use plimsoll_core::{
    api::scale_decision::ScaleDecisionStatus,
    scaling::{
        MetricDecision, MetricError, MetricValue, PodsNotReady, Position, Restriction,
        ScaleDecision, pod_readiness::Phase,
    },
    types::compat::{Compat, Fixes},
    watermark::{
        Decision, HoldReason, MetricInput, WpaOptions, cooldown::CooldownResult, options::Fallback,
    },
};
use serde_json::{Value, json};

use super::{DecisionCase, NOW, ago, cpu_metric, external_metric, pending_pod, pods, source};

fn plimsoll_fixes() -> Fixes {
    Fixes::for_compat(Compat::Plimsoll)
}

fn failing_metric(name: &str) -> MetricInput {
    source(name, Err(MetricError::Failed("away".into())), (1000, 2000))
}

fn metric_with_sum(name: &str, sum: i64) -> MetricInput {
    source(name, Ok(MetricValue::Sum { sum, at: None }), (1000, 2000))
}

fn fields_without_limits(more: &Value) -> Value {
    let mut fields = json!({
        "algorithm": "average", "maxReplicas": 100, "minReplicas": 1, "tolerance": "1m",
        "scaleUpLimitFactor": "100", "scaleDownLimitFactor": "90",
    });
    for (key, value) in more.as_object().expect("an object") {
        fields[key] = value.clone();
    }
    fields
}

fn new_replicas(decision: &Decision) -> Option<i32> {
    decision.change.as_ref().map(|change| change.to)
}

#[test]
fn one_available_metric_adds_replicas_only_if_enabled() {
    let partial = WpaOptions { partial_metrics: true, ..WpaOptions::default() };
    for (sum, options, expected) in [
        (30_000, WpaOptions::default(), None),
        (30_000, partial, Some(15)),
        // No replicas are removed while a source is unavailable, as it might need them.
        (3_000, partial, None),
        (15_000, partial, None),
    ] {
        for sources in [
            vec![metric_with_sum("a", sum), failing_metric("b")],
            vec![failing_metric("b"), metric_with_sum("a", sum)],
        ] {
            let case =
                DecisionCase::new(plimsoll_fixes(), fields_without_limits(&json!({})), 10, sources)
                    .with_options(options);
            assert_eq!(new_replicas(&case.decide()), expected, "{sum} {options:?}");
        }
    }
    let both = vec![failing_metric("a"), failing_metric("b")];
    assert_eq!(
        new_replicas(
            &DecisionCase::new(plimsoll_fixes(), fields_without_limits(&json!({})), 10, both)
                .with_options(partial)
                .decide()
        ),
        None
    );
}

#[test]
fn fallback_replicas_apply_after_their_delay_within_rate_windows_and_bounds() {
    let fallback = Fallback { replicas: 8, after: Duration::from_mins(5) };
    let with = WpaOptions { fallback: Some(fallback), ..WpaOptions::default() };
    let decide = |wanted: i32, silent_for: u64, options: WpaOptions, scaled: u64| {
        let case = DecisionCase::new(
            plimsoll_fixes(),
            fields_without_limits(&json!({})),
            wanted,
            vec![failing_metric("a")],
        );
        let mut case = case.with_options(options).scaled_ago(scaled);
        case.memory.unknown_since = Some(ago(silent_for));
        case.decide()
    };
    for (wanted, silent_for, options, scaled, expected) in [
        (5, 300, WpaOptions::default(), 3600, None),
        (5, 299, with, 3600, None),
        (5, 300, with, 3600, Some(8)),
        (8, 300, with, 3600, None),
        // At most one normal step at once, not during a cooldown, and never beyond the bounds.
        (2, 300, with, 3600, Some(4)),
        (5, 300, with, 30, None),
        (20, 300, with, 3600, Some(8)),
        (20, 300, with, 200, None),
    ] {
        let decision = decide(wanted, silent_for, options, scaled);
        assert_eq!(new_replicas(&decision), expected, "from {wanted} after {silent_for} s");
        let restrictions = decision.record.restrictions;
        assert!(restrictions.contains(&Restriction::MetricUnknown), "{restrictions:?}");
    }
    let bounded = fields_without_limits(&json!({"maxReplicas": 6}));
    let mut case = DecisionCase::new(plimsoll_fixes(), bounded, 5, vec![failing_metric("a")])
        .with_options(with);
    case.memory.unknown_since = Some(ago(300));
    assert_eq!(new_replicas(&case.decide()), Some(6));
    // Metrics that were not requested because pods are not ready are not unavailable: replicas stay.
    for unready in [PodsNotReady::NoPods, PodsNotReady::NoneReady { among: 5 }] {
        let mut source = failing_metric("a");
        source.value = Err(MetricError::PodsNotReady(unready));
        let mut case = DecisionCase::new(
            plimsoll_fixes(),
            fields_without_limits(&json!({})),
            20,
            vec![source],
        )
        .with_options(with);
        case.memory.unknown_since = Some(ago(300));
        let decision = case.decide();
        assert_eq!((new_replicas(&decision), decision.record.unknown_since), (None, None));
    }
    // Pods without usage samples are different.
    let mut source = failing_metric("a");
    source.value = Err(MetricError::PodsNotReady(PodsNotReady::NoUsage));
    let mut case =
        DecisionCase::new(plimsoll_fixes(), fields_without_limits(&json!({})), 5, vec![source])
            .with_options(with)
            .scaled_ago(3_600);
    case.memory.unknown_since = Some(ago(300));
    assert_eq!(new_replicas(&case.decide()), Some(8));
    // A target stopped manually stays stopped.
    let mut stopped = DecisionCase::new(
        plimsoll_fixes(),
        fields_without_limits(&json!({})),
        0,
        vec![failing_metric("a")],
    )
    .with_options(with);
    stopped.memory.unknown_since = Some(ago(300));
    assert_eq!(new_replicas(&stopped.decide()), None);
}

#[test]
fn fallback_replicas_out_of_range_are_rejected_or_bounded() {
    let read = |text: &str| {
        let annotation = ("plimsoll.dev/fallback-replicas".to_owned(), text.to_owned());
        let (options, bad) =
            WpaOptions::from_annotations(&[annotation].into(), Duration::from_secs(15));
        assert_eq!(options.fallback.is_none(), !bad.is_empty(), "{text}");
        options
    };
    for text in [
        "2147483648 after 1",
        "99999999999999999999 after 1",
        "0 after 1",
        "-1 after 1",
        "-2147483648 after 1",
        "1e9 after 1",
        "5 after -1",
        "5 after 4294967296",
    ] {
        assert_eq!(read(text), WpaOptions::default(), "{text}");
    }
    let bounded = fields_without_limits(&json!({"minReplicas": 3, "maxReplicas": 6}));
    for (text, wanted, expected) in [
        ("2147483647 after 1", 5, 6),
        ("7 after 1", 5, 6),
        ("1 after 1", 5, 3),
        ("2147483647 after 1", 500, 6),
    ] {
        let case =
            DecisionCase::new(plimsoll_fixes(), bounded.clone(), wanted, vec![failing_metric("a")]);
        let mut case = case.with_options(read(text)).scaled_ago(3600);
        case.memory.unknown_since = Some(ago(3600));
        assert_eq!(new_replicas(&case.decide()), Some(expected), "{text} from {wanted}");
    }
}

#[test]
fn metrics_are_unknown_since_the_first_pass_without_a_value() {
    let mut case = DecisionCase::new(
        plimsoll_fixes(),
        fields_without_limits(&json!({})),
        5,
        vec![failing_metric("a"), metric_with_sum("b", 7_500)],
    );
    let first = case.decide().record;
    assert_eq!(first.unknown_since, Some(NOW));
    case.memory = ScaleDecision { unknown_since: Some(ago(60)), ..first };
    assert_eq!(case.decide().record.unknown_since, Some(ago(60)));
    case.sources = vec![metric_with_sum("a", 7_500), metric_with_sum("b", 7_500)];
    assert_eq!(case.decide().record.unknown_since, None);
}

#[test]
fn with_per_metric_delays_alternating_metrics_do_not_add_up() {
    use Position::{Above, Below, Inside};
    let each = WpaOptions { delay_per_metric: true, ..WpaOptions::default() };
    let fields = fields_without_limits(&json!({
        "upscaleDelayAboveWatermarkSeconds": 60, "downscaleDelayBelowWatermarkSeconds": 120,
    }));
    let remembered = |name: &str, position: Position, seconds: u64| MetricDecision {
        name: format!("{name}{{map[]}}"),
        position: Some(position),
        since: Some(ago(seconds)),
        ..MetricDecision::default()
    };
    let decide = |a: (i64, Position, u64), b: (i64, Position, u64), options: WpaOptions| {
        let sources = vec![metric_with_sum("a", a.0), metric_with_sum("b", b.0)];
        let mut case = DecisionCase::new(plimsoll_fixes(), fields.clone(), 5, sources)
            .with_options(options)
            .scaled_ago(3600);
        case.memory.metrics = vec![remembered("a", a.1, a.2), remembered("b", b.1, b.2)];
        let above =
            plimsoll_core::watermark::conditions::ConditionUpdate::above_high_watermark(true);
        let below =
            plimsoll_core::watermark::conditions::ConditionUpdate::below_low_watermark(true);
        case = case.with_condition(&above, 3600).with_condition(&below, 3600);
        let decision = case.decide();
        let held = decision.cooldown.and_then(|CooldownResult { hold_reason: held, .. }| held);
        (new_replicas(&decision), matches!(held, Some(HoldReason::Delay { .. })))
    };
    // Some metric was above all the time, but none of them for a minute.
    let (up, inside, down) = (15_000, 7_500, 2_500);
    let taking_turns = ((up, Above, 30), (inside, Inside, 30));
    assert_eq!(decide(taking_turns.0, taking_turns.1, WpaOptions::default()), (Some(8), false));
    assert_eq!(decide(taking_turns.0, taking_turns.1, each), (None, true));
    assert_eq!(decide((up, Above, 60), (inside, Inside, 30), each), (Some(8), false));
    // One metric that was above for long enough suffices.
    assert_eq!(decide((up, Above, 60), (up, Above, 0), each), (Some(8), false));
    // To scale down, all of them must have been below.
    assert_eq!(decide((down, Below, 120), (down, Below, 119), each), (None, true));
    assert_eq!(
        decide((down, Below, 120), (down, Below, 119), WpaOptions::default()),
        (Some(2), false)
    );
    assert_eq!(decide((down, Below, 120), (down, Below, 300), each), (Some(2), false));
    // The time before it returned to the band does not count.
    assert_eq!(decide((up, Inside, 600), (inside, Inside, 600), each), (None, true));
}

#[test]
fn the_next_leader_continues_with_the_decision_in_the_status() {
    let mut case = DecisionCase::new(
        plimsoll_fixes(),
        fields_without_limits(&json!({})),
        5,
        vec![failing_metric("a"), metric_with_sum("b", 15_000)],
    );
    case.memory = ScaleDecision { unknown_since: Some(ago(60)), ..case.decide().record };
    let decision = case.decide();
    let status = serde_json::to_value(decision.record.status(NOW)).expect("JSON");
    let status = serde_json::from_value(status).expect("valid decision");
    let positions = |decision: &ScaleDecision| -> Vec<_> {
        let metrics = decision.metrics.iter();
        metrics.map(|metric| (metric.name.clone(), metric.position, metric.since)).collect()
    };
    let read = ScaleDecision::from_status(&status);
    assert_eq!(read.unknown_since, decision.record.unknown_since);
    assert_eq!(positions(&read), positions(&decision.record));
    assert_eq!(read.metrics.len(), 2);
    let empty = ScaleDecision::from_status(&ScaleDecisionStatus::default());
    assert_eq!(empty, ScaleDecision::default());
}

#[test]
fn the_last_replica_is_removed_and_restored_only_if_enabled() {
    let to_zero = WpaOptions { scale_to_zero: true, ..WpaOptions::default() };
    let (single, two) = (json!({}), json!({"minReplicas": 2}));
    let decide = |fields: &Value, wanted: i32, sums: &[i64], options: WpaOptions| {
        let sources = sums.iter().map(|sum| external_metric(*sum, 1000, 2000)).collect();
        let mut case =
            DecisionCase::new(plimsoll_fixes(), fields_without_limits(fields), wanted, sources)
                .with_options(options);
        case.pods = pods(usize::try_from(wanted).expect("fits"));
        case.scaled_ago(3600).decide()
    };
    for (fields, wanted, sums, options, expected) in [
        (&single, 1, &[0][..], to_zero, Some(0)),
        (&single, 1, &[0, 0], to_zero, Some(0)),
        (&single, 1, &[0, 500], to_zero, None),
        (&single, 1, &[0], WpaOptions::default(), None),
        (&single, 0, &[5_000], to_zero, Some(1)),
        (&single, 0, &[0, 1], to_zero, Some(1)),
        (&single, 0, &[0], to_zero, None),
        (&single, 0, &[5_000], WpaOptions::default(), None),
        // The minimum of replicas is removed and added as a whole.
        (&two, 2, &[0], to_zero, Some(0)),
        (&two, 0, &[1], to_zero, Some(2)),
        (&two, 0, &[0], to_zero, None),
    ] {
        let decision = decide(fields, wanted, sums, options);
        assert_eq!(new_replicas(&decision), expected, "{fields} from {wanted} at {sums:?}");
        let found = decision.record.restrictions;
        let is_disabled = found.contains(&Restriction::Disabled);
        assert_eq!(is_disabled, wanted == 0 && !options.scale_to_zero);
    }
    // An object that forbids scaling down keeps the last replica too; one at zero stays there.
    let never = json!({"scaleDownLimitFactor": "0"});
    assert_eq!(new_replicas(&decide(&never, 1, &[0], to_zero)), None);
    assert_eq!(new_replicas(&decide(&never, 0, &[0], to_zero)), None);
    // From many replicas it scales down no faster than usual.
    assert_eq!(new_replicas(&decide(&single, 10, &[0], to_zero)), Some(1));
    // Unknown is not zero.
    let unknown = DecisionCase::new(
        plimsoll_fixes(),
        fields_without_limits(&single),
        1,
        vec![failing_metric("a")],
    )
    .with_options(to_zero);
    assert_eq!(new_replicas(&unknown.scaled_ago(3600).decide()), None);
    // A forbidden scale-down window keeps the last replica too.
    let sources = vec![external_metric(0, 1000, 2000)];
    let recent = DecisionCase::new(plimsoll_fixes(), fields_without_limits(&single), 1, sources)
        .with_options(to_zero)
        .scaled_ago(10);
    assert_eq!(new_replicas(&recent.decide()), None);
}

#[test]
fn replicas_are_a_multiple_only_if_enabled() {
    let modulo = WpaOptions { modulo_of_result: true, ..WpaOptions::default() };
    let both = WpaOptions { scale_to_zero: true, ..modulo };
    let fields = |more: Value| {
        let mut object = fields_without_limits(
            &json!({"replicaScalingAbsoluteModulo": 4, "scaleUpLimitFactor": "40", "scaleDownLimitFactor": "40"}),
        );
        for (key, value) in more.as_object().expect("an object") {
            object[key] = value.clone();
        }
        object
    };
    for (more, wanted, sum, options, expected) in [
        (json!({}), 10, 60_000, WpaOptions::default(), Some(14)),
        (json!({}), 10, 60_000, modulo, Some(12)),
        (json!({}), 8, 60_000, modulo, None),
        (json!({}), 8, 60_000, WpaOptions::default(), Some(11)),
        (json!({}), 16, 1_000, WpaOptions::default(), Some(10)),
        (json!({}), 16, 1_000, modulo, Some(12)),
        // From zero, one replica would round down to none, so there would never be any.
        (json!({}), 0, 60_000, both, Some(4)),
        (json!({"maxReplicas": 3}), 0, 60_000, both, Some(3)),
        // Bounds take precedence: at the maximum, no multiple is needed to get inside.
        (json!({"maxReplicas": 9}), 12, 60_000, modulo, Some(9)),
    ] {
        let case = DecisionCase::new(
            plimsoll_fixes(),
            fields(more),
            wanted,
            vec![external_metric(sum, 1000, 2000)],
        );
        let decision = case.with_options(options).scaled_ago(3600).decide();
        assert_eq!(new_replicas(&decision), expected, "from {wanted} at {sum}, {options:?}");
    }
}

#[test]
fn the_two_meanings_of_the_readiness_delay_can_be_set_separately() {
    let fields = fields_without_limits(&json!({"readinessDelaySeconds": 60}));
    // Three pods are ready, one has been pending for half a minute.
    let ready = |options: WpaOptions| {
        let mut case = DecisionCase::new(
            plimsoll_fixes(),
            fields.clone(),
            4,
            vec![external_metric(1, 1000, 2000)],
        );
        case.pods = [pods(3), vec![pending_pod(3, 30)]].concat();
        let case = case.with_options(options);
        case.setting().readiness.ready_pods(&case.pods, case.scale)
    };
    let none = WpaOptions { pending_counts_for: Some(Duration::ZERO), ..WpaOptions::default() };
    assert_eq!((ready(WpaOptions::default()), ready(none)), (Ok(4), Ok(3)));
    let cpu_of = |options: WpaOptions| {
        let mut case = DecisionCase::new(
            plimsoll_fixes(),
            fields.clone(),
            2,
            vec![cpu_metric(&[100, 900], 1, 2)],
        );
        case.pods[1].ready = Some((true, ago(30)));
        assert_eq!(case.pods[1].phase, Phase::Running);
        let case = case.with_options(options);
        let Ok(MetricValue::Usage { usage, .. }) = &case.sources[0].value else {
            panic!("it is usage")
        };
        case.setting().readiness.total_usage(&case.pods, true, usage)
    };
    let all_pods =
        WpaOptions { starting_ignored_for: Some(Duration::ZERO), ..WpaOptions::default() };
    assert_eq!((cpu_of(WpaOptions::default()), cpu_of(all_pods)), (Ok((100, 1)), Ok((1000, 2))));
}

#[test]
fn stale_pod_usage_is_an_error() {
    let mut source = cpu_metric(&[100, 100], 1, 2);
    let Ok(MetricValue::Usage { at, .. }) = &mut source.value else { panic!("it is usage") };
    *at = Some(ago(120));
    let case =
        DecisionCase::new(plimsoll_fixes(), fields_without_limits(&json!({})), 2, vec![source]);
    for (age, expected) in [(None, true), (Some(60), false), (Some(180), true)] {
        let setting = plimsoll_core::watermark::EvaluationContext {
            oldest_sample: age.map(ago),
            ..case.setting()
        };
        let (rows, _) = setting.combine(&case.sources);
        assert_eq!(rows[0].result.is_ok(), expected, "{age:?}");
        if !expected {
            assert_eq!(rows[0].result, Err(MetricError::Stale { at: ago(120) }));
        }
    }
}
