//! What is remembered from pass to pass: on VPAs and in the Lease where that is allowed, and in this process in any case.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use plimsoll_core::types::VpaKey;

use super::{
    Role,
    matching::{Target, Workload},
};
use crate::{
    act::{Kept, Note, Noted, note},
    observe::watch::Change,
};
use plimsoll_core::updater::{
    Ledger, Memory, Recall, Rests,
    guard::{ledger, memory},
    in_place::FirstSeen,
};

/// How many texts that were replaced are known again: a watch is seldom as far behind.
const REPLACED: usize = 64;

/// What is remembered of all workloads, and of the cluster.
#[derive(Debug, Default)]
pub(super) struct Recollection {
    workloads: HashMap<VpaKey, Entry>,
    ledger: Ledger,
    /// As it stands in the Lease.
    ledger_text: Option<String>,
    /// Whether that was taken over since a pass over a workload began, which knows an older one.
    is_adopted: bool,
    /// Second replicas whose VPA is gone, or is for another workload now.
    left: Vec<LeftSurge>,
}

/// A Deployment that was given a second replica, and that no VPA remembers any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeftSurge {
    pub namespace: Box<str>,
    pub deployment: Box<str>,
    /// How often it was tried in vain to take it back.
    pub failed: u32,
}

/// What is remembered of one workload.
#[derive(Debug, Default)]
struct Entry {
    /// Which workload it is.
    target: Option<Target>,
    memory: Memory,
    first_seen: FirstSeen,
    rests: Rests,
    /// Whether the VPA or the Lease says something that is not so: what was booked was not done, or what was found out is
    /// not written yet.
    is_owed: bool,
    /// As it stands on the VPA, as far as this process knows.
    stored: Option<Arc<str>>,
    /// What stood there before: a watch may still show it.
    replaced: VecDeque<u64>,
    /// The version of the VPA since this process wrote it last.
    version: Option<Box<str>>,
}

/// Why something was not booked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotBooked {
    /// Somebody else remembers something else by now: it is looked at anew in the next pass.
    Overtaken,
    /// It could not be written.
    Failed(String),
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Entry {
    /// Takes over what stands on the VPA, unless this process wrote it, or something later.
    fn look_at(&mut self, workload: &Workload) -> Result<(), memory::Ignored> {
        let annotations = workload.vpa.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(memory::KEY)).map(String::as_str);
        if text == self.stored.as_deref() {
            self.version = None;
            return Ok(());
        }
        let known = match text {
            Some(text) => self.replaced.contains(&hash(text)),
            // What was never there is no news; what this process wrote may not be told yet.
            None => self.version.is_some(),
        };
        if known {
            return Ok(());
        }
        self.stored = text.map(Into::into);
        self.version = None;
        self.memory = Memory::default();
        if let Some(text) = text {
            self.memory = Memory::read(text, &workload.vpa.spec.target_ref)?;
        }
        Ok(())
    }

    /// Forgets what was done to another workload, and says whether that has a second replica still.
    fn is_for(&mut self, workload: &Workload) -> Option<LeftSurge> {
        let is_known = self.target.as_ref().is_none_or(|known| *known == workload.target);
        let left = if is_known { None } else { self.left_surge(&workload.key) };
        if !is_known {
            *self = Self::default();
        }
        self.target = Some(workload.target.clone());
        left
    }

    fn left_surge(&self, key: &VpaKey) -> Option<LeftSurge> {
        let (kind, name) = self.target.as_ref()?;
        let owes = self.memory.surge.is_some() && &**kind == "Deployment";
        let (namespace, deployment) = ((*key.namespace).into(), name.clone());
        owes.then_some(LeftSurge { namespace, deployment, failed: 0 })
    }

    fn wrote(&mut self, text: &str, version: Box<str>) {
        if let Some(before) = self.stored.replace(text.into()) {
            self.replaced.push_back(hash(&before));
            if self.replaced.len() > REPLACED {
                self.replaced.pop_front();
            }
        }
        self.version = Some(version);
    }
}

