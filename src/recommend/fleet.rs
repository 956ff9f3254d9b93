//! All VPAs of one recommender: what each says about itself, what is remembered of it, and what was last
//! decided. Plain data in, decisions out.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    ops::Bound,
    sync::Arc,
};

use plimsoll_storage::{Key, Record, Snapshot, Time, VpaKey};

use super::{
    advice::Advice,
    container::{ContainerHistory, OomKill},
    directives::Directives,
    history::{History, Restored},
    policy,
    recommendation::{Recommendation, recommend},
    remembered::BadSnapshot,
    room::{self, Room},
    settings::{Rules, Settings},
    window::Rejected,
};
use crate::{
    compat::{Compat, Fix},
    units::{Bytes, MilliCpu},
};

/// What the recommender knows and decides, for all of its VPAs.
#[derive(Debug)]
pub struct Fleet {
    settings: Settings,
    compat: Compat,
    /// Most that all containers of a pod may be told to request together.
    room: Room,
    vpas: HashMap<VpaKey, Watched>,
    /// Their keys in order, for those who visit them a page at a time.
    order: BTreeSet<VpaKey>,
}

/// How far the stored history of a VPA has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HistoryState {
    /// It was not read yet: nothing is recommended, and nothing is written over it.
    #[default]
    Waiting,
    /// It is part of what is known.
    Loaded,
    /// It cannot be read, and the recommender was told to go on without.
    Missing,
}

impl HistoryState {
    /// As metrics and explanations name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "loading",
            Self::Loaded => "loaded",
            Self::Missing => "missing",
        }
    }
}

/// One VPA.
#[derive(Debug, Default)]
pub struct Watched {
    directives: Directives,
    created: Time,
    /// Topmost scalable owner of the pods, once it is known.
    owner: Option<Box<str>>,
    history: History,
    state: HistoryState,
    advice: Box<[Advice]>,
    advised: bool,
    /// Since when it has had no recommendation.
    empty_since: Option<Time>,
    unsaved: Option<Unsaved>,
    /// What is being written.
    saving: Option<Unsaved>,
    last_saved: Option<Time>,
    last_sample: Option<Time>,
}

/// What happened since the last save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unsaved {
    since: Time,
    /// An out-of-memory kill is part of it: it goes first.
    urgent: bool,
}

/// One usage of one container.
#[derive(Clone, Copy, Debug)]
pub struct Usage<'a> {
    /// Name of the pod.
    pub pod: &'a str,
    /// Name of the container.
    pub container: &'a str,
    /// When it was measured.
    pub at: Time,
    /// CPU, when it is known.
    pub cpu: Option<MilliCpu>,
    /// Memory, when it is known.
    pub memory: Option<Bytes>,
}

/// What became of a usage: each resource that was there, taken or refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// CPU.
    pub cpu: Option<Result<(), Rejected>>,
    /// Memory.
    pub memory: Option<Result<(), Rejected>>,
}

/// What became of a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillOutcome {
    /// It counts.
    Counted,
    /// It is part of the history already.
    Known,
    /// It lies before everything that history holds.
    Expired,
    /// It may have happened before this process began, and such kills are not wanted.
    Ignored,
    /// The history refused it.
    Refused(Rejected),
    /// Nobody asked about that container.
    Untracked,
}

/// A VPA whose stored history is to be read.
pub type Waiting<'a> = (&'a VpaKey, Option<&'a str>);

impl Fleet {
    /// A fleet without any VPA.
    pub fn new(settings: Settings, compat: Compat) -> Self {
        Self {
            settings,
            compat,
            room: Room::default(),
            vpas: HashMap::new(),
            order: BTreeSet::new(),
        }
    }

    /// The settings of the model.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sets how much all containers of a pod may be told to request together.
    pub fn set_room(&mut self, room: Room) {
        self.room = room;
    }

    /// How much that is.
    pub fn room(&self) -> Room {
        self.room
    }

    /// Takes over what a VPA says about itself.
    pub fn track(&mut self, key: &VpaKey, directives: Directives, created: Time) {
        match self.vpas.entry(key.clone()) {
            Entry::Occupied(entry) => {
                let watched = entry.into_mut();
                watched.directives = directives;
                watched.created = created;
            }
            Entry::Vacant(entry) => {
                self.order.insert(key.clone());
                entry.insert(Watched { directives, created, ..Watched::default() });
            }
        }
    }

    /// Forgets a VPA. Its stored history stays, until it is collected as an orphan.
    pub fn untrack(&mut self, key: &VpaKey) {
        self.vpas.remove(key);
        self.order.remove(key);
    }

