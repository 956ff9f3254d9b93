//! The case of a save that dies: at every point where it waits for something, it is dropped and never resumed.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use async_trait::async_trait;

use super::{
    BackendFactory, CaseError, Reopened, Tampering, TestBackend, WriteUnit,
    fixtures::{load, records, save, writer},
};
use crate::{LoadRequest, NotLeader, WritePermit};

/// More waiting points than any save has; a save that never ends is a failure too.
const POINTS: usize = 1_000;

/// Grants everything, and waits once before it does: a point at which a save can die.
struct YieldingPermit;

#[async_trait]
impl WritePermit for YieldingPermit {
    async fn acquire(&self) -> Result<(), NotLeader> {
        let mut asked = false;
        poll_fn(|context| {
            if asked {
                return Poll::Ready(Ok(()));
            }
            asked = true;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }
}

/// Runs a future up to its `points`th wait and drops it there; `Some` when it ended before.
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
    maker: &dyn BackendFactory,
    first: Arc<dyn TestBackend>,
) -> Result<(), CaseError> {
    let (old, new) = (records(4, 1), records(4, 2));
    let mut subject = first;
    for points in 0..POINTS {
        save(&*subject, &old).await?;
        let done = poll_until(points, writer(&*subject)?.save(&new, &YieldingPermit)).await;
        // A backend that forgets with its process is looked at as it is: the task died, not the process.
        let (Reopened::Opened(left) | Reopened::Unsupported(left)) =
            subject.reopen(Tampering::None).await?;
        let loaded = load(&*left, &LoadRequest::All).await?;
        let mut renewed = 0;
        for (old, new) in old.iter().zip(&new) {
            let found = loaded.snapshots.get(&old.key);
            if found == Some(&left.expected_snapshot(new)) {
                renewed += 1;
            } else if found != Some(&left.expected_snapshot(old)) {
                return Err(format!(
                    "after a save died at point {points}, {} is neither as it was nor as it was to be",
                    old.key
                )
                .into());
            }
        }
        if left.write_unit() == WriteUnit::Batch && renewed != 0 && renewed != new.len() {
            return Err(format!("{renewed} of {} records of an atomic batch", new.len()).into());
        }
        if let Some(report) = done {
            report?;
            return if renewed == new.len() {
                Ok(())
            } else {
                Err("a save ended well and was lost".to_string().into())
            };
        }
        subject = maker.create().await?;
    }
    Err(format!("a save of four records still ran after {POINTS} waits").into())
}
