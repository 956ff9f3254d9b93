//! Owns how tests start a recommender in their own process: real cluster, real metrics API, stepped clock.

use std::time::Duration;

use kube::api::{Api, PostParams};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use plimsoll::{
    api::VerticalPodAutoscaler,
    cli::recommender_config,
    clock::Clock,
    run::recommender::{self, Running, Summary},
};

use crate::support::{Bed, wait};

/// Creates our definitions, as `plimsoll crds` prints them.
pub async fn define(bed: &Bed) {
    let api = Api::<CustomResourceDefinition>::all(bed.client());
    for definition in plimsoll::api::crds() {
        let name = definition.name_any();
        if api.get_opt(&name).await.expect("readable").is_none() {
            api.create(&PostParams::default(), &definition).await.expect("created");
        }
        wait::until("the definition is established", || async {
            let status = api.get_status(&name).await.ok()?.status?;
            let mut conditions = status.conditions.into_iter().flatten();
            conditions.any(|it| it.type_ == "Established" && it.status == "True").then_some(())
        })
        .await;
    }
}

/// Starts a recommender with these flags, which listens on a free port and needs no lease unless they say so.
pub async fn start(bed: &Bed, clock: &Clock, flags: &[&str]) -> Running {
    let kubeconfig = format!("--kubeconfig={}", bed.kubeconfig_path().display());
    let mut all = vec![&*kubeconfig, "--address=127.0.0.1:0", "--leader-elect=false"];
    all.extend(flags);
    let config = recommender_config(&all).expect("flags that make sense");
    let client = recommender::connect(&config).await.expect("a client");
    recommender::start(config, client, clock.clone()).await.expect("starts")
}

/// Steps the clock, and waits until the pass that this leads to is done.
pub async fn step(running: &Running, clock: &Clock, by: Duration) -> Summary {
    let mut passes = running.passes();
    let before = passes.borrow_and_update().0;
    clock.step(by);
    passed(running, before + 1).await
}

/// Waits until so many passes are done.
pub async fn passed(running: &Running, count: u64) -> Summary {
    let mut passes = running.passes();
    let done = passes.wait_for(|(done, _)| *done >= count);
    tokio::time::timeout(wait::PATIENCE, done).await.expect("a pass in time").expect("runs").1
}

/// Waits until a VPA is as wanted.
pub async fn vpa(
    bed: &Bed,
    namespace: &str,
    name: &str,
    what: &str,
    is: impl Fn(&VerticalPodAutoscaler) -> bool,
) -> VerticalPodAutoscaler {
    let api = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    wait::until(&format!("VPA {name} {what}"), || async {
        api.get_opt(name).await.ok()?.filter(|vpa| is(vpa))
    })
    .await
}
