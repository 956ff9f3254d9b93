//! Heartbeats of recommenders: their Leases, timed with the clock of this process. Timestamps of other machines are never
//! compared with it, so a Lease counts only once it was observed to change.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{
    ResourceExt as _,
    api::{Api, ListParams},
};
use parking_lot::Mutex;

use crate::{
    cluster::leader::heartbeat::{HISTORY_ANNOTATION, lease_name},
    telemetry::HistoryState,
};
use plimsoll_core::{
    api::VerticalPodAutoscaler, recommender::Shard, types::Time,
    updater::guard::RecommenderHeartbeat,
};

/// The maximum time between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const LEASE_NAME_PREFIX: &str = "plimsoll-";
/// Used for Leases without `leaseDurationSeconds`.
const DEFAULT_LEASE_DURATION: Duration = Duration::from_mins(3);

/// The observed heartbeats of all recommenders.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats(Mutex<HeartbeatState>);

#[derive(Debug, Default)]
struct HeartbeatState {
    leases: HashMap<Box<str>, ObservedLease>,
    /// Whether the last poll failed; `None` before the first poll.
    read_failed: Option<bool>,
}

#[derive(Debug)]
struct ObservedLease {
    renewed: Option<MicroTime>,
    first_seen: Instant,
    /// When a change was last observed, which takes at least two polls.
    last_change: Option<Instant>,
    lease_duration: Duration,
    history_loaded: bool,
}

impl ObservedLease {
    fn is_fresh(&self) -> bool {
        self.last_change.is_some_and(|changed| changed.elapsed() <= self.lease_duration)
    }

    /// Whether the Lease may still turn out to be fresh.
    fn may_become_fresh(&self) -> bool {
        self.last_change.is_none() && self.first_seen.elapsed() <= self.lease_duration
    }
}

impl Heartbeats {
    /// Records the result of a poll.
    fn observe(&self, leases: Vec<Lease>, now: Instant) {
        let mut state = self.0.lock();
        let mut before = std::mem::take(&mut state.leases);
        for lease in leases {
            let name = lease.name_any();
            if !name.starts_with(LEASE_NAME_PREFIX) {
                continue;
            }
            let history = lease.annotations().get(HISTORY_ANNOTATION).map(String::as_str);
            let (loaded, absent) = (HistoryState::Loaded.as_str(), HistoryState::Absent.as_str());
            let history_loaded = history.is_none_or(|word| word == loaded || word == absent);
            let spec = lease.spec.unwrap_or_default();
            let lease_duration =
                spec.lease_duration_seconds.and_then(|secs| u64::try_from(secs).ok());
            let (first, changed) = match before.remove(name.as_str()) {
                Some(beat) if beat.renewed == spec.renew_time => {
                    (beat.first_seen, beat.last_change)
                }
                Some(beat) => (beat.first_seen, Some(now)),
                None => (now, None),
            };
            let beat = ObservedLease {
                renewed: spec.renew_time,
                first_seen: first,
                last_change: changed,
                lease_duration: lease_duration.map_or(DEFAULT_LEASE_DURATION, Duration::from_secs),
                history_loaded,
            };
            state.leases.insert(name.into(), beat);
        }
        state.read_failed = Some(false);
    }

    pub async fn run_poll_loop(&self, leases: Api<Lease>, interval: Duration) {
        loop {
            let parameters = ListParams::default();
            match tokio::time::timeout(REQUEST_TIMEOUT, leases.list(&parameters)).await {
                Ok(Ok(list)) => self.observe(list.items, Instant::now()),
                Ok(Err(why)) => {
                    tracing::warn!(%why, "failed to list the heartbeat Leases of recommenders");
                    self.record_failure();
                }
                Err(_) => {
                    tracing::warn!("timed out listing the heartbeat Leases of recommenders");
                    self.record_failure();
                }
            }
            tokio::time::sleep(POLL_INTERVAL.min(interval)).await;
        }
    }

