//! Checkpoints that other programs write and name concurrently, and servers that reject writes.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use async_trait::async_trait;
use plimsoll_core::{
    history::{Record, SkippedRecord},
    types::{ContainerKey, ObjectKey},
};
use plimsoll_storage::{
    CheckpointStorage, Error, LoadRequest, NotLeader, Storage, WritePermit, Writer,
    checkpoint::CheckpointOptions,
};
use serde_json::json;

use super::{
    checkpoint_objects::{CheckpointFixture, LoadedSnapshots, NOW, at_now, load, save},
    temp_store::AlwaysPermitted,
};

/// Another program that acts between the decision to write and the write: whenever a permit is acquired.
struct WriteOnAcquire<F> {
    act: F,
    acquired: AtomicUsize,
}

impl<F> WriteOnAcquire<F> {
    fn new(act: F) -> Self {
        Self { act, acquired: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl<F, A> WritePermit for WriteOnAcquire<F>
where
    F: Fn(usize) -> A + Send + Sync,
    A: Future<Output = ()> + Send,
{
    async fn acquire(&self) -> Result<(), NotLeader> {
        (self.act)(self.acquired.fetch_add(1, SeqCst)).await;
        Ok(())
    }
}

async fn save_with_permit(
    storage: &CheckpointStorage,
    record: &Record,
    permit: &dyn WritePermit,
) -> [usize; 5] {
    let report = storage.save(std::slice::from_ref(record), permit).await.expect("ends");
    let (kept, refused, failed) =
        (report.stored_richer.len(), report.refused.len(), report.failed.len());
    [report.written, report.unchanged, kept, refused, failed]
}

const WRITTEN: [usize; 5] = [1, 0, 0, 0, 0];
const KEPT_RICHER: [usize; 5] = [0, 0, 1, 0, 0];
const FAILED: [usize; 5] = [0, 0, 0, 0, 1];

#[tokio::test]
async fn a_record_with_conflicts_is_compared_again_and_finally_written() {
    let Some(fixture) = CheckpointFixture::new("meddled").await else { return };
    let storage = fixture.open();
    save(&storage, &[fixture.record("web", "app", 5)]).await;
    let label = |n: usize| json!({"metadata": {"labels": {"meddled": n.to_string()}}});
    let thrice = WriteOnAcquire::new(|acquired| {
        let fixture = &fixture;
        async move {
            if acquired < 3 {
                fixture.change("web-app", label(acquired)).await;
            }
        }
    });
    let record = fixture.record("web", "app", 6);
    assert_eq!(save_with_permit(&storage, &record, &thrice).await, WRITTEN);
    assert_eq!(thrice.acquired.into_inner(), 4, "each write has a permit");
    assert_eq!(fixture.load().await.snapshots[&record.key], record.snapshot);
    let labels = fixture.object("web-app").await.metadata.labels.unwrap_or_default();
    assert_eq!(labels["meddled"], "2", "other writers' data is preserved");

    let always = WriteOnAcquire::new(|acquired| fixture.change("web-app", label(acquired + 10)));
    assert_eq!(save_with_permit(&storage, &fixture.record("web", "app", 7), &always).await, FAILED);
    assert_eq!(fixture.load().await.snapshots[&record.key], record.snapshot, "unchanged");
    assert_eq!(
        save_with_permit(&storage, &fixture.record("web", "app", 7), &AlwaysPermitted).await,
        WRITTEN
    );
}

#[tokio::test]
async fn a_richer_record_written_concurrently_is_kept() {
    let Some(fixture) = CheckpointFixture::new("richer").await else { return };
    let (one, other) = (fixture.open(), fixture.open());
    save(&one, &[fixture.record("web", "app", 5)]).await;
    load(&other, &LoadRequest::All).await;
    let rich = fixture.record("web", "app", 9);
    let other_writer = WriteOnAcquire::new(|_| {
        let (other, rich) = (&other, &rich);
        async move {
            save(other, std::slice::from_ref(rich)).await;
        }
    });
    let poor = fixture.record("web", "app", 6);
    assert_eq!(save_with_permit(&one, &poor, &other_writer).await, KEPT_RICHER);
    assert_eq!(fixture.load().await.snapshots[&rich.key], rich.snapshot);
    // Known from then on, without a request.
    assert_eq!(save_with_permit(&one, &poor, &other_writer).await, KEPT_RICHER);
    assert_eq!(other_writer.acquired.load(SeqCst), 1);
    let reset = Record { supersede: true, ..poor };
    assert_eq!(save_with_permit(&one, &reset, &AlwaysPermitted).await, WRITTEN);
    assert_eq!(fixture.load().await.snapshots[&reset.key], reset.snapshot);
}

#[tokio::test]
async fn objects_created_or_deleted_concurrently_are_updated_or_created() {
    let Some(fixture) = CheckpointFixture::new("appear").await else { return };
    let (one, other) = (fixture.open(), fixture.open());
    let appears = WriteOnAcquire::new(|acquired| {
        let (other, fixture) = (&other, &fixture);
        async move {
            if acquired == 0 {
                save(other, &[fixture.record("web", "app", 3)]).await;
            }
        }
    });
    assert_eq!(save_with_permit(&one, &fixture.record("web", "app", 5), &appears).await, WRITTEN);
    let vanishes = WriteOnAcquire::new(|acquired| {
        let fixture = &fixture;
        async move {
            if acquired == 0 {
                fixture.remove("web-app").await;
            }
        }
    });
    let record = fixture.record("web", "app", 6);
    assert_eq!(save_with_permit(&one, &record, &vanishes).await, WRITTEN);
    assert_eq!(fixture.load().await.snapshots[&record.key], record.snapshot);

    // An object without samples is filled.
    let spec = json!({"vpaObjectName": "empty", "containerName": "app"});
    fixture.create(json!({"metadata": {"name": "empty-app"}, "spec": spec})).await;
    assert_eq!(
        save_with_permit(&one, &fixture.record("empty", "app", 1), &AlwaysPermitted).await,
        WRITTEN
    );
    assert_eq!(fixture.load().await.report.skipped, []);
}

#[tokio::test]
async fn two_writers_leave_the_richest_record() {
    let Some(fixture) = CheckpointFixture::new("two").await else { return };
    let (one, other) = (fixture.open(), fixture.open());
    let writes = async |storage: &CheckpointStorage, odd: u64| {
        for round in 0..10 {
            save(storage, &[fixture.record("web", "app", 2 * round + odd)]).await;
        }
    };
    tokio::join!(writes(&one, 1), writes(&other, 0));
    let richest = fixture.record("web", "app", 19);
    assert_eq!(fixture.load().await.snapshots[&richest.key], richest.snapshot);
    assert_eq!(fixture.names().await, ["web-app"]);
}

#[tokio::test]
async fn keys_with_colliding_or_too_long_names_have_their_own_objects() {
    let Some(fixture) = CheckpointFixture::new("names").await else { return };
    let long = "v".repeat(250);
    let records = [
        fixture.record("a-b", "c", 1),
        fixture.record("a", "b-c", 2),
        fixture.record(&long, "app", 3),
        fixture.record(&long, "sidecar", 4),
    ];
    let storage = fixture.open();
    for record in &records {
        assert_eq!(
            save_with_permit(&storage, record, &AlwaysPermitted).await,
            WRITTEN,
            "{}",
            record.key
        );
    }
    let names = fixture.names().await;
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), 4, "{names:?}");
    // Also with a backend that has not seen their names.
    for storage in [&storage, &fixture.open()] {
        for record in &records {
            let count = record.snapshot.cpu_seen.count + 10;
            let (vpa, container) = (&record.key.vpa.name, &record.key.container);
            save(storage, &[fixture.record(vpa, container, count)]).await;
        }
    }
    assert_eq!(fixture.names().await, names);
    let loaded = fixture.load().await;
    for record in &records {
        let count = record.snapshot.cpu_seen.count + 10;
        assert_eq!(loaded.snapshots[&record.key].cpu_seen.count, count, "{}", record.key);
    }
    let removed = storage.collect_garbage(&|key| &*key.vpa.name == "a", &AlwaysPermitted).await;
    assert_eq!(removed.expect("ends"), 1);
    assert!(fixture.names().await.contains(&"a-b-c".to_owned()), "belongs to the other");
}

#[tokio::test]
async fn an_orphan_that_is_written_again_is_not_deleted() {
    let Some(fixture) = CheckpointFixture::new("orphan").await else { return };
    let (one, other) = (fixture.open(), fixture.open());
    save(&one, &[fixture.record("web", "app", 1), fixture.record("web", "sidecar", 1)]).await;
    load(&other, &LoadRequest::All).await;
    let other_writer = WriteOnAcquire::new(|_| {
        let (other, fixture) = (&other, &fixture);
        async move {
            save(other, &[fixture.record("web", "app", 2)]).await;
        }
    });
    let removed = one.collect_garbage(&|_| true, &other_writer).await.expect("ends");
    assert_eq!((removed, fixture.names().await), (1, vec!["web-app".to_owned()]));
    assert_eq!(
        save_with_permit(&one, &fixture.record("web", "app", 3), &AlwaysPermitted).await,
        WRITTEN
    );
}

#[tokio::test]
async fn a_recreated_vpa_inherits_by_the_owner_of_its_pods_unless_it_has_its_own() {
    let Some(fixture) = CheckpointFixture::new("heirs").await else { return };
    let owned = |vpa: &str, container: &str, generation: u64, owner: &str| {
        let mut record = fixture.record(vpa, container, generation);
        record.snapshot.owner = Some(owner.into());
        record
    };
    let (web, db) = ("apps/Deployment/web", "apps/Deployment/db");
    let batch = [
        owned("old", "app", 5, web),
        owned("old", "sidecar", 6, web),
        owned("older", "app", 3, web),
        owned("db", "app", 7, db),
        owned("db-2", "app", 1, db),
    ];
    let storage = fixture.open_with(|options| options.page_size = 2);
    save(&storage, &batch).await;
    let vpa = |name: &str| ObjectKey::new(fixture.namespace.as_str(), name);
    let wanted = HashMap::from([
        (vpa("new"), Some(web.into())),
        (vpa("db-2"), Some(db.into())),
        (vpa("other"), Some("apps/Deployment/other".into())),
        (ObjectKey::new("elsewhere", "new"), Some(web.into())),
    ]);
    let loaded = load(&storage, &LoadRequest::Vpas(wanted)).await;
    let found: Vec<(&ContainerKey, u64)> =
        loaded.snapshots.iter().map(|(key, snapshot)| (key, snapshot.cpu_seen.count)).collect();
    let (app, sidecar) = (fixture.key("new", "app"), fixture.key("new", "sidecar"));
    assert_eq!(found, [(&fixture.key("db-2", "app"), 1), (&app, 5), (&sidecar, 6)]);
    assert_eq!(fixture.names().await.len(), 5, "the inherited checkpoint still exists");
}

#[tokio::test]
async fn a_forbidden_request_is_reported_with_the_missing_rule() {
    let Some(fixture) = CheckpointFixture::new("forbidden").await else { return };
    let account = fixture.bed.service_account(&fixture.namespace, "nobody").await;
    let storage = CheckpointStorage::new(account.client, at_now, CheckpointOptions::default());
    let refused = storage.load(&LoadRequest::All, &mut LoadedSnapshots::default()).await;
    let Err(Error::Unusable { why, .. }) = refused else { panic!("{refused:?}") };
    assert!(why.contains("verticalpodautoscalercheckpoints], verbs [get, list"), "{why}");
    let report = save(&storage, &[fixture.record("web", "app", 1)]).await;
    let [SkippedRecord { record, reason }] = &report.failed[..] else { panic!("{report:?}") };
    assert!(record.ends_with("/web/app") && reason.contains("verbs [get"), "{record}: {reason}");
}

#[tokio::test]
async fn an_unreachable_server_fails_loads_temporarily_and_names_every_record() {
    let Some(fixture) = CheckpointFixture::new("silent").await else { return };
    // Port 1 refuses connections.
    let config = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
    let client = kube::Client::try_from(config).expect("a client");
    let storage = CheckpointStorage::new(client, || NOW, CheckpointOptions::default());
    let failed = storage.load(&LoadRequest::All, &mut LoadedSnapshots::default()).await;
    assert!(matches!(failed, Err(Error::Unavailable { .. })), "{failed:?}");
    let batch: Vec<Record> =
        (0..40).map(|n| fixture.record(&format!("web-{n}"), "app", 1)).collect();
    let report = save(&storage, &batch).await;
    assert_eq!((report.failed.len(), report.written), (40, 0));
    assert!(report.failed[39].reason.contains("not tried"), "{:?}", report.failed[39]);
}