impl Recollection {
    /// What is remembered of a workload, and of the cluster. `Err` says why what stands on its VPA does not count, with
    /// what counts instead.
    pub fn of(&mut self, workload: &Workload) -> (Recall, Option<memory::Ignored>) {
        self.is_adopted = false;
        let entry = self.workloads.entry(workload.key.clone()).or_default();
        self.left.extend(entry.is_for(workload));
        let ignored = entry.look_at(workload).err();
        let recall = Recall {
            memory: entry.memory.clone(),
            ledger: self.ledger.clone(),
            first_seen: entry.first_seen.clone(),
            rests: entry.rests.clone(),
        };
        (recall, ignored)
    }

    /// Remembers what came of a pass.
    pub fn keep(&mut self, workload: &Workload, recall: Recall) {
        let entry = self.workloads.entry(workload.key.clone()).or_default();
        entry.memory = recall.memory;
        entry.first_seen = recall.first_seen;
        entry.rests = recall.rests;
        if !self.is_adopted {
            self.ledger = recall.ledger;
        }
    }

    /// Whether somebody else wrote what was changed in the cluster since the pass over this workload began: then what that
    /// pass remembers of it is old, and must not be written.
    pub const fn was_overtaken(&self) -> bool {
        self.is_adopted
    }

    /// Whether something is still to be written of a workload.
    pub fn is_owed(&self, key: &VpaKey) -> bool {
        self.workloads.get(key).is_some_and(|entry| entry.is_owed)
    }

    /// Notes whether something is still to be written of a workload.
    pub fn owe(&mut self, key: &VpaKey, is_owed: bool) {
        if let Some(entry) = self.workloads.get_mut(key) {
            entry.is_owed = is_owed;
        }
    }

    /// What was changed in the cluster.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Forgets VPAs that are gone, but for second replicas that have to be taken back.
    pub fn retain(&mut self, is_there: impl Fn(&VpaKey) -> bool) {
        let left = &mut self.left;
        self.workloads.retain(|key, entry| {
            let stays = is_there(key);
            if !stays {
                left.extend(entry.left_surge(key));
            }
            stays
        });
    }

    /// Second replicas that no VPA remembers.
    pub fn take_left(&mut self) -> Vec<LeftSurge> {
        std::mem::take(&mut self.left)
    }

    /// One that could not be taken back yet.
    pub fn put_back(&mut self, left: LeftSurge) {
        self.left.push(left);
    }

    /// Whether a workload is known to have a second replica.
    pub fn has_surge(&self, key: &VpaKey) -> bool {
        self.workloads.get(key).is_some_and(|entry| entry.memory.surge.is_some())
    }

    /// What others did while this process did not lead is read anew.
    pub fn forget_stored(&mut self) {
        self.left.clear();
        for entry in self.workloads.values_mut() {
            entry.version = None;
            entry.replaced.clear();
        }
    }

    fn adopt_ledger(&mut self, text: Option<String>) -> Result<(), ledger::Unreadable> {
        let read = text.as_deref().map(Ledger::read);
        self.ledger_text = text;
        self.is_adopted = true;
        match read {
            Some(Ok(ledger)) => self.ledger = ledger,
            Some(Err(why)) => return Err(why),
            None => {}
        }
        Ok(())
    }
}

impl Role {
    /// Reads what was changed in the cluster, if somebody else wrote it meanwhile: another process may have led.
    pub(super) async fn read_ledger(&self, recollection: &mut Recollection) -> Result<(), String> {
        if !self.keeps_ledger() {
            return Ok(());
        }
        let text = self.ledger.read().await?;
        if text == recollection.ledger_text {
            return Ok(());
        }
        if let Err(why) = recollection.adopt_ledger(text) {
            self.metrics.count_unreadable();
            tracing::warn!(%why, "what was changed of late, as the Lease tells it, does not count");
        }
        Ok(())
    }

