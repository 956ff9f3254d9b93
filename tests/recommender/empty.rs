//! A recommendation that becomes empty: the status says so, once.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use plimsoll::clock::Clock;
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_core::types::Time;
use serde_json::json;

use super::start::{passed, start, step, vpa, written};
use crate::storage::objects::defined;
use crate::support::{Bed, Usage, clock::wall_now, nodes::is_ready, objects, usage::Use, wait};

const MINUTE: Duration = Duration::from_mins(1);

fn recommended(vpa: &VerticalPodAutoscaler) -> Option<usize> {
    Some(vpa.status.as_ref()?.recommendation.as_ref()?.container_recommendations.len())
}

fn is_provided(vpa: &VerticalPodAutoscaler) -> Option<&str> {
    let conditions = &vpa.status.as_ref()?.conditions;
    Some(&conditions.iter().find(|one| one.kind == "RecommendationProvided")?.status)
}

#[tokio::test]
async fn switching_all_containers_off_empties_the_recommendation() {
    let Some(bed) = Bed::shared().await.filter(Bed::is_complete) else { return };
    defined(&bed).await;
    let namespace = bed.namespace("off").await;
    let usage = Usage::shared(&bed, &namespace).await;
    let only = format!("--vpa-object-namespace={namespace}");
    let web = "
metadata: {name: web}
spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
";
    objects::create::<VerticalPodAutoscaler>(bed.client(), &namespace, web).await;
    let deployment = objects::deployment("web", 1, "100m", "64Mi");
    objects::create::<Deployment>(bed.client(), &namespace, &deployment).await;
    bed.nodes().pods(&namespace, "web-", 1, "are ready", is_ready).await;
    usage.set_all(&namespace, "web-", "main", Use { cpu: 0.3, memory: 500 << 20 });

    let clock = Clock::stepped(Time::from(wall_now()));
    usage.at(clock.now().into());
    let running = start(&bed, &clock, &[&*only]).await;
    passed(&running, 1).await;
    vpa(&bed, &namespace, "web", "is recommended for", |vpa| recommended(vpa) == Some(1)).await;

    let api = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), &namespace);
    let off = json!({"spec": {"resourcePolicy": {"containerPolicies": [
        {"containerName": "*", "mode": "Off"},
    ]}}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(off)).await.expect("is changed");
    let emptied = wait::until("the recommendation is empty", || async {
        usage.at(clock.now().later(MINUTE).into());
        step(&running, &clock, MINUTE).await;
        api.get_opt("web").await.ok()?.filter(|vpa| recommended(vpa) == Some(0))
    })
    .await;
    assert_eq!(is_provided(&emptied), Some("False"));
    written(&running).await;
    let still = step(&running, &clock, MINUTE).await;
    assert_eq!(still.changed, 0, "what was written is what was wanted");
    running.stop().await;
}
