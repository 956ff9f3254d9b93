//! What objects can ask for beyond upstream's fields, each beside what happens without it.

use std::time::Duration;

use plimsoll_core::{
    api::trace::Trace,
    scaling::{
        Answer, Unknown, Unready,
        memory::{Found, Remembered},
        pods::Phase,
    },
    types::compat::{Compat, Fixes},
    watermark::{
        Decision, Hold, Memory, Options, Position, Restriction, Rules, Source, gate::Passage,
        options::Fallback, trace::trace,
    },
};
use serde_json::{Value, json};

use super::{Case, NOW, ago, cpu, external, pending, pods, source, spec};

fn ours() -> Fixes {
    Fixes::of(Compat::Plimsoll)
}

fn silent(name: &str) -> Source {
    source(name, Err(Unknown::Failed("away".into())), (1000, 2000))
}

fn loud(name: &str, sum: i64) -> Source {
    source(name, Ok(Answer::Sum { sum, at: None }), (1000, 2000))
}

fn fast(more: &Value) -> Value {
    let mut fields = json!({
        "algorithm": "average", "maxReplicas": 100, "minReplicas": 1, "tolerance": "1m",
        "scaleUpLimitFactor": "100", "scaleDownLimitFactor": "90",
    });
    for (key, value) in more.as_object().expect("an object") {
        fields[key] = value.clone();
    }
    fields
}

fn to(decision: &Decision) -> Option<i32> {
    decision.change.as_ref().map(|change| change.to)
}

#[test]
fn one_metric_that_answers_adds_replicas_alone_only_where_that_is_asked_for() {
    let partial = Options { partial: true, ..Options::default() };
    for (sum, options, expected) in [
        (30_000, Options::default(), None),
        (30_000, partial, Some(15)),
        // None are removed while somebody says nothing, who might need them.
        (3_000, partial, None),
        (15_000, partial, None),
    ] {
        for sources in [vec![loud("a", sum), silent("b")], vec![silent("b"), loud("a", sum)]] {
            let case = Case::new(ours(), fast(&json!({})), 10, sources).with(options);
            assert_eq!(to(&case.decide()), expected, "{sum} {options:?}");
        }
    }
    let both = vec![silent("a"), silent("b")];
    assert_eq!(to(&Case::new(ours(), fast(&json!({})), 10, both).with(partial).decide()), None);
}

#[test]
fn a_fallback_is_gone_to_after_its_time_and_no_faster_than_anything_else() {
    let fallback = Fallback { replicas: 8, after: Duration::from_mins(5) };
    let with = Options { fallback: Some(fallback), ..Options::default() };
    let decide = |wanted: i32, silent_for: u64, options: Options, scaled: u64| {
        let case = Case::new(ours(), fast(&json!({})), wanted, vec![silent("a")]);
        let mut case = case.with(options).scaled(scaled);
        case.memory.unknown = Some(ago(silent_for));
        case.decide()
    };
    for (wanted, silent_for, options, scaled, expected) in [
        (5, 300, Options::default(), 3600, None),
        (5, 299, with, 3600, None),
        (5, 300, with, 3600, Some(8)),
        (8, 300, with, 3600, None),
        // At most as many more at once as otherwise, not within a window, and never outside of the bounds.
        (2, 300, with, 3600, Some(4)),
        (5, 300, with, 30, None),
        (20, 300, with, 3600, Some(8)),
        (20, 300, with, 200, None),
    ] {
        let decision = decide(wanted, silent_for, options, scaled);
        assert_eq!(to(&decision), expected, "from {wanted} after {silent_for} s");
        let restrictions = decision.restrictions(&Rules::of(&spec(fast(&json!({})))));
        assert!(restrictions.contains(&Restriction::MetricUnknown), "{restrictions:?}");
    }
    let bounded = fast(&json!({"maxReplicas": 6}));
    let mut case = Case::new(ours(), bounded, 5, vec![silent("a")]).with(with);
    case.memory.unknown = Some(ago(300));
    assert_eq!(to(&case.decide()), Some(6));
    // Metrics that nobody asked for, because pods are not ready, have not said nothing: replicas stay.
    for unready in [Unready::NoPods, Unready::NoneReady { among: 5 }] {
        let mut source = silent("a");
        source.asked = Err(Unknown::Unready(unready));
        let mut case = Case::new(ours(), fast(&json!({})), 20, vec![source]).with(with);
        case.memory.unknown = Some(ago(300));
        let decision = case.decide();
        assert_eq!((to(&decision), decision.memory.unknown), (None, None));
    }
    // Pods of which nobody tells what they use are another matter.
    let mut source = silent("a");
    source.asked = Err(Unknown::Unready(Unready::NoUsage));
    let mut case = Case::new(ours(), fast(&json!({})), 5, vec![source]).with(with).scaled(3_600);
    case.memory.unknown = Some(ago(300));
    assert_eq!(to(&case.decide()), Some(8));
    // What is stopped by hand stays stopped.
    let mut stopped = Case::new(ours(), fast(&json!({})), 0, vec![silent("a")]).with(with);
    stopped.memory.unknown = Some(ago(300));
    assert_eq!(to(&stopped.decide()), None);
}

