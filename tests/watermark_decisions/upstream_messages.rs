//! Upstream's messages, byte for byte as in its description: conditions, reasons of scale updates, and errors.

use std::time::Duration;

use plimsoll::cluster::target::scale::ScaleReadError;
use plimsoll_core::{
    scaling::{
        MetricError, MetricSourceType, MetricValue, PodsNotReady, Position, RecommendResponse,
        pod_readiness::Phase,
    },
    watermark::{
        ConvergeTowards, Convergence, ForcedReason, LimitHit, MetricInput,
        combine::failure_reason,
        conditions::{ConditionType, ConditionUpdate},
        cooldown::CooldownRemaining,
        monitor_gate::{Monitor, evaluate_monitor, is_enabled},
    },
};
use serde_json::{Value, json};

use super::{
    DecisionCase, both_modes, cpu_metric, external_metric, last_condition, pending_pod, source,
};

/// Type, status, reason and message of a condition.
type ConditionFields<'a> = (ConditionType, bool, &'a str, &'a str);

fn condition_fields(update: &ConditionUpdate) -> ConditionFields<'_> {
    (update.condition_type, update.holds, &update.reason, &update.message)
}

fn backed_off(up: f64, down: f64) -> ConditionUpdate {
    ConditionUpdate::backoff(CooldownRemaining { up, down }).expect("an open window")
}

/// Sections 6, 11 and 13.2.
#[test]
fn conditions_of_every_pass_have_upstreams_messages() {
    let backoff = "the time since the previous scale is still within";
    let [down, up, neither] = [
        "the downscale forbidden window",
        "the upscale forbidden window",
        "both the downscale and upscale forbidden windows",
    ]
    .map(|which| format!("{backoff} {which}"));
    let allow_up = "Allow upscaling if the value stays over the Watermark";
    let under = "Allow downscaling if the value stays under the Watermark";
    // This reason is upstream's mistake.
    let (above, below) = ("Value above High Watermark", "Value above Low Watermark");
    let old = "the last scaling time was sufficiently old as to warrant a new scale";
    for (update, expected) in [
        (
            ConditionUpdate::dry_run(true),
            (
                ConditionType::DryRun,
                true,
                "DryRun mode enabled",
                "Scaling changes won't be applied",
            ),
        ),
        (
            ConditionUpdate::dry_run(false),
            (
                ConditionType::DryRun,
                false,
                "DryRun mode disabled",
                "Scaling changes can be applied",
            ),
        ),
        (
            ConditionUpdate::above_high_watermark(true),
            (ConditionType::AboveHighWatermark, true, above, allow_up),
        ),
        (
            ConditionUpdate::above_high_watermark(false),
            (ConditionType::AboveHighWatermark, false, above, allow_up),
        ),
        (
            ConditionUpdate::below_low_watermark(true),
            (ConditionType::BelowLowWatermark, true, below, under),
        ),
        (
            ConditionUpdate::below_low_watermark(false),
            (ConditionType::BelowLowWatermark, false, below, under),
        ),
        (
            ConditionUpdate::ready_for_scale(),
            (ConditionType::AbleToScale, true, "ReadyForScale", old),
        ),
        (
            backed_off(0.0, 1.0),
            (ConditionType::AbleToScale, false, "BackoffDownscale", down.as_str()),
        ),
        (backed_off(1.0, 0.0), (ConditionType::AbleToScale, false, "BackoffUpscale", up.as_str())),
        (
            backed_off(1.0, 1.0),
            (ConditionType::AbleToScale, false, "BackoffBoth", neither.as_str()),
        ),
    ] {
        assert_eq!(condition_fields(&update), expected);
    }
}

/// The table of section 9, whose reasons and messages look swapped.
#[test]
fn converging_to_a_watermark_has_upstreams_messages() {
    let high = "Allow downscaling to converge to the High Watermark";
    let low = "Allow upscaling to converge to the Low Watermark";
    let stable = "Converging to Watermark only allowed in stable regime";
    let unstable = "Proposal could lead to an unstable regime";
    let between = "Value between Watermarks";
    for (convergence, holds, reason, message) in [
        (Convergence::Outside(Position::Above), false, high, stable),
        (Convergence::Outside(Position::Below), false, stable, stable),
        (Convergence::WouldOvershoot(ConvergeTowards::High), false, high, unstable),
        (Convergence::Step(ConvergeTowards::High), true, high, between),
        (Convergence::WouldOvershoot(ConvergeTowards::Low), false, low, unstable),
        (Convergence::Step(ConvergeTowards::Low), true, low, between),
        (Convergence::Off, false, "Feature not enabled", between),
    ] {
        let update = ConditionUpdate::convergence(convergence);
        assert_eq!(
            condition_fields(&update),
            (ConditionType::ConvergeToWatermark, holds, reason, message)
        );
    }
}