    /// Notes the topmost owner of a VPA's pods. Another one than before means another workload: what is
    /// remembered does not tell of it, and the stored history is looked for anew.
    pub fn set_owner(&mut self, key: &VpaKey, owner: &str) {
        let Some(watched) = self.vpas.get_mut(key) else { return };
        if watched.owner.as_deref() == Some(owner) {
            return;
        }
        let of_another = |(_, container): (_, &ContainerHistory)| {
            container.owner().is_some_and(|it| it != owner)
        };
        if watched.owner.is_some() || watched.history.iter().any(of_another) {
            let names: Vec<Arc<str>> =
                watched.history.iter().map(|(name, _)| Arc::clone(name)).collect();
            watched.history = History::default();
            for name in names {
                watched.history.outdate(name);
            }
            watched.state = HistoryState::Waiting;
            watched.unsaved = None;
        }
        watched.owner = Some(owner.into());
    }

    /// Number of VPAs.
    pub fn len(&self) -> usize {
        self.vpas.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.vpas.is_empty()
    }

    /// Number of containers with a history.
    pub fn containers(&self) -> usize {
        self.vpas.values().map(|watched| watched.history.len()).sum()
    }

    /// One VPA.
    pub fn get(&self, key: &VpaKey) -> Option<&Watched> {
        self.vpas.get(key)
    }

