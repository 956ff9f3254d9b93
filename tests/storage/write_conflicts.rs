//! Checkpoints that others write, name and remove at the same time, and servers that refuse.

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

/// Another program that acts between the decision to write and the write: whenever a permit is asked for.
struct WriteOnAcquire<F> {
    act: F,
    asked: AtomicUsize,
}

impl<F> WriteOnAcquire<F> {
    fn new(act: F) -> Self {
        Self { act, asked: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl<F, A> WritePermit for WriteOnAcquire<F>
where
    F: Fn(usize) -> A + Send + Sync,
    A: Future<Output = ()> + Send,
{
    async fn acquire(&self) -> Result<(), NotLeader> {
        (self.act)(self.asked.fetch_add(1, SeqCst)).await;
        Ok(())
    }
}

async fn save_with_permit(
    storage: &CheckpointStorage,
    record: &Record,
    permit: &dyn WritePermit,
) -> [usize; 5] {
    let report = storage.save(std::slice::from_ref(record), permit).await.expect("it ends");
    let (kept, refused, failed) =
        (report.stored_richer.len(), report.refused.len(), report.failed.len());
    [report.written, report.unchanged, kept, refused, failed]
}

const WRITTEN: [usize; 5] = [1, 0, 0, 0, 0];
const KEPT_RICHER: [usize; 5] = [0, 0, 1, 0, 0];
const FAILED: [usize; 5] = [0, 0, 0, 0, 1];

#[tokio::test]
async fn a_record_that_others_change_is_judged_again_and_written_in_the_end() {
    let Some(shelf) = CheckpointFixture::new("meddled").await else { return };
    let storage = shelf.open();
    save(&storage, &[shelf.record("web", "app", 5)]).await;
    let label = |n: usize| json!({"metadata": {"labels": {"meddled": n.to_string()}}});
    let thrice = WriteOnAcquire::new(|asked| {
        let shelf = &shelf;
        async move {
            if asked < 3 {
                shelf.change("web-app", label(asked)).await;
            }
        }
    });
    let record = shelf.record("web", "app", 6);
    assert_eq!(save_with_permit(&storage, &record, &thrice).await, WRITTEN);
    assert_eq!(thrice.asked.into_inner(), 4, "each write is paid for");
    assert_eq!(shelf.load().await.snapshots[&record.key], record.snapshot);
    let labels = shelf.object("web-app").await.metadata.labels.unwrap_or_default();
    assert_eq!(labels["meddled"], "2", "what others wrote is still there");

    let always = WriteOnAcquire::new(|asked| shelf.change("web-app", label(asked + 10)));
    assert_eq!(save_with_permit(&storage, &shelf.record("web", "app", 7), &always).await, FAILED);
    assert_eq!(shelf.load().await.snapshots[&record.key], record.snapshot, "it is as it was");
    assert_eq!(
        save_with_permit(&storage, &shelf.record("web", "app", 7), &AlwaysPermitted).await,
        WRITTEN
    );
}

#[tokio::test]
async fn a_richer_record_that_comes_in_between_is_kept() {
    let Some(shelf) = CheckpointFixture::new("richer").await else { return };
    let (one, other) = (shelf.open(), shelf.open());
    save(&one, &[shelf.record("web", "app", 5)]).await;
    load(&other, &LoadRequest::All).await;
    let rich = shelf.record("web", "app", 9);
    let meddler = WriteOnAcquire::new(|_| {
        let (other, rich) = (&other, &rich);
        async move {
            save(other, std::slice::from_ref(rich)).await;
        }
    });
    let poor = shelf.record("web", "app", 6);
    assert_eq!(save_with_permit(&one, &poor, &meddler).await, KEPT_RICHER);
    assert_eq!(shelf.load().await.snapshots[&rich.key], rich.snapshot);
    // Known from then on, without any call.
    assert_eq!(save_with_permit(&one, &poor, &meddler).await, KEPT_RICHER);
    assert_eq!(meddler.asked.load(SeqCst), 1);
    let reset = Record { supersede: true, ..poor };
    assert_eq!(save_with_permit(&one, &reset, &AlwaysPermitted).await, WRITTEN);
    assert_eq!(shelf.load().await.snapshots[&reset.key], reset.snapshot);
}

#[tokio::test]
async fn objects_that_appear_or_vanish_in_between_are_changed_or_made() {
    let Some(shelf) = CheckpointFixture::new("appear").await else { return };
    let (one, other) = (shelf.open(), shelf.open());
    let appears = WriteOnAcquire::new(|asked| {
        let (other, shelf) = (&other, &shelf);
        async move {
            if asked == 0 {
                save(other, &[shelf.record("web", "app", 3)]).await;
            }
        }
    });
    assert_eq!(save_with_permit(&one, &shelf.record("web", "app", 5), &appears).await, WRITTEN);
    let vanishes = WriteOnAcquire::new(|asked| {
        let shelf = &shelf;
        async move {
            if asked == 0 {
                shelf.remove("web-app").await;
            }
        }
    });
    let record = shelf.record("web", "app", 6);
    assert_eq!(save_with_permit(&one, &record, &vanishes).await, WRITTEN);
    assert_eq!(shelf.load().await.snapshots[&record.key], record.snapshot);

    // An object that holds nothing yet is filled.
    let spec = json!({"vpaObjectName": "empty", "containerName": "app"});
    shelf.create(json!({"metadata": {"name": "empty-app"}, "spec": spec})).await;
    assert_eq!(
        save_with_permit(&one, &shelf.record("empty", "app", 1), &AlwaysPermitted).await,
        WRITTEN
    );
    assert_eq!(shelf.load().await.report.skipped, []);
}

#[tokio::test]
async fn two_writers_leave_the_richest_of_what_they_wrote() {
    let Some(shelf) = CheckpointFixture::new("two").await else { return };
    let (one, other) = (shelf.open(), shelf.open());
    let writes = async |storage: &CheckpointStorage, odd: u64| {
        for round in 0..10 {
            save(storage, &[shelf.record("web", "app", 2 * round + odd)]).await;
        }
    };
    tokio::join!(writes(&one, 1), writes(&other, 0));
    let richest = shelf.record("web", "app", 19);
    assert_eq!(shelf.load().await.snapshots[&richest.key], richest.snapshot);
    assert_eq!(shelf.names().await, ["web-app"]);
}

#[tokio::test]
async fn keys_whose_names_collide_or_are_too_long_have_objects_of_their_own() {
    let Some(shelf) = CheckpointFixture::new("names").await else { return };
    let long = "v".repeat(250);
    let records = [
        shelf.record("a-b", "c", 1),
        shelf.record("a", "b-c", 2),
        shelf.record(&long, "app", 3),
        shelf.record(&long, "sidecar", 4),
    ];
    let storage = shelf.open();
    for record in &records {
        assert_eq!(
            save_with_permit(&storage, record, &AlwaysPermitted).await,
            WRITTEN,
            "{}",
            record.key
        );
    }
    let names = shelf.names().await;
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), 4, "{names:?}");
    // Also by one that has not seen how they are called.
    for storage in [&storage, &shelf.open()] {
        for record in &records {
            let count = record.snapshot.cpu_seen.count + 10;
            let (vpa, container) = (&record.key.vpa.name, &record.key.container);
            save(storage, &[shelf.record(vpa, container, count)]).await;
        }
    }
    assert_eq!(shelf.names().await, names);
    let loaded = shelf.load().await;
    for record in &records {
        let count = record.snapshot.cpu_seen.count + 10;
        assert_eq!(loaded.snapshots[&record.key].cpu_seen.count, count, "{}", record.key);
    }
    let removed = storage.collect_garbage(&|key| &*key.vpa.name == "a", &AlwaysPermitted).await;
    assert_eq!(removed.expect("it ends"), 1);
    assert!(shelf.names().await.contains(&"a-b-c".to_owned()), "it is the other one's");
}

#[tokio::test]
async fn an_orphan_that_somebody_writes_again_is_not_removed() {
    let Some(shelf) = CheckpointFixture::new("orphan").await else { return };
    let (one, other) = (shelf.open(), shelf.open());
    save(&one, &[shelf.record("web", "app", 1), shelf.record("web", "sidecar", 1)]).await;
    load(&other, &LoadRequest::All).await;
    let meddler = WriteOnAcquire::new(|_| {
        let (other, shelf) = (&other, &shelf);
        async move {
            save(other, &[shelf.record("web", "app", 2)]).await;
        }
    });
    let removed = one.collect_garbage(&|_| true, &meddler).await.expect("it ends");
    assert_eq!((removed, shelf.names().await), (1, vec!["web-app".to_owned()]));
    assert_eq!(
        save_with_permit(&one, &shelf.record("web", "app", 3), &AlwaysPermitted).await,
        WRITTEN
    );
}

#[tokio::test]
async fn a_vpa_made_anew_inherits_by_the_owner_of_its_pods_unless_it_has_its_own() {
    let Some(shelf) = CheckpointFixture::new("heirs").await else { return };
    let owned = |vpa: &str, container: &str, generation: u64, owner: &str| {
        let mut record = shelf.record(vpa, container, generation);
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
    let storage = shelf.open_with(|options| options.page_size = 2);
    save(&storage, &batch).await;
    let vpa = |name: &str| ObjectKey::new(shelf.namespace.as_str(), name);
    let wanted = HashMap::from([
        (vpa("new"), Some(web.into())),
        (vpa("db-2"), Some(db.into())),
        (vpa("other"), Some("apps/Deployment/other".into())),
        (ObjectKey::new("elsewhere", "new"), Some(web.into())),
    ]);
    let loaded = load(&storage, &LoadRequest::Vpas(wanted)).await;
    let found: Vec<(&ContainerKey, u64)> =
        loaded.snapshots.iter().map(|(key, snapshot)| (key, snapshot.cpu_seen.count)).collect();
    let (app, sidecar) = (shelf.key("new", "app"), shelf.key("new", "sidecar"));
    assert_eq!(found, [(&shelf.key("db-2", "app"), 1), (&app, 5), (&sidecar, 6)]);
    assert_eq!(shelf.names().await.len(), 5, "what was inherited from is still there");
}

#[tokio::test]
async fn who_may_not_is_told_which_rule_to_add() {
    let Some(shelf) = CheckpointFixture::new("forbidden").await else { return };
    let account = shelf.bed.service_account(&shelf.namespace, "nobody").await;
    let storage = CheckpointStorage::new(account.client, at_now, CheckpointOptions::default());
    let refused = storage.load(&LoadRequest::All, &mut LoadedSnapshots::default()).await;
    let Err(Error::Unusable { why, .. }) = refused else { panic!("{refused:?}") };
    assert!(why.contains("verticalpodautoscalercheckpoints], verbs [get, list"), "{why}");
    let report = save(&storage, &[shelf.record("web", "app", 1)]).await;
    let [SkippedRecord { record, reason }] = &report.failed[..] else { panic!("{report:?}") };
    assert!(record.ends_with("/web/app") && reason.contains("verbs [get"), "{record}: {reason}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_fails_loads_for_now_and_names_every_record() {
    let Some(shelf) = CheckpointFixture::new("silent").await else { return };
    // Nobody listens on port 1.
    let config = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
    let client = kube::Client::try_from(config).expect("a client");
    let storage = CheckpointStorage::new(client, || NOW, CheckpointOptions::default());
    let failed = storage.load(&LoadRequest::All, &mut LoadedSnapshots::default()).await;
    assert!(matches!(failed, Err(Error::Unavailable { .. })), "{failed:?}");
    let batch: Vec<Record> = (0..40).map(|n| shelf.record(&format!("web-{n}"), "app", 1)).collect();
    let report = save(&storage, &batch).await;
    assert_eq!((report.failed.len(), report.written), (40, 0));
    assert!(report.failed[39].reason.contains("not tried"), "{:?}", report.failed[39]);
}