/// Sections 6 and 10.
#[test]
fn limits_and_bounds_have_upstreams_messages() {
    for (limited, reason, message) in [
        (
            LimitHit::DownscaleRate,
            "ScaleDownLimit",
            "the desired replica count is decreasing faster than the maximum scale rate",
        ),
        (
            LimitHit::BelowMin,
            "TooFewReplicas",
            "the desired replica count is below the minimum replica count",
        ),
        (
            LimitHit::UpscaleRate,
            "ScaleUpLimit",
            "the desired replica count is increasing faster than the maximum scale rate",
        ),
        (
            LimitHit::AboveMax,
            "TooManyReplicas",
            "the desired replica count is above the maximum replica count",
        ),
        (
            LimitHit::Unlimited,
            "DesiredWithinRange",
            "the desired count is within the acceptable range",
        ),
        (LimitHit::BelowOne, "", ""),
    ] {
        assert_eq!(limited.reason_and_message(), (reason, message.to_owned()));
    }
    for (forced, reason) in [
        (ForcedReason::AboveMax, "Current number of replicas above Spec.MaxReplicas"),
        (ForcedReason::BelowMin, "Current number of replicas below Spec.MinReplicas"),
        (ForcedReason::NoPods, "Current number of replicas must be greater than 0"),
    ] {
        assert_eq!(forced.reason(), reason);
    }
}

/// Step 8 of section 5, and vector F6.
#[test]
fn monitors_have_upstreams_messages_and_requeue_times() {
    let minutes = |minutes| Some(Duration::from_mins(minutes));
    for (monitor, reason, message, pause) in [
        (
            Monitor::Unreadable("gone".to_owned()),
            "FailedGetDatadogMonitor",
            "monitor bar/baz not found, blocking the WPA from proceeding",
            minutes(2),
        ),
        (
            Monitor::NoState,
            "DatadogMonitorNotOK",
            "monitor bar/baz state not found, blocking the WPA from proceeding",
            minutes(1),
        ),
        (
            Monitor::State("No Data".to_owned()),
            "DatadogMonitorNotOK",
            "monitor bar/baz is in No Data state, blocking the WPA from proceeding",
            minutes(1),
        ),
        (
            Monitor::State("OK".to_owned()),
            "DatadogMonitorOK",
            "monitor bar/baz is in a OK state, allowing the WPA from proceeding",
            None,
        ),
    ] {
        let verdict = evaluate_monitor("bar/baz", &monitor, false);
        let blocked = verdict.blocked.map(|(_, pause)| pause);
        assert_eq!(
            (condition_fields(&verdict.condition), blocked),
            ((ConditionType::ScalingBlocked, pause.is_some(), reason, message), pause)
        );
    }
    let update = is_enabled(Some("yes")).expect_err("not a boolean");
    let message = "Lifecycle Control is not correctly enabled: strconv.ParseBool: parsing \"yes\": invalid syntax";
    assert_eq!(
        condition_fields(&update),
        (ConditionType::ScalingBlocked, false, "FailedGetDatadogMonitor", message)
    );
}

fn recommender_metric(replicas: i32, reason: &str) -> MetricInput {
    let advice =
        RecommendResponse { replicas, reason: reason.to_owned(), ..RecommendResponse::default() };
    let value = Ok(MetricValue::Recommendation(advice));
    let name = "recommender{targetType:fake}";
    MetricInput {
        kind: MetricSourceType::Recommender,
        label: name.to_owned(),
        name: name.to_owned(),
        address: Some("http://recommender:8080".to_owned()),
        ..source(name, value, (1, 2))
    }
}

