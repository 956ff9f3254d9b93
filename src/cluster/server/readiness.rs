//! The readiness check. It runs on a blocking thread: it may wait for locks of the controllers, which the thread that
//! serves probes must not do.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

use super::routes::Probes;

/// Well below the kubelet's default probe timeout of one second.
const CHECK_TIMEOUT: Duration = Duration::from_millis(500);

type ReadinessResult = Result<(), Vec<String>>;

/// Runs one check at a time. Clones share the last result.
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
        let first = Err(vec!["readiness has not been checked yet".to_owned()]);
        let inner = Inner { probes, permit: Arc::new(Semaphore::new(1)), last: Mutex::new(first) };
        Self { inner: Arc::new(inner), timeout: CHECK_TIMEOUT }
    }

    /// Checks readiness. Returns the last result if the check does not finish in time: a busy controller is no less
    /// ready than before, and the liveness probe detects a stuck one.
    pub async fn check(&self) -> ReadinessResult {
        let check = async {
            let permit = Arc::clone(&self.inner.permit).acquire_owned().await.ok()?;
            let inner = Arc::clone(&self.inner);
            let checked = spawn_blocking(move || {
                let _permit = permit;
                let result = inner.probes.check_readiness();
                inner.last.lock().clone_from(&result);
                result
            });
            checked.await.ok()
        };
        match timeout(self.timeout, check).await {
            Ok(Some(result)) => result,
            Ok(None) | Err(_) => self.inner.last.lock().clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::cluster::server::Stalled;

    /// Returns one result per message on the channel.
    struct Blocking(Mutex<Receiver<ReadinessResult>>);

    impl Probes for Blocking {
        fn check_liveness(&self) -> Result<(), Stalled> {
            Ok(())
        }

        fn check_readiness(&self) -> ReadinessResult {
            self.0.lock().recv().unwrap_or(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_timed_out_readiness_check_returns_the_last_result() {
        let (release, results) = channel();
        let readiness = ReadinessCheck::new(Arc::new(Blocking(Mutex::new(results))));
        let patient = ReadinessCheck { timeout: Duration::from_hours(1), ..readiness.clone() };
        let hasty = ReadinessCheck { timeout: Duration::ZERO, ..readiness };
        let missing = Err(vec!["pods are not read yet".to_owned()]);
        assert!(hasty.check().await.is_err(), "nothing is known yet");
        for answer in [Ok(()), missing] {
            // One for the check that timed out, and one for the next.
            release.send(answer.clone()).expect("a check is waiting");
            release.send(answer.clone()).expect("a check is waiting");
            assert_eq!(patient.check().await, answer);
            assert_eq!(hasty.check().await, answer, "there is no other answer yet");
        }
        drop(release);
        assert_eq!(patient.check().await, Ok(()));
    }
}
