//! The rules of leader election over a Lease, without a client. They are client-go's, so that both can share one Lease.
//!
//! Clocks of other machines are never compared. A candidate remembers when it observed the record change, on its own
//! monotonic clock, and waits from then for the lease duration of the record.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::api::ObjectMeta;
use tokio::time::Instant;

use crate::cluster::leader::jitter;

#[derive(Debug, Default)]
pub(super) struct ObservedRecord {
    record: Option<LeaseSpec>,
    changed_at: Option<Instant>,
    last_checked: Option<Instant>,
}

impl ObservedRecord {
    /// Observes a record that was read at `answered`. It may have changed at any time since the previous read. At most
    /// `blind` of that time counts as expired, so that a takeover is not late by a whole poll interval.
    pub fn observe(&mut self, record: &LeaseSpec, answered: Instant, blind: Duration) {
        if self.record.as_ref() != Some(record) {
            let since_last_check =
                self.last_checked.map_or(Duration::ZERO, |checked| answered - checked);
            self.changed_at = answered.checked_sub(since_last_check.min(blind));
            self.record = Some(record.clone());
        }
        self.last_checked = Some(answered);
    }

    /// Whether the observed record was last written by another candidate.
    pub fn held_by_other(&self, identity: &str) -> bool {
        let record = self.record.as_ref();
        record.is_some_and(|record| record.holder_identity.as_deref() != Some(identity))
    }

    /// When this candidate may take the Lease over from its holder, if it is not renewed until then. `None` if the Lease
    /// has no other holder.
    pub fn expires_at(&self, identity: &str, lease_duration: Duration) -> Option<Instant> {
        let record = self.record.as_ref()?;
        let holder = record.holder_identity.as_deref().unwrap_or_default();
        if holder.is_empty() || holder == identity {
            return None;
        }
        let recorded =
            record.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration =
            recorded.filter(|seconds| *seconds > 0).map_or(lease_duration, Duration::from_secs);
        self.changed_at.map(|changed| changed + duration)
    }
}

/// The holder; `None` if the Lease is not held.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    (!holder.is_empty()).then_some(holder)
}

pub(super) fn transitions(lease: &Lease) -> i32 {
    lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0)
}

pub(super) fn new_lease(
    metadata: ObjectMeta,
    identity: &str,
    duration: Duration,
    now: Timestamp,
) -> Lease {
    let mut lease = acquired_lease(&Lease { metadata, spec: None }, identity, duration, now);
    lease.spec.get_or_insert_default().lease_transitions = Some(0);
    lease
}

/// The Lease, renewed or taken over by this candidate. Keeps the resourceVersion that was read, and all fields of other
/// clients.
pub(super) fn acquired_lease(
    lease: &Lease,
    identity: &str,
    duration: Duration,
    now: Timestamp,
) -> Lease {
    let is_holder = holder(lease) == Some(identity);
    let mut acquired = lease.clone();
    let spec = acquired.spec.get_or_insert_default();
    if !is_holder {
        spec.holder_identity = Some(identity.to_owned());
        spec.acquire_time = Some(MicroTime(now));
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
    }
    spec.lease_duration_seconds = Some(seconds(duration));
    spec.renew_time = Some(MicroTime(now));
    acquired
}

/// Sets an annotation; keeps all others.
pub(super) fn annotate(lease: &mut Lease, key: &str, text: String) {
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(key.to_owned(), text);
}

/// The Lease without a holder, for the next leader.
pub(super) fn released_lease(lease: &Lease, now: Timestamp) -> Lease {
    let mut released = lease.clone();
    let spec = released.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(MicroTime(now));
    spec.renew_time = Some(MicroTime(now));
    released
}

/// Whole seconds, rounded up: a Lease must not be taken over sooner than its holder expects.
pub(super) fn seconds(duration: Duration) -> i32 {
    let whole = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    i32::try_from(whole.max(1)).unwrap_or(i32::MAX)
}

pub fn hostname() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = kernel.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    Some(host.trim()).filter(|host| !host.is_empty()).unwrap_or("localhost").to_owned()
}

