//! Lookups of owners at the API server, which match pods to VPAs. They run concurrently with a limit for each kind, so that
//! a kind whose requests hang (because its conversion webhook is down, for example) delays no other kind.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::Future,
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::{
    cluster::target::scale::ObjectReference, controllers::runtime::loop_watchdog::LoopWatchdog,
};

const MAX_CONCURRENT: usize = 8;
const MAX_CONCURRENT_PER_KIND: usize = 2;
/// After a request took this long, no more requests for its kind are made in the same pass.
const SLOW_AFTER: Duration = Duration::from_secs(5);
/// Time limit for all lookups of a pass. Owners that are not resolved by then are unknown in this pass.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(20);

type Kind = (Box<str>, Box<str>);

/// State that is kept from pass to pass about kinds.
#[derive(Debug, Default)]
pub(crate) struct OwnerLookups(Mutex<LookupHistory>);

#[derive(Clone, Debug, Default)]
struct LookupHistory {
    /// Kinds whose last request was slow. They are looked up after the others.
    slow_kinds: BTreeSet<Kind>,
    /// Counts passes, to start with other objects of a kind each time.
    passes: usize,
}

#[derive(Debug)]
pub(crate) struct PassLookups<'a> {
    owner_lookups: &'a OwnerLookups,
    loop_watchdog: Option<&'a LoopWatchdog>,
    history: LookupHistory,
    slow_kinds: BTreeSet<Kind>,
    /// Kinds with a request that was not slow.
    fast_kinds: BTreeSet<Kind>,
    kinds: BTreeSet<Kind>,
    deadline: Instant,
}

impl OwnerLookups {
    /// Starts the lookups of one pass. Each response ticks the watchdog.
    pub fn start_pass<'a>(&'a self, loop_watchdog: Option<&'a LoopWatchdog>) -> PassLookups<'a> {
        let mut history = self.0.lock();
        history.passes = history.passes.wrapping_add(1);
        let snapshot = history.clone();
        PassLookups {
            owner_lookups: self,
            loop_watchdog,
            history: snapshot,
            slow_kinds: BTreeSet::new(),
            fast_kinds: BTreeSet::new(),
            kinds: BTreeSet::new(),
            deadline: Instant::now() + LOOKUP_TIMEOUT,
        }
    }
}

impl Drop for PassLookups<'_> {
    fn drop(&mut self) {
        let mut history = self.owner_lookups.0.lock();
        let is_still_slow =
            |kind: &Kind| self.kinds.contains(kind) && !self.fast_kinds.contains(kind);
        history.slow_kinds.retain(is_still_slow);
        history.slow_kinds.append(&mut self.slow_kinds);
    }
}

struct KindQueue<Q> {
    kind: Kind,
    pending: VecDeque<Q>,
    in_flight: usize,
    last_request: Instant,
}

