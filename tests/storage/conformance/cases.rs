//! The cases for writable backends. Each starts with an empty storage and fails with a one-line message.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    BackendFactory, Case, CaseError, Tampering, TestBackend, WriteUnit, crash,
    fixtures::{
        LimitedPermit, expect_fenced, expect_loaded, expect_stored, extremes, load, record,
        records, save, vpa, writer,
    },
};
use plimsoll_core::{
    history::Record,
    types::{ContainerKey, ObjectKey},
};
use plimsoll_storage::{LoadRequest, SaveReport};

type CaseResult = Result<(), CaseError>;

/// Runs one case.
pub async fn run(case: Case, factory: &dyn BackendFactory) -> CaseResult {
    let backend = factory.create().await?;
    match case {
        Case::RoundTrip => round_trip(&*backend).await,
        Case::Extremes => extremes_survive(&*backend).await,
        Case::WantedFilter => wanted_filter(&*backend).await,
        Case::LoadTwice => load_twice(&*backend).await,
        Case::SurvivesReopen => survives_reopen(backend).await,
        Case::UnchangedIsNotWritten => unchanged_is_not_written(&*backend).await,
        Case::RicherIsKept => richer_is_kept(&*backend).await,
        Case::SupersedeIsObeyed => supersede_is_obeyed(&*backend).await,
        Case::OnlyOrphansAreCollected => only_orphans_are_collected(&*backend).await,
        Case::NoWriteWithoutPermit => no_write_without_permit(&*backend).await,
        Case::PermitLostHalfWay => permit_lost_half_way(&*backend).await,
        Case::ConcurrentWriters => concurrent_writers(backend).await,
        Case::CrashMidSave => crash::crash_mid_save(factory, backend).await,
        Case::MalformedIsSkipped => malformed_is_skipped(backend).await,
        Case::ForeignIsLeftAlone => foreign_is_left_alone(backend).await,
        Case::SamplesAreWhole | Case::OthersStayOut | Case::SamplesComeAgain => {
            Err(CaseError::NotApplicable("it applies only to read-only backends"))
        }
    }
}

fn ensure(condition: bool, message: impl FnOnce() -> String) -> CaseResult {
    if condition { Ok(()) } else { Err(CaseError::Failed(message())) }
}

async fn round_trip(backend: &dyn TestBackend) -> CaseResult {
    expect_stored(backend, &[]).await?;
    let mut batch = records(120, 1);
    batch.push(record(&vpa("web-0"), "sidecar", 2));
    let report = save(backend, &batch).await?;
    let expected = SaveReport { written: batch.len(), ..SaveReport::default() };
    ensure(report == expected, || format!("the save reports {report:?}, expected {expected:?}"))?;
    expect_stored(backend, &batch).await?;

    let newer = records(120, 2);
    save(backend, &newer).await?;
    batch.splice(..120, newer);
    expect_stored(backend, &batch).await
}

async fn extremes_survive(backend: &dyn TestBackend) -> CaseResult {
    let report = save(backend, &extremes()).await?;
    let (supported, unsupported): (Vec<_>, Vec<_>) =
        extremes().into_iter().partition(|record| backend.has_room(record));
    ensure(report.refused.len() == unsupported.len() && report.failed.is_empty(), || {
        format!("the save reports {report:?}, expected {} refused records", unsupported.len())
    })?;
    expect_stored(backend, &supported).await
}

async fn wanted_filter(backend: &dyn TestBackend) -> CaseResult {
    let batch = [
        record(&vpa("web"), "app", 1),
        record(&vpa("web"), "sidecar", 1),
        record(&vpa("db"), "app", 1),
        record(&ObjectKey::new("other", "web"), "app", 1),
    ];
    save(backend, &batch).await?;
    let wanted = HashMap::from([(vpa("web"), None), (vpa("unknown"), None)]);
    let loaded = load(backend, &LoadRequest::Vpas(wanted)).await?;
    expect_loaded(backend, &loaded, &batch[..2])?;
    let loaded = load(backend, &LoadRequest::Vpas(HashMap::new())).await?;
    expect_loaded(backend, &loaded, &[])
}

async fn load_twice(backend: &dyn TestBackend) -> CaseResult {
    let batch = records(10, 3);
    save(backend, &batch).await?;
    let first = load(backend, &LoadRequest::All).await?;
    let second = load(backend, &LoadRequest::All).await?;
    ensure(first.report == second.report, || {
        format!("the first load reports {:?}, the second {:?}", first.report, second.report)
    })?;
    expect_loaded(backend, &first, &batch)?;
    expect_loaded(backend, &second, &batch)
}

