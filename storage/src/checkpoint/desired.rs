//! What is to be written of a record: worked out once, then compared and sent.

use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{
    annotation,
    cache::CacheEntry,
    fingerprint::fingerprint,
    object::{StoredFingerprint, print_of_text},
};
use plimsoll_core::{
    api::checkpoint::VerticalPodAutoscalerCheckpoint,
    history::checkpoint::{FormatError, snapshot_from_status, status_from_snapshot},
};
use plimsoll_core::{
    history::{HistogramWeights, Record, Snapshot},
    types::Time,
};

/// A record as it will be stored.
pub struct DesiredCheckpoint {
    status: Value,
    annotation: Option<String>,
    /// Whether annotations are written at all.
    extras: bool,
    /// What tells the state from others once it is stored.
    pub fingerprint: StoredFingerprint,
}

impl DesiredCheckpoint {
    /// Works out what to write. The error says why this can never be a checkpoint.
    pub fn new(record: &Record, now: Time, extras: bool) -> Result<Self, FormatError> {
        let snapshot = &record.snapshot;
        if let Some(weight) = not_finite(snapshot) {
            return Err(FormatError::Total(weight));
        }
        let status = status_from_snapshot(snapshot, now)?;
        let fingerprint = fingerprint(&status)?;
        let annotation = if extras { annotation::encode(snapshot, fingerprint) } else { None };
        let richness = match &annotation {
            Some(_) => snapshot.sample_rank(),
            None => snapshot_from_status(&status)?.sample_rank(),
        };
        Ok(Self {
            fingerprint: StoredFingerprint {
                richness,
                status: fingerprint,
                annotation: annotation.as_deref().map(print_of_text),
            },
            status: serde_json::to_value(&status).unwrap_or_default(),
            annotation,
            extras,
        })
    }

    /// Whether this is what is stored. Without annotations of ours the status alone is compared, because
    /// one that is there is left as it is.
    pub fn equals_stored(&self, stored: &StoredFingerprint) -> bool {
        self.fingerprint.status == stored.status
            && (!self.extras || self.fingerprint.annotation == stored.annotation)
    }

    /// The object to create under this name.
    pub fn object(&self, record: &Record, name: &str) -> DynamicObject {
        let resource = kube::api::ApiResource::erase::<VerticalPodAutoscalerCheckpoint>(&());
        let mut object = DynamicObject::new(name, &resource).within(&record.key.vpa.namespace);
        object.data = json!({
            "spec": {
                "vpaObjectName": &*record.key.vpa.name,
                "containerName": &*record.key.container,
            },
            "status": self.status,
        });
        if let Some(text) = &self.annotation {
            object.metadata.annotations = Some([(annotation::KEY.to_owned(), text.clone())].into());
        }
        object
    }

    /// The operations that make a stored object this one, if it is still at the version that was seen.
    /// Adding replaces: the status as a whole, so that buckets that are no more do not stay.
    pub fn operations(&self, stored: &CacheEntry) -> Vec<Value> {
        let mut operations = vec![
            json!({"op": "replace", "path": "/metadata/resourceVersion", "value": &*stored.version}),
            json!({"op": "add", "path": "/status", "value": self.status}),
        ];
        let place = format!("/metadata/annotations/{}", annotation::KEY.replace('/', "~1"));
        let had_one = matches!(&stored.content, super::cache::CachedContent::History(print) if print.annotation.is_some());
        match &self.annotation {
            Some(text) if stored.annotated => {
                operations.push(json!({"op": "add", "path": place, "value": text}));
            }
            Some(text) => operations.push(json!({
                "op": "add", "path": "/metadata/annotations", "value": {annotation::KEY: text},
            })),
            // What does not fit is not there; it must not look as if it did.
            None if self.extras && had_one => {
                operations.push(json!({"op": "remove", "path": place}));
            }
            None => {}
        }
        operations
    }

    /// Whether the object has annotations once this is written over it.
    pub fn has_annotations_after(&self, stored: &CacheEntry) -> bool {
        stored.annotated || self.annotation.is_some()
    }

    /// What is stored once this is written over it.
    pub fn fingerprint_after(&self, stored: Option<&CacheEntry>) -> StoredFingerprint {
        let kept = stored.and_then(|stored| match &stored.content {
            super::cache::CachedContent::History(print) => print.annotation,
            _ => None,
        });
        StoredFingerprint {
            annotation: if self.extras { self.fingerprint.annotation } else { kept },
            ..self.fingerprint
        }
    }
}

/// A weight that no JSON can hold.
fn not_finite(snapshot: &Snapshot) -> Option<f64> {
    let all = [Some(&snapshot.cpu), Some(&snapshot.memory), snapshot.fleet.as_ref()];
    let numbers = |weights: &HistogramWeights| {
        let buckets = weights.buckets.iter().map(|&(_, weight)| weight);
        buckets.chain([weights.total]).find(|weight| !weight.is_finite())
    };
    all.into_iter().flatten().find_map(numbers)
}
