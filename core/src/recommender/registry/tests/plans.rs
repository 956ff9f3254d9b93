//! Planned requests in the recommender: cold start, limits, stored state, and histories of upstream.

use super::*;
use crate::{
    history::{Resource, SampleBatch},
    recommender::{
        ContainerRecommendation, SampleResult,
        decay_cache::DecayCache,
        plan::{KnownRequests, PlanDecision, PlanProfile, PlanSettings, RequestProfile},
    },
    types::quantity::Quantity,
};

const CORES: f64 = 0.1;

fn planned(profile: RequestProfile) -> VpaRegistry {
    let plan = PlanSettings { profile, ..PlanSettings::default() };
    let settings = Settings { plan, ..Settings::default() };
    let mut registry = VpaRegistry::new(settings, Compat::Plimsoll);
    registry.track(&vpa("web"), VpaSettings::default(), START);
    load(&mut registry, "web");
    registry
}

/// Adds samples of this usage, one a minute, and decides every minute with the target as the request of the pod.
fn run(registry: &mut VpaRegistry, minutes: std::ops::Range<u32>, usage: impl Fn(u32) -> i64) {
    for number in minutes {
        let now = minute(number);
        let usage = UsageSample {
            pod: "pod-0",
            container: "main",
            at: now,
            cpu: Some(MilliCpu(usage(number))),
            memory: Some(Bytes(400 << 20)),
        };
        let target = registry
            .get(&vpa("web"))
            .and_then(|vpa| vpa.summary_for("main"))
            .and_then(|summary| Some(summary.resources.cpu?.target));
        let requests = KnownRequests { cpu: target.or(Some(CORES)), memory: None };
        registry.ingest().observe_requests(&vpa("web"), "main", requests);
        registry.ingest().add_usage(&vpa("web"), usage, now).expect("tracked");
        registry.decide_plans(&vpa("web"), now);
        let recommendation = registry.recommend(&vpa("web"), now).expect("loaded");
        registry.store_summary(&vpa("web"), &recommendation, now);
    }
}

fn recommended(registry: &VpaRegistry, now: Time) -> ContainerRecommendation {
    let recommendation = registry.recommend(&vpa("web"), now).expect("loaded");
    recommendation.containers.into_iter().next().expect("one container")
}

fn reason(recommended: &ContainerRecommendation) -> RecommendationReason {
    recommended.explanation.cpu.as_ref().expect("CPU is recommended").target.decided_by
}

#[test]
fn a_cold_start_equals_the_default_rule_until_there_is_a_day_of_samples() {
    let usage = |number: u32| 200 + i64::from(number % 7) * 10;
    let (mut default, mut steady) = (planned(RequestProfile::Vpa), planned(RequestProfile::Steady));
    for registry in [&mut default, &mut steady] {
        run(registry, 0..1440, usage);
    }
    let now = minute(1439);
    assert_eq!(recommended(&steady, now), recommended(&default, now));
    run(&mut steady, 1440..1445, usage);
    let planned = recommended(&steady, minute(1444));
    assert_eq!(reason(&planned), RecommendationReason::Plan);
    let target = planned.target.cpu.expect("is recommended").milli_value();
    assert!((200..=275).contains(&target), "{target}m for usage of 200m to 260m");
    let bounds = (planned.lower.cpu, planned.upper.cpu);
    assert!(bounds.0 <= planned.target.cpu && planned.target.cpu <= bounds.1, "{bounds:?}");
    let memory = planned.explanation.memory.expect("memory is recommended");
    let decision = memory.plan.expect("memory is planned").decision;
    assert!(
        matches!(decision, PlanDecision::Memory(it) if (it.wanted / 480.0 / 1_048_576.0 - 1.0).abs() < 1e-9)
    );
}

#[test]
fn minimum_and_maximum_of_the_policy_limit_planned_requests() {
    let mut registry = planned(RequestProfile::Tide);
    run(&mut registry, 0..1500, |_| 500);
    for (policy, expected, decided_by) in [
        (serde_json::json!({"maxAllowed": {"cpu": "300m"}}), 300, RecommendationReason::MaxAllowed),
        (serde_json::json!({"minAllowed": {"cpu": "2"}}), 2000, RecommendationReason::MinAllowed),
    ] {
        let mut object = policy;
        object["containerName"] = "main".into();
        let policies = vec![serde_json::from_value(object).expect("a policy")];
        let settings = VpaSettings { policies, ..VpaSettings::default() };
        registry.track(&vpa("web"), settings, START);
        let limited = recommended(&registry, minute(1500));
        assert_eq!(limited.target.cpu.map(Quantity::milli_value), Some(expected));
        assert_eq!(reason(&limited), decided_by);
    }
}

