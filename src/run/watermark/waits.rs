//! Whom values are waited for: where many questions in a row were waited for in vain, a few go on asking, and the others are
//! told at once that nobody answers.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::replicas::Unknown;

/// Of more than so many it is forgotten that they do not answer.
const MOST_PLACES: usize = 1_000;

/// One who is asked.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// So many wait for an answer.
    waiting: usize,
    /// So many have waited to the end since the last answer.
    in_vain: usize,
}

/// All who are asked by somebody right now.
#[derive(Debug)]
pub(super) struct Waits {
    /// So many wait for one who does not answer.
    most: usize,
    places: Mutex<HashMap<Box<str>, Place>>,
}

/// Somebody waits, until this is gone.
struct Waiting<'a> {
    waits: &'a Waits,
    place: &'a str,
}

impl Waits {
    /// Nobody waits yet. Of those that wait for one who does not answer, there are this many at most.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), places: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks somebody, who may take so long. Without an answer by then it was in vain.
    pub async fn ask<T>(
        &self,
        place: &str,
        limit: Duration,
        asked: impl Future<Output = Result<T, Unknown>>,
    ) -> Result<T, Unknown> {
        let waiting = self.wait(place)?;
        let began = Instant::now();
        let answer = asked.await;
        // Whoever is asked keeps the time himself, to the millisecond or so.
        let is_in_vain = answer.is_err() && began.elapsed() >= limit.mul_f64(0.95);
        if let Some(place) = self.lock().get_mut(place) {
            place.in_vain = if is_in_vain { place.in_vain.saturating_add(1) } else { 0 };
        }
        drop(waiting);
        answer
    }

    fn wait<'a>(&'a self, name: &'a str) -> Result<Waiting<'a>, Unknown> {
        let mut places = self.lock();
        let place = places.entry(name.into()).or_default();
        let Place { waiting, in_vain } = *place;
        if waiting >= self.most && in_vain >= self.most {
            return Err(Unknown::Failed(format!(
                "{name} gave no answer in time to the last {in_vain} questions, and {waiting} others wait for one"
            )));
        }
        place.waiting += 1;
        drop(places);
        Ok(Waiting { waits: self, place: name })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut places = self.waits.lock();
        let Some(place) = places.get_mut(self.place) else { return };
        place.waiting = place.waiting.saturating_sub(1);
        if place.waiting == 0 && (place.in_vain == 0 || places.len() > MOST_PLACES) {
            places.remove(self.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Arc};

    use super::*;

    const LIMIT: Duration = Duration::from_millis(20);

    async fn silence() -> Result<i32, Unknown> {
        let answered = tokio::time::timeout(LIMIT, pending()).await;
        answered.unwrap_or_else(|_| Err(Unknown::Failed("no answer".into())))
    }

    async fn forever() -> Result<i32, Unknown> {
        pending().await
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_would_wait_for_one_who_does_not_answer_are_told_at_once_while_a_few_go_on() {
        let waits = Arc::new(Waits::new(2));
        let wait = || {
            let waits = Arc::clone(&waits);
            tokio::spawn(async move { waits.ask("a", LIMIT, forever()).await })
        };
        let standing = [wait(), wait()];
        tokio::task::yield_now().await;
        // Nobody has waited in vain yet: a third may try.
        assert_eq!(waits.ask("a", LIMIT, async { Ok(1) }).await, Ok(1));
        for _ in 0..2 {
            let failed = waits.ask("a", LIMIT, silence()).await;
            assert_eq!(failed, Err(Unknown::Failed("no answer".into())));
        }
        let told = waits.ask("a", LIMIT, async { Ok(1) }).await.expect_err("not asked");
        let text = "a gave no answer in time to the last 2 questions, and 2 others wait for one";
        assert_eq!(told.to_string(), text);
        assert_eq!(waits.ask("b", LIMIT, async { Ok(1) }).await, Ok(1), "others are asked");
        // One of those that wait gives up, and so another may ask; an answer, whatever it is, opens the place to all.
        standing[0].abort();
        wait_until_gone(&standing[0]).await;
        let refused = async { Err::<i32, _>(Unknown::Failed("503".into())) };
        let soon = waits.ask("a", Duration::from_mins(1), refused).await;
        assert_eq!(soon, Err(Unknown::Failed("503".into())));
        let again = wait();
        tokio::task::yield_now().await;
        assert_eq!(waits.ask("a", LIMIT, async { Ok(1) }).await, Ok(1));
        again.abort();
        standing[1].abort();
    }

    async fn wait_until_gone<T>(task: &tokio::task::JoinHandle<T>) {
        while !task.is_finished() {
            tokio::task::yield_now().await;
        }
    }
}
