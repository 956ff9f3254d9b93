//! What holds updates back, told where users look: a condition of the VPA, its events, and series of metrics. Each on
//! change only.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Mutex, MutexGuard, PoisonError, Weak},
};

use kube::ResourceExt as _;
use plimsoll_core::types::{Time, VpaKey};
use serde_json::json;

use super::{
    Role,
    matching::{Workload, vpa_key},
};
use crate::{
    act::{
        memory::UPDATER,
        status::{Outcome, Source, StatusPatch},
    },
    metrics::{ContainerRow, Objects, UpdateRow, VpaRow, objects::PAGE},
    observe::watch::Change,
};
use plimsoll_core::{
    api::{VerticalPodAutoscaler, vpa::Condition},
    types::compat::Compat,
    updater::{Decision, Skip, Verdict},
};

/// The condition that says why pods are not changed that should be.
pub const CONDITION: &str = "UpdatesHeldBack";

/// What comes with every change: nobody needs to look at it.
const USUAL: [&str; 4] = ["canary", "cool_down", "outside_window", "surging"];

/// What holds back the updates of one VPA.
#[derive(Clone, Debug, Default, PartialEq)]
struct Held {
    /// Pods by reason.
    pods: BTreeMap<&'static str, usize>,
    /// The weightiest of the reasons: what the condition says.
    said: Option<Said>,
    /// Pods, by uid, whose resize was found impossible.
    infeasible: BTreeSet<Box<str>>,
    /// Whether that is not known yet: what was said before stands.
    is_awaited: bool,
}

/// A reason and its sentence.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    word: &'static str,
    sentence: String,
}

/// What holds back the updates of all.
#[derive(Debug, Default)]
pub(super) struct Told(Mutex<BTreeMap<VpaKey, Held>>);

impl Told {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<VpaKey, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets VPAs that are gone.
    pub fn retain(&self, is_there: impl Fn(&VpaKey) -> bool) {
        self.lock().retain(|key, _| is_there(key));
    }

    /// Forgets all, and says whether there was anything.
    pub fn forget(&self) -> bool {
        !std::mem::take(&mut *self.lock()).is_empty()
    }

    fn of(&self, key: &VpaKey) -> Option<Held> {
        self.lock().get(key).cloned()
    }
}

fn held(workload: &Workload, decision: &Decision) -> Held {
    let mut held = Held::default();
    let mut weightiest: Option<(usize, &Skip)> = None;
    for (pod, verdict) in workload.pods.iter().zip(&decision.verdicts) {
        let Verdict::Skipped(skip) = verdict else { continue };
        if *skip == Skip::Infeasible {
            held.infeasible.insert((*pod.sizes.uid).into());
        }
        if !skip.holds_back() {
            continue;
        }
        held.is_awaited |= *skip == Skip::HeartbeatAwaited;
        *held.pods.entry(skip.word()).or_default() += 1;
        let Some(weight) = Skip::GUARDS.iter().position(|word| *word == skip.word()) else {
            continue;
        };
        if weightiest.is_none_or(|(known, _)| weight < known) {
            weightiest = Some((weight, skip));
        }
    }
    held.said = weightiest.map(|(_, skip)| Said { word: skip.word(), sentence: skip.to_string() });
    held
}