async fn survives_reopen(backend: Arc<dyn TestBackend>) -> CaseResult {
    let batch = records(10, 3);
    save(&*backend, &batch).await?;
    let backend = backend.reopen(Tampering::None).await?;
    expect_stored(&*backend, &batch).await?;
    writer(&*backend)?
        .collect_garbage(&|key| key.vpa != vpa("web-1"), &LimitedPermit::all())
        .await?;
    let backend = backend.reopen(Tampering::None).await?;
    expect_stored(&*backend, &batch[1..2]).await
}

async fn unchanged_is_not_written(backend: &dyn TestBackend) -> CaseResult {
    let batch = records(5, 1);
    save(backend, &batch).await?;
    let report = writer(backend)?
        .save(&batch, &LimitedPermit::new(0))
        .await
        .map_err(|e| format!("saving unchanged records acquired a permit: {e}"))?;
    let expected = SaveReport { unchanged: batch.len(), ..SaveReport::default() };
    ensure(report == expected, || format!("the save reports {report:?}, expected {expected:?}"))?;
    expect_stored(backend, &batch).await
}

async fn richer_is_kept(backend: &dyn TestBackend) -> CaseResult {
    let rich = records(3, 9);
    save(backend, &rich).await?;
    let poor = records(3, 2);
    let mixed = [poor[0].clone(), record(&vpa("new"), "app", 1), poor[2].clone()];
    let report = save(backend, &mixed).await?;
    let kept = vec![poor[0].key.clone(), poor[2].key.clone()];
    let expected = SaveReport { written: 1, stored_richer: kept, ..SaveReport::default() };
    ensure(report == expected, || format!("the save reports {report:?}, expected {expected:?}"))?;
    let stored = [&rich[..], &mixed[1..2]].concat();
    expect_stored(backend, &stored).await
}

async fn supersede_is_obeyed(backend: &dyn TestBackend) -> CaseResult {
    save(backend, &records(2, 9)).await?;
    let reset = Record { supersede: true, ..records(1, 1).remove(0) };
    save(backend, std::slice::from_ref(&reset)).await?;
    expect_stored(backend, &[reset, records(2, 9).remove(1)]).await
}

async fn only_orphans_are_collected(backend: &dyn TestBackend) -> CaseResult {
    let batch = [
        record(&vpa("web"), "app", 1),
        record(&vpa("web"), "sidecar", 1),
        record(&vpa("gone"), "app", 1),
        record(&vpa("gone"), "sidecar", 1),
        // The same name in another namespace, and names that are equal only when concatenated.
        record(&ObjectKey::new("other", "web"), "app", 1),
        record(&ObjectKey::new("shop-web", "x"), "app", 1),
        record(&ObjectKey::new("shop", "web-x"), "app", 1),
    ];
    save(backend, &batch).await?;
    let living = HashSet::from([
        vpa("web"),
        ObjectKey::new("shop", "web-x"),
        ObjectKey::new("other", "gone"),
        vpa("never-seen"),
    ]);
    let orphaned = |key: &ContainerKey| !living.contains(&key.vpa);
    let writer = writer(backend)?;
    let removed = writer.collect_garbage(&orphaned, &LimitedPermit::all()).await?;
    ensure(removed == 4, || {
        format!("{removed} records were removed, expected the 4 of deleted VPAs")
    })?;
    let left = [&batch[..2], &batch[6..]].concat();
    expect_stored(backend, &left).await?;
    let removed = writer
        .collect_garbage(&orphaned, &LimitedPermit::new(0))
        .await
        .map_err(|e| format!("a garbage collection without orphans acquired a permit: {e}"))?;
    ensure(removed == 0, || format!("{removed} records were removed, but there were no orphans"))
}

async fn no_write_without_permit(backend: &dyn TestBackend) -> CaseResult {
    let batch = records(3, 1);
    let writer = writer(backend)?;
    expect_fenced(writer.save(&batch, &LimitedPermit::new(0)).await)?;
    expect_stored(backend, &[]).await?;
    save(backend, &batch).await?;
    expect_fenced(writer.save(&records(3, 2), &LimitedPermit::new(0)).await)?;
    expect_fenced(writer.collect_garbage(&|_| true, &LimitedPermit::new(0)).await)?;
    expect_stored(backend, &batch).await
}

