//! The figures of ten containers over two days, worked out in integers.

use crate::{
    backtest::{
        account::{ContainerDay, PolicyAccount},
        policy::{Policy, PolicyRule},
        recording::RecordedStep,
        replay::{ReplaySettings, replay},
        testing::{
            MINUTES_PER_DAY, WINDOWS_PER_DAY, amounts, container, days_later, evaluation,
            minutes_later, pod, usage, workload,
        },
    },
    types::units::MilliCpu,
};

/// On each day container `i` uses 4 cores for the first 30 i + 10 d minutes and a quarter of a core later; it needs 1 GiB in
/// the first i + d windows and 100 MiB later. It requests (i + 1) / 2 cores and 128 (i + 1) MiB. Every third one is limited to
/// 4 cores, every second one to 512 MiB.
struct Cell {
    index: u32,
    day: u32,
}

impl Cell {
    fn busy_minutes(&self) -> u32 {
        30 * self.index + 10 * self.day
    }

    fn high_windows(&self) -> u32 {
        self.index + self.day
    }

    fn milli(&self) -> i64 {
        500 * i64::from(self.index + 1)
    }

    fn mebibytes(&self) -> i64 {
        128 * i64::from(self.index + 1)
    }

    fn has_cpu_limit(&self) -> bool {
        self.index.is_multiple_of(3)
    }

    fn has_memory_limit(&self) -> bool {
        self.index.is_multiple_of(2)
    }

    fn expected(&self) -> ContainerDay {
        let (busy, high) = (i64::from(self.busy_minutes()), i64::from(self.high_windows()));
        let (milli, mebibytes) = (self.milli(), self.mebibytes());
        let is_short = milli < 4_000;
        let short = if is_short { busy } else { 0 };
        // 288 means of five minutes: the p95 is the 274th, so it is high if 15 of them are.
        let p95_milli = if busy / 5 >= 15 { 4_000 } else { 250 };
        let peak = if high > 0 { 1_024 } else { 100 };
        let limited = if self.has_cpu_limit() { busy } else { 0 };
        let is_killed = self.has_memory_limit();
        ContainerDay {
            container: self.index as u16,
            day: days_later(self.day),
            cpu_minutes: 1_440,
            memory_windows: 288,
            // (i + 1) / 2 cores for 24 hours.
            cpu_requested: (milli * 24) as f64 / 1_000.0,
            // In quarters of a core and minutes: 16 for each busy one, 1 for the others.
            cpu_used: (16 * busy + (1_440 - busy)) as f64 / 240.0,
            cpu_slack: ((milli - p95_milli).max(0) * 24) as f64 / 1_000.0,
            cpu_short_minutes: short as u64,
            cpu_short: (short * (4_000 - milli)) as f64 / 60_000.0,
            throttled_minutes: limited as u64,
            censored_minutes: limited as u64,
            uncertain_minutes: if is_short { 0 } else { limited as u64 },
            memory_requested: (mebibytes * 24) as f64 / 1_024.0,
            memory_slack: ((mebibytes - peak).max(0) * 24) as f64 / 1_024.0,
            memory_short_windows: if mebibytes < 1_024 { high as u64 } else { 0 },
            // After a kill the next is possible two windows later.
            oom_kills: if is_killed { (high as u32).div_ceil(2) } else { 0 },
            ..ContainerDay::default()
        }
    }
}

fn is_near(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-9 * expected.abs().max(1.0)
}

fn assert_same(found: &ContainerDay, expected: &ContainerDay) {
    let floats = |day: &ContainerDay| {
        [
            day.cpu_requested,
            day.cpu_used,
            day.cpu_slack,
            day.cpu_short,
            day.memory_requested,
            day.memory_slack,
        ]
    };
    for (found_float, expected_float) in floats(found).into_iter().zip(floats(expected)) {
        assert!(is_near(found_float, expected_float), "{found:#?}\n{expected:#?}");
    }
    let same_floats = ContainerDay {
        cpu_requested: found.cpu_requested,
        cpu_used: found.cpu_used,
        cpu_slack: found.cpu_slack,
        cpu_short: found.cpu_short,
        memory_requested: found.memory_requested,
        memory_slack: found.memory_slack,
        ..expected.clone()
    };
    assert_eq!(*found, same_floats, "all counts");
}

#[test]
fn every_cell_of_ten_containers_over_two_days() {
    let cells = |index| (0..2).map(move |day| Cell { index, day });
    let containers = (0..10).map(|index| {
        let cell = Cell { index, day: 0 };
        let limits =
            amounts(cell.has_cpu_limit().then_some(4_000), cell.has_memory_limit().then_some(512));
        container(&format!("c{index}"), amounts(Some(cell.milli()), Some(cell.mebibytes())), limits)
    });
    let minutes = 0..2 * MINUTES_PER_DAY;
    let usages = (0..10).map(|index| {
        let busy = move |minute: u32| {
            let cell = Cell { index, day: minute / MINUTES_PER_DAY };
            if minute % MINUTES_PER_DAY < cell.busy_minutes() { 4.0 } else { 0.25 }
        };
        let high = move |window: u32| {
            let cell = Cell { index, day: window / WINDOWS_PER_DAY };
            if window % WINDOWS_PER_DAY < cell.high_windows() { 1_024.0 } else { 100.0 }
        };
        usage(minutes.clone(), busy, high)
    });
    let pods = vec![pod("web-1", minutes.clone(), usages.collect())];
    let recording = workload("web", containers.collect(), pods);
    let current = Policy::new(PolicyRule::Current);
    let account = replay(&recording, &evaluation(0, 2), &[current], &ReplaySettings::default());
    let PolicyAccount { days, .. } = &account.policies[0];
    let expected: Vec<ContainerDay> = (0..10).flat_map(cells).map(|cell| cell.expected()).collect();
    assert_eq!(days.len(), expected.len());
    for (found, expected) in days.iter().zip(&expected) {
        assert_same(found, expected);
    }
    assert_eq!((account.sampled_minutes, account.missing_minutes), (10 * 2_880, 0));
}

