//! Queries in annotations read the series of the object's own namespace, whatever they ask for.

use std::{collections::BTreeSet, time::Duration};

use super::{exported_series, in_memory};
use crate::{
    metric_sources::loopback_server::{LoopbackServer, TestResponse},
    support::{in_memory_api::InMemoryApiServer, wait},
};

/// Namespace and name of an object, its query, and the query that is sent; `None` if none is.
const OBJECTS: [(&str, &str, &str, Option<&str>); 7] = [
    ("shop", "own", "sum(load)", Some(r#"sum(load{namespace="shop"})"#)),
    ("bank", "same", "sum(load)", Some(r#"sum(load{namespace="bank"})"#)),
    ("shop", "foreign", r#"sum(load{namespace="bank"})"#, None),
    ("shop", "every", r#"sum(load{namespace=~".+"})"#, None),
    (
        "shop",
        "several",
        r#"max({__name__=~"load|rate"} offset 1m) + max(max_over_time(load[5m]))"#,
        Some(
            r#"max({namespace="shop",__name__=~"load|rate"} offset 1m) + max(max_over_time(load{namespace="shop"}[5m]))"#,
        ),
    ),
    // This namespace may read all series, but only with its own queries.
    (
        "platform",
        "exempt",
        r#"sum(load{namespace="bank"})"#,
        Some(r#"sum(load{namespace="bank"})"#),
    ),
    ("platform", "all", "sum(load)", Some("sum(load)")),
];

/// The queries that the server received, each once.
fn received(server: &LoopbackServer) -> BTreeSet<String> {
    let query = |body: &str| {
        let mut fields = form_urlencoded::parse(body.as_bytes());
        fields.find_map(|(key, value)| (key == "query").then(|| value.into_owned()))
    };
    server.requests().iter().filter_map(|request| query(&request.body)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_of_one_namespace_never_reads_the_series_of_another() {
    let body = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1800000000,"1"]}]}}"#;
    let server = LoopbackServer::start_plain(move |_| TestResponse::json(body)).await;
    let api = InMemoryApiServer::new();
    for (namespace, name, query, _) in OBJECTS {
        let annotations = format!(
            "{{plimsoll.dev/hpa: drive, query.plimsoll.dev/load: '{query}', target.plimsoll.dev/load: '100'}}"
        );
        in_memory::create(&api, namespace, name, &annotations).await;
    }
    let flags = [
        "--mode=adopted",
        &format!("--prometheus-address={}", server.url("")),
        "--prometheus-unrestricted-namespaces=platform",
    ];
    let role = in_memory::start(&api, &flags).await;
    let expected: BTreeSet<_> =
        OBJECTS.iter().filter_map(|(.., sent)| sent.map(ToOwned::to_owned)).collect();
    wait::until_ok("all queries are sent", || async {
        let received = received(&server);
        if received.is_superset(&expected) { Ok(()) } else { Err(format!("{received:?}")) }
    })
    .await;
    let before = role.reconciles();
    wait::until("each object was decided three times more", || async {
        (role.reconciles() >= before + 3 * OBJECTS.len() as u64).then_some(())
    })
    .await;
    assert_eq!(received(&server), expected);
    // A query that is not sent has no value.
    let values = exported_series(&role, "plimsoll_value", "name").await;
    let expected: BTreeSet<_> =
        OBJECTS.iter().filter(|(.., sent)| sent.is_some()).map(|(_, name, ..)| *name).collect();
    assert_eq!(values.keys().map(String::as_str).collect::<BTreeSet<_>>(), expected);
    tokio::time::timeout(Duration::from_mins(1), role.stop()).await.expect("it stops");
}