async fn permit_lost_half_way(backend: &dyn TestBackend) -> CaseResult {
    let (old, new) = (records(6, 1), records(6, 2));
    save(backend, &old).await?;
    let writer = writer(backend)?;
    let permit = LimitedPermit::new(2);
    let granted = match backend.write_unit() {
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
    let loaded = load(backend, &LoadRequest::All).await?;
    let changed: Vec<&Record> = new
        .iter()
        .filter(|record| {
            let old = old.iter().find(|old| old.key == record.key);
            let found = loaded.snapshots.get(&record.key);
            old.map(|old| backend.expected_snapshot(old)).as_ref() != found
        })
        .collect();
    ensure(changed.len() <= granted, || {
        format!("{granted} writes were permitted, but {} records were changed", changed.len())
    })?;
    let now: Vec<Record> = old
        .iter()
        .map(|old| changed.iter().find(|new| new.key == old.key).map_or(old, |new| *new).clone())
        .collect();
    expect_loaded(backend, &loaded, &now)?;

    expect_fenced(writer.collect_garbage(&|_| true, &LimitedPermit::new(0)).await)?;
    if backend.write_unit() == WriteUnit::Record {
        expect_fenced(writer.collect_garbage(&|_| true, &LimitedPermit::new(2)).await)?;
        let left = load(backend, &LoadRequest::All).await?.snapshots.len();
        ensure(left >= 4, || format!("2 removals were permitted, but {} were made", 6 - left))?;
    }
    Ok(())
}

async fn concurrent_writers(backend: Arc<dyn TestBackend>) -> CaseResult {
    const WRITERS: u32 = 8;
    const ROUNDS: u32 = 6;
    writer(&*backend)?;
    let shared = |writer_id: u32| {
        // As rich as those of the other writers, with different content.
        let mut record = record(&vpa("shared"), "app", 50);
        record.snapshot.owner = Some(format!("apps/Deployment/{writer_id}").into());
        record.snapshot.cpu.total = f64::from(writer_id);
        record
    };
    let own = |writer_id: u32, round: u32| record(&vpa(&format!("own-{writer_id}")), "app", round);
    let running: Vec<_> = (0..WRITERS)
        .map(|writer_id| {
            let backend = Arc::clone(&backend);
            tokio::spawn(async move {
                for round in 1..=ROUNDS {
                    save(&*backend, &[own(writer_id, round), shared(writer_id)]).await?;
                }
                Ok::<(), CaseError>(())
            })
        })
        .collect();
    for writer in running {
        writer.await.map_err(|e| format!("a writer panicked: {e}"))??;
    }
    let loaded = load(&*backend, &LoadRequest::All).await?;
    let winner = loaded.snapshots.get(&shared(0).key);
    let last_written =
        (0..WRITERS).map(shared).find(|record| Some(&backend.expected_snapshot(record)) == winner);
    let Some(last_written) = last_written else {
        return Err("the shared record is none of those written".to_string().into());
    };
    let mut expected: Vec<Record> = (0..WRITERS).map(|writer_id| own(writer_id, ROUNDS)).collect();
    expected.push(last_written);
    expect_loaded(&*backend, &loaded, &expected)
}

/// Expects one skipped record, identified by its VPA.
fn expect_one_skipped(loaded: &super::fixtures::LoadedRecords, key: &ContainerKey) -> CaseResult {
    match loaded.report.skipped.as_slice() {
        [one] if one.record.contains(&*key.vpa.name) && !one.reason.is_empty() => Ok(()),
        other => Err(format!("expected {key} to be skipped with a reason, got {other:?}").into()),
    }
}

async fn malformed_is_skipped(backend: Arc<dyn TestBackend>) -> CaseResult {
    let batch = records(5, 1);
    save(&*backend, &batch).await?;
    let damaged = batch[2].clone();
    let tampering = Tampering::Corrupt(damaged.key.clone());
    let backend = backend.reopen(tampering).await?;
    let loaded = load(&*backend, &LoadRequest::All).await?;
    let others = [&batch[..2], &batch[3..]].concat();
    expect_loaded(&*backend, &loaded, &others)?;
    expect_one_skipped(&loaded, &damaged.key)?;
    save(&*backend, &[damaged]).await?;
    expect_stored(&*backend, &batch).await
}

async fn foreign_is_left_alone(backend: Arc<dyn TestBackend>) -> CaseResult {
    let batch = records(3, 1);
    save(&*backend, &batch).await?;
    let key = ContainerKey::new(vpa("foreign"), "app");
    let tampering = Tampering::Foreign(key.clone());
    let backend = backend.reopen(tampering).await?;
    let loaded = load(&*backend, &LoadRequest::All).await?;
    expect_loaded(&*backend, &loaded, &batch)?;
    expect_one_skipped(&loaded, &key)?;

    let removed = writer(&*backend)?.collect_garbage(&|_| true, &LimitedPermit::all()).await?;
    ensure(removed == 3, || format!("{removed} records were removed, expected its own 3"))?;
    let loaded = load(&*backend, &LoadRequest::All).await?;
    expect_loaded(&*backend, &loaded, &[])?;
    expect_one_skipped(&loaded, &key)
}
