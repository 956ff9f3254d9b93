//! An alert holds the replicas of an object while it is firing, or while its state is unknown.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{exported_series, in_memory};
use crate::{
    metric_sources::loopback_server::{LoopbackServer, TestResponse},
    support::wait,
};

const HOLD_WHILE: &str = "plimsoll.dev/hold-while";

/// A Prometheus server with a load that needs more replicas, an alert that is firing, and one that it cannot tell anything about.
async fn prometheus() -> LoopbackServer {
    LoopbackServer::start_plain(|request| {
        let is_about = |text: &str| request.body.contains(text);
        if is_about("Unknown") {
            return TestResponse::new(503, "{}");
        }
        let value = match (is_about("ALERTS"), is_about("Firing")) {
            (true, true) => "1",
            (true, false) => "0",
            (false, _) => "1000",
        };
        TestResponse::json(format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{}},"value":[1800000000,"{value}"]}}]}}}}"#
        ))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_held_while_an_alert_is_firing_or_unknown() {
    let (server, api) = (prometheus().await, in_memory::read_only_scales());
    for (name, alert) in
        [("firing", "Firing"), ("quiet", "Quiet"), ("unknown", "Unknown"), ("invalid", "Firing{")]
    {
        let annotations = format!(
            "{{plimsoll.dev/hpa: drive, query.plimsoll.dev/load: load, target.plimsoll.dev/load: '100', \
             {HOLD_WHILE}: '{alert}'}}"
        );
        in_memory::create(&api, "shop", name, &annotations).await;
    }
    let address = format!("--prometheus-address={}", server.url(""));
    let role = in_memory::start(&api, &["--mode=adopted", &address]).await;
    let wait_until_desired = |expected: [(&'static str, f64); 4]| {
        let expected: BTreeMap<_, _> =
            expected.map(|(name, replicas)| (name.to_owned(), replicas)).into();
        let role = &role;
        async move {
            wait::until_ok("the decisions are as expected", || async {
                let found = exported_series(role, "plimsoll_effective", "name").await;
                if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
            })
            .await;
        }
    };
    // An invalid annotation holds nothing.
    wait_until_desired([("firing", 2.0), ("quiet", 4.0), ("unknown", 2.0), ("invalid", 4.0)]).await;
    let reasons = exported_series(&role, "plimsoll_restricted_scaling", "reason").await;
    assert_eq!(reasons.get("hold_while"), Some(&1.0), "{reasons:?}");

    let objects = Api::<HorizontalPodAutoscaler>::namespaced(api.client(), "shop");
    let patch = json!({"metadata": {"annotations": {HOLD_WHILE: "Quiet"}}});
    let patched = Patch::Merge(patch);
    objects.patch("firing", &PatchParams::default(), &patched).await.expect("patched");
    wait_until_desired([("firing", 4.0), ("quiet", 4.0), ("unknown", 2.0), ("invalid", 4.0)]).await;
    tokio::time::timeout(Duration::from_mins(1), role.stop()).await.expect("it stops");
}