#[test]
fn replicas_that_nobody_may_have_are_refused_or_held_to_the_bounds_of_the_object() {
    let read = |text: &str| {
        let said = ("plimsoll.dev/fallback-replicas".to_owned(), text.to_owned());
        let (options, bad) = Options::read(&[said].into(), Duration::from_secs(15));
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
        assert_eq!(read(text), Options::default(), "{text}");
    }
    let bounded = fast(&json!({"minReplicas": 3, "maxReplicas": 6}));
    for (text, wanted, expected) in [
        ("2147483647 after 1", 5, 6),
        ("7 after 1", 5, 6),
        ("1 after 1", 5, 3),
        ("2147483647 after 1", 500, 6),
    ] {
        let case = Case::new(ours(), bounded.clone(), wanted, vec![silent("a")]);
        let mut case = case.with(read(text)).scaled(3600);
        case.memory.unknown = Some(ago(3600));
        assert_eq!(to(&case.decide()), Some(expected), "{text} from {wanted}");
    }
}

#[test]
fn nothing_is_known_from_the_first_look_that_says_so_until_one_that_does_not() {
    let mut case = Case::new(ours(), fast(&json!({})), 5, vec![silent("a"), loud("b", 7_500)]);
    let first = case.decide().memory;
    assert_eq!(first.unknown, Some(NOW));
    case.memory = Memory { unknown: Some(ago(60)), ..first };
    assert_eq!(case.decide().memory.unknown, Some(ago(60)));
    case.sources = vec![loud("a", 7_500), loud("b", 7_500)];
    assert_eq!(case.decide().memory.unknown, None);
}

#[test]
fn with_delays_of_their_own_metrics_that_take_turns_satisfy_none() {
    use Position::{Above, Below, Inside};
    let each = Options { each_delay: true, ..Options::default() };
    let fields = fast(&json!({
        "upscaleDelayAboveWatermarkSeconds": 60, "downscaleDelayBelowWatermarkSeconds": 120,
    }));
    let remembered = |name: &str, position: Position, seconds: u64| Remembered {
        name: format!("{name}{{map[]}}"),
        found: Found::At(position),
        since: ago(seconds),
    };
    let decide = |a: (i64, Position, u64), b: (i64, Position, u64), options: Options| {
        let sources = vec![loud("a", a.0), loud("b", b.0)];
        let mut case = Case::new(ours(), fields.clone(), 5, sources).with(options).scaled(3600);
        case.memory.sources = vec![remembered("a", a.1, a.2), remembered("b", b.1, b.2)];
        let above = plimsoll_core::watermark::conditions::Said::above(true);
        let below = plimsoll_core::watermark::conditions::Said::below(true);
        case = case.said(&above, 3600).said(&below, 3600);
        let decision = case.decide();
        let held = decision.passage.and_then(|Passage { held, .. }| held);
        (to(&decision), matches!(held, Some(Hold::Delay { .. })))
    };
    // Some metric was above all the time, but none of them for a minute.
    let (up, inside, down) = (15_000, 7_500, 2_500);
    let taking_turns = ((up, Above, 30), (inside, Inside, 30));
    assert_eq!(decide(taking_turns.0, taking_turns.1, Options::default()), (Some(8), false));
    assert_eq!(decide(taking_turns.0, taking_turns.1, each), (None, true));
    assert_eq!(decide((up, Above, 60), (inside, Inside, 30), each), (Some(8), false));
    // One that was above for long enough is enough.
    assert_eq!(decide((up, Above, 60), (up, Above, 0), each), (Some(8), false));
    // Below, each of them has to have been.
    assert_eq!(decide((down, Below, 120), (down, Below, 119), each), (None, true));
    assert_eq!(
        decide((down, Below, 120), (down, Below, 119), Options::default()),
        (Some(2), false)
    );
    assert_eq!(decide((down, Below, 120), (down, Below, 300), each), (Some(2), false));
    // What was there before it came back does not count.
    assert_eq!(decide((up, Inside, 600), (inside, Inside, 600), each), (None, true));
}

