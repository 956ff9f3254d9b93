//! One pass over the pods of one VPA, one step after another: what each step costs counts for the next one.
//!
//! ```text
//! Pass::begin ─▶ next ─▶ Step ─▶ (book, act) ─▶ note(Outcome) ─▶ next … ─▶ end ─▶ Decision
//! ```

mod candidates;
mod gate;
mod resizing;
mod told;
mod view;
mod walk;
mod watch;

use std::collections::{BTreeSet, VecDeque};

use crate::types::{Time, VpaKey};

use self::view::View;
pub use self::{told::Told, view::Pod, walk::Next};
use super::{
    acceptance::Need,
    action::{Outcome, Step, Verdict},
    group::{Groups, Wanted},
    guard::{Harm, Heartbeat, Ledger, Memory, WindowState, ledger::Sizes, rollout::Progress},
    in_place::FirstSeen,
    life::Owner,
    priority::Priority,
    rests::Rests,
    settings::Settings,
    sizing::Sizing,
    skip::Skip,
};
use crate::api::vpa::Recommendation;

/// A VPA with its pods.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The VPA.
    pub vpa: &'a VpaKey,
    /// Its generation.
    pub generation: Option<i64>,
    /// How its pods are sized.
    pub sizing: Sizing<'a>,
    /// Whether its change windows are open at the time of the pass.
    pub window: WindowState,
    /// Whether it can be given a second replica for a while.
    pub surges: bool,
    /// Its live pods, those that are being deleted left out.
    pub pods: &'a [Pod],
}

/// What is the same for all VPAs.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// How many pods a controller wants.
    pub wanted: &'a (dyn Fn(&Owner) -> Wanted + Sync),
    /// How large cluster and namespace are.
    pub sizes: Sizes,
    /// What was seen of the recommender.
    pub heartbeat: Heartbeat,
    /// Whether new pods will be sized.
    pub is_admission_ready: bool,
    /// Whether the server can resize pods.
    pub can_resize: bool,
    /// The time.
    pub now: Time,
}

/// What is remembered from pass to pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recall {
    /// Of the workload; on its VPA.
    pub memory: Memory,
    /// Of the cluster; in the Lease.
    pub ledger: Ledger,
    /// Upstream's clock of resizes; nowhere but here.
    pub first_seen: FirstSeen,
    /// What the server did not do when it was asked; nowhere but here.
    pub rests: Rests,
}

/// What came of a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What was done, in order, with what came of it.
    pub steps: Vec<(Step, Outcome)>,
    /// What became of each pod, in the order of the pods.
    pub verdicts: Vec<Verdict>,
    /// Pods that could have been changed: those that were worth it and might have been.
    pub candidates: usize,
    /// Pods that were left alone because a resize of them is known to be impossible, where nothing else may be tried.
    pub known_infeasible: usize,
    /// What got worse by the last changes, if that was found in this pass.
    pub harm: Option<Harm>,
    /// Whether it was found in this pass that somebody else writes other values.
    pub rewritten: bool,
    /// What is to be remembered.
    pub recall: Recall,
}

/// A pass that is being made.
pub struct Pass<'a> {
    subject: Subject<'a>,
    world: World<'a>,
    settings: &'a Settings,
    recall: Recall,
    views: Vec<View<'a>>,
    groups: Groups,
    progress: Progress,
    queue: VecDeque<Queued>,
    /// What each candidate needs, by pod.
    worth: Vec<Option<Worth>>,
    verdicts: Vec<Option<Verdict>>,
    candidates: usize,
    known_infeasible: usize,
    /// Owners whose pods the server does not let go.
    held: BTreeSet<Owner>,
    /// Whether a second replica is taken back though no pod went: none goes then, or both might.
    ends_surge: bool,
    current: Option<Current>,
    steps: Vec<(Step, Outcome)>,
    harm: Option<Harm>,
    rewritten: bool,
}

/// What is still to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queued {
    EndSurge,
    Unboost(usize),
    InPlace(usize),
    Evict(usize),
}

/// Why a pod is worth a change.
#[derive(Clone, Debug)]
struct Worth {
    need: Need,
    priority: Priority,
    recommendation: Recommendation,
}

/// The step under way, with what was remembered before it was booked.
struct Current {
    step: Step,
    before: Recall,
    /// Whether the pod is evicted where a resize fails.
    falls_back: bool,
}

impl<'a> Pass<'a> {
    /// Looks at all pods.
    pub fn begin(
        subject: Subject<'a>,
        world: World<'a>,
        settings: &'a Settings,
        recall: Recall,
    ) -> Self {
        let views = view::all(&subject, &recall.memory, settings, world.now);
        let groups = view::groups(&subject, &views, &world, settings);
        let mut pass = Self {
            worth: subject.pods.iter().map(|_| None).collect(),
            verdicts: vec![None; subject.pods.len()],
            subject,
            world,
            settings,
            recall,
            views,
            groups,
            progress: Progress::default(),
            queue: VecDeque::new(),
            candidates: 0,
            known_infeasible: 0,
            held: BTreeSet::new(),
            ends_surge: false,
            current: None,
            steps: Vec::new(),
            harm: None,
            rewritten: false,
        };
        pass.look_back();
        pass.choose();
        pass
    }

    /// Leaves boosts as they are: somebody else takes them back when they are over.
    #[must_use]
    pub fn without_unboosts(mut self) -> Self {
        self.queue.retain(|queued| !matches!(queued, Queued::Unboost(_)));
        self
    }

    /// Takes back boosts that are over, and does nothing else.
    #[must_use]
    pub fn only_unboosts(mut self) -> Self {
        self.queue.retain(|queued| matches!(queued, Queued::Unboost(_)));
        self
    }

    /// What is to be remembered when the step under way is made: to be written before it, where it is booked.
    pub fn recall(&self) -> &Recall {
        &self.recall
    }

    /// Ends the pass: what was not looked at stays as it is.
    pub fn end(self) -> Decision {
        let left = |verdict: Option<Verdict>| verdict.unwrap_or(Verdict::Skipped(Skip::PassEnded));
        Decision {
            steps: self.steps,
            verdicts: self.verdicts.into_iter().map(left).collect(),
            candidates: self.candidates,
            known_infeasible: self.known_infeasible,
            harm: self.harm,
            rewritten: self.rewritten,
            recall: self.recall,
        }
    }

    fn skip(&mut self, pod: usize, why: Skip) {
        if let Some(verdict) = self.verdicts.get_mut(pod) {
            *verdict = Some(Verdict::Skipped(why));
        }
    }
}

/// The whole pass, as if every step were done: what a dry run says, and `explain`.
pub fn decide(
    subject: Subject<'_>,
    world: World<'_>,
    settings: &Settings,
    recall: Recall,
) -> Decision {
    let mut pass = Pass::begin(subject, world, settings, recall);
    while pass.next().is_some() {
        pass.note(Outcome::Done);
    }
    pass.end()
}
