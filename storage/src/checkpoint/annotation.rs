//! The annotation with what a status cannot say: exact weights, open windows, the origin of bumps, the owner.
//!
//! It names the status that it belongs to by a hash. When somebody else has written the status since, or
//! the text cannot be read, the status alone counts.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use plimsoll_core::{
    history::{ReplicaState, Snapshot},
    types::Time,
};

/// Key of the annotation.
pub const KEY: &str = "plimsoll.dev/history";

/// Bytes that the annotation may have.
pub const MAX_BYTES: usize = plimsoll_core::api::annotations::MAX_STATE_BYTES;

/// Number of the format. It changes when old readers would misunderstand.
const VERSION: u32 = 1;

/// Why an annotation does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// The status was written by somebody else since.
    #[error("it belongs to a status that somebody has replaced since: the status alone counts")]
    Stale,
    /// Another format.
    #[error("its version is {0} and only {VERSION} can be read: the status alone counts")]
    UnsupportedVersion(u32),
    /// No format at all.
    #[error("it cannot be read ({0}): the status alone counts")]
    Malformed(String),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SerializedAnnotation<'a> {
    v: u32,
    of: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cpu_standard: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    memory_closed: bool,
    snapshot: &'a Snapshot,
}

#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ParsedAnnotation {
    of: String,
    /// Whether the snapshot had this, which is left out because the status says it.
    #[serde(default)]
    cpu_standard: bool,
    #[serde(default)]
    memory_closed: bool,
    snapshot: Snapshot,
}

/// The annotation of a snapshot whose status has this fingerprint. Pods that do not fit are left out,
/// those with the smallest open peaks first: their windows count as closed from then on. `None` when it
/// does not fit even so.
pub fn encode(snapshot: &Snapshot, fingerprint: u64) -> Option<String> {
    let of = format!("{fingerprint:016x}");
    let mut slim = Snapshot { cpu_standard: None, memory_closed: None, ..snapshot.clone() };
    let text = |slim: &Snapshot| {
        let written = SerializedAnnotation {
            v: VERSION,
            of: &of,
            cpu_standard: snapshot.cpu_standard.is_some(),
            memory_closed: snapshot.memory_closed.is_some(),
            snapshot: slim,
        };
        serde_json::to_string(&written).ok().filter(|text| text.len() <= MAX_BYTES)
    };
    if let Some(text) = text(&slim) {
        return Some(text);
    }
    let replicas = std::mem::take(&mut slim.replicas);
    // The field itself, and a comma after each.
    let bytes = text(&slim)?.len() + r#","replicas":[]"#.len();
    slim.replicas = fitting(replicas, MAX_BYTES.saturating_sub(bytes), snapshot.memory_seen.last);
    text(&slim)
}

/// The pods with the largest open peaks whose texts fit into so many bytes, in the order they came in.
fn fitting(replicas: Vec<ReplicaState>, bytes: usize, latest: Option<Time>) -> Vec<ReplicaState> {
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

/// The snapshot of an annotation, together with what the status says in its place.
pub fn decode(
    text: &str,
    status: &Snapshot,
    fingerprint: u64,
) -> Result<Snapshot, AnnotationError> {
    let unreadable = |error: serde_json::Error| AnnotationError::Malformed(error.to_string());
    let VersionOnly { v } = serde_json::from_str(text).map_err(unreadable)?;
    if v != VERSION {
        return Err(AnnotationError::UnsupportedVersion(v));
    }
    let read: ParsedAnnotation = serde_json::from_str(text).map_err(unreadable)?;
    if read.of != format!("{fingerprint:016x}") {
        return Err(AnnotationError::Stale);
    }
    Ok(Snapshot {
        cpu_standard: read.cpu_standard.then(|| status.cpu.clone()),
        memory_closed: read.memory_closed.then(|| status.memory.clone()),
        ..read.snapshot
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::history::{HistogramWeights, OomBump, SampleStats};

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

    /// Of pods whose window is open, and of as many whose window is over.
    fn snapshot(open: i64, over: i64) -> Snapshot {
        let at = Time::from_secs(1_790_000_000);
        let seen = SampleStats { count: 9, first: Some(at), last: Some(at) };
        let open = (0..open).map(|n| replica(n, 1 << 20 | (n * 7919 % 1000), at.as_secs() + 1));
        let over = (0..over).map(|n| replica(n + 50_000, 1 << 40, at.as_secs()));
        Snapshot {
            owner: Some("apps/Deployment/web".into()),
            memory_seen: seen,
            cpu_seen: seen,
            memory_closed: Some(HistogramWeights { total: 5.0, ..HistogramWeights::default() }),
            bump: Some(OomBump { at, base: 1, counted: 2 }),
            replicas: over.chain(open).collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn what_was_written_is_read_with_the_status_in_its_place() {
        let (original, status) = (snapshot(5, 0), Snapshot::default());
        let text = encode(&original, 7).expect("it fits");
        let expected = Snapshot { memory_closed: Some(status.memory.clone()), ..original };
        assert_eq!(decode(&text, &status, 7), Ok(expected));
    }

    #[test]
    fn another_status_another_version_and_other_texts_are_ignored_for_their_reason() {
        let text = encode(&snapshot(1, 0), 7).expect("it fits");
        let newer = text.replacen("\"v\":1", "\"v\":2", 1);
        let status = Snapshot::default();
        assert_eq!(decode(&text, &status, 8), Err(AnnotationError::Stale));
        assert_eq!(decode(&newer, &status, 7), Err(AnnotationError::UnsupportedVersion(2)));
        for broken in ["", "{}", "[]", "{\"v\":1}", &text[..text.len() - 1]] {
            let found = decode(broken, &status, 7);
            assert!(matches!(found, Err(AnnotationError::Malformed(_))), "{broken:?}: {found:?}");
        }
    }

    #[test]
    fn of_too_many_pods_those_with_the_largest_open_peaks_stay_in_their_order() {
        let original = snapshot(300, 300);
        let text = encode(&original, 7).expect("it fits");
        assert!(text.len() <= MAX_BYTES && text.len() > MAX_BYTES - 400, "{} bytes", text.len());
        let kept = decode(&text, &Snapshot::default(), 7).expect("readable").replicas;
        assert!(kept.len() > 100, "{} pods are kept", kept.len());
        let smallest = kept.iter().filter_map(|replica| replica.usage_peak).min();
        let left_out = original.replicas[300..].iter().filter(|one| !kept.contains(one));
        assert!(kept.iter().all(|replica| original.replicas[300..].contains(replica)));
        assert!(left_out.filter_map(|replica| replica.usage_peak).max() <= smallest);
        assert!(kept.is_sorted_by_key(|replica| &replica.name));
    }

    #[test]
    fn what_does_not_fit_without_any_pod_is_not_written() {
        let owner = Some("x".repeat(MAX_BYTES).into());
        assert_eq!(encode(&Snapshot { owner, ..snapshot(1, 1) }, 7), None);
    }
}
