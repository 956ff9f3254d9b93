//! Two shards of a recommender on one cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use plimsoll::cluster::clock::Clock;
use plimsoll_core::api::VerticalPodAutoscaler;

use super::in_process::{step, wait_for_passes};
use super::recorded_writes::{start_with, with_recorded_writes, writes};
use crate::storage::checkpoint_objects::create_definitions;
use crate::support::clock::wall_now;
use crate::support::hollow_nodes::is_ready;
use crate::support::{Testbed, manifests, wait};

const NAMESPACES: usize = 12;

/// Needs no metrics API: the earlier OOM kills make a history as well.
#[tokio::test]
async fn two_shards_cover_all_objects_and_never_write_the_same() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    let mut namespaces = Vec::new();
    for _ in 0..NAMESPACES {
        let namespace = bed.namespace("shared").await;
        let web = manifests::deployment("web", 1, "10m", "64Mi");
        manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
        let vpa = "
metadata: {name: web}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  recommenders: [{name: sharded}]
";
        manifests::create::<VerticalPodAutoscaler>(bed.client(), &namespace, vpa).await;
        namespaces.push(namespace);
    }
    for namespace in &namespaces {
        let pods = bed.nodes().pods(namespace, "web-", 1, "is ready", is_ready).await;
        bed.nodes().oom_kill(namespace, &pods[0].name_any(), "main").await;
    }

    let leases = bed.namespace("leases").await;
    let clock = Clock::fake(wall_now().into());
    let mut shards = Vec::new();
    let ways = [with_recorded_writes(bed.client()).await, with_recorded_writes(bed.client()).await];
    for (index, proxy) in ways.iter().enumerate() {
        let flags = [
            &*format!("--shard={}/2", index + 1),
            "--recommender-name=sharded",
            "--leader-elect-resource-name=sharded",
            &*format!("--leader-elect-resource-namespace={leases}"),
            // The testbed is shared, and other tests keep checkpoints without VPAs there.
            "--checkpoints-gc-interval=10000h",
            "--checkpoint-interval=0s",
            "--bounds-dead-band=0",
        ];
        shards.push(start_with(proxy.client.clone(), &clock, &flags).await);
    }
    let mut vpas = 0;
    for shard in &shards {
        wait_for_passes(shard, 1).await;
        vpas += step(shard, &clock, Duration::from_mins(1)).await.vpas;
    }
    assert_eq!(vpas, NAMESPACES, "each VPA belongs to one shard");

    let mut expected = BTreeSet::new();
    for namespace in &namespaces {
        expected.insert(format!("namespaces/{namespace}/verticalpodautoscalers/web"));
        expected
            .insert(format!("namespaces/{namespace}/verticalpodautoscalercheckpoints/web-main"));
    }
    let parts = wait::until("everything is written", || async {
        let parts = ways.each_ref().map(writes);
        let all: BTreeSet<_> = parts.iter().flatten().cloned().collect();
        (all == expected).then_some(parts)
    })
    .await;
    let both: Vec<_> = parts[0].intersection(&parts[1]).collect();
    assert_eq!(both, [""; 0], "written by both shards");
    assert!(parts.iter().all(|share| !share.is_empty()), "each shard has some");

    let api = Api::<Lease>::namespaced(bed.client(), &leases);
    let expected =
        ["plimsoll-sharded-1-of-2", "plimsoll-sharded-2-of-2", "sharded-1-of-2", "sharded-2-of-2"];
    let found = wait::until("Leases and heartbeats exist", || async {
        let found = api.list(&ListParams::default()).await.ok()?.items;
        (found.len() >= expected.len()).then_some(found)
    })
    .await;
    let names: Vec<_> = found.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, expected, "two leases and two heartbeats");
    for shard in shards {
        shard.stop().await;
    }
}
