//! What has to be asked of the API server to know the pods of VPAs: several questions at once, and few of one kind, so that
//! a kind whose answers hang (its conversion webhook is away, for example) holds up nobody else.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::Future,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::{Instant, timeout_at};

use crate::{
    cluster::target::scale::ObjectReference, controllers::runtime::loop_watchdog::LoopWatchdog,
};

/// Questions under way at once.
const MAX_CONCURRENT: usize = 8;
/// Those of them that are about one kind.
const MAX_CONCURRENT_PER_KIND: usize = 2;
/// A kind of which an answer took so long is not asked about again in the same pass.
const SLOW_AFTER: Duration = Duration::from_secs(5);
/// All questions of a pass together may take so long. What was not answered by then is not known in this pass.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(20);

/// API version and kind.
type Kind = (Box<str>, Box<str>);

/// What is remembered from pass to pass about kinds.
#[derive(Debug, Default)]
pub(super) struct OwnerLookups(Mutex<LookupHistory>);

#[derive(Clone, Debug, Default)]
struct LookupHistory {
    /// Kinds that were slow when they were asked about last: the others come before them.
    slow_kinds: BTreeSet<Kind>,
    /// Counts passes, so that the same objects of a kind are not the first ones each time.
    passes: usize,
}

/// The questions of one pass.
#[derive(Debug)]
pub(super) struct PassLookups<'a> {
    owner_lookups: &'a OwnerLookups,
    loop_watchdog: Option<&'a LoopWatchdog>,
    history: LookupHistory,
    slow_kinds: BTreeSet<Kind>,
    /// Kinds with an answer that was not slow.
    fast_kinds: BTreeSet<Kind>,
    kinds: BTreeSet<Kind>,
    deadline: Instant,
}

impl OwnerLookups {
    /// For one pass. Each answer is a beat of that pulse.
    pub fn start_pass<'a>(&'a self, pulse: Option<&'a LoopWatchdog>) -> PassLookups<'a> {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memory.passes = memory.passes.wrapping_add(1);
        let before = memory.clone();
        PassLookups {
            owner_lookups: self,
            loop_watchdog: pulse,
            history: before,
            slow_kinds: BTreeSet::new(),
            fast_kinds: BTreeSet::new(),
            kinds: BTreeSet::new(),
            deadline: Instant::now() + LOOKUP_TIMEOUT,
        }
    }
}

impl Drop for PassLookups<'_> {
    fn drop(&mut self) {
        let mut memory = self.owner_lookups.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |kind: &Kind| self.kinds.contains(kind) && !self.fast_kinds.contains(kind);
        memory.slow_kinds.retain(is_known);
        memory.slow_kinds.append(&mut self.slow_kinds);
    }
}

/// The questions about one kind.
struct KindQueue<Q> {
    kind: Kind,
    pending: VecDeque<Q>,
    in_flight: usize,
    /// When it was asked about last.
    last_request: Instant,
}