#[test]
fn a_plan_is_restored_without_loss_and_only_where_it_is_selected() {
    let mut registry = planned(RequestProfile::Balanced);
    run(&mut registry, 0..2000, |number| if number % 1440 < 480 { 900 } else { 150 });
    let now = minute(2000);
    let records = registry.saves().records(&vpa("web"), now);
    let record = records.first().expect("one container");
    assert!(record.snapshot.plan.is_some());
    let state = |registry: &VpaRegistry| {
        let history = &registry.get(&vpa("web")).expect("tracked").history;
        history.get("main").and_then(|history| Some(history.plan()?.state.clone()))
    };
    let mut restored = planned(RequestProfile::Balanced);
    restored.restore(&record.key, &record.snapshot, now, false).expect("is valid");
    assert_eq!(state(&restored), state(&registry));
    assert!(state(&restored).is_some());
    assert_eq!(reason(&recommended(&restored, now)), RecommendationReason::Plan);
    let mut default = planned(RequestProfile::Vpa);
    default.restore(&record.key, &record.snapshot, now, false).expect("is valid");
    assert_eq!(state(&default), None);
    assert_eq!(reason(&recommended(&default, now)), RecommendationReason::Usage);
}

/// Upstream's checkpoints have no plan: it starts from their histograms, and live samples join it.
#[test]
fn a_history_without_a_plan_starts_one() {
    let mut upstream = planned(RequestProfile::Vpa);
    run(&mut upstream, 0..2880, |_| 400);
    let now = minute(2880);
    let records = upstream.saves().records(&vpa("web"), now);
    let record = records.first().expect("one container");
    assert!(record.snapshot.plan.is_none());
    let mut registry = planned(RequestProfile::Steady);
    run(&mut registry, 2878..2880, |_| 400);
    registry.restore(&record.key, &record.snapshot, now, false).expect("is valid");
    run(&mut registry, 2881..2885, |_| 400);
    let planned = recommended(&registry, minute(2884));
    assert_eq!(reason(&planned), RecommendationReason::Plan);
    let target = planned.target.cpu.expect("is recommended").milli_value();
    assert!((400..=460).contains(&target), "{target}m for usage of 400m");
}

/// With history from Prometheus there is no saved state: the plan is filled from the samples at the start.
#[test]
fn a_plan_from_stored_samples_equals_one_from_the_same_samples_live() {
    const MINUTES: u32 = 2 * 1440;
    let cpu = |number: u32| MilliCpu(i64::from(150 + number % 1440 / 3 + number % 7));
    let memory = |number: u32| Bytes(i64::from(300 + number / 60) << 20);
    let now = minute(MINUTES);
    let mut live = planned(RequestProfile::Tide);
    for number in 0..MINUTES {
        let usage = UsageSample {
            pod: "pod-0",
            container: "main",
            at: minute(number),
            cpu: Some(cpu(number)),
            memory: Some(memory(number)),
        };
        live.ingest().add_usage(&vpa("web"), usage, minute(number)).expect("tracked");
    }
    let mut stored = planned(RequestProfile::Tide);
    let settings = stored.settings.clone();
    let mut builder = stored.start_history(&vpa("web")).expect("tracked");
    let (name, replica) = ("main".into(), "pod-0".into());
    let series: [(Resource, Vec<f64>); 2] = [
        (Resource::Cpu, (0..MINUTES).map(|number| cpu(number).as_cores()).collect()),
        (Resource::Memory, (0..MINUTES).map(|number| memory(number).as_f64()).collect()),
    ];
    for (gauge, values) in &series {
        let points: Vec<(Time, f64)> = (0..).map(minute).zip(values.iter().copied()).collect();
        // In several answers, as a server sends them.
        for points in points.chunks(1000) {
            let batch =
                SampleBatch { replica: &replica, gauge: *gauge, covers: Some(MINUTE), points };
            let (inputs, mut cache) = ((&settings, now), DecayCache::default());
            builder.add_batch(&name, batch, inputs, &mut cache, |result| {
                assert_eq!(result, SampleResult::Accepted);
            });
        }
    }
    assert_eq!(stored.merge_history(&vpa("web"), builder, now), 1);
    let plan = |registry: &VpaRegistry| {
        let history = &registry.get(&vpa("web")).expect("tracked").history;
        history.get("main").and_then(|history| Some(history.plan()?.state.clone()))
    };
    let expected = plan(&live).expect("is planned");
    assert_eq!(expected.cpu.samples, u64::from(MINUTES));
    assert_eq!(plan(&stored), Some(expected));
    let [stored, live] = [stored, live].map(|mut registry| {
        registry.decide_plans(&vpa("web"), now);
        recommended(&registry, now)
    });
    assert_eq!(reason(&live), RecommendationReason::Plan);
    assert_eq!(stored.target, live.target);
}

