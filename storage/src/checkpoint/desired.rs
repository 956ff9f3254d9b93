//! The desired checkpoint of a record: computed once, then compared and written.

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
    history::{
        HistogramWeights, Record, Snapshot,
        checkpoint::{FormatError, snapshot_from_status, status_from_snapshot},
    },
    types::Time,
};

pub struct DesiredCheckpoint {
    status: Value,
    annotation: Option<String>,
    writes_annotation: bool,
    /// The fingerprint of the state once it is stored.
    pub fingerprint: StoredFingerprint,
}

impl DesiredCheckpoint {
    /// Computes the desired checkpoint. Fails if the record cannot be a checkpoint.
    pub fn new(record: &Record, now: Time, writes_annotation: bool) -> Result<Self, FormatError> {
        let snapshot = &record.snapshot;
        if let Some(weight) = find_non_finite(snapshot) {
            return Err(FormatError::Total(weight));
        }
        let status = status_from_snapshot(snapshot, now)?;
        let fingerprint = fingerprint(&status)?;
        let annotation =
            if writes_annotation { annotation::encode(snapshot, fingerprint) } else { None };
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
            writes_annotation,
        })
    }

    /// Whether this is already stored. If annotations are not written, only the status is compared, because an existing
    /// annotation is not changed.
    pub fn equals_stored(&self, stored: &StoredFingerprint) -> bool {
        self.fingerprint.status == stored.status
            && (!self.writes_annotation || self.fingerprint.annotation == stored.annotation)
    }

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

    /// The JSON patch operations that update a stored object, if it still has the cached version. `add` replaces the whole
    /// status, so that old buckets are removed.
    pub fn operations(&self, stored: &CacheEntry) -> Vec<Value> {
        let mut operations = vec![
            json!({"op": "replace", "path": "/metadata/resourceVersion", "value": &*stored.version}),
            json!({"op": "add", "path": "/status", "value": self.status}),
        ];
        let path = format!("/metadata/annotations/{}", annotation::KEY.replace('/', "~1"));
        match &self.annotation {
            Some(text) if stored.annotated => {
                operations.push(json!({"op": "add", "path": path, "value": text}));
            }
            Some(text) => operations.push(json!({
                "op": "add", "path": "/metadata/annotations", "value": {annotation::KEY: text},
            })),
            // The annotation does not fit anymore, so remove the outdated one.
            None if self.writes_annotation && stored.annotation().is_some() => {
                operations.push(json!({"op": "remove", "path": path}));
            }
            None => {}
        }
        operations
    }

    /// The fingerprint of the object after this write.
    pub fn fingerprint_after(&self, stored: Option<&CacheEntry>) -> StoredFingerprint {
        let annotation = if self.writes_annotation {
            self.fingerprint.annotation
        } else {
            stored.and_then(CacheEntry::annotation)
        };
        StoredFingerprint { annotation, ..self.fingerprint }
    }
}

/// Finds a weight that JSON cannot represent.
fn find_non_finite(snapshot: &Snapshot) -> Option<f64> {
    let histograms = [Some(&snapshot.cpu), Some(&snapshot.memory), snapshot.fleet.as_ref()];
    let non_finite = |weights: &HistogramWeights| {
        let buckets = weights.buckets.iter().map(|&(_, weight)| weight);
        buckets.chain([weights.total]).find(|weight| !weight.is_finite())
    };
    histograms.into_iter().flatten().find_map(non_finite)
}