    /// The keys of all VPAs in order, from the first one after `after` on.
    pub fn keys_after<'a>(&'a self, after: Option<&VpaKey>) -> impl Iterator<Item = &'a VpaKey> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.order.range((from, Bound::Unbounded))
    }

    /// The VPAs whose stored history is to be read, with the owner of their pods.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting<'_>> {
        let waiting = |(_, watched): &(&VpaKey, &Watched)| watched.state == HistoryState::Waiting;
        self.vpas.iter().filter(waiting).map(|(key, watched)| (key, watched.owner.as_deref()))
    }

    /// Takes in what a storage remembers of a container, on top of what was seen since.
    pub fn restore(
        &mut self,
        key: &Key,
        snapshot: &Snapshot,
        now: Time,
    ) -> Result<Restored, BadSnapshot> {
        self.remember(key, snapshot, now, false)
    }

    /// Takes what a storage remembers in place of what is known, if it saw more.
    pub fn adopt(
        &mut self,
        key: &Key,
        snapshot: &Snapshot,
        now: Time,
    ) -> Result<Restored, BadSnapshot> {
        self.remember(key, snapshot, now, true)
    }

    fn remember(
        &mut self,
        key: &Key,
        snapshot: &Snapshot,
        now: Time,
        in_place: bool,
    ) -> Result<Restored, BadSnapshot> {
        let Some(watched) = self.vpas.get_mut(&key.vpa) else { return Ok(Restored::Expired) };
        // The same name was given to another workload: what is stored tells nothing of this one.
        let foreign = watched.owner.as_deref().zip(snapshot.owner.as_deref());
        if foreign.is_some_and(|(ours, theirs)| ours != theirs) {
            watched.history.outdate(Arc::clone(&key.container));
            return Ok(Restored::Expired);
        }
        let rules = watched.directives.rules(None, &self.settings);
        let remembered = ContainerHistory::from_snapshot(snapshot, now, &rules)
            .inspect_err(|_| watched.history.outdate(Arc::clone(&key.container)))?;
        if in_place {
            let ours = watched.history.get(&key.container);
            if ours.is_some_and(|ours| ours.richness() >= snapshot.richness()) {
                return Ok(Restored::Already);
            }
            watched.history.remove(&key.container);
        }
        Ok(watched.history.restore(Arc::clone(&key.container), remembered, now, &rules))
    }

    /// Notes how reading the stored history of a VPA ended.
    pub fn set_history_state(&mut self, key: &VpaKey, state: HistoryState) {
        if let Some(watched) = self.vpas.get_mut(key) {
            watched.state = state;
        }
    }

    /// Notes that a live pod has this container.
    pub fn see_container(&mut self, key: &VpaKey, container: &str, now: Time) {
        let Some(watched) = self.vpas.get_mut(key) else { return };
        let rules = watched.directives.rules(watched.history.get(container), &self.settings);
        let history = watched.history.container_mut(container, now, &rules);
        watched.directives.govern(container, history, &self.settings);
    }

    /// Takes a usage.
    pub fn take_usage(&mut self, key: &VpaKey, usage: Usage<'_>, now: Time) -> Option<Taken> {
        let watched = self.vpas.get_mut(key)?;
        let Usage { pod, container, at, cpu, memory } = usage;
        let rules = watched.directives.rules(watched.history.get(container), &self.settings);
        let history = watched.history.container_mut(container, now, &rules);
        let taken = Taken {
            cpu: cpu.map(|cpu| history.add_cpu(pod, at, cpu, &rules)),
            memory: memory.map(|memory| history.add_memory(pod, at, memory, &rules)),
        };
        if taken.cpu == Some(Ok(())) || taken.memory == Some(Ok(())) {
            watched.last_sample = watched.last_sample.max(Some(at));
            watched.change(now, false);
        }
        Some(taken)
    }

    /// Takes an out-of-memory kill. One that may have happened long ago is held against what history reaches.
    pub fn take_kill(
        &mut self,
        key: &VpaKey,
        (pod, container): (&str, &str),
        (at, kill): (Time, OomKill),
        may_be_old: bool,
        now: Time,
    ) -> KillOutcome {
        let Some(watched) = self.vpas.get_mut(key) else { return KillOutcome::Untracked };
        let known = watched.history.get(container);
        let rules = watched.directives.rules(known, &self.settings);
        if may_be_old && at < now.earlier(rules.memory_span()) {
            return KillOutcome::Expired;
        }
        if known.is_some_and(|known| known.knows_kill(pod, at, &rules)) {
            return KillOutcome::Known;
        }
        let history = watched.history.container_mut(container, now, &rules);
        match history.record_oom(pod, at, kill, &rules) {
            Ok(()) => {
                watched.change(now, true);
                KillOutcome::Counted
            }
            Err(rejected) => KillOutcome::Refused(rejected),
        }
    }

    /// Takes an out-of-memory kill that a pod showed when it was first seen: nobody may have watched when it
    /// happened, or an earlier process may have counted it.
    pub fn take_kill_at_first_sight(
        &mut self,
        key: &VpaKey,
        whose: (&str, &str),
        told: (Time, OomKill),
        now: Time,
    ) -> KillOutcome {
        if !self.settings.fixes.has(Fix::KillsInDowntimeCount) {
            return KillOutcome::Ignored;
        }
        self.take_kill(key, whose, told, true, now)
    }

    /// Forgets what was kept for single pods that are gone; what they used stays.
    pub fn retain_pods(&mut self, key: &VpaKey, lives: impl Fn(&str) -> bool) {
        let Some(watched) = self.vpas.get_mut(key) else { return };
        for (_, container) in watched.history.iter_mut() {
            if !container.replicas().all(&lives) {
                container.retain_replicas(&lives);
            }
        }
    }

    /// Works out what the containers of a VPA should request. `None` while its history is not loaded.
    pub fn recommend(&self, key: &VpaKey, now: Time) -> Option<Recommendation> {
        let watched = self.vpas.get(key).filter(|it| it.state != HistoryState::Waiting)?;
        let mut said = recommend(&watched.directives, &watched.history, &self.settings, now);
        room::fit(&mut said, self.room);
        Some(said)
    }

    /// Keeps what was decided, for metrics and for judging samples to come. Answers how long it took from
    /// the VPA's creation when this is its first recommendation.
    pub fn keep_advice(
        &mut self,
        key: &VpaKey,
        said: &Recommendation,
        now: Time,
    ) -> Option<std::time::Duration> {
        let watched = self.vpas.get_mut(key)?;
        watched.advice = said
            .containers
            .iter()
            .map(|one| {
                let history = watched.history.get(&one.container);
                let rules = watched.directives.rules(history, &self.settings);
                Advice::new(one, history, &rules)
            })
            .collect();
        watched.empty_since = match (said.containers.is_empty(), watched.empty_since) {
            (true, since) => since.or(Some(now)),
            (false, _) => None,
        };
        let first = !watched.advised && !said.containers.is_empty();
        watched.advised |= first;
        let took = now.nanos_since(watched.created);
        first.then(|| std::time::Duration::from_nanos(u64::try_from(took).unwrap_or(0)))
    }

    /// Notes that a VPA had a recommendation before this process began.
    pub fn was_advised(&mut self, key: &VpaKey) {
        if let Some(watched) = self.vpas.get_mut(key) {
            watched.advised = true;
        }
    }

    /// Forgets containers whose history says nothing any more, and answers their keys.
    pub fn forget_expired(&mut self, now: Time) -> Vec<Key> {
        let settings = &self.settings;
        let mut gone = Vec::new();
        for (key, watched) in &mut self.vpas {
            let names = watched.history.forget_expired(now, &watched.directives, settings);
            gone.extend(names.into_iter().map(|name| Key::new(key.clone(), name)));
        }
        gone
    }

    /// The VPAs that are to be saved, the most urgent first: those with an out-of-memory kill, then those
    /// whose last save lies longest ago, once their oldest change has that age.
    pub fn due(&self, now: Time, age: std::time::Duration, most: usize) -> Vec<VpaKey> {
        let mut due: Vec<(bool, Option<Time>, &VpaKey)> = self
            .vpas
            .iter()
            .filter(|(_, watched)| watched.state != HistoryState::Waiting)
            .filter_map(|(key, watched)| {
                let unsaved = watched.unsaved?;
                // What was never saved has nothing to fall back to.
                let ripe = unsaved.urgent
                    || watched.last_saved.is_none()
                    || now >= unsaved.since.later(age)
                    || now < unsaved.since;
                ripe.then_some((!unsaved.urgent, watched.last_saved, key))
            })
            .collect();
        if due.len() > most {
            due.select_nth_unstable(most);
            due.truncate(most);
        }
        due.sort_unstable();
        due.into_iter().map(|(_, _, key)| key.clone()).collect()
    }

    /// Number of VPAs with changes that are not saved, and since when the oldest is waiting.
    pub fn unsaved(&self) -> (usize, Option<Time>) {
        let changes = || self.vpas.values().filter_map(|watched| watched.unsaved);
        (changes().count(), changes().map(|unsaved| unsaved.since).min())
    }

    /// Everything that is remembered of a VPA, to be saved. What happens from now on is another change, to be
    /// saved another time.
    pub fn records(&mut self, key: &VpaKey, now: Time) -> Vec<Record> {
        let Some(watched) = self.vpas.get_mut(key) else { return Vec::new() };
        watched.saving = watched.unsaved.take().or(watched.saving);
        let owner = watched.owner.clone();
        let Watched { directives, history, .. } = watched;
        let mut records = Vec::with_capacity(history.len());
        for (name, container) in history.iter_mut() {
            if let Some(owner) = &owner
                && container.owner() != Some(owner)
            {
                container.set_owner(owner.clone());
            }
            let rules = directives.rules(Some(container), &self.settings);
            let snapshot = container.to_snapshot(now, &rules);
            records.push(Record::new(Key::new(key.clone(), Arc::clone(name)), snapshot));
        }
        for record in &mut records {
            record.supersede = history.supersedes(&record.key.container);
        }
        records
    }

    /// Notes that a VPA was saved.
    pub fn saved(&mut self, key: &VpaKey, containers: &[Arc<str>], now: Time) {
        let Some(watched) = self.vpas.get_mut(key) else { return };
        for container in containers {
            watched.history.saved(container);
        }
        watched.saving = None;
        watched.last_saved = Some(now);
    }

    /// Notes that a VPA could not be saved: it is as due as it was.
    pub fn not_saved(&mut self, key: &VpaKey) {
        let Some(watched) = self.vpas.get_mut(key) else { return };
        watched.unsaved = match (watched.saving.take(), watched.unsaved) {
            (Some(before), Some(since)) => {
                Some(Unsaved { since: before.since, urgent: before.urgent || since.urgent })
            }
            (before, since) => before.or(since),
        };
    }

    /// Notes that a stored history of this VPA was read: it need not be written before it is due.
    pub fn was_stored(&mut self, key: &VpaKey, now: Time) {
        if let Some(watched) = self.vpas.get_mut(key) {
            watched.last_saved = watched.last_saved.or(Some(now));
        }
    }

    /// Whether the mode is upstream's.
    pub fn is_upstream(&self) -> bool {
        self.compat == Compat::Upstream
    }

    /// The rules by which a container's samples are taken.
    pub fn rules(&self, key: &VpaKey, container: &str) -> Option<Rules> {
        let watched = self.vpas.get(key)?;
        Some(watched.directives.rules(watched.history.get(container), &self.settings))
    }
}

