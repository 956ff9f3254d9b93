//! Why numbers are what they are, written on the VPA itself where nobody else could tell: beside its status,
//! right after it, and never in its place.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use plimsoll_core::types::{ObjectKey, Time};
use serde_json::json;

use super::{MAX_BACKOFF, MIN_BACKOFF, Recommender, ShutdownToken};
use crate::cluster::{
    cache::vpa_index::IndexedVpa,
    write::{
        AccessReview, AccessRule, StatusPatch, check_access, vpa_status::RECOMMENDER_FIELD_MANAGER,
    },
};
use plimsoll_core::{
    recommender::{
        Recommendation, explanation_annotation,
        pod_cap::PodLimits,
        status::{self, RecommendationHash},
    },
    types::compat::Compat,
};

/// How often one that met a conflict is tried: each time somebody else has written the VPA meanwhile.
const MAX_ATTEMPTS: u32 = 3;

/// Explanations of statuses that are being written.
#[derive(Debug, Default)]
pub(super) struct Explanations {
    enabled: AtomicBool,
    /// No more than there are writes under way.
    pending: Mutex<HashMap<ObjectKey, PendingExplanation>>,
}

#[derive(Debug)]
struct PendingExplanation {
    /// `None` is to be taken away: there is nothing left to explain.
    text: Option<String>,
    /// What it explains.
    status_hash: u64,
    /// The same, as the index knows it.
    recommendation: RecommendationHash,
    attempts: u32,
}

impl Explanations {
    /// Whether any are written.
    pub fn are_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<ObjectKey, PendingExplanation>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why a status that is about to be written says what it does, unless the VPA says it already.
    pub fn prepare(
        &self,
        key: &ObjectKey,
        said: &Recommendation,
        room: PodLimits,
        vpa: &IndexedVpa,
        now: Time,
    ) {
        let of = explanation_annotation::recommendation_hash(&status::to_object(said));
        let fingerprint = RecommendationHash::new(said);
        let is_said = vpa.explained_hash == Some(of)
            && vpa.published_status.recommendation.as_ref() == Some(&fingerprint);
        let text = if is_said { None } else { explanation_annotation::write(said, of, room, now) };
        if is_said || (text.is_none() && vpa.explained_hash.is_none()) {
            self.discard(key);
            return;
        }
        let pending =
            PendingExplanation { text, status_hash: of, recommendation: fingerprint, attempts: 0 };
        self.pending().insert(key.clone(), pending);
    }

    /// What is to be written on a VPA as it is now. Nothing if its status says something else by now.
    pub fn next_patch(&self, key: &ObjectKey, vpa: &IndexedVpa) -> Option<StatusPatch> {
        let mut all = self.pending();
        let said = vpa.published_status.recommendation.as_ref();
        let fits = |pending: &PendingExplanation| {
            pending.attempts < MAX_ATTEMPTS && said == Some(&pending.recommendation)
        };
        if !all.get(key).is_some_and(fits) {
            all.remove(key);
            return None;
        }
        let pending = all.get_mut(key)?;
        pending.attempts += 1;
        Some(StatusPatch {
            key: key.clone(),
            resource_version: vpa.resource_version.clone(),
            body: json!({ "metadata": { "annotations": { explanation_annotation::ANNOTATION: pending.text } } }),
            field_manager: RECOMMENDER_FIELD_MANAGER,
        })
    }

    /// It is written. Answers what the VPA explains now.
    pub fn complete(&self, key: &ObjectKey) -> Option<u64> {
        self.pending()
            .remove(key)
            .filter(|written| written.text.is_some())
            .map(|written| written.status_hash)
    }

    /// It is not to be written any more.
    pub fn discard(&self, key: &ObjectKey) {
        self.pending().remove(key);
    }
}

impl Recommender {
    /// Finds out at the start whether VPAs may be told why. Where the history lies in the cluster, `explain`
    /// needs nobody to tell.
    pub(super) async fn check_explanations_allowed(self: Arc<Self>, stop: ShutdownToken) {
        if self.config.compat == Compat::Upstream || self.storage.is_in_cluster() {
            return;
        }
        let mut rule = AccessRule::new("patch", "autoscaling.k8s.io", "verticalpodautoscalers");
        if let Some(namespace) = &self.config.scope.only {
            rule = rule.in_namespace(&**namespace);
        }
        let mut pause = MIN_BACKOFF;
        loop {
            let verdicts = tokio::select! {
                () = stop.cancelled() => return,
                verdicts = check_access(&self.client, std::slice::from_ref(&rule)) => verdicts,
            };
            match verdicts.into_iter().next() {
                Some(AccessReview::Allowed) => {
                    self.explanations.enabled.store(true, Ordering::Relaxed);
                    return;
                }
                Some(AccessReview::Denied) => {
                    tracing::warn!(
                        storage = self.storage.name(),
                        "no explanations on VPAs, the only ones that `plimsoll explain` could read while this \
                         runs: allow {rule} to have them"
                    );
                    return;
                }
                Some(AccessReview::Unknown(why)) => {
                    tracing::debug!(why, "whether VPAs may be explained is asked again");
                }
                None => return,
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(MAX_BACKOFF);
        }
    }
}
