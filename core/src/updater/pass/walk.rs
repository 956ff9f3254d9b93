//! The steps of a pass, and what each of them costs the next.

use crate::types::Time;

use super::{Current, Pass, Pod, Queued, Recall};
use crate::{
    api::vpa::UpdateMode,
    sizing::{self, boost},
    types::compat::{Compat, Fix},
    updater::{
        acceptance::Need,
        action::{Action, Outcome, Step, Verdict},
        group::Budget,
        guard::{
            Charge, Touch, Touched,
            memory::{Surge, spec_hash},
            refusals::{RefusedBy, wanted},
            rollout::Entry,
        },
        life::{Owner, Phase},
        rests::Asked,
        sizing::Replacement,
        skip::Skip,
    },
};

/// What is decided about a pod whose turn it is.
pub(super) enum Turn {
    Take(Action),
    /// It is looked at once more, among those that are evicted.
    Evict,
}

/// How a pass goes on.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// With this step.
    Step(Step),
    /// With more pods: as many were skipped as the caller wanted to wait for.
    More,
    /// It does not.
    End,
}

impl Pass<'_> {
    /// The next step. It counts as booked: what is to be remembered is in [`Pass::recall`] already.
    #[expect(clippy::should_implement_trait, reason = "what came of a step has to be noted first")]
    pub fn next(&mut self) -> Option<Step> {
        match self.next_within(usize::MAX) {
            Next::Step(step) => Some(step),
            Next::More | Next::End => None,
        }
    }

    /// The same, for a caller whose thread has other work to do: returns after so many pods that were skipped.
    pub fn next_within(&mut self, most: usize) -> Next {
        if self.current.is_some() {
            self.note(Outcome::Failed);
        }
        for _ in 0..most {
            let Some(queued) = self.queue.pop_front() else { return Next::End };
            let (pod, turn) = match queued {
                Queued::EndSurge if self.end_surge_rests() => continue,
                Queued::EndSurge => (0, Ok(Turn::Take(Action::EndSurge))),
                Queued::Unboost(pod) => match self.unboost(pod) {
                    Some(action) => (pod, Ok(Turn::Take(action))),
                    // What was decided about its recommendation is told, not that its boost has to wait.
                    None => continue,
                },
                Queued::InPlace(pod) => (pod, self.resize(pod)),
                Queued::Evict(pod) => (pod, self.evict(pod)),
            };
            match turn {
                Ok(Turn::Take(action)) => return Next::Step(self.take(pod, action)),
                Ok(Turn::Evict) => self.queue.push_back(Queued::Evict(pod)),
                Err(skip) => self.skip(pod, skip),
            }
        }
        Next::More
    }

    /// Notes what came of the step under way.
    pub fn note(&mut self, outcome: Outcome) {
        let Some(Current { step, before, falls_back }) = self.current.take() else { return };
        let pod = step.pod;
        if outcome == Outcome::Done {
            self.verdicts[pod] = match &step.action {
                // The pod itself is still as it was.
                Action::Surge => Some(Verdict::Skipped(Skip::Surging)),
                Action::EndSurge | Action::Unboost { .. } => self.verdicts[pod].take(),
                action => Some(Verdict::Changed(action.word())),
            };
            let forgets = self.settings.fixes.has(Fix::InfeasibleResizesExpire);
            if forgets && matches!(step.action, Action::Resize { .. }) {
                // The node is asked anew, and will answer anew.
                self.recall.memory.refusals.forget(&self.views[pod].pod.size.uid);
            }
            if matches!(step.action, Action::Evict { .. }) && self.recall.memory.surge.is_some() {
                self.queue.push_front(Queued::EndSurge);
            }
        } else {
            // What may have been done is not given back.
            if outcome != Outcome::Unsure {
                self.undo(&step, before);
            }
            let skip = match outcome {
                Outcome::Disallowed => Skip::DisruptionBudget,
                Outcome::NotBooked => Skip::NotBooked,
                Outcome::NoCapacity => Skip::Infeasible,
                Outcome::Done | Outcome::Changed | Outcome::Failed | Outcome::Unsure => {
                    Skip::Failed
                }
            };
            if !matches!(step.action, Action::EndSurge | Action::Unboost { .. }) {
                self.skip(pod, skip);
            }
            self.learn(pod, &step.action, outcome);
            let is_open =
                matches!(outcome, Outcome::NotBooked | Outcome::Unsure | Outcome::Changed);
            if falls_back && !is_open {
                self.queue.push_back(Queued::Evict(pod));
            }
        }
        self.rest(pod, &step.action, outcome);
        self.steps.push((step, outcome));
    }

    fn learn(&mut self, pod: usize, action: &Action, outcome: Outcome) {
        let view = &self.views[pod];
        match (action, outcome) {
            (Action::Resize { .. }, Outcome::NoCapacity) => {
                let only_in_place = self.subject.sizing.plan.mode() == UpdateMode::InPlace;
                if only_in_place || self.settings.fixes.has(Fix::InfeasibleResizesExpire) {
                    let wanted = self.raw().unwrap_or_default();
                    let (uid, by) = (&view.pod.size.uid, RefusedBy::Server);
                    self.recall.memory.refusals.remember(uid, by, wanted, self.world.now);
                }
            }
            // What one pod's budget answers it answers to the others of its group. Upstream asks for each.
            (Action::Evict { .. }, Outcome::Disallowed)
                if self.settings.compat == Compat::Plimsoll =>
            {
                self.held.extend(view.pod.life.owner.clone());
            }
            _ => {}
        }
    }

    fn undo(&mut self, step: &Step, before: Recall) {
        if let Some(group) = self.groups.of_mut(&self.views[step.pod].pod.life) {
            let budget = &mut group.budget;
            match step.action {
                Action::Evict { .. } => budget.evicted = budget.evicted.saturating_sub(1),
                Action::Resize { .. } => budget.resized = budget.resized.saturating_sub(1),
                _ => {}
            }
        }
        self.recall = before;
    }

    fn unboost(&self, pod: usize) -> Option<Action> {
        let view = &self.views[pod];
        let (life, sizing) = (&view.pod.life, &self.subject.sizing);
        let group = self.groups.of(life).ok()?;
        if life.phase == Phase::Pending || life.is_resizing() || !self.world.can_resize {
            return None;
        }
        // Each is counted by itself, as upstream's queue does it: less CPU takes nothing down.
        let alone = Budget { evicted: 0, resized: 0, ..group.budget };
        let standing = boost::standing(&view.pod.size, &sizing.plan, self.world.now);
        let containers = standing.expired.iter().map(|&name| name.into()).collect();
        let sizes = sizing.unboost(&view.pod.size, &standing).ok()?;
        let allowed = alone.allows_one_more() || view.is_dead;
        allowed.then_some(Action::Unboost { containers, sizes })
    }

    fn evict(&mut self, pod: usize) -> Result<Turn, Skip> {
        let fixes = self.settings.fixes;
        let ours = self.settings.compat == Compat::Plimsoll;
        let worth = self.worth[pod].as_ref().ok_or(Skip::NoRecommendation)?;
        let need = worth.need;
        if fixes.has(Fix::RequirementsHoldEvictionsOnly) {
            self.meets(pod, &worth.recommendation)?;
        }
        if !self.world.is_admission_ready {
            return Err(Skip::AdmissionUnready);
        }
        let view = &self.views[pod];
        if ours && view.is_starting() && need != Need::QuickOom {
            return Err(Skip::Starting);
        }
        if view.pod.life.owner.as_ref().is_some_and(|owner| self.held.contains(owner)) {
            return Err(Skip::DisruptionBudget);
        }
        for asked in asked_of(&view.pod.size.uid, view.pod.life.owner.as_ref()) {
            self.rests(&asked)?;
        }
        if self.ends_surge {
            return Err(Skip::Surging);
        }
        let surge = self.surge(pod)?;
        if surge.is_none() {
            self.may_evict(pod)?;
        }
        if ours {
            let replacement = self.replacement(pod);
            self.subject.sizing.replaces(&self.views[pod].pod.size, replacement)?;
        }
        if let Some(action) = surge {
            return Ok(Turn::Take(action));
        }
        self.guard(pod, Charge::Disruption, true)?;
        Ok(Turn::Take(Action::Evict { need }))
    }

    /// When the place of a pod is filled. A StatefulSet needs the name of the old one for the new one; after a surge the
    /// new one is there already.
    fn replacement(&self, pod: usize) -> Replacement {
        let owner = self.views[pod].pod.life.owner.as_ref();
        let is_stateful = owner.is_some_and(|owner| &*owner.kind == "StatefulSet");
        let is_there = self.recall.memory.surge.is_some() && self.may_surge(pod);
        if is_stateful || is_there { Replacement::Afterwards } else { Replacement::Beside }
    }

    /// Whether a second pod may be started to take the place of this one.
    pub(super) fn may_surge(&self, pod: usize) -> bool {
        let view = &self.views[pod];
        let is_replica = view.pod.life.owner.as_ref().is_some_and(|it| &*it.kind == "ReplicaSet");
        self.settings.guards.surge && self.subject.surges && is_replica && !view.is_dead
    }

    /// A pod that is the only one gets a second one beside it first, where that is wanted.
    fn surge(&self, pod: usize) -> Result<Option<Action>, Skip> {
        let group = self.groups.of(&self.views[pod].pod.life)?;
        let is_single = group.live == 1 && group.budget.configured <= 1;
        match self.recall.memory.surge {
            _ if !self.may_surge(pod) => Ok(None),
            Some(_) if group.budget.running < 2 => Err(Skip::Surging),
            None if is_single => {
                if let Some(owner) = &self.views[pod].pod.life.owner {
                    self.rests(&Asked::Surge(owner.clone()))?;
                }
                self.guard(pod, Charge::Disruption, true)?;
                Ok(Some(Action::Surge))
            }
            _ => Ok(None),
        }
    }

    /// Whether the same was asked for a short while ago, and not done. Upstream asks in every pass.
    pub(super) fn rests(&self, asked: &Asked) -> Result<(), Skip> {
        if self.settings.compat == Compat::Upstream {
            return Ok(());
        }
        self.recall.rests.of(asked, self.world.now).map_or(Ok(()), |why| Err(why.clone()))
    }

    fn end_surge_rests(&self) -> bool {
        let owner = self.views.first().and_then(|view| view.pod.life.owner.clone());
        owner.is_some_and(|owner| self.rests(&Asked::Surge(owner)).is_err())
    }

    /// Remembers whether the server did what it was asked for.
    fn rest(&mut self, pod: usize, action: &Action, outcome: Outcome) {
        let Pod { size, life } = self.views[pod].pod;
        let asked = match (action, &life.owner, outcome) {
            (Action::Evict { .. }, owner, Outcome::Done) => {
                for asked in asked_of(&size.uid, owner.as_ref()) {
                    self.recall.rests.forget(&asked);
                }
                return;
            }
            (Action::Evict { .. }, Some(owner), Outcome::Disallowed) => Asked::LetGo(owner.clone()),
            (Action::Evict { .. }, ..) => Asked::Evict(size.uid.as_ref().into()),
            (Action::Resize { .. }, ..) => Asked::Resize(size.uid.as_ref().into()),
            (Action::Surge | Action::EndSurge, Some(owner), _) => Asked::Surge(owner.clone()),
            _ => return,
        };
        let rests = &mut self.recall.rests;
        match outcome {
            Outcome::Done => rests.forget(&asked),
            Outcome::Disallowed => rests.refuse(asked, Skip::DisruptionBudget, self.world.now),
            Outcome::Failed => rests.refuse(asked, Skip::Failed, self.world.now),
            // A node that has no room is remembered for longer; what was not tried, or may be done, is another matter.
            Outcome::NoCapacity | Outcome::Unsure | Outcome::NotBooked | Outcome::Changed => {}
        }
    }

    /// Books a step.
    fn take(&mut self, pod: usize, action: Action) -> Step {
        let before = self.recall.clone();
        let mode = self.subject.sizing.plan.mode();
        let falls_back =
            matches!(action, Action::Resize { .. }) && mode == UpdateMode::InPlaceOrRecreate;
        let now = self.world.now;
        self.count(pod, &action);
        match &action {
            Action::Surge => {
                self.recall.memory.surge = Some(Surge { at: now, evicted: false });
            }
            Action::EndSurge => self.recall.memory.surge = None,
            Action::Unboost { .. } => {}
            Action::Evict { .. } => {
                self.book(pod, Touched::Evicted, None, Charge::Disruption, now);
                if let Some(surge) = &mut self.recall.memory.surge {
                    surge.evicted = true;
                }
            }
            Action::Resize { sizes, restarts, .. } => {
                let wrote = self.hash_with(pod, sizes);
                let charge = if *restarts { Charge::Disruption } else { Charge::Resize };
                self.book(pod, Touched::Resized, Some(wrote), charge, now);
            }
        }
        let is_booked = self.recall != before;
        let step = Step { pod, action, is_booked };
        self.current = Some(Current { step: step.clone(), before, falls_back });
        step
    }

    fn count(&mut self, pod: usize, action: &Action) {
        let life = &self.views[pod].pod.life;
        let is_down = self.views[pod].candidate().is_down
            && self.settings.fixes.has(Fix::OnlyReadyPodsAreAlive);
        let Some(group) = self.groups.of_mut(life) else { return };
        match action {
            // A pod that is down already takes nothing from the others.
            Action::Evict { .. } if life.phase != Phase::Pending && !is_down => {
                group.budget.evicted += 1;
            }
            Action::Resize { .. } if !is_down => group.budget.resized += 1,
            _ => {}
        }
    }

    fn book(&mut self, pod: usize, what: Touched, wrote: Option<u64>, charge: Charge, now: Time) {
        if !self.settings.guards.remembers() {
            return;
        }
        let entry = self.entry(pod).unwrap_or(Entry::Follows);
        let condition = self.condition_of_all();
        let target = self.worth[pod].as_ref().map(|worth| wanted(&worth.recommendation));
        let life = &self.views[pod].pod.life;
        let (restarts, generation) = (life.restarts(), life.generation);
        let uid = self.views[pod].pod.size.uid.clone();
        let is_eviction = what == Touched::Evicted;
        let Recall { memory, ledger, .. } = &mut self.recall;
        let guards = &self.settings.guards;
        memory.begin(entry, is_eviction, condition, target.unwrap_or_default(), guards, now);
        memory.note(Touch { uid, at: now, what, wrote, generation, restarts });
        if is_eviction {
            ledger.try_out(self.subject.vpa, guards, now);
        }
        ledger.book(&self.subject.vpa.namespace, charge, is_eviction, now);
    }

    /// A hash over the spec of a pod that was given these sizes.
    fn hash_with(&self, pod: usize, sizes: &[sizing::Size]) -> u64 {
        let size = &self.views[pod].pod.size;
        let specs: Vec<(&str, sizing::Resources)> = size
            .sized(self.subject.sizing.rules.sidecars)
            .map(|(place, one)| {
                let new = sizes.iter().find(|size| size.place == place);
                (&*one.name, new.map_or_else(|| one.spec.clone(), |new| new.applied(&one.spec)))
            })
            .collect();
        spec_hash(specs.iter().map(|(name, spec)| (*name, spec)))
    }
}

/// What an eviction of this pod asks for.
fn asked_of(uid: &str, owner: Option<&Owner>) -> impl Iterator<Item = Asked> + use<> {
    let all_of_it = owner.map(|owner| Asked::LetGo(owner.clone()));
    all_of_it.into_iter().chain([Asked::Evict(uid.into())])
}
