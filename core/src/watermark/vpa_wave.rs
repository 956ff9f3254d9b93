//! No replica is removed while the updater replaces or resizes pods, and for one readiness delay after.

use std::time::Duration;

use crate::{
    coordination::{PodUpdates, RemovalHold, UpdateWave},
    scaling::{Pod, pod_readiness::Phase},
    types::Time,
};

/// Why no replica may be removed. `updates` are those that the VPAs of the target record, `None` until all VPAs are listed;
/// `readiness_delay` is that of the object.
pub fn removal_hold(
    updates: Option<&[PodUpdates]>,
    pods: &[Pod],
    readiness_delay: Duration,
    now: Time,
) -> Option<RemovalHold> {
    let Some(updates) = updates else {
        // One of them may have a wave.
        let wave = UpdateWave { started: now, ended: None };
        return wave.holds_removal(readiness_delay, now);
    };
    let is_live = |pod: &&Pod| {
        pod.owned_by_target
            && !pod.terminating
            && !matches!(pod.phase, Phase::Succeeded | Phase::Failed)
    };
    let ready_since = |pod: &Pod| match pod.ready {
        Some((true, since)) if !pod.resizing => Some(since),
        _ => None,
    };
    let holds = updates.iter().filter_map(|updates| {
        let pods = pods.iter().filter(is_live).map(ready_since);
        updates.wave(pods, now).holds_removal(readiness_delay, now)
    });
    holds.max_by_key(|hold| (hold.until.is_none(), hold.until))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_secs(1_800_000_000);
    const DELAY: Duration = Duration::from_secs(30);

    fn ago(seconds: u64) -> Time {
        NOW.earlier(Duration::from_secs(seconds))
    }

    fn pod(ready_since: Option<Time>) -> Pod {
        let ready = Some((ready_since.is_some(), ready_since.unwrap_or(NOW)));
        Pod { owned_by_target: true, ready, started: Some(ago(3600)), ..Pod::default() }
    }

    /// The hold after a wave that began a minute before its last change.
    fn held(last: u64, until: Option<Time>) -> RemovalHold {
        RemovalHold { wave_started: ago(last + 60), until }
    }

    #[test]
    fn a_wave_holds_until_its_pods_have_been_ready_for_the_readiness_delay() {
        let old = pod(Some(ago(3600)));
        let resizing = Pod { resizing: true, ..old.clone() };
        let terminating = Pod { terminating: true, ..pod(None) };
        let foreign = Pod { owned_by_target: false, ..pod(None) };
        let later = |seconds| Some(NOW.later(Duration::from_secs(seconds)));
        for (last, pods, expected) in [
            (10, vec![old.clone()], Some(held(10, later(20)))),
            (31, vec![old.clone()], None),
            (100, vec![old.clone(), pod(None)], Some(held(100, None))),
            (100, vec![old.clone(), pod(Some(ago(20)))], Some(held(100, later(10)))),
            (100, vec![old, pod(Some(ago(31)))], None),
            (100, vec![resizing], Some(held(100, None))),
            (100, vec![terminating, foreign], None),
            // A pod that does not become ready does not hold for ever.
            (599, vec![pod(None)], Some(held(599, None))),
            (600, vec![pod(None)], Some(held(600, later(30)))),
            (630, vec![pod(None)], None),
        ] {
            let updates = [PodUpdates { began: ago(last + 60), last: ago(last) }];
            let found = removal_hold(Some(&updates), &pods, DELAY, NOW);
            assert_eq!(found, expected, "{last} {pods:?}");
        }
    }

    #[test]
    fn nothing_holds_without_updates_and_everything_until_they_are_known() {
        let pods = [pod(None)];
        assert_eq!(removal_hold(Some(&[]), &pods, DELAY, NOW), None);
        let unknown = removal_hold(None, &pods, DELAY, NOW);
        assert_eq!(unknown, Some(RemovalHold { wave_started: NOW, until: None }));
    }

    #[test]
    fn the_wave_that_ends_last_holds() {
        let wave = |last| PodUpdates { began: ago(60), last: ago(last) };
        let pods = [pod(Some(ago(3600)))];
        let hold = removal_hold(Some(&[wave(5), wave(25), wave(40)]), &pods, DELAY, NOW);
        assert_eq!(hold.and_then(|hold| hold.until), Some(ago(5).later(DELAY)));
    }
}