/// A unique identity for this process: `<hostname>_<random>`.
pub fn identity() -> String {
    let host = hostname();
    let (high, low) = (jitter::random(), jitter::random());
    let (head, middle, tail) = (high >> 32, high >> 16 & 0xffff, high & 0xffff);
    format!(
        "{host}_{head:08x}-{middle:04x}-{tail:04x}-{:04x}-{:012x}",
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("in range")
    }

    fn spec(lease: &Lease) -> &LeaseSpec {
        lease.spec.as_ref().expect("a spec")
    }

    #[test]
    fn a_takeover_counts_as_a_transition_and_a_renewal_does_not() {
        let first = new_lease(ObjectMeta::default(), "a", LEASE, at(10));
        assert_eq!((holder(&first), transitions(&first)), (Some("a"), 0));
        let renewed = acquired_lease(&first, "a", LEASE, at(12));
        assert_eq!(transitions(&renewed), 0);
        assert_eq!(spec(&renewed).acquire_time, Some(MicroTime(at(10))), "acquired once");
        assert_eq!(spec(&renewed).renew_time, Some(MicroTime(at(12))));
        let acquired = acquired_lease(&renewed, "b", LEASE, at(40));
        assert_eq!((holder(&acquired), transitions(&acquired)), (Some("b"), 1));
        assert_eq!(spec(&acquired).acquire_time, Some(MicroTime(at(40))));
        let released = released_lease(&acquired, at(41));
        assert_eq!((holder(&released), transitions(&released)), (None, 1));
        assert_eq!(
            transitions(&acquired_lease(&released, "b", LEASE, at(42))),
            2,
            "as client-go counts"
        );
    }

    #[test]
    fn fields_of_others_in_the_lease_stay() {
        let mut lease = new_lease(ObjectMeta::default(), "a", LEASE, at(10));
        lease.metadata.resource_version = Some("7".into());
        lease.metadata.labels = Some([("team".to_owned(), "load".to_owned())].into());
        lease.spec.get_or_insert_default().strategy = Some("OldestEmulationVersion".into());
        let acquired = acquired_lease(&lease, "b", LEASE, at(11));
        assert_eq!(acquired.metadata, lease.metadata);
        assert_eq!(spec(&acquired).strategy, spec(&lease).strategy);
    }

    #[test]
    fn a_lease_is_respected_for_its_duration_since_its_last_observed_change() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let blind = Duration::from_secs(2);
        let mut lease = new_lease(ObjectMeta::default(), "a", LEASE, at(10));
        let mut observed = ObservedRecord::default();
        assert_eq!(observed.expires_at("b", LEASE), None, "no record was observed yet");
        observed.observe(spec(&lease), start, blind);
        assert_eq!(
            observed.expires_at("b", LEASE),
            Some(after(15_000)),
            "the first observation counts from itself"
        );
        observed.observe(spec(&lease), after(5_000), blind);
        assert_eq!(observed.expires_at("b", LEASE), Some(after(15_000)), "nothing changed");
        // A renewal by a holder whose clock is years off: only the change of the record counts.
        lease = acquired_lease(&lease, "a", LEASE, at(-5_000_000));
        observed.observe(spec(&lease), after(6_000), blind);
        assert_eq!(
            observed.expires_at("b", LEASE),
            Some(after(20_000)),
            "since the previous observation"
        );
        lease = acquired_lease(&lease, "a", Duration::from_mins(1), at(0));
        observed.observe(spec(&lease), after(100_000), blind);
        assert_eq!(
            observed.expires_at("b", LEASE),
            Some(after(158_000)),
            "the holder's duration, minus 2 s"
        );
        lease.spec.get_or_insert_default().lease_duration_seconds = None;
        observed.observe(spec(&lease), after(100_000), blind);
        assert_eq!(
            observed.expires_at("b", LEASE),
            Some(after(115_000)),
            "otherwise our own duration"
        );
        assert_eq!(observed.expires_at("a", LEASE), None, "the holder need not wait");
        observed.observe(spec(&released_lease(&lease, at(1))), after(100_000), blind);
        assert_eq!(observed.expires_at("b", LEASE), None, "the Lease is not held");
    }

    #[test]
    fn recorded_durations_are_rounded_up() {
        for (milliseconds, expected) in [(1, 1), (1000, 1), (1001, 2), (15_000, 15)] {
            assert_eq!(seconds(Duration::from_millis(milliseconds)), expected);
        }
        assert_eq!(seconds(Duration::MAX), i32::MAX);
    }

    #[test]
    fn every_process_has_a_unique_identity() {
        let (first, second) = (identity(), identity());
        assert_ne!(first, second);
        let (host, random) = first.rsplit_once('_').expect("two parts");
        assert!(!host.is_empty() && random.len() == 36, "{first}");
    }
}
