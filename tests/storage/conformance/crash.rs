//! The case of an interrupted save: it is dropped at every point where it waits.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use async_trait::async_trait;

use super::{
    BackendFactory, CaseError, Tampering, TestBackend, WriteUnit,
    fixtures::{load, records, save, writer},
};
use plimsoll_storage::{LoadRequest, NotLeader, WritePermit};

/// Maximum number of wait points. A save with more is a failure.
const MAX_POINTS: usize = 1_000;

/// Grants everything, but yields once before, so that a save can be interrupted there.
struct YieldingPermit;

#[async_trait]
impl WritePermit for YieldingPermit {
    async fn acquire(&self) -> Result<(), NotLeader> {
        let mut yielded = false;
        poll_fn(|context| {
            if yielded {
                return Poll::Ready(Ok(()));
            }
            yielded = true;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }
}

/// Polls a future up to its `points`th wait and drops it there; `Some` if it completed before.
async fn poll_until<T>(points: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = points;
    poll_fn(|context| {
        let Some(rest) = left.checked_sub(1) else { return Poll::Ready(None) };
        left = rest;
        match future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

pub async fn crash_mid_save(
    factory: &dyn BackendFactory,
    first: Arc<dyn TestBackend>,
) -> Result<(), CaseError> {
    let (old, new) = (records(4, 1), records(4, 2));
    let mut backend = first;
    for points in 0..MAX_POINTS {
        save(&*backend, &old).await?;
        let result = poll_until(points, writer(&*backend)?.save(&new, &YieldingPermit)).await;
        let reopened = backend.reopen(Tampering::None).await?;
        let loaded = load(&*reopened, &LoadRequest::All).await?;
        let mut updated = 0;
        for (old, new) in old.iter().zip(&new) {
            let found = loaded.snapshots.get(&old.key);
            if found == Some(&reopened.expected_snapshot(new)) {
                updated += 1;
            } else if found != Some(&reopened.expected_snapshot(old)) {
                return Err(format!(
                    "after a save was interrupted at point {points}, {} is neither in the old nor in the new state",
                    old.key
                )
                .into());
            }
        }
        if reopened.write_unit() == WriteUnit::Batch && updated != 0 && updated != new.len() {
            return Err(format!("{updated} of {} records of an atomic batch", new.len()).into());
        }
        if let Some(report) = result {
            report?;
            return if updated == new.len() {
                Ok(())
            } else {
                Err("a successful save was lost".to_string().into())
            };
        }
        backend = factory.create().await?;
    }
    Err(format!("a save of four records did not complete after {MAX_POINTS} waits").into())
}
