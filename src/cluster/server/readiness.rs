//! Whether a role is ready, asked of a thread for blocking work: the answer may wait for a lock of the controllers, and the
//! thread that answers probes must not.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

use super::routes::Probes;

/// Well below the second that the kubelet waits unless it is told otherwise.
const CHECK_TIMEOUT: Duration = Duration::from_millis(500);

type ReadinessResult = Result<(), Vec<String>>;

/// Asks one at a time. Clones share the last answer.
#[derive(Clone)]
pub(super) struct ReadinessCheck {
    inner: Arc<Inner>,
    timeout: Duration,
}

struct Inner {
    probes: Arc<dyn Probes>,
    permit: Arc<Semaphore>,
    last: Mutex<ReadinessResult>,
}

impl ReadinessCheck {
    pub fn new(probes: Arc<dyn Probes>) -> Self {
        let first = Err(vec!["readiness is being determined".to_owned()]);
        let inner = Inner { probes, permit: Arc::new(Semaphore::new(1)), last: Mutex::new(first) };
        Self { inner: Arc::new(inner), timeout: CHECK_TIMEOUT }
    }

    /// Whether it is ready now. While that cannot be found out the last answer holds: a controller that is busy is not less
    /// ready than before, and one that is stuck is found by the liveness probe.
    pub async fn check(&self) -> ReadinessResult {
        let asked = async {
            let turn = Arc::clone(&self.inner.permit).acquire_owned().await.ok()?;
            let inner = Arc::clone(&self.inner);
            let answer = spawn_blocking(move || {
                let _turn = turn;
                let answer = inner.probes.check_readiness();
                inner.last().clone_from(&answer);
                answer
            });
            answer.await.ok()
        };
        match timeout(self.timeout, asked).await {
            Ok(Some(answer)) => answer,
            Ok(None) | Err(_) => self.inner.last().clone(),
        }
    }
}

impl Inner {
    fn last(&self) -> MutexGuard<'_, ReadinessResult> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::cluster::server::Stalled;

    /// Answers as often as it is let.
    struct Held(Mutex<Receiver<ReadinessResult>>);

    impl Probes for Held {
        fn check_liveness(&self) -> Result<(), Stalled> {
            Ok(())
        }

        fn check_readiness(&self) -> ReadinessResult {
            self.0.lock().expect("no panic").recv().unwrap_or(Ok(()))
        }
    }

    #[tokio::test]
    async fn while_a_role_holds_its_locks_its_last_answer_holds() {
        let (release, held) = channel();
        let readiness = ReadinessCheck::new(Arc::new(Held(Mutex::new(held))));
        let patient = ReadinessCheck { timeout: Duration::from_hours(1), ..readiness.clone() };
        let hasty = ReadinessCheck { timeout: Duration::ZERO, ..readiness };
        let missing = Err(vec!["pods are not read yet".to_owned()]);
        assert!(hasty.check().await.is_err(), "nothing is known yet");
        for answer in [Ok(()), missing] {
            // One for the question that was given up, and one for the next.
            release.send(answer.clone()).expect("somebody waits");
            release.send(answer.clone()).expect("somebody waits");
            assert_eq!(patient.check().await, answer);
            assert_eq!(hasty.check().await, answer, "there is no other answer yet");
        }
        drop(release);
        assert_eq!(patient.check().await, Ok(()));
    }
}
