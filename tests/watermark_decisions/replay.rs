//! Replays series of several shapes step by step, compared with the formulas.

mod reference_model;
mod replay_series;

use plimsoll_core::types::compat::Compat;

use self::{
    reference_model::ReferenceModel,
    replay_series::{Start, replay_series},
};
use crate::support::{
    random::{self, Random},
    tier,
};

const STEPS: u64 = 240;
const PERIOD: i64 = 15;
const BEGIN: i64 = 1_800_000_000;

/// Generates a series for a workload of about this many replicas: a day compressed, a staircase, spikes, or noise.
fn series(noise: &mut Random, model: &ReferenceModel) -> Vec<(i64, i64)> {
    let shape = noise.below(4);
    let replicas = if model.average { noise.between(2, 60) as f64 } else { 1.0 };
    let middle = (model.low + model.high) as f64 / 2.0 * replicas;
    let turn = noise.between(30, 120) as f64;
    let mut value = |step: u64| {
        let at = step as f64 / turn;
        let wave = match shape {
            0 => 1.0 + 0.8 * (at * std::f64::consts::TAU).sin(),
            1 => 0.25 + (at * 2.0).floor() % 4.0 * 0.6,
            2 if step % 40 < 3 => 4.0,
            2 => 0.9,
            _ => 0.2 + noise.below(200) as f64 / 100.0,
        };
        (middle * wave) as i64
    };
    (0..STEPS).map(|step| (BEGIN + step as i64 * PERIOD, value(step))).collect()
}

#[test]
#[expect(clippy::print_stdout, reason = "the seed replays what failed, and how much there was")]
fn simulated_objects_scale_as_the_reference_formulas_say() {
    let objects = tier::cases(80, 5_000);
    for seed in random::seeds("watermark-replay", 7) {
        let mut changes = 0;
        for (compat, exact) in [(Compat::Upstream, false), (Compat::Plimsoll, true)] {
            for object in 0..objects {
                let mut noise = Random::derive(seed, &[object]);
                let model = ReferenceModel::draw(&mut noise, exact);
                let series = series(&mut noise, &model);
                let replicas = noise.between(1, 40) as i64;
                let before = BEGIN - noise.below(700) as i64;
                let last = noise.chance(50).then_some(before);
                let counts = replay_series(&model, &series, Start { compat, replicas, last });
                match counts {
                    Ok(counts) => changes += counts.changes,
                    Err(why) => panic!("{}={seed} object {object}: {why}", random::SEED),
                }
            }
        }
        println!("{} steps, {changes} changes", 2 * objects * STEPS);
        assert!(changes > 10 * objects, "only {changes} changes");
    }
}