/// `breaker_open` as conditions have it: `BreakerOpen`.
fn camel(word: &str) -> String {
    let parts = word.split('_').map(|part| {
        let mut letters = part.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    parts.collect()
}

impl Role {
    /// Tells what came of a VPA in a pass.
    pub(super) fn tell_held(&self, workload: &Workload, decision: &Decision, now: Time) {
        let held = held(workload, decision);
        let before = self.told.lock().insert(workload.key.clone(), held.clone());
        let always = self.config.settings.compat == Compat::Upstream;
        let is_known = |uid: &str| before.as_ref().is_some_and(|it| it.infeasible.contains(uid));
        let is_news = |uid: &str| held.infeasible.contains(uid) && (always || !is_known(uid));
        let pods = workload.pods.iter().map(|pod| &**pod);
        let skipped: Vec<_> = pods.filter(|pod| is_news(&pod.sizes.uid)).collect();
        self.tell_skipped(workload, &skipped, now);
        if self.config.dry_run.is_some() || held.is_awaited {
            return;
        }
        // Compared with the VPA and not with what was said: whoever writes the whole status may have lost it.
        let said = held.said.as_ref();
        if self.keeps_conditions() && conditions(&workload.vpa, said, now).is_some() {
            self.outbox.push(workload.key.clone(), None);
        }
        // What this process said may not be told by the watch yet; what another one said stands on the VPA.
        let was = match before.filter(|before| !before.is_awaited) {
            Some(before) => before.said.map(|said| camel(said.word)),
            None => held_back(&workload.vpa).map(|condition| condition.reason.clone()),
        };
        if let Some(said) = said.filter(|said| was != Some(camel(said.word))) {
            let message = format!("Updates are held back: {}.", said.sentence);
            let is_usual = USUAL.contains(&said.word);
            self.tell_vpa(workload, CONDITION, message, now, !is_usual);
        }
    }
}

impl Role {
    /// Takes back what was said of VPAs that this updater has nothing to say about any more: they were switched off, or
    /// what they are for is gone.
    pub(super) fn tell_released(&self, known: &HashSet<&VpaKey>, unavailable: &HashSet<VpaKey>) {
        if self.config.dry_run.is_some() || !self.keeps_conditions() {
            return;
        }
        for namespace in self.seen.namespaces() {
            if !self.config.scope.includes(&namespace) {
                continue;
            }
            for vpa in self.seen.vpas(&namespace) {
                let key = vpa_key(&vpa);
                // What cannot be read for a moment is not gone.
                let is_there = known.contains(&key) || unavailable.contains(&key);
                if held_back(&vpa).is_some() && !is_there {
                    self.outbox.push(key, None);
                }
            }
        }
    }
}

/// What stands on a VPA as the reason why its pods are left alone, if anything does.
fn held_back(vpa: &VerticalPodAutoscaler) -> Option<&Condition> {
    let conditions = &vpa.status.as_ref()?.conditions;
    conditions.iter().find(|one| one.kind == CONDITION && one.status == "True")
}

/// The conditions of a VPA as they are to be; nothing when they are so already.
fn conditions(
    vpa: &VerticalPodAutoscaler,
    said: Option<&Said>,
    now: Time,
) -> Option<Vec<Condition>> {
    let status = vpa.status.as_ref();
    let mut conditions = status.map(|status| status.conditions.clone()).unwrap_or_default();
    let known = conditions.iter().position(|one| one.kind == CONDITION);
    let (status, reason, message) = match said {
        Some(said) => ("True", camel(said.word), said.sentence.clone()),
        None if known.is_none() => return None,
        None => ("False", "NothingHoldsBack".to_owned(), String::new()),
    };
    let mut wanted = Condition {
        kind: CONDITION.to_owned(),
        status: status.to_owned(),
        last_transition_time: Some(meta(now)),
        reason,
        message,
        observed_generation: None,
    };
    let Some(known) = known.map(|at| &mut conditions[at]) else {
        conditions.push(wanted);
        conditions.sort_by(|one, other| one.kind.cmp(&other.kind));
        return Some(conditions);
    };
    if known.status == wanted.status {
        wanted.last_transition_time.clone_from(&known.last_transition_time);
    }
    if *known == wanted {
        return None;
    }
    *known = wanted;
    Some(conditions)
}

fn meta(now: Time) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::from(now))
}

/// Asks the role what conditions to write.
#[derive(Debug)]
pub(super) struct Conditions(pub Weak<Role>);

impl Source for Conditions {
    fn prepare(&self, key: &VpaKey) -> Option<StatusPatch> {
        let role = self.0.upgrade()?;
        let vpas = role.seen.vpas(&key.namespace);
        let vpa = vpas.iter().find(|vpa| vpa.name_any() == *key.name)?;
        let held = role.told.of(key).unwrap_or_default();
        if held.is_awaited {
            return None;
        }
        let conditions = conditions(vpa, held.said.as_ref(), role.clock.now())?;
        Some(StatusPatch {
            key: key.clone(),
            resource_version: vpa.resource_version()?.into(),
            body: json!({"status": {"conditions": conditions}}),
            writer: UPDATER,
        })
    }