    /// Records the result of a single poll. Changes cannot be observed with one poll, so this compares the clock of the
    /// holder with the clock of this machine.
    pub fn observe_once(&self, leases: Vec<Lease>, wall: Time) {
        let now = Instant::now();
        self.observe(leases, now);
        for beat in self.0.lock().leases.values_mut() {
            let Some(renewed) = &beat.renewed else { continue };
            let age = wall.nanos_since(Time::from(renewed.0)).max(0);
            beat.last_change = now.checked_sub(Duration::from_nanos(age.unsigned_abs()));
        }
    }

    /// When a heartbeat of the VPA's recommender was last renewed.
    pub fn renewed(&self, vpa: &VerticalPodAutoscaler, namespace: &str) -> Option<Time> {
        let state = self.0.lock();
        let times = state.leases_for_vpa(vpa, namespace).filter_map(|beat| beat.renewed.as_ref());
        times.map(|at| Time::from(at.0)).max()
    }

    pub fn record_failure(&self) {
        self.0.lock().read_failed = Some(true);
    }

    pub fn for_vpa(&self, vpa: &VerticalPodAutoscaler, namespace: &str) -> RecommenderHeartbeat {
        let state = self.0.lock();
        match state.read_failed {
            None => return RecommenderHeartbeat::NotYetObserved,
            Some(true) => return RecommenderHeartbeat::Unknown,
            Some(false) => {}
        }
        // Leases of a previous number of shards may still exist, so one fresh Lease is enough.
        let leases: Vec<&ObservedLease> = state.leases_for_vpa(vpa, namespace).collect();
        if leases.is_empty() {
            return RecommenderHeartbeat::Absent;
        }
        let mut fresh = leases.iter().filter(|beat| beat.is_fresh()).peekable();
        if fresh.peek().is_some() {
            return RecommenderHeartbeat::Fresh {
                history_loaded: fresh.any(|beat| beat.history_loaded),
            };
        }
        let may_become_fresh = leases.iter().any(|beat| beat.may_become_fresh());
        if may_become_fresh {
            RecommenderHeartbeat::NotYetObserved
        } else {
            RecommenderHeartbeat::Stale
        }
    }
}

