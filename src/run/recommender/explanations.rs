//! Why numbers are what they are, written on the VPA itself where nobody else could tell: beside its status,
//! right after it, and never in its place.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use plimsoll_core::types::{Time, VpaKey};
use serde_json::json;

use super::{FIRST_PAUSE, LONGEST_PAUSE, Role, Stop};
use crate::{
    act::{Rule, StatusPatch, Verdict, may, status::RECOMMENDER},
    observe::index::Vpa,
};
use plimsoll_core::{
    recommender::{
        Recommendation, annotation,
        room::Limits,
        status::{self, Fingerprint},
    },
    types::compat::Compat,
};

/// How often one that met a conflict is tried: each time somebody else has written the VPA meanwhile.
const TRIES: u32 = 3;

/// Explanations of statuses that are being written.
#[derive(Debug, Default)]
pub(super) struct Explanations {
    on: AtomicBool,
    /// No more than there are writes under way.
    pending: Mutex<HashMap<VpaKey, Pending>>,
}

#[derive(Debug)]
struct Pending {
    /// `None` is to be taken away: there is nothing left to explain.
    text: Option<String>,
    /// What it explains.
    of: u64,
    /// The same, as the index knows it.
    said: Fingerprint,
    tries: u32,
}

impl Explanations {
    /// Whether any are written.
    pub fn are_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<VpaKey, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why a status that is about to be written says what it does, unless the VPA says it already.
    pub fn prepare(&self, key: &VpaKey, said: &Recommendation, room: Limits, vpa: &Vpa, now: Time) {
        let of = annotation::fingerprint(&status::to_object(said));
        let fingerprint = Fingerprint::new(said);
        let is_said =
            vpa.explained == Some(of) && vpa.reported.recommendation.as_ref() == Some(&fingerprint);
        let text = if is_said { None } else { annotation::write(said, of, room, now) };
        if is_said || (text.is_none() && vpa.explained.is_none()) {
            self.drop(key);
            return;
        }
        let pending = Pending { text, of, said: fingerprint, tries: 0 };
        self.pending().insert(key.clone(), pending);
    }

    /// What is to be written on a VPA as it is now. Nothing if its status says something else by now.
    pub fn next(&self, key: &VpaKey, vpa: &Vpa) -> Option<StatusPatch> {
        let mut all = self.pending();
        let said = vpa.reported.recommendation.as_ref();
        let fits = |pending: &Pending| pending.tries < TRIES && said == Some(&pending.said);
        if !all.get(key).is_some_and(fits) {
            all.remove(key);
            return None;
        }
        let pending = all.get_mut(key)?;
        pending.tries += 1;
        Some(StatusPatch {
            key: key.clone(),
            resource_version: vpa.resource_version.clone(),
            body: json!({ "metadata": { "annotations": { annotation::KEY: pending.text } } }),
            writer: RECOMMENDER,
        })
    }

    /// It is written. Answers what the VPA explains now.
    pub fn take(&self, key: &VpaKey) -> Option<u64> {
        self.pending()
            .remove(key)
            .filter(|written| written.text.is_some())
            .map(|written| written.of)
    }

    /// It is not to be written any more.
    pub fn drop(&self, key: &VpaKey) {
        self.pending().remove(key);
    }
}

impl Role {
    /// Finds out at the start whether VPAs may be told why. Where the history lies in the cluster, `explain`
    /// needs nobody to tell.
    pub(super) async fn ask_for_explanations(self: Arc<Self>, stop: Stop) {
        if self.config.compat == Compat::Upstream || self.storage.is_in_cluster() {
            return;
        }
        let mut rule = Rule::new("patch", "autoscaling.k8s.io", "verticalpodautoscalers");
        if let Some(namespace) = &self.config.scope.only {
            rule = rule.within(&**namespace);
        }
        let mut pause = FIRST_PAUSE;
        loop {
            let verdicts = tokio::select! {
                () = stop.stopped() => return,
                verdicts = may(&self.client, std::slice::from_ref(&rule)) => verdicts,
            };
            match verdicts.into_iter().next() {
                Some(Verdict::Allowed) => {
                    self.explanations.on.store(true, Ordering::Relaxed);
                    return;
                }
                Some(Verdict::Denied) => {
                    tracing::warn!(
                        storage = self.storage.name(),
                        "no explanations on VPAs, the only ones that `plimsoll explain` could read while this \
                         runs: allow {rule} to have them"
                    );
                    return;
                }
                Some(Verdict::Unknown(why)) => {
                    tracing::debug!(why, "whether VPAs may be explained is asked again");
                }
                None => return,
            }
            tokio::select! {
                () = stop.stopped() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