    fn done(&self, key: &VpaKey, outcome: &Outcome) {
        let Some(role) = self.0.upgrade() else { return };
        match outcome {
            // One that the watch has told to be gone meanwhile must not come back.
            Outcome::Conflict(Some(vpa)) if Self::is_there(&role, key) => {
                role.seen.change_vpa(Change::Put((**vpa).clone()));
            }
            Outcome::Failed { why } => tracing::warn!(why, "a condition was not written"),
            _ => {}
        }
    }
}

impl Conditions {
    fn is_there(role: &Role, key: &VpaKey) -> bool {
        role.seen.vpas(&key.namespace).iter().any(|vpa| vpa.name_any() == *key.name)
    }
}

/// The rows of an updater: what holds back each VPA.
#[derive(Debug)]
pub(super) struct Rows(pub Weak<Role>);

impl Objects for Rows {
    fn vpas(&self, _: Option<&VpaKey>, _: &mut dyn FnMut(VpaRow<'_>)) -> Option<VpaKey> {
        None
    }

    fn containers(
        &self,
        _: Option<&VpaKey>,
        _: &mut dyn FnMut(ContainerRow<'_>),
    ) -> Option<VpaKey> {
        None
    }

    fn updates(
        &self,
        after: Option<&VpaKey>,
        visit: &mut dyn FnMut(UpdateRow<'_>),
    ) -> Option<VpaKey> {
        use std::ops::Bound::{Excluded, Unbounded};
        let role = self.0.upgrade()?;
        let told = role.told.lock();
        let from = after.map_or(Unbounded, Excluded);
        let mut last = None;
        for (vpa, held) in told.range::<VpaKey, _>((from, Unbounded)).take(PAGE) {
            last = Some(vpa.clone());
            let reasons: Vec<(&'static str, bool)> =
                Skip::reasons().map(|word| (word, held.pods.contains_key(word))).collect();
            visit(UpdateRow { vpa, reasons: &reasons });
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vpa(conditions: &serde_json::Value) -> VerticalPodAutoscaler {
        serde_json::from_value(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"targetRef": {"kind": "Deployment", "name": "web"}},
            "status": {"conditions": conditions},
        }))
        .expect("a VPA")
    }

    const THEN: Time = Time::from_secs(1_800_000_000);

    #[test]
    fn conditions_of_others_stay_and_ours_is_written_on_change_only() {
        let theirs = json!([{"type": "RecommendationProvided", "status": "True"}]);
        let open = Said { word: "breaker_open", sentence: "pods got worse".to_owned() };
        assert_eq!(conditions(&vpa(&theirs), None, THEN), None, "nothing is to be said");
        let said = conditions(&vpa(&theirs), Some(&open), THEN).expect("it is new");
        let kinds: Vec<&str> = said.iter().map(|one| one.kind.as_str()).collect();
        assert_eq!(kinds, ["RecommendationProvided", CONDITION]);
        assert_eq!(said[1].reason, "BreakerOpen");
        let now = vpa(&serde_json::to_value(&said).expect("is written"));
        let later = THEN.later(std::time::Duration::from_mins(1));
        assert_eq!(conditions(&now, Some(&open), later), None);
        let closed = conditions(&now, None, later).expect("it is over");
        assert_eq!((closed[1].status.as_str(), closed[1].message.as_str()), ("False", ""));
        assert_eq!(closed[1].last_transition_time, Some(meta(later)));
        let other = Said { word: "cool_down", sentence: "it rests".to_owned() };
        let other = conditions(&now, Some(&other), later).expect("it is another one");
        assert_eq!(other[1].last_transition_time, Some(meta(THEN)), "it was held back before");
    }

    #[test]
    fn every_guard_has_a_word_of_the_closed_list() {
        for word in Skip::GUARDS {
            assert!(Skip::WORDS.contains(&word), "{word}");
        }
        assert_eq!(camel("cluster_breaker_open"), "ClusterBreakerOpen");
    }
}
