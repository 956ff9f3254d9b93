//! Whether replicas may be changed at this time: vectors G1 to G7 and X24 to X27.

use std::time::Duration;

use plimsoll_core::types::Time;
use plimsoll_core::watermark::{
    Cooldown,
    conditions::ConditionUpdate,
    cooldown::{CooldownRemaining, HoldReason, StateSince},
};

use super::{NOW, ago, both_modes};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn gates() -> [Cooldown; 2] {
    both_modes().map(|fixes| Cooldown {
        last_scale_time: Some(ago(599)),
        upscale_window: secs(60),
        downscale_window: secs(60),
        upscale_delay: secs(0),
        downscale_delay: secs(0),
        above: StateSince::default(),
        below: StateSince::default(),
        is_stable: false,
        removal_hold: None,
        now: NOW,
        fixes,
    })
}

fn passes(gate: &Cooldown, from: i32, to: i32) -> bool {
    gate.check(from, to).hold_reason.is_none()
}

fn backoff(left: CooldownRemaining) -> String {
    ConditionUpdate::backoff(left).expect("an open window").reason
}

#[test]
fn windows_and_delays_block_changes_as_upstreams_do() {
    for gate in gates() {
        let long_down = Cooldown { downscale_window: secs(600), ..gate };
        assert!(!passes(&long_down, 20, 10), "G1");
        assert!(!passes(&Cooldown { upscale_window: secs(600), ..gate }, 8, 10), "G2");
        assert!(!passes(&gate, 10, 10), "G3");
        assert!(passes(&long_down, 8, 10), "G4");
        let left = long_down.check(8, 10).remaining.expect("was scaled before");
        assert_eq!((left.up, left.down, backoff(left)), (0.0, 1.0, "BackoffDownscale".to_owned()));
        assert!(passes(&gate, 8, 10), "G5");
        let outside = StateSince { holds: false, at: ago(100) };
        assert!(
            !passes(&Cooldown { upscale_delay: secs(10), above: outside, ..gate }, 8, 10),
            "G6"
        );
        assert!(!passes(&Cooldown { downscale_delay: secs(120), ..gate }, 8, 6), "G7");
        let stable = Cooldown { downscale_delay: secs(600), is_stable: true, ..gate };
        assert!(passes(&stable, 8, 7), "X25");
        for (seconds, expected) in [(60, true), (59, false)] {
            let above = StateSince { holds: true, at: ago(seconds) };
            let waits = Cooldown { upscale_delay: secs(60), above, ..gate };
            assert_eq!(passes(&waits, 8, 10), expected, "X26");
        }
        assert!(passes(&Cooldown { last_scale_time: Some(ago(60)), ..gate }, 8, 10), "X27");
        assert!(!passes(&Cooldown { last_scale_time: Some(ago(59)), ..gate }, 8, 10));
    }
}

#[test]
fn before_the_first_change_upstream_skips_delays_and_plimsoll_applies_them() {
    let [theirs, ours] = gates().map(|gate| Cooldown {
        last_scale_time: None,
        upscale_delay: secs(60),
        downscale_delay: secs(60),
        ..gate
    });
    assert!(passes(&theirs, 5, 5) && passes(&theirs, 5, 8), "X24");
    assert_eq!(ours.check(5, 5).hold_reason, Some(HoldReason::NoChange));
    assert_eq!(ours.check(5, 8).hold_reason, Some(HoldReason::Delay { until: None }));
    let above = StateSince { holds: true, at: ago(60) };
    assert!(passes(&Cooldown { above, ..ours }, 5, 8));
}

#[test]
fn a_blocked_change_reports_when_it_is_allowed() {
    for gate in gates() {
        let soon = Cooldown { last_scale_time: Some(ago(20)), ..gate };
        let until = |seconds| -> Time { NOW.later(secs(seconds)) };
        assert_eq!(
            soon.check(5, 8).hold_reason,
            Some(HoldReason::ForbiddenWindow { until: until(40) })
        );
        let left = soon.check(5, 8).remaining.expect("was scaled before");
        assert_eq!((left.up, left.down, backoff(left)), (40.0, 40.0, "BackoffBoth".to_owned()));
        let above = StateSince { holds: true, at: ago(15) };
        let waits = Cooldown { upscale_delay: secs(60), above, ..gate };
        assert_eq!(
            waits.check(5, 8).hold_reason,
            Some(HoldReason::Delay { until: Some(until(45)) })
        );
    }
}
