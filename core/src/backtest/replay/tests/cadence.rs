//! Passes that are left out because nothing can change: the result is that of a pass each minute.

use proptest::prelude::*;

use crate::backtest::{
    policy::{Policy, PolicyRule},
    recording::WorkloadRecording,
    replay::{PassCadence, ReplaySettings, replay},
    testing::{MINUTES_PER_DAY, amounts, container, evaluation, pod, usage, workload},
};
use crate::sim::noise::Noise;

/// A workload whose usage shifts, whose memory grows and falls, and whose pods come and go.
pub(super) fn random(seed: u64, days: u32, has_limits: bool) -> WorkloadRecording {
    let noise = Noise::new(seed);
    let number = |tick: u64, below: u64| noise.bits(tick) % below;
    let minutes = days * MINUTES_PER_DAY;
    let base = 0.02 + number(1, 100) as f64 / 50.0;
    let swing = number(2, 100) as f64 / 100.0;
    let shift_at = number(3, u64::from(minutes)) as u32;
    let shift = [0.3, 1.0, 2.5, 4.0][number(4, 4) as usize];
    let peak = 60.0 + number(5, 900) as f64;
    let pods = 1 + number(6, 4) as u32;
    let request = amounts(Some(50 + number(7, 3_000) as i64), Some(50 + number(8, 1_500) as i64));
    let limit = if has_limits {
        amounts(
            request.cpu.map(|cpu| cpu.0 * 2),
            request.memory.map(|memory| memory.0 / crate::backtest::testing::MIB * 3 / 2),
        )
    } else {
        amounts(None, None)
    };
    let made = (0..pods).map(|index| {
        let stream = noise.for_number(u64::from(index));
        let own = |tick: u64, below: u32| (stream.bits(tick) % u64::from(below)) as u32;
        let is_short = own(1, 3) == 0;
        let born = if is_short { own(2, minutes / 2) } else { 0 };
        let gone = if is_short { born + 60 + own(3, minutes / 2) } else { minutes };
        let cores = move |minute: u32| {
            let level = if minute > shift_at { base * shift } else { base };
            let drift = stream.drift(u64::from(minute), 240) * swing;
            level * (1.0 + drift).max(0.05) + 0.02 * stream.bell_shaped(u64::from(minute)).abs()
        };
        let mebibytes = move |window: u32| {
            let level = if window * 5 > shift_at { peak * shift.sqrt() } else { peak };
            let tick = u64::from(window);
            level * (1.0 + 0.3 * stream.for_name("memory").drift(tick, 60))
        };
        pod(&format!("web-{index}"), born..gone, vec![usage(born..gone, cores, mebibytes)])
    });
    let mut made: Vec<_> = made.collect();
    made.sort_by_key(|pod| pod.born);
    workload("web", vec![container("app", request, limit)], made)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn passes_that_are_left_out_would_have_changed_nothing(seed in any::<u64>(), has_limits in any::<bool>(), in_place in any::<bool>()) {
        let recording = random(seed, 4, has_limits);
        let policies: Vec<Policy> = [
            PolicyRule::Plimsoll,
            PolicyRule::Cost,
            PolicyRule::Batch,
            PolicyRule::Vpa,
            PolicyRule::Steady,
            PolicyRule::Tide,
        ]
        .map(Policy::new)
        .into();
        let accounts = [PassCadence::WhenDue, PassCadence::EveryMinute].map(|passes| {
            let settings = ReplaySettings { in_place, passes, ..ReplaySettings::default() };
            replay(&recording, &evaluation(1, 3), &policies, &settings)
        });
        for (due, every) in accounts[0].policies.iter().zip(&accounts[1].policies) {
            prop_assert_eq!(due, every);
        }
    }
}
