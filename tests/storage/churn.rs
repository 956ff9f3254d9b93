//! Checkpoints of VPAs that are created and deleted, whose objects are deleted by another replica.

use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use plimsoll_core::{
    api::checkpoint::VerticalPodAutoscalerCheckpoint as Checkpoint, history::Record, types::Time,
};
use plimsoll_storage::{CheckpointStorage, Writer};

use super::temp_store::{AlwaysPermitted, records};
use crate::support::in_memory_api::InMemoryApiServer;

const VPAS: usize = 50;

#[tokio::test]
async fn cached_objects_of_deleted_vpas_are_dropped() {
    let api = InMemoryApiServer::new();
    let now = || Time::from_secs(1_790_100_000);
    let store = CheckpointStorage::new(
        api.client(),
        now,
        plimsoll_storage::checkpoint::CheckpointOptions::default(),
    );
    let save = async |batch: &[Record]| {
        let before = api.requests().len();
        let report = store.save(batch, &AlwaysPermitted).await.expect("server is reachable");
        assert_eq!(report.written, batch.len());
        let methods = api.requests().into_iter().skip(before).map(|request| request.method);
        methods.filter(|method| *method == http::Method::POST).count()
    };
    let saved = records(VPAS, 1);
    assert_eq!(save(&saved).await, VPAS, "each is created");
    // Another replica collects them, because their VPAs are gone.
    let objects = Api::<Checkpoint>::namespaced(api.client(), "shop");
    for object in objects.list(&ListParams::default()).await.expect("is listed").items {
        objects.delete(&object.name_any(), &DeleteParams::default()).await.expect("exists");
    }
    let of_none = |_: &_| true;
    store.collect_garbage(&of_none, &AlwaysPermitted).await.expect("server is reachable");
    assert_eq!(store.cached_objects(), 0);
    assert_eq!(save(&records(VPAS, 2)).await, VPAS, "each is created at once");
    // Checkpoints of existing VPAs stay known.
    store.collect_garbage(&|_: &_| false, &AlwaysPermitted).await.expect("server is reachable");
    assert_eq!(store.cached_objects(), VPAS);
}
