//! The queue of keys to be written: the stalest first, without duplicates, with a backoff after failures.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use plimsoll_core::types::{ObjectKey, Time};
use tokio::time::Instant;

use crate::cluster::leader::jitter;

/// The first and the longest backoff after a failure: a key that always fails must not hammer the server.
const BASE_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// Keys that are queued or being written, without duplicates.
#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    entries: HashMap<ObjectKey, Entry>,
    /// Ordered by the time of their last write, those without one first. The sequence number keeps the order of arrival.
    ready: BTreeSet<(Option<Time>, u64, ObjectKey)>,
    /// Ordered by the time of their next attempt.
    delayed: BTreeSet<(Instant, ObjectKey)>,
    next_sequence: u64,
    /// No key is handed out before this time.
    paused: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    state: KeyState,
    last_written: Option<Time>,
    sequence: u64,
    failures: u32,
}

#[derive(Debug)]
enum KeyState {
    Ready,
    Delayed(Instant),
    /// With a worker; `dirty` if it was pushed since, because the worker may have prepared the write before.
    InFlight {
        dirty: bool,
    },
}

impl WorkQueue {
    /// Queues a key, unless it is queued already.
    pub fn push(&mut self, key: ObjectKey, last_written: Option<Time>) {
        if let Some(entry) = self.entries.get_mut(&key) {
            if let KeyState::InFlight { dirty } = &mut entry.state {
                *dirty = true;
                entry.last_written = last_written;
            }
            return;
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.ready.insert((last_written, sequence, key.clone()));
        let entry = Entry { state: KeyState::Ready, last_written, sequence, failures: 0 };
        self.entries.insert(key, entry);
    }

    /// Hands out the stalest key that is ready.
    pub fn pop(&mut self, now: Instant) -> Option<ObjectKey> {
        while let Some((due, key)) = self.delayed.first().cloned().filter(|(due, _)| *due <= now) {
            self.delayed.remove(&(due, key.clone()));
            self.make_ready(&key);
        }
        if self.paused.is_some_and(|end| now < end) {
            return None;
        }
        let (_, _, key) = self.ready.pop_first()?;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.state = KeyState::InFlight { dirty: false };
        }
        Some(key)
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When to call [`Self::pop`] again, if nothing is pushed before.
    pub fn next_wakeup(&self, now: Instant) -> Option<Instant> {
        let delayed = self.delayed.first().map(|(due, _)| *due);
        let pause = self.paused.filter(|end| now < *end);
        match (self.ready.is_empty(), pause) {
            (false, pause) => pause.or(Some(now)),
            (true, Some(pause)) => delayed.map(|due| due.max(pause)),
            (true, None) => delayed,
        }
    }

    /// A key that was handed out is written, or has nothing to write.
    pub fn done(&mut self, key: &ObjectKey) {
        let is_dirty = match self.entries.get_mut(key) {
            Some(entry) if matches!(entry.state, KeyState::InFlight { dirty: true }) => {
                entry.failures = 0;
                true
            }
            _ => false,
        };
        if is_dirty {
            self.make_ready(key);
        } else {
            self.entries.remove(key);
        }
    }

    /// A key that was handed out was not tried: puts it back in its old position.
    pub fn requeue(&mut self, key: &ObjectKey) {
        self.make_ready(key);
    }

    /// Writing a key failed: retries it after a backoff of at least `at_least`.
    pub fn requeue_after(&mut self, key: &ObjectKey, now: Instant, at_least: Duration) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failures = entry.failures.saturating_add(1);
            let wait = jitter::backoff(entry.failures, BASE_BACKOFF, MAX_BACKOFF);
            let due = now + wait.max(at_least);
            entry.state = KeyState::Delayed(due);
            self.delayed.insert((due, key.clone()));
        }
    }

    /// Hands out no keys until then.
    pub fn pause(&mut self, until: Instant) {
        self.paused = self.paused.max(Some(until));
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    fn make_ready(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            if let KeyState::Delayed(due) = entry.state {
                self.delayed.remove(&(due, key.clone()));
            }
            entry.state = KeyState::Ready;
            self.ready.insert((entry.last_written, entry.sequence, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("shop", name)
    }

    fn take_all(queue: &mut WorkQueue, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| queue.pop(now)).map(|key| key.name.to_string()).collect()
    }

    #[test]
    fn the_stalest_key_is_first_and_keys_never_written_before_all() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        for (name, written) in
            [("young", Some(90)), ("old", Some(10)), ("new", None), ("older", Some(5))]
        {
            queue.push(key(name), written.map(Time::from_secs));
        }
        queue.push(key("newer"), None);
        assert_eq!(take_all(&mut queue, now), ["new", "newer", "older", "old", "young"]);
    }

    #[test]
    fn a_key_is_queued_once() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        for _ in 0..5 {
            queue.push(key("web"), None);
        }
        assert_eq!(queue.pop(now), Some(key("web")));
        assert_eq!((queue.len(), queue.pop(now)), (1, None));
        queue.done(&key("web"));
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_key_pushed_during_its_write_is_written_again() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        queue.push(key("web"), None);
        queue.pop(now);
        queue.push(key("web"), Some(Time::from_secs(1)));
        assert_eq!(queue.pop(now), None, "not twice at the same time");
        queue.done(&key("web"));
        assert_eq!(queue.pop(now), Some(key("web")));
        queue.done(&key("web"));
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_failed_key_backs_off_and_a_push_does_not_shorten_it() {
        let (mut queue, start) = (WorkQueue::default(), Instant::now());
        queue.push(key("web"), None);
        let mut now = start;
        for least in [500, 1000, 2000, 4000] {
            assert_eq!(queue.pop(now), Some(key("web")));
            queue.requeue_after(&key("web"), now, Duration::ZERO);
            queue.push(key("web"), None);
            assert_eq!(queue.pop(now + Duration::from_millis(least - 1)), None);
            now = queue.next_wakeup(now).expect("a time to try again");
        }
        assert_eq!(queue.pop(now), Some(key("web")));
        queue.requeue_after(&key("web"), now, Duration::from_mins(5));
        assert_eq!(
            queue.next_wakeup(now),
            Some(now + Duration::from_mins(5)),
            "the server's Retry-After"
        );
    }

    #[test]
    fn a_pause_blocks_all_keys_until_its_end() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        let end = now + Duration::from_secs(5);
        queue.pause(end);
        queue.pause(now);
        assert_eq!(queue.next_wakeup(now), None);
        queue.push(key("web"), None);
        assert_eq!((queue.pop(now), queue.next_wakeup(now)), (None, Some(end)));
        assert_eq!(queue.pop(end), Some(key("web")));
        queue.requeue(&key("web"));
        assert_eq!(queue.pop(end), Some(key("web")), "back in its old position");
    }
}