    /// Writes down what a step costs, before it is made.
    pub(super) async fn book(
        &self,
        recollection: &mut Recollection,
        workload: &Workload,
        recall: &Recall,
    ) -> Result<(), NotBooked> {
        let is_blank = recall.ledger == Ledger::default() && recollection.ledger_text.is_none();
        if self.keeps_ledger() && !is_blank {
            let text = recall.ledger.write().map_err(|why| NotBooked::Failed(why.to_string()))?;
            let before = recollection.ledger_text.as_deref();
            if before != Some(text.as_str()) {
                match self.ledger.write(&self.permit, before, &text).await {
                    Kept::Done => recollection.ledger_text = Some(text),
                    Kept::Overtaken(stands) => {
                        if let Err(why) = recollection.adopt_ledger(stands) {
                            self.metrics.count_unreadable();
                            tracing::warn!(%why, "what was changed of late, as the Lease tells it, does not count");
                        }
                        return Err(NotBooked::Overtaken);
                    }
                    Kept::Unwritten(why) => return Err(NotBooked::Failed(why)),
                }
            }
        }
        if !self.keeps_memory() {
            return Ok(());
        }
        let text = recall.memory.write(&workload.vpa.spec.target_ref);
        let text = text.ok_or_else(|| NotBooked::Failed("it does not fit".to_owned()))?;
        let entry = recollection.workloads.entry(workload.key.clone()).or_default();
        let nothing = recall.memory.is_empty() && entry.stored.is_none();
        if nothing || entry.stored.as_deref() == Some(text.as_str()) {
            return Ok(());
        }
        let version =
            entry.version.as_deref().or(workload.vpa.metadata.resource_version.as_deref());
        let stored = entry.stored.clone();
        let written = Note { key: memory::KEY, before: stored.as_deref(), after: &text };
        let of = (&workload.key, version.unwrap_or_default());
        match note(&self.client, &self.permit, &self.stats, of, written).await {
            Noted::Done { resource_version } => {
                entry.wrote(&text, resource_version);
                Ok(())
            }
            Noted::Overtaken(now) => {
                entry.version = None;
                entry.replaced.clear();
                self.seen.change_vpa(Change::Put(*now));
                Err(NotBooked::Overtaken)
            }
            Noted::Unwritten(why) => Err(NotBooked::Failed(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::types::Time;
    use serde_json::json;

    use super::*;
    use plimsoll_core::updater::guard::memory::Surge;

    fn workload(vpa: &str, deployment: &str) -> Workload {
        let object = json!({
            "metadata": {"name": vpa, "namespace": "shop"},
            "spec": {"targetRef": {"kind": "Deployment", "name": deployment}},
        });
        Workload {
            vpa: Arc::new(serde_json::from_value(object).expect("a VPA")),
            key: VpaKey { namespace: "shop".into(), name: vpa.into() },
            target: ("Deployment".into(), deployment.into()),
            pods: Vec::new(),
            wanted: HashMap::new(),
        }
    }

    fn surged(recollection: &mut Recollection, workload: &Workload) {
        let (mut recall, _) = recollection.of(workload);
        recall.memory.surge = Some(Surge { at: Time::EPOCH, evicted: false });
        recollection.keep(workload, recall);
    }

    fn left(recollection: &mut Recollection) -> Vec<String> {
        recollection.take_left().into_iter().map(|left| left.deployment.into()).collect()
    }

    #[test]
    fn a_second_replica_is_not_forgotten_with_its_vpa() {
        let mut recollection = Recollection::default();
        for name in ["gone", "stays"] {
            surged(&mut recollection, &workload(name, name));
        }
        recollection.of(&workload("plain", "plain"));
        recollection.retain(|key| *key.name == *"stays");
        assert_eq!(left(&mut recollection), ["gone"]);
        assert!(recollection.has_surge(&workload("stays", "stays").key));
        // The VPA is for another workload now, whose replicas are nobody's debt.
        let (recall, _) = recollection.of(&workload("stays", "another"));
        assert_eq!(recall.memory, Memory::default());
        assert_eq!(left(&mut recollection), ["stays"]);
        assert!(left(&mut recollection).is_empty(), "each is taken back once");
    }
}