impl PassLookups<'_> {
    /// Asks each question, with the object that it is about, and answers those that were answered in time, in any order.
    pub async fn run_all<Q, F: Future>(
        &mut self,
        questions: Vec<(ObjectReference, Q)>,
        ask: impl Fn(Q) -> F,
    ) -> Vec<F::Output> {
        let mut queues = self.queues(questions);
        self.kinds.extend(queues.iter().map(|queue| queue.kind.clone()));
        let (mut under_way, mut answers) = (FuturesUnordered::new(), Vec::new());
        loop {
            for (place, queue) in queues.iter_mut().enumerate() {
                let room = MAX_CONCURRENT.saturating_sub(under_way.len());
                let room = room.min(MAX_CONCURRENT_PER_KIND.saturating_sub(queue.in_flight));
                let room = if self.slow_kinds.contains(&queue.kind) { 0 } else { room };
                let next = queue.pending.drain(..room.min(queue.pending.len()));
                for question in next {
                    queue.in_flight += 1;
                    queue.last_request = Instant::now();
                    let (asked, answer) = (queue.last_request, ask(question));
                    under_way.push(async move { (place, answer.await, asked.elapsed()) });
                }
            }
            let Ok(Some((place, answer, took))) = timeout_at(self.deadline, under_way.next()).await
            else {
                break;
            };
            if let Some(pulse) = self.loop_watchdog {
                pulse.tick();
            }
            let queue = &mut queues[place];
            queue.in_flight -= 1;
            let seen = if took >= SLOW_AFTER { &mut self.slow_kinds } else { &mut self.fast_kinds };
            if !seen.contains(&queue.kind) {
                seen.insert(queue.kind.clone());
            }
            answers.push(answer);
        }
        let is_slow = |queue: &&KindQueue<Q>| {
            queue.in_flight > 0 && queue.last_request.elapsed() >= SLOW_AFTER
        };
        self.slow_kinds.extend(queues.iter().filter(is_slow).map(|queue| queue.kind.clone()));
        answers
    }

    fn queues<Q>(&self, questions: Vec<(ObjectReference, Q)>) -> Vec<KindQueue<Q>> {
        let mut kinds: BTreeMap<Kind, VecDeque<Q>> = BTreeMap::new();
        for (about, question) in questions {
            kinds.entry((about.api_version, about.kind)).or_default().push_back(question);
        }
        let queue = |(kind, mut waiting): (Kind, VecDeque<Q>)| {
            waiting.rotate_left(self.history.passes % waiting.len().max(1));
            KindQueue { kind, pending: waiting, in_flight: 0, last_request: Instant::now() }
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

    fn about(kind: &str, name: usize) -> ObjectReference {
        ObjectReference {
            namespace: "shop".into(),
            api_version: "example.com/v1".into(),
            kind: kind.into(),
            name: name.to_string().into(),
        }
    }

    fn questions(kinds: &[(&str, usize)]) -> Vec<(ObjectReference, ObjectReference)> {
        let all = kinds.iter().flat_map(|&(kind, count)| (0..count).map(move |it| about(kind, it)));
        all.map(|key| (key.clone(), key)).collect()
    }

    /// What hangs does so for ten seconds, as long as a request may take.
    async fn answer(key: ObjectReference) -> (Box<str>, bool) {
        let hangs = key.kind.starts_with("Hanging");
        tokio::time::sleep(Duration::from_millis(if hangs { 10_000 } else { 20 })).await;
        (key.kind, !hangs)
    }

    fn count(answers: &[(Box<str>, bool)], kind: &str) -> usize {
        answers.iter().filter(|(of, _)| **of == *kind).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_whose_scale_hangs_holds_up_no_other_kind() {
        let asking = OwnerLookups::default();
        let all = [("Hanging", 300), ("Well", 100)];
        let began = Instant::now();
        let mut asked = asking.start_pass(None);
        let answers = asked.run_all(questions(&all), answer).await;
        assert_eq!((count(&answers, "Well"), count(&answers, "Hanging")), (100, 2));
        assert!(began.elapsed() < LOOKUP_TIMEOUT, "{:?}", began.elapsed());
        // What hangs is not asked about once more in the same pass.
        let before = Instant::now();
        let more = asked.run_all(questions(&all), answer).await;
        assert_eq!((count(&more, "Well"), count(&more, "Hanging")), (100, 0));
        assert!(before.elapsed() < SLOW_AFTER);
    }

    #[tokio::test(start_paused = true)]
    async fn any_number_of_kinds_that_hang_ends_a_pass_in_time_and_comes_last_in_the_next() {
        let asking = OwnerLookups::default();
        let names: Vec<String> = (0..20).map(|number| format!("Hanging{number}")).collect();
        let mut all: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 40)).collect();
        all.push(("Well", 40));
        let began = Instant::now();
        asking.start_pass(None).run_all(questions(&all), answer).await;
        assert!(began.elapsed() <= LOOKUP_TIMEOUT, "{:?}", began.elapsed());
        let mut well = 0;
        for _ in 0..5 {
            let began = Instant::now();
            let answers = asking.start_pass(None).run_all(questions(&all), answer).await;
            assert!(began.elapsed() <= LOOKUP_TIMEOUT, "{:?}", began.elapsed());
            well = well.max(count(&answers, "Well"));
        }
        assert_eq!(well, 40);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_asked_at_once_than_may_be() {
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
        let answers = OwnerLookups::default().start_pass(None).run_all(questions(&all), ask).await;
        assert_eq!((answers.len(), most.get()), (150, MAX_CONCURRENT));
    }
}
