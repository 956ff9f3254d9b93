//! Which requests stay and which targets move, by hand; and that the absolute target stays.

use proptest::prelude::*;

use super::*;

fn target(container: Option<&str>, percent: u32) -> UtilizationTarget {
    UtilizationTarget {
        kind: "HorizontalPodAutoscaler".into(),
        name: "web".into(),
        metric: 0,
        resource: Resource::Cpu,
        container: container.map(Into::into),
        percent,
    }
}

fn request(name: &str, current: Option<i64>, new: Option<i64>) -> ContainerRequest<'_> {
    ContainerRequest { name, role: ContainerRole::Main, current, new }
}

/// The new percentages and the containers that stay.
fn joint(
    targets: &[UtilizationTarget],
    containers: &[ContainerRequest<'_>],
) -> (Vec<Option<u32>>, Vec<String>) {
    let decision = decide(AutoscalerRule::Joint, Resource::Cpu, targets, containers);
    let percents = decision.target_changes.iter().map(|change| change.new_percent).collect();
    (percents, decision.held.into_keys().collect())
}

#[test]
fn rules_are_parsed_and_printed() {
    for rule in [AutoscalerRule::Joint, AutoscalerRule::Skip, AutoscalerRule::Ignore] {
        assert_eq!(rule.to_string().parse(), Ok(rule));
    }
    let error = "off".parse::<AutoscalerRule>().expect_err("invalid");
    assert_eq!(error.to_string(), "invalid value `off` of --hpa; use `joint`, `skip` or `ignore`");
}

#[test]
fn targets_move_against_requests() {
    let all = target(None, 60);
    for (name, targets, containers, percents, held) in [
        // 60 x 500 / 370 = 81.08.
        (
            "one container",
            vec![all.clone()],
            vec![request("main", Some(500), Some(370))],
            vec![Some(81)],
            vec![],
        ),
        // 60 x 600 / 400 = 90: the sidecar counts.
        (
            "two containers",
            vec![all.clone()],
            vec![request("main", Some(500), Some(300)), request("proxy", Some(100), Some(100))],
            vec![Some(90)],
            vec![],
        ),
        // 60 x 500 / 300 = 100.
        (
            "one container of two",
            vec![target(Some("main"), 60)],
            vec![request("main", Some(500), Some(300)), request("proxy", Some(100), Some(9))],
            vec![Some(100)],
            vec![],
        ),
        (
            "no change",
            vec![all.clone()],
            vec![request("main", Some(500), Some(500))],
            vec![],
            vec![],
        ),
        // 60 x 500 / 1500 = 20, and with one millicore more 19.99 is still 20.
        (
            "20 %",
            vec![all.clone()],
            vec![request("main", Some(500), Some(1501))],
            vec![Some(20)],
            vec![],
        ),
        (
            "19 %",
            vec![all.clone()],
            vec![request("main", Some(500), Some(1550))],
            vec![None],
            vec!["main"],
        ),
        (
            "400 %",
            vec![all.clone()],
            vec![request("main", Some(1000), Some(150))],
            vec![Some(400)],
            vec![],
        ),
        (
            "401 %",
            vec![all.clone()],
            vec![request("main", Some(1003), Some(150))],
            vec![None],
            vec!["main"],
        ),
        (
            "a container without a request",
            vec![all.clone()],
            vec![request("main", Some(500), Some(300)), request("proxy", None, Some(50))],
            vec![None],
            vec!["main", "proxy"],
        ),
        // Too small a request changes the target by less than half a percent.
        (
            "rounded to the same",
            vec![all.clone()],
            vec![request("main", Some(1000), Some(995))],
            vec![],
            vec![],
        ),
        (
            "not a target of CPU",
            vec![UtilizationTarget { resource: Resource::Memory, ..all }],
            vec![request("main", Some(9), Some(1))],
            vec![],
            vec![],
        ),
    ] {
        let held: Vec<String> = held.into_iter().map(str::to_owned).collect();
        assert_eq!(joint(&targets, &containers), (percents, held), "{name}");
    }
}

#[test]
fn init_containers_do_not_count() {
    let mut init = request("init", None, Some(1000));
    init.role = ContainerRole::Init;
    let mut sidecar = request("proxy", Some(100), Some(200));
    sidecar.role = ContainerRole::Sidecar;
    let containers = [init, request("main", Some(500), Some(300)), sidecar];
    // 60 x 600 / 500 = 72.
    assert_eq!(joint(&[target(None, 60)], &containers), (vec![Some(72)], vec![]));
}

/// The target of one container cannot move, so its request stays, and the target of all follows what is left.
#[test]
fn a_request_that_stays_counts_for_the_other_targets() {
    let targets = [target(None, 50), target(Some("main"), 300)];
    let containers =
        [request("main", Some(400), Some(200)), request("proxy", Some(400), Some(100))];
    // For main 300 x 400 / 200 = 600 % is too much. So 50 x 800 / (400 + 100) = 80, and not 50 x 800 / 300 =
    // 133.
    assert_eq!(joint(&targets, &containers), (vec![Some(80), None], vec!["main".to_owned()]));
}

#[test]
fn reasons_name_the_autoscaler() {
    let containers = [request("main", Some(1003), Some(150)), request("proxy", Some(1), Some(1))];
    let reason = |rule, containers: &[ContainerRequest<'_>]| {
        decide(rule, Resource::Cpu, &[target(Some("main"), 60)], containers)
            .held
            .get("main")
            .cloned()
    };
    for (rule, expected) in [
        (
            AutoscalerRule::Skip,
            Some("HorizontalPodAutoscaler web scales by the utilization of cpu (--hpa=skip)"),
        ),
        (
            AutoscalerRule::Joint,
            Some(
                "HorizontalPodAutoscaler web scales at 60 % of the requested cpu, which would have to become 401 %; from 20 to \
                 400 % are possible",
            ),
        ),
        (AutoscalerRule::Ignore, None),
    ] {
        assert_eq!(reason(rule, &containers).as_deref(), expected);
    }
    let expected = "HorizontalPodAutoscaler web scales by the utilization of cpu, which is unknown: the container main has no \
                    request";
    let missing = [request("main", None, Some(150))];
    assert_eq!(reason(AutoscalerRule::Joint, &missing).as_deref(), Some(expected));
    let skipped =
        decide(AutoscalerRule::Skip, Resource::Cpu, &[target(Some("main"), 60)], &containers);
    assert!(skipped.target_changes[0].held.is_some() && skipped.held.len() == 1, "proxy is free");
}

proptest! {
    /// The usage per pod at which replicas are added stays, up to the rounding of the percentage.
    #[test]
    fn the_absolute_target_stays(
        percent in 20..=400_u32,
        containers in prop::collection::vec((1..100_000_i64, 1..100_000_i64), 1..5),
    ) {
        let names: Vec<String> = (0..containers.len()).map(|index| index.to_string()).collect();
        let requests: Vec<_> = names.iter().zip(&containers)
            .map(|(name, (current, new))| request(name, Some(*current), Some(*new)))
            .collect();
        let decision = decide(AutoscalerRule::Joint, Resource::Cpu, &[target(None, percent)], &requests);
        let sum = |of: fn(&(i64, i64)) -> i64| containers.iter().map(of).sum::<i64>() as f64;
        let before = f64::from(percent) * sum(|(current, _)| *current);
        if decision.held.is_empty() {
            let new = decision.target_changes.first().and_then(|change| change.new_percent).unwrap_or(percent);
            prop_assert!((20..=400).contains(&new));
            let after = f64::from(new) * sum(|(_, new)| *new);
            prop_assert!((after - before).abs() <= 0.5 * sum(|(_, new)| *new) + 1e-6);
        } else {
            let exact = before / sum(|(_, new)| *new);
            prop_assert!(!(20.0..=400.0).contains(&exact));
            prop_assert_eq!(decision.held.len(), containers.len());
        }
    }

    /// What was held is not decided otherwise when it is applied.
    #[test]
    fn a_second_time_changes_nothing(
        targets in prop::collection::vec((prop::option::of(0..3_usize), 20..=400_u32), 1..4),
        containers in prop::collection::vec((prop::option::of(1..1000_i64), 1..1000_i64), 1..4),
    ) {
        let names = ["a", "b", "c"];
        let targets: Vec<_> = targets.into_iter().map(|(index, percent)| target(index.map(|index| names[index]), percent)).collect();
        let requests: Vec<_> = names.iter().zip(&containers).map(|(name, (current, new))| request(name, *current, Some(*new))).collect();
        let first = decide(AutoscalerRule::Joint, Resource::Cpu, &targets, &requests);
        let applied: Vec<_> = requests.iter().map(|container| {
            let is_held = first.held.contains_key(container.name);
            let now = if is_held { container.current } else { container.new };
            ContainerRequest { current: now, new: now, ..*container }
        }).collect();
        let second = decide(AutoscalerRule::Joint, Resource::Cpu, &targets, &applied);
        prop_assert_eq!(second, SharedDecision::default());
    }
}
