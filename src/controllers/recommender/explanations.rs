//! Writes explanations of recommendations as annotations of VPAs, for clusters where `plimsoll explain` cannot read
//! the history otherwise. They are separate patches after the status update.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use kube::Client;
use parking_lot::Mutex;
use plimsoll_core::types::{ObjectKey, Time};
use serde_json::json;

use super::{MAX_BACKOFF, MIN_BACKOFF};
use crate::cluster::{
    cache::vpa_index::IndexedVpa,
    write::{
        AccessReview, AccessRule, StatusPatch, check_access, vpa_status::RECOMMENDER_FIELD_MANAGER,
    },
};
use plimsoll_core::recommender::{
    Recommendation, explanation_annotation,
    pod_cap::PodLimits,
    published_status::{self, RecommendationHash},
};

/// Maximum number of attempts after conflicts, which occur when another client wrote the VPA in between.
const MAX_ATTEMPTS: u32 = 3;

/// Explanations of statuses that are being written.
#[derive(Debug, Default)]
pub(super) struct Explanations {
    enabled: AtomicBool,
    /// At most one per status write in progress.
    pending: Mutex<HashMap<ObjectKey, PendingExplanation>>,
}

#[derive(Debug)]
struct PendingExplanation {
    /// `None` removes the annotation: there is nothing to explain.
    text: Option<String>,
    status_hash: u64,
    recommendation: RecommendationHash,
    attempts: u32,
}

impl Explanations {
    pub fn are_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Prepares the explanation of a status that is about to be written, unless the VPA already has it.
    pub fn prepare(
        &self,
        key: &ObjectKey,
        recommendation: &Recommendation,
        limits: PodLimits,
        vpa: &IndexedVpa,
        now: Time,
    ) {
        let status_hash = explanation_annotation::recommendation_hash(
            &published_status::to_object(recommendation),
        );
        let recommendation_hash = RecommendationHash::new(recommendation);
        let is_current = vpa.explained_hash == Some(status_hash)
            && vpa.published_status.recommendation.as_ref() == Some(&recommendation_hash);
        let text = if is_current {
            None
        } else {
            explanation_annotation::write(recommendation, status_hash, limits, now)
        };
        if is_current || (text.is_none() && vpa.explained_hash.is_none()) {
            self.discard(key);
            return;
        }
        let recommendation = recommendation_hash;
        let pending = PendingExplanation { text, status_hash, recommendation, attempts: 0 };
        self.pending.lock().insert(key.clone(), pending);
    }

    /// The next patch for a VPA; `None` if its status has changed in the meantime.
    pub fn next_patch(&self, key: &ObjectKey, vpa: &IndexedVpa) -> Option<StatusPatch> {
        let mut explanations = self.pending.lock();
        let published = vpa.published_status.recommendation.as_ref();
        let is_current = |pending: &PendingExplanation| {
            pending.attempts < MAX_ATTEMPTS && published == Some(&pending.recommendation)
        };
        if !explanations.get(key).is_some_and(is_current) {
            explanations.remove(key);
            return None;
        }
        let pending = explanations.get_mut(key)?;
        pending.attempts += 1;
        Some(StatusPatch {
            key: key.clone(),
            resource_version: vpa.resource_version.clone(),
            body: json!({ "metadata": { "annotations": { explanation_annotation::ANNOTATION: pending.text } } }),
            field_manager: RECOMMENDER_FIELD_MANAGER,
        })
    }

    /// Marks an explanation as written. Returns the hash of what the VPA explains now.
    pub fn complete(&self, key: &ObjectKey) -> Option<u64> {
        let written = self.pending.lock().remove(key)?;
        written.text.map(|_| written.status_hash)
    }

    pub fn discard(&self, key: &ObjectKey) {
        self.pending.lock().remove(key);
    }

    /// Checks at startup whether VPA annotations may be written. If history is stored in the cluster, `plimsoll
    /// explain` reads it from there instead.
    pub async fn check_allowed(
        self: Arc<Self>,
        client: Client,
        namespace: Option<String>,
        storage: &str,
    ) {
        let mut rule = AccessRule::new("patch", "autoscaling.k8s.io", "verticalpodautoscalers");
        if let Some(namespace) = &namespace {
            rule = rule.in_namespace(namespace);
        }
        let mut pause = MIN_BACKOFF;
        loop {
            let reviews = check_access(&client, std::slice::from_ref(&rule)).await;
            match reviews.into_iter().next() {
                Some(AccessReview::Allowed) => {
                    self.enabled.store(true, Ordering::Relaxed);
                    return;
                }
                Some(AccessReview::Denied) => {
                    tracing::warn!(
                        storage,
                        "cannot store explanations on VPAs, which `plimsoll explain` needs while this process runs; RBAC \
                         rule is missing: {rule}"
                    );
                    return;
                }
                Some(AccessReview::Unknown(error)) => {
                    tracing::debug!(
                        error,
                        "failed to review access to annotations of VPAs; will retry"
                    );
                }
                None => return,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_BACKOFF);
        }
    }
}
