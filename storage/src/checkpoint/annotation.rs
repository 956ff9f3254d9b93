//! The annotation with the state that does not fit into a checkpoint status: exact weights, open windows, OOM bumps, and
//! the owner.
//!
//! It contains a hash of the status that it belongs to. If another program has changed the status since, or the
//! annotation is malformed, it is ignored and only the status is used.

use std::{borrow::Cow, cmp::Reverse};

use serde::{Deserialize, Serialize};

use plimsoll_core::{
    api::state::{MAX_STATE_BYTES, StateError, read_state, write_state},
    history::{ReplicaState, Snapshot},
    types::Time,
};

pub const KEY: &str = "plimsoll.dev/history";

/// Maximum size of the annotation in bytes.
pub const MAX_BYTES: usize = MAX_STATE_BYTES;

/// A plan with more bytes than this is omitted if not everything fits. Those of usual containers have about 2 kB.
const MAX_PLAN_BYTES: usize = 8 * 1024;

/// The version of the format. It changes if old readers would misread new annotations.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Annotation<'a> {
    /// Whether the snapshot has this field. It is omitted here because the status contains it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cpu_standard: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    memory_closed: bool,
    snapshot: Cow<'a, Snapshot>,
}

/// Encodes the annotation of a snapshot whose status has this fingerprint. Pods that do not fit are omitted, those with
/// the smallest open peaks first: their windows count as closed from then on. `None` if it does not fit even without
/// pods.
pub fn encode(snapshot: &Snapshot, fingerprint: u64) -> Option<String> {
    let mut slim = Snapshot { cpu_standard: None, memory_closed: None, ..snapshot.clone() };
    let text = |slim: &Snapshot| {
        let written = Annotation {
            cpu_standard: snapshot.cpu_standard.is_some(),
            memory_closed: snapshot.memory_closed.is_some(),
            snapshot: Cow::Borrowed(slim),
        };
        let text = write_state(&written, VERSION, Some(fingerprint));
        text.ok().filter(|text| text.len() <= MAX_BYTES)
    };
    if let Some(text) = text(&slim) {
        return Some(text);
    }
    // Without its plan a container starts one from the histograms. Pods cannot be had otherwise.
    if slim.plan.as_ref().is_some_and(|plan| plan.bytes().len() > MAX_PLAN_BYTES) {
        slim.plan = None;
        if let Some(text) = text(&slim) {
            return Some(text);
        }
    }
    let replicas = std::mem::take(&mut slim.replicas);
    // The field itself, and a comma after each pod.
    let bytes = text(&slim)?.len() + r#","replicas":[]"#.len();
    slim.replicas =
        largest_peaks(replicas, MAX_BYTES.saturating_sub(bytes), snapshot.memory_seen.last);
    text(&slim)
}

/// The pods with the largest open peaks whose encodings fit into this many bytes, in their original order.
fn largest_peaks(
    replicas: Vec<ReplicaState>,
    bytes: usize,
    latest: Option<Time>,
) -> Vec<ReplicaState> {
    let rank = |replica: &ReplicaState| {
        let open = replica.window_end.is_some_and(|end| latest.is_none_or(|latest| end > latest));
        (open, replica.usage_peak.max(replica.bump_peak), replica.last_memory)
    };
    let mut order: Vec<usize> = (0..replicas.len()).collect();
    order.sort_by_key(|&index| Reverse(rank(&replicas[index])));
    let mut left = bytes;
    let mut keep = vec![false; replicas.len()];
    for index in order {
        let Ok(text) = serde_json::to_vec(&replicas[index]) else { continue };
        let Some(rest) = left.checked_sub(text.len() + 1) else { break };
        left = rest;
        keep[index] = true;
    }
    replicas.into_iter().zip(keep).filter(|(_, keep)| *keep).map(|(replica, _)| replica).collect()
}

