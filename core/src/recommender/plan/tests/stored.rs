//! The stored form of a state.

use proptest::prelude::*;

use crate::{
    history::EncodedPlan,
    recommender::plan::{
        CpuPlanSettings, InvalidPlanState, PeakWindowSettings, PlanProfile, PlanState,
    },
    types::Time,
};

use super::fixture::{DAY_MINUTES, noise, seconds};

const MINUTE: f64 = 60.0;

fn state(samples: impl IntoIterator<Item = (f64, f64)>) -> PlanState {
    let cpu = CpuPlanSettings::of(PlanProfile::Tide);
    let memory = PeakWindowSettings::default();
    let mut state = PlanState::new(Time::EPOCH);
    for (at, used) in samples {
        assert!(state.cpu.add(&cpu, seconds(at), used, Some(0.7)));
        assert!(state.memory.add(&memory, seconds(at), used * 1e9));
    }
    state
}

#[test]
fn the_stored_form_has_the_size_that_a_fleet_can_keep() {
    let noise = noise(6 * DAY_MINUTES);
    let days = |usage: fn(f64, f64) -> f64| {
        let samples = noise
            .iter()
            .enumerate()
            .map(|(minute, noise)| (minute as f64 * MINUTE, usage(minute as f64 / 1440.0, *noise)));
        state(samples)
    };
    // One bucket all day, usage that swings by 60 % with the day, and the same with 20 % of noise.
    let flat = days(|_, _| 0.5).encode().bytes().len();
    let swing = days(|day, noise| {
        (1.0 + 0.6 * (day * std::f64::consts::TAU).sin()) * (0.98 + 0.04 * noise)
    });
    let swing_with_noise =
        days(|day, noise| (1.0 + 0.6 * (day * std::f64::consts::TAU).sin()) * (0.9 + 0.2 * noise));
    let [swing, with_noise] = [swing, swing_with_noise].map(|state| state.encode().bytes().len());
    assert!(flat <= 450, "{flat} bytes");
    assert!(swing <= 1536, "{swing} bytes");
    assert!(with_noise <= 2048, "{with_noise} bytes");
}

proptest! {
    #[test]
    fn a_state_is_restored_without_loss(
        steps in prop::collection::vec((0.0..3e4_f64, 0.0..900.0_f64), 0..200),
        kill in prop::option::of(1e6..1e10_f64),
    ) {
        let mut at = 0.0;
        let mut state = state(steps.iter().map(|(step, used)| {
            at += step;
            (at, *used)
        }));
        if let Some(request) = kill {
            state.memory.add_oom(&PeakWindowSettings::default(), seconds(at), request);
        }
        state.cpu.decide(&CpuPlanSettings::of(PlanProfile::Steady), seconds(at), 0.3);
        let encoded = state.encode();
        let decoded = PlanState::decode(&encoded);
        prop_assert_eq!(decoded.as_ref(), Ok(&state));
        let text = EncodedPlan::from_text(&encoded.to_text());
        prop_assert_eq!(text.as_ref(), Some(&encoded));
        let json = serde_json::to_string(&encoded).expect("is text");
        prop_assert_eq!(serde_json::from_str::<EncodedPlan>(&json).ok(), Some(encoded));
    }

    #[test]
    fn damaged_bytes_are_refused_or_read_without_a_panic(
        change in (0..400_usize, any::<u8>()),
        length in 0..500_usize,
    ) {
        let state = state((0..300).map(|minute| (f64::from(minute) * MINUTE, 0.3)));
        let mut bytes = serde_json::to_value(state.encode())
            .ok()
            .and_then(|text| EncodedPlan::from_text(text.as_str()?))
            .map(|encoded| encoded.bytes().to_vec())
            .expect("is text");
        let index = change.0 % bytes.len();
        bytes[index] = change.1;
        bytes.truncate(length);
        let cpu = CpuPlanSettings::of(PlanProfile::Balanced);
        if let Ok(mut damaged) = PlanState::decode(&EncodedPlan::from_bytes(bytes)) {
            damaged.cpu.add(&cpu, seconds(18_000.0), 0.4, Some(0.5));
            let decision = damaged.cpu.decide(&cpu, seconds(18_000.0), 0.5);
            prop_assert!(decision.target.is_finite());
        }
    }
}

#[test]
fn other_versions_and_truncated_states_are_refused() {
    let encoded = state([(0.0, 0.2), (60.0, 0.3)]).encode();
    let mut other = encoded.bytes().to_vec();
    other[0] = 2;
    let decode = |bytes: Vec<u8>| PlanState::decode(&EncodedPlan::from_bytes(bytes));
    assert_eq!(decode(other), Err(InvalidPlanState::Version(2)));
    for length in [0, 1, 50, encoded.bytes().len() - 1] {
        let cut = encoded.bytes()[..length].to_vec();
        assert_eq!(decode(cut), Err(InvalidPlanState::Malformed), "{length} bytes");
    }
    let long = "A".repeat(EncodedPlan::MAX_BYTES * 2);
    assert_eq!(EncodedPlan::from_text(&long), None);
    assert_eq!(EncodedPlan::from_text("no base64!"), None);
}