/// Section 13.2, with vectors K4 and W1.
#[test]
fn the_outcome_of_a_pass_has_upstreams_messages() {
    let active = |case: &DecisionCase| {
        let decision = case.decide();
        let update = last_condition(&decision, ConditionType::ScalingActive)
            .expect("condition is set")
            .clone();
        (update.holds, update.reason, update.message)
    };
    let text = |holds: bool, reason: &str, message: &str| (holds, reason.into(), message.into());
    for fixes in both_modes() {
        let one =
            DecisionCase::new(fixes, json!({}), 3, vec![external_metric(1_500, 1_000, 2_000)]);
        let found = "the WPA was able to successfully calculate a replica count from";
        let message = format!("{found} requests{{map[]}}");
        assert_eq!(active(&one), text(true, "ValidMetricFound", &message));
        let able = "the WPA controller was able to get the target's current scale";
        let decision = one.decide();
        let first = decision
            .conditions
            .iter()
            .find(|update| update.condition_type == ConditionType::AbleToScale);
        let expected = (ConditionType::AbleToScale, true, "SucceededGetScale", able);
        assert_eq!(first.map(condition_fields), Some(expected));

        let because =
            DecisionCase::new(fixes, json!({}), 3, vec![recommender_metric(3, "it is Friday")]);
        let message = format!("{found} recommender{{targetType:fake}} because: it is Friday");
        assert_eq!(active(&because), text(true, "ValidMetricFound", &message), "K4");
        let plain = DecisionCase::new(fixes, json!({}), 3, vec![recommender_metric(3, "")]);
        let message = format!("{found} recommender{{targetType:fake}}");
        assert_eq!(active(&plain), text(true, "ValidMetricFound", &message));

        let mut none = one;
        none.scale.spec_replicas = 0;
        let message = "scaling is disabled since the replica count of the target is zero";
        assert_eq!(active(&none), text(false, "ScalingDisabled", message), "W1");
    }
}

/// Section 13.3: reasons for a scale update, starting at four replicas.
#[test]
fn scale_updates_have_upstreams_reasons() {
    let limits = json!({"minReplicas": 1, "maxReplicas": 10, "scaleUpLimitFactor": 100});
    let with = |key: &str, value: Value| {
        let mut fields = limits.clone();
        fields[key] = value;
        fields
    };
    let converging = with("convergeTowardsWatermark", "highwatermark".into());
    for fixes in both_modes() {
        for (fields, sum, reason) in [
            (limits.clone(), 4_000, "requests{map[]} above target"),
            (limits.clone(), 100, "All metrics below target"),
            (
                converging.clone(),
                1_100,
                "Metric within watermarks, attempting to scale to converge towards watermark",
            ),
            (
                with("maxReplicas", 3.into()),
                100,
                "Current number of replicas above Spec.MaxReplicas",
            ),
            (
                with("minReplicas", 5.into()),
                4_000,
                "Current number of replicas below Spec.MinReplicas",
            ),
        ] {
            let case =
                DecisionCase::new(fixes, fields, 4, vec![external_metric(sum, 1_000, 2_000)]);
            let change = case.scaled_ago(3_600).decide().change.expect(reason);
            assert_eq!(change.reason, reason);
        }
    }
    let [theirs, _] = both_modes();
    let mut missing =
        DecisionCase::new(theirs, limits, 4, vec![cpu_metric(&[1_500; 4], 1_000, 9_000)]);
    missing.scale.status_replicas = 0;
    let change = missing.scaled_ago(3_600).decide().change.expect("no pods");
    assert_eq!(change.reason, "Current number of replicas must be greater than 0");
}