impl PassLookups<'_> {
    /// Runs `fetch` for each lookup, given with the object that it reads. Returns the results that arrive in time, in any
    /// order.
    pub async fn run_all<Q, F: Future>(
        &mut self,
        lookups: Vec<(ObjectReference, Q)>,
        fetch: impl Fn(Q) -> F,
    ) -> Vec<F::Output> {
        let mut queues = self.queues(lookups);
        self.kinds.extend(queues.iter().map(|queue| queue.kind.clone()));
        let (mut in_flight, mut results) = (FuturesUnordered::new(), Vec::new());
        loop {
            for (index, queue) in queues.iter_mut().enumerate() {
                let capacity = MAX_CONCURRENT.saturating_sub(in_flight.len());
                let capacity =
                    capacity.min(MAX_CONCURRENT_PER_KIND.saturating_sub(queue.in_flight));
                let capacity = if self.slow_kinds.contains(&queue.kind) { 0 } else { capacity };
                let next = queue.pending.drain(..capacity.min(queue.pending.len()));
                for lookup in next {
                    queue.in_flight += 1;
                    queue.last_request = Instant::now();
                    let (started, result) = (queue.last_request, fetch(lookup));
                    in_flight.push(async move { (index, result.await, started.elapsed()) });
                }
            }
            let Ok(Some((index, result, took))) = timeout_at(self.deadline, in_flight.next()).await
            else {
                break;
            };
            if let Some(watchdog) = self.loop_watchdog {
                watchdog.tick();
            }
            let queue = &mut queues[index];
            queue.in_flight -= 1;
            let speed_set =
                if took >= SLOW_AFTER { &mut self.slow_kinds } else { &mut self.fast_kinds };
            if !speed_set.contains(&queue.kind) {
                speed_set.insert(queue.kind.clone());
            }
            results.push(result);
        }
        let is_slow = |queue: &&KindQueue<Q>| {
            queue.in_flight > 0 && queue.last_request.elapsed() >= SLOW_AFTER
        };
        self.slow_kinds.extend(queues.iter().filter(is_slow).map(|queue| queue.kind.clone()));
        results
    }

    fn queues<Q>(&self, lookups: Vec<(ObjectReference, Q)>) -> Vec<KindQueue<Q>> {
        let mut kinds: BTreeMap<Kind, VecDeque<Q>> = BTreeMap::new();
        for (object, lookup) in lookups {
            kinds.entry((object.api_version, object.kind)).or_default().push_back(lookup);
        }
        let queue = |(kind, mut pending): (Kind, VecDeque<Q>)| {
            pending.rotate_left(self.history.passes % pending.len().max(1));
            KindQueue { kind, pending, in_flight: 0, last_request: Instant::now() }
        };
        let mut queues: Vec<KindQueue<Q>> = kinds.into_iter().map(queue).collect();
        queues.sort_by_key(|queue| self.history.slow_kinds.contains(&queue.kind));
        queues
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use super::*;

    fn object(kind: &str, name: usize) -> ObjectReference {
        ObjectReference {
            namespace: "shop".into(),
            api_version: "example.com/v1".into(),
            kind: kind.into(),
            name: name.to_string().into(),
        }
    }

    fn lookups_of(kinds: &[(&str, usize)]) -> Vec<(ObjectReference, ObjectReference)> {
        let objects = kinds
            .iter()
            .flat_map(|&(kind, count)| (0..count).map(move |index| object(kind, index)));
        objects.map(|key| (key.clone(), key)).collect()
    }

    /// A hanging request takes ten seconds, the timeout of a request.
    async fn answer(key: ObjectReference) -> (Box<str>, bool) {
        let hangs = key.kind.starts_with("Hanging");
        tokio::time::sleep(Duration::from_millis(if hangs { 10_000 } else { 20 })).await;
        (key.kind, !hangs)
    }

    fn count(answers: &[(Box<str>, bool)], kind: &str) -> usize {
        answers.iter().filter(|(of, _)| **of == *kind).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_whose_scale_hangs_does_not_delay_other_kinds() {
        let lookups = OwnerLookups::default();
        let all = [("Hanging", 300), ("Well", 100)];
        let began = Instant::now();
        let mut pass = lookups.start_pass(None);
        let answers = pass.run_all(lookups_of(&all), answer).await;
        assert_eq!((count(&answers, "Well"), count(&answers, "Hanging")), (100, 2));
        assert!(began.elapsed() < LOOKUP_TIMEOUT, "{:?}", began.elapsed());
        // A hanging kind is not requested again in the same pass.
        let before = Instant::now();
        let more = pass.run_all(lookups_of(&all), answer).await;
        assert_eq!((count(&more, "Well"), count(&more, "Hanging")), (100, 0));
        assert!(before.elapsed() < SLOW_AFTER);
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_kinds_do_not_exceed_the_pass_timeout_and_are_last_in_the_next_pass() {
        let lookups = OwnerLookups::default();
        let names: Vec<String> = (0..20).map(|number| format!("Hanging{number}")).collect();
        let mut all: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 40)).collect();
        all.push(("Well", 40));
        let began = Instant::now();
        lookups.start_pass(None).run_all(lookups_of(&all), answer).await;
        assert!(began.elapsed() <= LOOKUP_TIMEOUT, "{:?}", began.elapsed());
        let mut well = 0;
        for _ in 0..5 {
            let began = Instant::now();
            let answers = lookups.start_pass(None).run_all(lookups_of(&all), answer).await;
            assert!(began.elapsed() <= LOOKUP_TIMEOUT, "{:?}", began.elapsed());
            well = well.max(count(&answers, "Well"));
        }
        assert_eq!(well, 40);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_lookups_are_limited() {
        let (now, most) = (Rc::new(Cell::new(0_usize)), Rc::new(Cell::new(0_usize)));
        let ask = |key: ObjectReference| {
            let (now, most) = (Rc::clone(&now), Rc::clone(&most));
            async move {
                now.set(now.get() + 1);
                most.set(most.get().max(now.get()));
                let answer = answer(key).await;
                now.set(now.get() - 1);
                answer
            }
        };
        let all = [("A", 30), ("B", 30), ("C", 30), ("D", 30), ("E", 30)];
        let answers = OwnerLookups::default().start_pass(None).run_all(lookups_of(&all), ask).await;
        assert_eq!((answers.len(), most.get()), (150, MAX_CONCURRENT));
    }
}