#[test]
fn what_is_remembered_is_told_in_the_status_and_read_from_there() {
    let mut case = Case::new(ours(), fast(&json!({})), 5, vec![silent("a"), loud("b", 15_000)]);
    case.memory = Memory { unknown: Some(ago(60)), ..case.decide().memory };
    let decision = case.decide();
    let told: Trace = trace(&decision, &case.rules, NOW);
    let told = serde_json::to_value(told).expect("JSON");
    let read = Memory::of(&serde_json::from_value(told).expect("a trace"));
    assert_eq!(read, decision.memory);
    assert_eq!(read.sources.len(), 2);
    assert_eq!(Memory::of(&Trace::default()), Memory::default());
}

#[test]
fn the_last_replica_goes_and_comes_back_only_where_that_is_asked_for() {
    let to_zero = Options { to_zero: true, ..Options::default() };
    let (one, two) = (json!({}), json!({"minReplicas": 2}));
    let decide = |fields: &Value, wanted: i32, sums: &[i64], options: Options| {
        let sources = sums.iter().map(|sum| external(*sum, 1000, 2000)).collect();
        let mut case = Case::new(ours(), fast(fields), wanted, sources).with(options);
        case.pods = pods(usize::try_from(wanted).expect("few"));
        case.scaled(3600).decide()
    };
    for (fields, wanted, sums, options, expected) in [
        (&one, 1, &[0][..], to_zero, Some(0)),
        (&one, 1, &[0, 0], to_zero, Some(0)),
        (&one, 1, &[0, 500], to_zero, None),
        (&one, 1, &[0], Options::default(), None),
        (&one, 0, &[5_000], to_zero, Some(1)),
        (&one, 0, &[0, 1], to_zero, Some(1)),
        (&one, 0, &[0], to_zero, None),
        (&one, 0, &[5_000], Options::default(), None),
        // The fewest that there are to be go and come together.
        (&two, 2, &[0], to_zero, Some(0)),
        (&two, 0, &[1], to_zero, Some(2)),
        (&two, 0, &[0], to_zero, None),
    ] {
        let decision = decide(fields, wanted, sums, options);
        assert_eq!(to(&decision), expected, "{fields} from {wanted} at {sums:?}");
        let found = decision.restrictions(&Rules::of(&spec(fast(fields))).with(options));
        let is_disabled = found.contains(&Restriction::Disabled);
        assert_eq!(is_disabled, wanted == 0 && !options.to_zero);
    }
    // Who lets nothing be removed means the last one, too; who was at zero already stays there.
    let never = json!({"scaleDownLimitFactor": "0"});
    assert_eq!(to(&decide(&never, 1, &[0], to_zero)), None);
    assert_eq!(to(&decide(&never, 0, &[0], to_zero)), None);
    // From many it goes no faster than otherwise.
    assert_eq!(to(&decide(&one, 10, &[0], to_zero)), Some(1));
    // Unknown is not zero.
    let unknown = Case::new(ours(), fast(&one), 1, vec![silent("a")]).with(to_zero);
    assert_eq!(to(&unknown.scaled(3600).decide()), None);
    // A forbidden window holds the last one too.
    let sources = vec![external(0, 1000, 2000)];
    let recent = Case::new(ours(), fast(&one), 1, sources).with(to_zero).scaled(10);
    assert_eq!(to(&recent.decide()), None);
}