/// Decodes the snapshot of an annotation, with the fields that the status contains.
pub fn decode(text: &str, status: &Snapshot, fingerprint: u64) -> Result<Snapshot, StateError> {
    let of = (fingerprint, "it belongs to a status that has been replaced since");
    let annotation: Annotation<'_> = read_state(text, VERSION, Some(of))?;
    Ok(Snapshot {
        cpu_standard: annotation.cpu_standard.then(|| status.cpu.clone()),
        memory_closed: annotation.memory_closed.then(|| status.memory.clone()),
        ..annotation.snapshot.into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::{
        history::{EncodedPlan, HistogramWeights, OomBump, SampleStats},
        recommender::plan::PlanState,
    };

    fn replica(number: i64, peak: i64, end: i64) -> ReplicaState {
        ReplicaState {
            name: format!("web-6d4b9c7f5d-{number:05}").into(),
            last_cpu: Some(Time::from_nanos(1_790_000_000_123_456_789)),
            last_memory: Some(Time::from_nanos(1_790_000_000_123_456_789)),
            window_end: Some(Time::from_secs(end)),
            usage_peak: Some(peak),
            bump_peak: None,
            last_kill: None,
        }
    }

    /// A snapshot with this many pods with an open and with a closed window.
    fn snapshot(open: i64, closed: i64) -> Snapshot {
        let at = Time::from_secs(1_790_000_000);
        let seen = SampleStats { count: 9, first: Some(at), last: Some(at) };
        let open = (0..open).map(|n| replica(n, 1 << 20 | (n * 7919 % 1000), at.as_secs() + 1));
        let closed = (0..closed).map(|n| replica(n + 50_000, 1 << 40, at.as_secs()));
        Snapshot {
            owner: Some("apps/Deployment/web".into()),
            memory_seen: seen,
            cpu_seen: seen,
            memory_closed: Some(HistogramWeights { total: 5.0, ..HistogramWeights::default() }),
            bump: Some(OomBump { at, base: 1, counted: 2 }),
            replicas: closed.chain(open).collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn of_too_many_pods_those_with_the_largest_open_peaks_are_kept_in_order() {
        let original = snapshot(300, 300);
        let text = encode(&original, 7).expect("it fits");
        assert!(text.len() <= MAX_BYTES && text.len() > MAX_BYTES - 400, "{} bytes", text.len());
        let decoded = decode(&text, &Snapshot::default(), 7).expect("readable").replicas;
        assert!(decoded.len() > 100, "{} pods are kept", decoded.len());
        let smallest = decoded.iter().filter_map(|replica| replica.usage_peak).min();
        let left_out = original.replicas[300..].iter().filter(|one| !decoded.contains(one));
        assert!(decoded.iter().all(|replica| original.replicas[300..].contains(replica)));
        assert!(left_out.filter_map(|replica| replica.usage_peak).max() <= smallest);
        assert!(decoded.is_sorted_by_key(|replica| &replica.name));
    }

    #[test]
    fn a_plan_is_kept_without_loss_unless_it_does_not_fit() {
        let plan = PlanState::new(Time::from_secs(1_790_000_000)).encode();
        let planned = Snapshot { plan: Some(plan), ..snapshot(3, 3) };
        let text = encode(&planned, 7).expect("it fits");
        let status = Snapshot::default();
        let decoded = decode(&text, &status, 7).expect("readable");
        assert_eq!(decoded.plan, planned.plan);
        let large = EncodedPlan::from_bytes(vec![0; MAX_BYTES]);
        let text = encode(&Snapshot { plan: Some(large), ..planned }, 7).expect("the rest fits");
        let decoded = decode(&text, &status, 7).expect("readable");
        assert_eq!((decoded.plan, decoded.replicas.len()), (None, 6));
    }

    #[test]
    fn a_snapshot_that_does_not_fit_without_pods_is_not_written() {
        let owner = Some("x".repeat(MAX_BYTES).into());
        assert_eq!(encode(&Snapshot { owner, ..snapshot(1, 1) }, 7), None);
    }
}
