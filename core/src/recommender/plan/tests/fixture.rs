//! The series of the golden vectors, and a replay as they were made with.

use crate::{
    recommender::plan::{CpuDecision, CpuPlan, CpuPlanSettings, PeakWindow, PeakWindowSettings},
    types::Time,
};

pub const DAY_MINUTES: usize = 1440;
const DAY: f64 = 86_400.0;

/// Numbers from 0 to 1, the same in every implementation.
pub fn noise(count: usize) -> Vec<f64> {
    let mut state = 42_u64;
    let next = |_| {
        state = (1_103_515_245 * state + 12_345) % (1 << 31);
        state as f64 / (1_u64 << 31) as f64
    };
    (0..count).map(next).collect()
}

/// The usage of a named series in one minute; `None` in a gap.
pub fn usage(series: &str, minute: usize, noise: f64) -> Option<f64> {
    let (day, hour) = (minute as f64 / 1440.0, (minute % DAY_MINUTES) as f64 / 60.0);
    Some(match series {
        "office" if (8.0..18.0).contains(&hour) => 1.0 * (0.9 + 0.2 * noise),
        "office" => 0.2 * (0.9 + 0.2 * noise),
        "step" => (if day < 4.0 { 0.5 } else { 2.0 }) * (0.95 + 0.1 * noise),
        "drop" => (if day < 4.0 { 2.0 } else { 0.5 }) * (0.95 + 0.1 * noise),
        "tiny" => 0.003 * (0.75 + 0.5 * noise),
        "burst" => {
            if noise > 0.98 {
                4.0
            } else {
                0.1
            }
        }
        "gap" if (3.0..33.0).contains(&day) => return None,
        "flat" | "gap" => 0.5 * (0.9 + 0.2 * noise),
        other => panic!("unknown series {other}"),
    })
}

pub fn seconds(seconds: f64) -> Time {
    Time::from_nanos((seconds * 1e9) as i64)
}

/// The result of a replay.
#[derive(Debug, Default)]
pub struct Replay {
    pub first_request: f64,
    pub last_request: f64,
    pub changes: Vec<(f64, CpuDecision)>,
    pub slack: f64,
    pub shortfall: f64,
    pub above: f64,
}

/// Replays samples of a minute each: the request starts at the 90th percentile of the first day and may change every ten
/// minutes from then on.
pub fn replay(settings: &CpuPlanSettings, samples: &[(f64, f64)]) -> (Replay, CpuPlan) {
    let mut first_day: Vec<f64> =
        samples.iter().take_while(|(at, _)| *at < DAY).map(|(_, used)| *used).collect();
    first_day.sort_by(f64::total_cmp);
    let mut request = first_day[first_day.len() * 9 / 10].max(0.01);
    let mut replay = Replay { first_request: request, ..Replay::default() };
    let mut plan = CpuPlan::new(Time::EPOCH);
    let (mut sums, mut decided, mut next) = ([0.0; 5], false, 600.0);
    for (at, used) in samples.iter().copied() {
        assert!(plan.add(settings, seconds(at), used, decided.then_some(request)), "valid");
        if at + 60.0 >= next {
            next = ((at + 60.0) / 600.0).floor() * 600.0 + 600.0;
            if at >= DAY {
                let decision = plan.decide(settings, seconds(at), request);
                if decision.outcome.is_change() {
                    replay.changes.push((at, decision));
                }
                (request, decided) = (decision.target, true);
            }
        }
        if at >= DAY {
            let (idle, short) = ((request - used).max(0.0), (used - request).max(0.0));
            let is_above = if used > request { 1.0 } else { 0.0 };
            for (sum, value) in sums.iter_mut().zip([idle, short, request, used, is_above]) {
                *sum += value;
            }
        }
    }
    let judged = samples.iter().filter(|(at, _)| *at >= DAY).count() as f64;
    let [idle, short, requested, used, above] = sums;
    (replay.slack, replay.shortfall, replay.above) =
        (idle / requested, short / used, above / judged);
    replay.last_request = request;
    (replay, plan)
}

/// The memory usage of a named series, in MiB.
pub fn memory_usage(series: &str, at: f64) -> f64 {
    let (day, share) = ((at / DAY).floor(), at % DAY / DAY);
    match series {
        "nightly" if (2.0..3.0).contains(&(share * 24.0)) => 700.0,
        "nightly" => 300.0,
        "step" => {
            if day < 3.0 {
                400.0
            } else {
                520.0
            }
        }
        "drop" => {
            if day < 3.0 {
                800.0
            } else {
                300.0
            }
        }
        "leak" => 300.0 + 10.0 * (day + 1.0) * share,
        other => panic!("unknown series {other}"),
    }
}

/// The result of a replay of memory: OOM kills as time, usage, old and new request; changes as time, old and new request.
#[derive(Debug, Default)]
pub struct MemoryReplay {
    pub first_request: f64,
    pub last_request: f64,
    pub kills: Vec<[f64; 4]>,
    pub changes: Vec<[f64; 3]>,
}

/// Replays ten days of samples of five minutes each. Usage above the request is an OOM kill.
pub fn replay_memory(settings: &PeakWindowSettings, series: &str) -> MemoryReplay {
    let samples: Vec<(f64, f64)> = (0..10 * 288)
        .map(|index| f64::from(index) * 300.0)
        .map(|at| (at, memory_usage(series, at)))
        .collect();
    let first_day = samples.iter().filter(|(at, _)| *at < DAY).map(|(_, used)| *used);
    let mut request = first_day.fold(0.0, f64::max) * 1.2;
    let mut replay = MemoryReplay { first_request: request, ..MemoryReplay::default() };
    let mut window = PeakWindow::new(Time::EPOCH);
    let mut next = DAY;
    for (at, used) in samples {
        assert!(window.add(settings, seconds(at), used.min(request)), "valid");
        if at < DAY {
            continue;
        }
        if used > request {
            let raised = window.add_oom(settings, seconds(at), request);
            replay.kills.push([at, used, request, raised]);
            request = raised;
        } else if at >= next {
            next = (at / 600.0).floor() * 600.0 + 600.0;
            let decision = window.decide(settings, seconds(at), request).expect("has samples");
            if decision.target != request {
                replay.changes.push([at, request, decision.target]);
            }
            request = decision.target;
        }
    }
    replay.last_request = request;
    replay
}