#[test]
fn what_is_written_is_a_multiple_only_where_that_is_asked_for() {
    let whole = Options { whole_result: true, ..Options::default() };
    let both = Options { to_zero: true, ..whole };
    let fields = |more: Value| {
        let mut all = fast(
            &json!({"replicaScalingAbsoluteModulo": 4, "scaleUpLimitFactor": "40", "scaleDownLimitFactor": "40"}),
        );
        for (key, value) in more.as_object().expect("an object") {
            all[key] = value.clone();
        }
        all
    };
    for (more, wanted, sum, options, expected) in [
        (json!({}), 10, 60_000, Options::default(), Some(14)),
        (json!({}), 10, 60_000, whole, Some(12)),
        (json!({}), 8, 60_000, whole, None),
        (json!({}), 8, 60_000, Options::default(), Some(11)),
        (json!({}), 16, 1_000, Options::default(), Some(10)),
        (json!({}), 16, 1_000, whole, Some(12)),
        // Up from nothing one replica would be none, and there would be none for ever.
        (json!({}), 0, 60_000, both, Some(4)),
        (json!({"maxReplicas": 3}), 0, 60_000, both, Some(3)),
        // Bounds win: at the most that there may be, no multiple is needed to get inside.
        (json!({"maxReplicas": 9}), 12, 60_000, whole, Some(9)),
    ] {
        let case = Case::new(ours(), fields(more), wanted, vec![external(sum, 1000, 2000)]);
        let decision = case.with(options).scaled(3600).decide();
        assert_eq!(to(&decision), expected, "from {wanted} at {sum}, {options:?}");
    }
}

#[test]
fn the_two_meanings_of_the_readiness_delay_can_be_set_apart() {
    let fields = fast(&json!({"readinessDelaySeconds": 60}));
    // Three are ready, one is pending for half a minute.
    let ready = |options: Options| {
        let mut case = Case::new(ours(), fields.clone(), 4, vec![external(1, 1000, 2000)]);
        case.pods = [pods(3), vec![pending(3, 30)]].concat();
        let case = case.with(options);
        case.setting().readiness.count(&case.pods, case.scale)
    };
    let none = Options { pending_counts: Some(Duration::ZERO), ..Options::default() };
    assert_eq!((ready(Options::default()), ready(none)), (Ok(4), Ok(3)));
    let cpu_of = |options: Options| {
        let mut case = Case::new(ours(), fields.clone(), 2, vec![cpu(&[100, 900], 1, 2)]);
        case.pods[1].ready = Some((true, ago(30)));
        assert_eq!(case.pods[1].phase, Phase::Running);
        let case = case.with(options);
        let Ok(Answer::Usage { usage, .. }) = &case.sources[0].asked else { panic!("it is usage") };
        case.setting().readiness.usage(&case.pods, true, usage)
    };
    let all = Options { starting_ignored: Some(Duration::ZERO), ..Options::default() };
    assert_eq!((cpu_of(Options::default()), cpu_of(all)), (Ok((100, 1)), Ok((1000, 2))));
}

#[test]
fn what_pods_used_too_long_ago_says_nothing() {
    let mut source = cpu(&[100, 100], 1, 2);
    let Ok(Answer::Usage { at, .. }) = &mut source.asked else { panic!("it is usage") };
    *at = Some(ago(120));
    let case = Case::new(ours(), fast(&json!({})), 2, vec![source]);
    for (age, expected) in [(None, true), (Some(60), false), (Some(180), true)] {
        let setting = plimsoll_core::watermark::Setting { oldest: age.map(ago), ..case.setting() };
        let (rows, _) = setting.combine(&case.sources);
        assert_eq!(rows[0].outcome.is_ok(), expected, "{age:?}");
        if !expected {
            assert_eq!(rows[0].outcome, Err(Unknown::Stale { at: ago(120) }));
        }
    }
}
