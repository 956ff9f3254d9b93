//! The cases. Each begins on an empty place and says in one line what went otherwise than it must.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    BackendFactory, Case, CaseError, Reopened, Tampering, TestBackend, WriteUnit, crash,
    fixtures::{
        LimitedPermit, expect_fenced, expect_loaded, expect_stored, extremes, load, record,
        records, save, vpa, writer,
    },
};
use crate::{LoadRequest, SaveReport};
use plimsoll_core::{
    history::Record,
    types::{ContainerKey, ObjectKey},
};

type CaseResult = Result<(), CaseError>;

/// Runs one case.
pub async fn run(case: Case, maker: &dyn BackendFactory) -> CaseResult {
    let subject = maker.create().await?;
    match case {
        Case::RoundTrip => round_trip(&*subject).await,
        Case::Extremes => extremes_survive(&*subject).await,
        Case::WantedFilter => wanted_filter(&*subject).await,
        Case::LoadTwice => load_twice(&*subject).await,
        Case::SurvivesReopen => survives_reopen(subject).await,
        Case::UnchangedIsNotWritten => unchanged_is_not_written(&*subject).await,
        Case::RicherIsKept => richer_is_kept(&*subject).await,
        Case::SupersedeIsObeyed => supersede_is_obeyed(&*subject).await,
        Case::OnlyOrphansAreCollected => only_orphans_are_collected(&*subject).await,
        Case::NoWriteWithoutPermit => no_write_without_permit(&*subject).await,
        Case::PermitLostHalfWay => permit_lost_half_way(&*subject).await,
        Case::ConcurrentWriters => concurrent_writers(subject).await,
        Case::CrashMidSave => crash::crash_mid_save(maker, subject).await,
        Case::MalformedIsSkipped => malformed_is_skipped(subject).await,
        Case::ForeignIsLeftAlone => foreign_is_left_alone(subject).await,
        Case::SamplesAreWhole | Case::OthersStayOut | Case::SamplesComeAgain => {
            Err(CaseError::NotApplicable("it is about backends that only read"))
        }
    }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> CaseResult {
    if holds { Ok(()) } else { Err(CaseError::Failed(otherwise())) }
}

async fn reopen(
    subject: Arc<dyn TestBackend>,
    tampering: Tampering,
    unable: &'static str,
) -> Result<Arc<dyn TestBackend>, CaseError> {
    match subject.reopen(tampering).await? {
        Reopened::Opened(subject) => Ok(subject),
        Reopened::Unsupported(_) => Err(CaseError::NotApplicable(unable)),
    }
}

async fn round_trip(subject: &dyn TestBackend) -> CaseResult {
    expect_stored(subject, &[]).await?;
    let mut batch = records(120, 1);
    batch.push(record(&vpa("web-0"), "sidecar", 2));
    let report = save(subject, &batch).await?;
    let expected = SaveReport { written: batch.len(), ..SaveReport::default() };
    ensure(report == expected, || format!("the save reports {report:?}, not {expected:?}"))?;
    expect_stored(subject, &batch).await?;

    let newer = records(120, 2);
    save(subject, &newer).await?;
    batch.splice(..120, newer);
    expect_stored(subject, &batch).await
}

async fn extremes_survive(subject: &dyn TestBackend) -> CaseResult {
    let report = save(subject, &extremes()).await?;
    let (kept, others): (Vec<_>, Vec<_>) =
        extremes().into_iter().partition(|record| subject.has_room(record));
    ensure(report.refused.len() == others.len() && report.failed.is_empty(), || {
        format!("the save reports {report:?}, not {} records as refused", others.len())
    })?;
    expect_stored(subject, &kept).await
}

async fn wanted_filter(subject: &dyn TestBackend) -> CaseResult {
    let batch = [
        record(&vpa("web"), "app", 1),
        record(&vpa("web"), "sidecar", 1),
        record(&vpa("db"), "app", 1),
        record(&ObjectKey::new("other", "web"), "app", 1),
    ];
    save(subject, &batch).await?;
    let wanted = HashMap::from([(vpa("web"), None), (vpa("unknown"), None)]);
    let loaded = load(subject, &LoadRequest::Vpas(wanted)).await?;
    expect_loaded(subject, &loaded, &batch[..2])?;
    let loaded = load(subject, &LoadRequest::Vpas(HashMap::new())).await?;
    expect_loaded(subject, &loaded, &[])
}

async fn load_twice(subject: &dyn TestBackend) -> CaseResult {
    let batch = records(10, 3);
    save(subject, &batch).await?;
    let first = load(subject, &LoadRequest::All).await?;
    let second = load(subject, &LoadRequest::All).await?;
    ensure(first.report == second.report, || {
        format!("the first load reports {:?}, the second {:?}", first.report, second.report)
    })?;
    expect_loaded(subject, &first, &batch)?;
    expect_loaded(subject, &second, &batch)
}

async fn survives_reopen(subject: Arc<dyn TestBackend>) -> CaseResult {
    const UNABLE: &str = "the backend forgets with the process";
    let batch = records(10, 3);
    save(&*subject, &batch).await?;
    let subject = reopen(subject, Tampering::None, UNABLE).await?;
    expect_stored(&*subject, &batch).await?;
    writer(&*subject)?
        .collect_garbage(&|key| key.vpa != vpa("web-1"), &LimitedPermit::all())
        .await?;
    let subject = reopen(subject, Tampering::None, UNABLE).await?;
    expect_stored(&*subject, &batch[1..2]).await
}

async fn unchanged_is_not_written(subject: &dyn TestBackend) -> CaseResult {
    let batch = records(5, 1);
    save(subject, &batch).await?;
    let report = writer(subject)?.save(&batch, &LimitedPermit::new(0)).await.map_err(|e| {
        format!("saving what is stored exactly so asked for the right to write: {e}")
    })?;
    let expected = SaveReport { unchanged: batch.len(), ..SaveReport::default() };
    ensure(report == expected, || format!("the save reports {report:?}, not {expected:?}"))?;
    expect_stored(subject, &batch).await
}

async fn richer_is_kept(subject: &dyn TestBackend) -> CaseResult {
    let rich = records(3, 9);
    save(subject, &rich).await?;
    let poor = records(3, 2);
    let mixed = [poor[0].clone(), record(&vpa("new"), "app", 1), poor[2].clone()];
    let report = save(subject, &mixed).await?;
    let kept = vec![poor[0].key.clone(), poor[2].key.clone()];
    let expected = SaveReport { written: 1, stored_richer: kept, ..SaveReport::default() };
    ensure(report == expected, || format!("the save reports {report:?}, not {expected:?}"))?;
    let stored = [&rich[..], &mixed[1..2]].concat();
    expect_stored(subject, &stored).await
}

async fn supersede_is_obeyed(subject: &dyn TestBackend) -> CaseResult {
    save(subject, &records(2, 9)).await?;
    let reset = Record { supersede: true, ..records(1, 1).remove(0) };
    save(subject, std::slice::from_ref(&reset)).await?;
    expect_stored(subject, &[reset, records(2, 9).remove(1)]).await
}

async fn only_orphans_are_collected(subject: &dyn TestBackend) -> CaseResult {
    let batch = [
        record(&vpa("web"), "app", 1),
        record(&vpa("web"), "sidecar", 1),
        record(&vpa("gone"), "app", 1),
        record(&vpa("gone"), "sidecar", 1),
        // The same name elsewhere, and names that only look alike when glued together.
        record(&ObjectKey::new("other", "web"), "app", 1),
        record(&ObjectKey::new("shop-web", "x"), "app", 1),
        record(&ObjectKey::new("shop", "web-x"), "app", 1),
    ];
    save(subject, &batch).await?;
    let living = HashSet::from([
        vpa("web"),
        ObjectKey::new("shop", "web-x"),
        ObjectKey::new("other", "gone"),
        vpa("never-seen"),
    ]);
    let orphaned = |key: &ContainerKey| !living.contains(&key.vpa);
    let writer = writer(subject)?;
    let removed = writer.collect_garbage(&orphaned, &LimitedPermit::all()).await?;
    ensure(removed == 4, || format!("{removed} records were removed, not the 4 of vanished VPAs"))?;
    let left = [&batch[..2], &batch[6..]].concat();
    expect_stored(subject, &left).await?;
    let removed = writer
        .collect_garbage(&orphaned, &LimitedPermit::new(0))
        .await
        .map_err(|e| format!("with no orphan left the right to write was asked for: {e}"))?;
    ensure(removed == 0, || format!("{removed} records were removed though none was an orphan"))
}

async fn no_write_without_permit(subject: &dyn TestBackend) -> CaseResult {
    let batch = records(3, 1);
    let writer = writer(subject)?;
    expect_fenced(writer.save(&batch, &LimitedPermit::new(0)).await)?;
    expect_stored(subject, &[]).await?;
    save(subject, &batch).await?;
    expect_fenced(writer.save(&records(3, 2), &LimitedPermit::new(0)).await)?;
    expect_fenced(writer.collect_garbage(&|_| true, &LimitedPermit::new(0)).await)?;
    expect_stored(subject, &batch).await
}

async fn permit_lost_half_way(subject: &dyn TestBackend) -> CaseResult {
    let (old, new) = (records(6, 1), records(6, 2));
    save(subject, &old).await?;
    let writer = writer(subject)?;
    let permit = LimitedPermit::new(2);
    let granted = match subject.write_unit() {
        WriteUnit::Record => {
            expect_fenced(writer.save(&new, &permit).await)?;
            2
        }
        WriteUnit::Batch => {
            writer.save(&new[..2], &permit).await?;
            writer.save(&new[2..4], &permit).await?;
            expect_fenced(writer.save(&new[4..], &permit).await)?;
            4
        }
    };
    let loaded = load(subject, &LoadRequest::All).await?;
    let changed: Vec<&Record> = new
        .iter()
        .filter(|record| {
            let old = old.iter().find(|old| old.key == record.key);
            let found = loaded.snapshots.get(&record.key);
            old.map(|old| subject.expected_snapshot(old)).as_ref() != found
        })
        .collect();
    ensure(changed.len() <= granted, || {
        format!("{granted} records could be paid for, {} were changed", changed.len())
    })?;
    let now: Vec<Record> = old
        .iter()
        .map(|old| changed.iter().find(|new| new.key == old.key).map_or(old, |new| *new).clone())
        .collect();
    expect_loaded(subject, &loaded, &now)?;

    expect_fenced(writer.collect_garbage(&|_| true, &LimitedPermit::new(0)).await)?;
    if subject.write_unit() == WriteUnit::Record {
        expect_fenced(writer.collect_garbage(&|_| true, &LimitedPermit::new(2)).await)?;
        let left = load(subject, &LoadRequest::All).await?.snapshots.len();
        ensure(left >= 4, || format!("2 removals could be paid for, {} were made", 6 - left))?;
    }
    Ok(())
}

async fn concurrent_writers(subject: Arc<dyn TestBackend>) -> CaseResult {
    const WRITERS: u32 = 8;
    const ROUNDS: u32 = 6;
    writer(&*subject)?;
    let shared = |by: u32| {
        // As rich as those of the others, and told apart by its content.
        let mut record = record(&vpa("shared"), "app", 50);
        record.snapshot.owner = Some(format!("apps/Deployment/{by}").into());
        record.snapshot.cpu.total = f64::from(by);
        record
    };
    let own = |by: u32, round: u32| record(&vpa(&format!("own-{by}")), "app", round);
    let running: Vec<_> = (0..WRITERS)
        .map(|by| {
            let subject = Arc::clone(&subject);
            tokio::spawn(async move {
                for round in 1..=ROUNDS {
                    save(&*subject, &[own(by, round), shared(by)]).await?;
                }
                Ok::<(), CaseError>(())
            })
        })
        .collect();
    for writer in running {
        writer.await.map_err(|e| format!("a writer died: {e}"))??;
    }
    let loaded = load(&*subject, &LoadRequest::All).await?;
    let winner = loaded.snapshots.get(&shared(0).key);
    let whole =
        (0..WRITERS).map(shared).find(|record| Some(&subject.expected_snapshot(record)) == winner);
    let Some(whole) = whole else {
        return Err("the record that all wrote is none of those written".to_string().into());
    };
    let mut expected: Vec<Record> = (0..WRITERS).map(|by| own(by, ROUNDS)).collect();
    expected.push(whole);
    expect_loaded(&*subject, &loaded, &expected)
}

/// Expects one thing to be passed over, and named by its VPA.
fn expect_one_skipped(loaded: &super::fixtures::LoadedRecords, key: &ContainerKey) -> CaseResult {
    match loaded.report.skipped.as_slice() {
        [one] if one.record.contains(&*key.vpa.name) && !one.reason.is_empty() => Ok(()),
        other => Err(format!("expected {key} to be skipped with a reason, got {other:?}").into()),
    }
}

async fn malformed_is_skipped(subject: Arc<dyn TestBackend>) -> CaseResult {
    let batch = records(5, 1);
    save(&*subject, &batch).await?;
    let damaged = batch[2].clone();
    let tampering = Tampering::Corrupt(damaged.key.clone());
    let subject = reopen(subject, tampering, "its records cannot be corrupted").await?;
    let loaded = load(&*subject, &LoadRequest::All).await?;
    let others = [&batch[..2], &batch[3..]].concat();
    expect_loaded(&*subject, &loaded, &others)?;
    expect_one_skipped(&loaded, &damaged.key)?;
    save(&*subject, &[damaged]).await?;
    expect_stored(&*subject, &batch).await
}

async fn foreign_is_left_alone(subject: Arc<dyn TestBackend>) -> CaseResult {
    let batch = records(3, 1);
    save(&*subject, &batch).await?;
    let key = ContainerKey::new(vpa("foreign"), "app");
    let tampering = Tampering::Foreign(key.clone());
    let subject = reopen(subject, tampering, "nothing foreign can get into it").await?;
    let loaded = load(&*subject, &LoadRequest::All).await?;
    expect_loaded(&*subject, &loaded, &batch)?;
    expect_one_skipped(&loaded, &key)?;

    let removed = writer(&*subject)?.collect_garbage(&|_| true, &LimitedPermit::all()).await?;
    ensure(removed == 3, || format!("{removed} records were removed, not the 3 of its own"))?;
    let loaded = load(&*subject, &LoadRequest::All).await?;
    expect_loaded(&*subject, &loaded, &[])?;
    expect_one_skipped(&loaded, &key)
}