/// Sections 7.2, 7.3, 8.1, 8.2 and 8.4; vectors C46, C48, P16, K2 and K5.
#[test]
fn metric_errors_have_upstreams_messages() {
    let failed = |api: &str| {
        MetricError::Failed(format!("unable to fetch metrics from {api} metrics API: gone"))
    };
    let external_error = |error: MetricError| MetricInput {
        label: "requests".to_owned(),
        name: "requests{map[app:web]}".to_owned(),
        selector: "app=web".to_owned(),
        ..source("requests", Err(error), (1, 2))
    };
    let usage_error = |error: MetricError| MetricInput {
        kind: MetricSourceType::Resource,
        label: "cpu".to_owned(),
        name: "cpu{map[app:web]}".to_owned(),
        selector: "app=web".to_owned(),
        ..source("cpu", Err(error), (1, 2))
    };
    let silent =
        |error: MetricError| MetricInput { value: Err(error), ..recommender_metric(1, "") };
    let external = "failed to compute replicas based on external metric requests: ";
    let resource = "failed to get resource metric cpu: ";
    let recommender = "failed to get the recommendation from http://recommender:8080: ";
    let fetched = "unable to get external metric shop/requests/app=web: ";
    let used_of = "unable to get resource metric shop/cpu/app=web: ";
    let counted = "unable to get the number of ready pods across all namespaces for app=web: ";
    let none_ready = "among the 3 pods, none is ready. Skipping recommendation";
    let no_pods = "no pods returned by selector while calculating replica count";
    let few = "25 % of the pods are unready, will not autoscale shop/web";
    let no_usage = "did not receive metrics for any ready pods";
    let unready = |why: PodsNotReady| MetricError::PodsNotReady(why);
    let none = || unready(PodsNotReady::NoneReady { among: 3 });
    let too_few =
        || unready(PodsNotReady::TooFewReady { percent: 25, object: "shop/web".to_owned() });
    for (source, outer, inner, why) in [
        (
            external_error(failed("external")),
            external,
            fetched,
            "unable to fetch metrics from external metrics API: gone",
        ),
        (
            external_error(MetricError::Empty("external")),
            external,
            fetched,
            "no metrics returned from external metrics API",
        ),
        (external_error(none()), external, counted, none_ready),
        (external_error(unready(PodsNotReady::NoPods)), external, "", no_pods),
        (external_error(too_few()), external, "", few),
        (
            usage_error(failed("resource")),
            resource,
            used_of,
            "unable to fetch metrics from resource metrics API: gone",
        ),
        (
            usage_error(MetricError::Empty("resource")),
            resource,
            used_of,
            "no metrics returned from resource metrics API",
        ),
        (usage_error(unready(PodsNotReady::NoPods)), resource, "", no_pods),
        (usage_error(too_few()), resource, "", few),
        (usage_error(unready(PodsNotReady::NoUsage)), resource, "", no_usage),
        (
            silent(MetricError::Failed("recommender failed".to_owned())),
            recommender,
            "",
            "recommender failed",
        ),
        (silent(none()), recommender, counted, none_ready),
        (silent(unready(PodsNotReady::NoPods)), recommender, "", no_pods),
        (silent(too_few()), recommender, "", few),
    ] {
        let reason = failure_reason(source.kind);
        let case = DecisionCase::new(both_modes()[0], json!({}), 3, vec![source]);
        let decision = case.decide();
        let whole = decision.proposal.as_ref().expect_err("metric is unavailable").to_string();
        assert_eq!(whole, format!("{outer}{inner}{why}"));
        let message = format!("the WPA was unable to compute the replica count: {inner}{why}");
        let active =
            last_condition(&decision, ConditionType::ScalingActive).expect("condition is set");
        assert_eq!(
            condition_fields(active),
            (ConditionType::ScalingActive, false, reason, message.as_str())
        );
    }
    // The same if pods are counted in the pass itself.
    for (number, phase) in [(0, Phase::Failed), (1, Phase::Pending)] {
        let mut case =
            DecisionCase::new(both_modes()[0], json!({}), 3, vec![super::external_metric(1, 1, 2)]);
        case.pods = (0..3).map(|number| pending_pod(number, 120)).collect();
        case.pods[number].phase = phase;
        let why = case.decide().proposal.expect_err("none is ready").to_string();
        assert_eq!(why, format!("{external}{counted}{none_ready}"));
    }
}

/// Step 1 of section 6.
#[test]
fn unreadable_targets_have_upstreams_messages() {
    for (why, text) in [
        (
            ScaleReadError::InvalidVersion("unexpected GroupVersion string: a/b/c".to_owned()),
            "invalid API version in scale target reference: unexpected GroupVersion string: a/b/c",
        ),
        (
            ScaleReadError::UnknownKind("no matches for kind \"Web\" in group \"\"".to_owned()),
            "unable to determine resource for scale target reference: no matches for kind \"Web\" in group \"\"",
        ),
        (
            ScaleReadError::NotFound(
                "could not get scale for the GV apps/v1, error: gone".to_owned(),
            ),
            "[could not get scale for the GV apps/v1, error: gone, scale not found]",
        ),
        (
            ScaleReadError::Unavailable(
                "could not get scale for the GV apps/v1, error: late".to_owned(),
            ),
            "[could not get scale for the GV apps/v1, error: late, scale not found]",
        ),
    ] {
        assert_eq!(why.to_string(), text);
    }
    let message = "Error happened while processing the WPA";
    let [active, able] = ConditionUpdate::unprocessed();
    assert_eq!(
        condition_fields(&active),
        (ConditionType::ScalingActive, false, "FailedProcessWPA", message)
    );
    assert_eq!(
        condition_fields(&able),
        (ConditionType::AbleToScale, false, "FailedProcessWPA", message)
    );
}