#[test]
fn a_kill_in_the_recording_is_demand_of_a_fifth_more_than_the_limit() {
    let limits = amounts(None, Some(500));
    let mut own = usage(0..MINUTES_PER_DAY, |_| 0.1, |_| 450.0);
    own.oom_kills = vec![crate::backtest::testing::minutes_later(101)];
    let recording = workload(
        "web",
        vec![container("app", amounts(Some(100), Some(500)), limits)],
        vec![pod("web-1", 0..MINUTES_PER_DAY, vec![own])],
    );
    let policies = [Policy::new(PolicyRule::Current), Policy::new(PolicyRule::Oracle)];
    let account = replay(&recording, &evaluation(0, 1), &policies, &ReplaySettings::default());
    let [current, oracle] = [0, 1].map(|policy| account.policies[policy].days[0].clone());
    assert_eq!((current.oom_kills, current.assumed_windows, current.uncertain_windows), (1, 1, 0));
    // The oracle requests 600 MiB: the demand is met, but that it would have been enough is an assumption.
    assert_eq!((oracle.oom_kills, oracle.assumed_windows, oracle.uncertain_windows), (0, 1, 1));
    assert!(is_near(oracle.memory_requested, 600.0 * 24.0 / 1_024.0), "{oracle:?}");
    assert!(is_near(oracle.memory_slack, 0.0), "{oracle:?}");
    assert_eq!(recording.containers[0].requests[0].amounts.cpu, Some(MilliCpu(100)));
}

#[test]
fn a_day_with_less_than_half_of_its_samples_is_not_judged() {
    for (minutes, days) in [(719, 0), (720, 1)] {
        let recording = workload(
            "web",
            vec![container("app", amounts(Some(100), Some(100)), amounts(None, None))],
            vec![pod("web-1", 0..minutes, vec![usage(0..minutes, |_| 0.1, |_| f64::NAN)])],
        );
        let current = [Policy::new(PolicyRule::Current)];
        let account = replay(&recording, &evaluation(0, 1), &current, &ReplaySettings::default());
        assert_eq!(account.policies[0].days.len(), days, "{minutes} minutes");
    }
}

#[test]
fn elastic_memory_is_left_out_and_unknown_requests_are_not_zero() {
    let mut app = container("app", amounts(Some(100), Some(100)), amounts(None, None));
    app.is_memory_elastic = true;
    app.requests.clear();
    let used = usage(0..MINUTES_PER_DAY, |_| 0.1, |_| 50.0);
    let recording = workload("web", vec![app], vec![pod("web-1", 0..MINUTES_PER_DAY, vec![used])]);
    let policies = [Policy::new(PolicyRule::Current), Policy::new(PolicyRule::Vpa)];
    let account = replay(&recording, &evaluation(0, 1), &policies, &ReplaySettings::default());
    assert!(account.policies[0].days.is_empty(), "current does not know its requests");
    let vpa = &account.policies[1].days[0];
    assert_eq!((vpa.memory_windows, vpa.left_out_windows), (0, 288));
    assert_eq!((account.elastic_containers, account.unknown_requests), (1, 1));
}

#[test]
fn pods_that_are_updated_one_after_the_other_have_their_own_requests_and_limits() {
    let hour = |hour: u32| minutes_later(60 * hour);
    let step =
        |at, milli, mebibytes| RecordedStep { at, amounts: amounts(Some(milli), Some(mebibytes)) };
    let mut container = container("main", amounts(None, None), amounts(None, None));
    container.requests = vec![step(hour(0), 1_000, 512), step(hour(12), 500, 256)];
    container.limits = vec![step(hour(0), 2_000, 1_024), step(hour(12), 1_000, 300)];
    let minutes = 0..MINUTES_PER_DAY;
    // It needs more than the second limit of memory from 17:00 on.
    let demand =
        || usage(minutes.clone(), |_| 0.25, |window| if window < 17 * 12 { 200.0 } else { 400.0 });
    let mut late = demand();
    let own = [
        vec![step(hour(0), 1_000, 512), step(hour(18), 500, 256)],
        vec![step(hour(0), 2_000, 1_024), step(hour(18), 1_000, 300)],
    ];
    late.set_steps(own, &container, (hour(0), hour(24)));
    let mut same = demand();
    let [requests, limits] = [container.requests.clone(), container.limits.clone()];
    same.set_steps([requests, limits], &container, (hour(0), hour(24)));
    assert!(same.requests.is_empty() && same.limits.is_empty(), "they are those of the workload");
    let pods = vec![pod("web-1", minutes.clone(), vec![late]), pod("web-2", minutes, vec![same])];
    let recording = workload("web", vec![container], pods);
    let current = [Policy::new(PolicyRule::Current)];
    let account = replay(&recording, &evaluation(0, 1), &current, &ReplaySettings::default());
    let [day] = &account.policies[0].days[..] else { panic!("one day") };
    // 18 h of a core and 6 h of a half; 12 h of each.
    assert!(is_near(day.cpu_requested, 18.0 + 3.0 + 12.0 + 6.0), "{}", day.cpu_requested);
    assert!(is_near(day.memory_requested, 9.0 + 1.5 + 6.0 + 3.0), "{}", day.memory_requested);
    // 6 h of the first and 7 h of the second, in each second window of five minutes.
    assert_eq!(day.oom_kills, (6 + 7) * 6);
    assert_eq!((day.evicted, day.resized, day.born_changed), (0, 2, 0), "in place in fact");
}
