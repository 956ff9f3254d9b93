//! Whether replicas may be changed now: vectors G1 to G7 and X24 to X27.

use std::time::Duration;

use plimsoll_core::types::Time;
use plimsoll_core::watermark::{
    Gate,
    gate::{Backoff, Hold, Since},
};

use super::{NOW, ago, both};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn gates() -> [Gate; 2] {
    both().map(|fixes| Gate {
        last: Some(ago(599)),
        up_window: secs(60),
        down_window: secs(60),
        up_delay: secs(0),
        down_delay: secs(0),
        above: Since::default(),
        below: Since::default(),
        is_stable: false,
        now: NOW,
        fixes,
    })
}

fn passes(gate: &Gate, from: i32, to: i32) -> bool {
    gate.passage(from, to).held.is_none()
}

#[test]
fn windows_and_delays_hold_changes_as_upstreams_do() {
    for gate in gates() {
        let long_down = Gate { down_window: secs(600), ..gate };
        assert!(!passes(&long_down, 20, 10), "G1");
        assert!(!passes(&Gate { up_window: secs(600), ..gate }, 8, 10), "G2");
        assert!(!passes(&gate, 10, 10), "G3");
        assert!(passes(&long_down, 8, 10), "G4");
        let left = long_down.passage(8, 10).left.expect("there was a change before");
        assert_eq!((left.up, left.down, left.backoff()), (0.0, 1.0, Some(Backoff::Downscale)));
        assert!(passes(&gate, 8, 10), "G5");
        let outside = Since { holds: false, at: ago(100) };
        assert!(!passes(&Gate { up_delay: secs(10), above: outside, ..gate }, 8, 10), "G6");
        assert!(!passes(&Gate { down_delay: secs(120), ..gate }, 8, 6), "G7");
        let stable = Gate { down_delay: secs(600), is_stable: true, ..gate };
        assert!(passes(&stable, 8, 7), "X25");
        for (seconds, expected) in [(60, true), (59, false)] {
            let above = Since { holds: true, at: ago(seconds) };
            let waits = Gate { up_delay: secs(60), above, ..gate };
            assert_eq!(passes(&waits, 8, 10), expected, "X26");
        }
        assert!(passes(&Gate { last: Some(ago(60)), ..gate }, 8, 10), "X27");
        assert!(!passes(&Gate { last: Some(ago(59)), ..gate }, 8, 10));
    }
}

#[test]
fn before_the_first_change_upstream_lets_anything_pass_and_ours_what_would_pass_later() {
    let [theirs, ours] =
        gates().map(|gate| Gate { last: None, up_delay: secs(60), down_delay: secs(60), ..gate });
    assert!(passes(&theirs, 5, 5) && passes(&theirs, 5, 8), "X24");
    assert_eq!(ours.passage(5, 5).held, Some(Hold::Same));
    assert_eq!(ours.passage(5, 8).held, Some(Hold::Delay { until: None }));
    let above = Since { holds: true, at: ago(60) };
    assert!(passes(&Gate { above, ..ours }, 5, 8));
}

#[test]
fn who_waits_is_told_until_when() {
    for gate in gates() {
        let soon = Gate { last: Some(ago(20)), ..gate };
        let until = |seconds| -> Time { NOW.later(secs(seconds)) };
        assert_eq!(soon.passage(5, 8).held, Some(Hold::Window { until: until(40) }));
        let left = soon.passage(5, 8).left.expect("there was a change before");
        assert_eq!((left.up, left.down, left.backoff()), (40.0, 40.0, Some(Backoff::Both)));
        let above = Since { holds: true, at: ago(15) };
        let waits = Gate { up_delay: secs(60), above, ..gate };
        assert_eq!(waits.passage(5, 8).held, Some(Hold::Delay { until: Some(until(45)) }));
    }
}
