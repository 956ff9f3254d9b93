//! An API server that dies without closing connections, and one that loses its history: watches recover, on virtual
//! time.

use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, PostParams};
use plimsoll::cluster::watch::{WatchFactory, WatchOptions};
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::watched_objects::WatchedObjects;
use crate::support::in_memory_api::InMemoryApiServer;

const MINUTE: Duration = Duration::from_mins(1);

fn vpas(api: &InMemoryApiServer) -> Api<VerticalPodAutoscaler> {
    Api::namespaced(api.client(), "shop")
}

async fn create(api: &InMemoryApiServer, name: &str) {
    let vpa = json!({
        "metadata": {"name": name},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
    });
    let vpa = serde_json::from_value(vpa).expect("a VPA");
    vpas(api).create(&PostParams::default(), &vpa).await.expect("created");
}

fn watch_vpas(api: &InMemoryApiServer) -> WatchedObjects<VerticalPodAutoscaler> {
    WatchedObjects::of(WatchFactory::dedicated(api.client()).objects(None), WatchOptions::default())
}

/// Waits until exactly these objects are known, and returns how long that took.
async fn wait_for_names(
    mirror: &WatchedObjects<VerticalPodAutoscaler>,
    names: &[&str],
) -> Duration {
    let began = Instant::now();
    let held = async {
        while mirror.names() != names || mirror.feed.is_failing() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    let held = timeout(60 * MINUTE, held).await;
    assert!(held.is_ok(), "{:?} instead of {names:?}: {:?}", mirror.names(), mirror.status());
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_with_open_connections_blocks_no_watch_forever() {
    for streams in [true, false] {
        let api = InMemoryApiServer::new();
        api.stream_lists(streams);
        for name in ["goes", "stays"] {
            create(&api, name).await;
        }
        let follows = watch_vpas(&api);
        wait_for_names(&follows, &["goes", "stays"]).await;

        api.stop();
        // This watch has to list first.
        let lists = watch_vpas(&api);
        for _ in 0..6 {
            sleep(10 * MINUTE).await;
            for mirror in [&follows, &lists] {
                assert!(mirror.feed.is_failing(), "streams: {streams}: there is no response");
                assert_eq!(mirror.feed.stalled_for(), None, "its loop still runs");
            }
        }
        assert!(!lists.feed.is_synced());
        assert_eq!(follows.names(), ["goes", "stays"], "cached objects stay");

        api.replace();
        vpas(&api).delete("goes", &DeleteParams::default()).await.expect("deleted");
        create(&api, "comes").await;
        for mirror in [&follows, &lists] {
            let took = wait_for_names(mirror, &["comes", "stays"]).await;
            assert!(took < 5 * MINUTE, "streams: {streams}: {took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_changes_receives_bookmarks_and_does_not_fail() {
    let api = InMemoryApiServer::new();
    create(&api, "web").await;
    let mirror = watch_vpas(&api);
    wait_for_names(&mirror, &["web"]).await;
    for _ in 0..120 {
        sleep(MINUTE).await;
        let status = mirror.status();
        let silence = status.last_response.expect("it has listed").elapsed();
        assert!(silence <= 2 * MINUTE && !mirror.feed.is_failing(), "{status:?}");
    }
    let status = mirror.status();
    assert_eq!((status.lists, status.errors), (1, 0), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_expires_watches_at_once_is_listed_with_growing_intervals() {
    let api = InMemoryApiServer::new();
    api.stream_lists(false);
    api.keep_watch_history(false);
    create(&api, "web").await;
    let mirror = watch_vpas(&api);
    sleep(10 * MINUTE).await;
    let lists = mirror.status().lists;
    assert!((20..=45).contains(&lists), "{lists} lists in ten minutes");
    let requests = api.requests().len() as u64;
    assert!(requests <= 2 * lists + 5, "{requests} requests for {lists} lists");

    // Once a watch has delivered events, an error has a short retry delay again.
    api.keep_watch_history(true);
    sleep(5 * MINUTE).await;
    let lists = mirror.status().lists;
    create(&api, "api").await;
    wait_for_names(&mirror, &["api", "web"]).await;
    assert_eq!(mirror.status().lists, lists, "by its watch");
    api.keep_watch_history(false);
    let again = async {
        while mirror.status().lists == lists {
            sleep(Duration::from_millis(10)).await;
        }
        Instant::now()
    };
    let refused = async {
        let errors = mirror.status().errors;
        while mirror.status().errors == errors {
            sleep(Duration::from_millis(10)).await;
        }
        Instant::now()
    };
    let (again, refused) = tokio::join!(again, refused);
    assert!(again - refused < Duration::from_millis(2_100), "{:?}", again - refused);
}