/// The updater acts outside of the bounds, so a plan that changes the request has it outside, and one that keeps it within.
#[test]
fn the_bounds_leave_out_a_request_that_changes_and_contain_one_that_stays() {
    let mut registry = planned(RequestProfile::Tide);
    let (mut changed, mut kept) = (0, 0);
    let usage = |number: u32| if number % 1440 < 480 { 900 } else { 150 + i64::from(number % 11) };
    run(&mut registry, 0..1441, usage);
    for number in 1441..4320 {
        run(&mut registry, number..number + 1, usage);
        if number % 20 != 0 {
            continue;
        }
        let found = recommended(&registry, minute(number));
        let plan = found.explanation.cpu.as_ref().and_then(|cpu| cpu.plan.as_deref());
        let Some(PlanDecision::Cpu(decision)) = plan.map(|plan| plan.decision) else {
            panic!("CPU is planned in minute {number}")
        };
        let request = (decision.request * 1000.0 - 1e-6).ceil() as i64;
        let milli = |amounts: ResourceAmounts| amounts.cpu.map_or(0, Quantity::milli_value);
        let (lower, upper) = (milli(found.lower), milli(found.upper));
        let is_within = lower <= request && request <= upper;
        assert_eq!(is_within, !decision.outcome.is_change(), "{number}: {decision:?}");
        let target = milli(found.target);
        assert!(lower <= target && target <= upper, "{lower}, {target}, {upper}");
        *(if is_within { &mut kept } else { &mut changed }) += 1;
    }
    assert!(changed > 0 && kept > 0, "{changed} changed, {kept} kept");
}

#[test]
fn all_requests_are_planned_once_each_container_has_a_day_of_samples() {
    let mut registry = planned(RequestProfile::Balanced);
    let profile = |registry: &VpaRegistry, number| {
        registry.recommend(&vpa("web"), minute(number)).expect("loaded").planned_by()
    };
    run(&mut registry, 0..1440, |_| 100);
    assert_eq!(profile(&registry, 1439), None);
    run(&mut registry, 1440..1442, |_| 100);
    assert_eq!(profile(&registry, 1441), Some(PlanProfile::Balanced));
    let usage = UsageSample {
        pod: "pod-0",
        container: "sidecar",
        at: minute(1442),
        cpu: Some(MilliCpu(10)),
        memory: Some(Bytes(1 << 20)),
    };
    registry.ingest().add_usage(&vpa("web"), usage, minute(1442)).expect("tracked");
    assert_eq!(profile(&registry, 1442), None, "the new container is not planned yet");
    assert_eq!(Recommendation::default().planned_by(), None);
}

#[test]
fn silence_never_lowers_a_planned_request() {
    let mut registry = planned(RequestProfile::Tide);
    run(&mut registry, 0..2880, |number| if number % 1440 < 720 { 900 } else { 100 });
    let mut last = recommended(&registry, minute(2879)).target;
    for hour in 1..72 {
        let now = minute(2879 + hour * 60);
        registry.decide_plans(&vpa("web"), now);
        let target = recommended(&registry, now).target;
        assert!(target.cpu >= last.cpu && target.memory >= last.memory, "after {hour} h");
        last = target;
    }
}

#[test]
fn an_oom_kill_raises_planned_memory_at_once() {
    let mut registry = planned(RequestProfile::Steady);
    run(&mut registry, 0..1500, |_| 100);
    let kill = OomKill { request: Bytes(1 << 30), limit: Some(Bytes(1 << 30)), usage: None };
    let at = minute(1500);
    let counted = registry.ingest().add_oom(&vpa("web"), ("pod-0", "main"), (at, kill), false, at);
    assert!(matches!(counted, OomResult::Counted(_)), "{counted:?}");
    registry.decide_plans(&vpa("web"), at);
    let memory = recommended(&registry, at).target.memory.expect("is recommended").value();
    assert_eq!(memory, (1_i64 << 30) * 6 / 5 + 1, "1.2 times the limit");
}