impl HeartbeatState {
    fn leases_for_vpa<'a>(
        &'a self,
        vpa: &VerticalPodAutoscaler,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a ObservedLease> + use<'a> {
        let unsharded_name = lease_name(vpa.spec.recommender_name(), None);
        let is_of = move |name: &str| match name.strip_prefix(&*unsharded_name) {
            Some("") => true,
            Some(rest) => {
                let shard = rest.strip_prefix('-').and_then(|rest| rest.split_once("-of-"));
                let shard =
                    shard.and_then(|(index, count)| format!("{index}/{count}").parse().ok());
                shard.is_some_and(|shard: Shard| shard.includes(namespace))
            }
            None => false,
        };
        self.leases.iter().filter(move |(name, _)| is_of(name)).map(|(_, beat)| beat)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(name: &str, renewed: &str, history: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {HISTORY_ANNOTATION: history}},
            "spec": {"renewTime": renewed, "leaseDurationSeconds": 3600},
        }))
        .expect("a lease")
    }

    fn vpa(recommender: Option<&str>) -> VerticalPodAutoscaler {
        let chosen: Vec<_> = recommender.iter().map(|name| json!({"name": name})).collect();
        serde_json::from_value(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"targetRef": {"kind": "Deployment", "name": "web"}, "recommenders": chosen},
        }))
        .expect("a VPA")
    }

    fn health(heartbeats: &Heartbeats) -> RecommenderHeartbeat {
        heartbeats.for_vpa(&vpa(None), "shop")
    }

    const LOADED: RecommenderHeartbeat = RecommenderHeartbeat::Fresh { history_loaded: true };
    const EARLY: &str = "2026-01-01T00:00:00.000000Z";
    const LATE: &str = "2026-01-01T00:01:00.000000Z";

    #[test]
    fn a_heartbeat_counts_after_an_observed_change() {
        let heartbeats = Heartbeats::default();
        let of = |recommender| heartbeats.for_vpa(&vpa(recommender), "shop");
        assert_eq!(of(None), RecommenderHeartbeat::NotYetObserved, "there was no poll yet");
        heartbeats.observe(Vec::new(), Instant::now());
        assert_eq!(of(None), RecommenderHeartbeat::Absent);
        heartbeats.observe(vec![lease("plimsoll-default", EARLY, "loaded")], Instant::now());
        let undecided = RecommenderHeartbeat::NotYetObserved;
        assert_eq!(of(None), undecided, "it may be years old, or of a moment ago");
        let mut brief = lease("plimsoll-default", EARLY, "loaded");
        brief.spec.as_mut().expect("has one").lease_duration_seconds = Some(0);
        let watched = Heartbeats::default();
        watched.observe(vec![brief], Instant::now());
        assert_eq!(health(&watched), RecommenderHeartbeat::Stale, "it did not change in time");
        heartbeats.observe(vec![lease("plimsoll-default", LATE, "loaded")], Instant::now());
        assert_eq!(of(None), LOADED);
        assert_eq!(of(Some("other")), RecommenderHeartbeat::Absent);
        heartbeats.observe(vec![lease("plimsoll-default", EARLY, "loading")], Instant::now());
        assert_eq!(of(None), RecommenderHeartbeat::Fresh { history_loaded: false });
        heartbeats.record_failure();
        assert_eq!(of(None), RecommenderHeartbeat::Unknown);
    }

    #[test]
    fn a_single_read_uses_the_renew_time_of_the_lease() {
        let wall = |text: &str| serde_json::from_value::<Time>(text.into()).expect("a time");
        let mut brief = lease("plimsoll-default", EARLY, "loaded");
        brief.spec.as_mut().expect("has one").lease_duration_seconds = Some(30);
        let heartbeats = Heartbeats::default();
        heartbeats.observe_once(vec![brief.clone()], wall("2026-01-01T00:00:20Z"));
        assert_eq!(health(&heartbeats), LOADED);
        assert_eq!(heartbeats.renewed(&vpa(None), "shop"), Some(wall(EARLY)));
        heartbeats.observe_once(vec![brief], wall(LATE));
        assert_eq!(health(&heartbeats), RecommenderHeartbeat::Stale);
        assert_eq!(heartbeats.renewed(&vpa(Some("other")), "shop"), None);
    }

    #[test]
    fn with_a_sharded_recommender_the_shard_of_the_namespace_counts() {
        let heartbeats = Heartbeats::default();
        let shards = ["1/3", "2/3", "3/3"];
        let own =
            shards.iter().find(|shard| shard.parse::<Shard>().expect("is one").includes("shop"));
        let own = lease_name("default", own.copied());
        for renewed in [EARLY, LATE] {
            heartbeats.observe(vec![lease(&own, renewed, "loaded")], Instant::now());
        }
        assert_eq!(health(&heartbeats), LOADED);
        let others = shards.iter().map(|shard| lease_name("default", Some(shard)));
        let others = others.filter(|name| *name != own).map(|name| lease(&name, LATE, "loaded"));
        heartbeats.observe(others.collect(), Instant::now());
        assert_eq!(health(&heartbeats), RecommenderHeartbeat::Absent);
        // A stale Lease from before the recommender was sharded does not hide the fresh ones.
        for renewed in [EARLY, LATE] {
            let old = lease("plimsoll-default", EARLY, "loaded");
            heartbeats.observe(vec![old, lease(&own, renewed, "loaded")], Instant::now());
        }
        assert_eq!(health(&heartbeats), LOADED);
    }
}