impl Watched {
    /// What it says about itself.
    pub fn directives(&self) -> &Directives {
        &self.directives
    }

    /// What is remembered.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// How far its stored history has come.
    pub fn state(&self) -> HistoryState {
        self.state
    }

    /// The topmost owner of its pods.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// What was last decided, by container.
    pub fn advice(&self) -> &[Advice] {
        &self.advice
    }

    /// What was last decided about a container.
    pub fn advice_for(&self, container: &str) -> Option<&Advice> {
        let index = self.advice.binary_search_by(|known| (*known.container).cmp(container));
        index.ok().map(|index| &self.advice[index])
    }

    /// Whether a policy switches this container off.
    pub fn is_off(&self, container: &str) -> bool {
        policy::find(&self.directives.policies, container).is_some_and(|policy| policy.off)
    }

    /// When the latest sample was measured.
    pub fn last_sample(&self) -> Option<Time> {
        self.last_sample
    }

    /// Since when it has had no recommendation.
    pub fn empty_since(&self) -> Option<Time> {
        self.empty_since
    }

    fn change(&mut self, now: Time, urgent: bool) {
        self.unsaved = Some(match self.unsaved {
            Some(known) => Unsaved { since: known.since, urgent: known.urgent || urgent },
            None => Unsaved { since: now, urgent },
        });
    }
}
