//! The current term of leadership, which the workers of a controller share.

use parking_lot::Mutex;

use crate::cluster::leader::Term;

#[derive(Debug, Default)]
pub(super) struct CurrentTerm(Mutex<Option<Term>>);

impl CurrentTerm {
    /// Begins a term. The first worker that does so calls `forget`, and the others wait for it: nothing that was decided in
    /// an earlier term is left when the first reconcile of this one begins.
    pub fn begin(&self, term: Term, forget: impl FnOnce()) {
        let mut current = self.0.lock();
        if current.is_none_or(|before| before < term) {
            *current = Some(term);
            forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use tokio::time::{Duration, Instant, sleep};

    use super::*;
    use crate::cluster::leader::Fence;

    #[tokio::test(start_paused = true)]
    async fn what_was_decided_in_a_term_is_forgotten_before_the_first_reconcile_of_the_next_one() {
        // Either worker notices a new term first.
        for pauses in [[1, 70], [70, 1], [10, 10]] {
            let (fence, current) = (Fence::open(), CurrentTerm::default());
            let decided = Mutex::new(Vec::<Term>::new());
            let lock = || decided.lock();
            let start = Instant::now();
            let reconciles = join_all(pauses.map(|pause| {
                let (fence, current, lock) = (&fence, &current, &lock);
                async move {
                    while start.elapsed() < Duration::from_secs(1) {
                        if let Some(term) = fence.term() {
                            current.begin(term, || lock().clear());
                            assert!(lock().iter().all(|before| *before == term), "{pauses:?}");
                            lock().push(term);
                        }
                        sleep(Duration::from_millis(pause)).await;
                    }
                }
            }));
            let leadership = async {
                for millis in [15, 200] {
                    sleep(Duration::from_millis(millis)).await;
                    fence.revoke();
                    sleep(Duration::from_millis(millis)).await;
                    fence.grant_until(Instant::now() + Duration::from_hours(1));
                }
            };
            tokio::join!(reconciles, leadership);
            let decided = lock().clone();
            assert!(!decided.is_empty());
            assert!(decided.iter().all(|term| Some(*term) == fence.term()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_is_late_does_not_begin_an_earlier_term_again() {
        let (fence, current) = (Fence::open(), CurrentTerm::default());
        let first = fence.term().expect("open");
        fence.revoke();
        fence.grant_until(Instant::now() + Duration::from_hours(1));
        let second = fence.term().expect("granted");
        let mut forgotten = Vec::new();
        for term in [first, second, first, second] {
            current.begin(term, || forgotten.push(term));
        }
        assert_eq!(forgotten, [first, second]);
    }
}
