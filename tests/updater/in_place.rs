//! In-place resizes: accepted, waited for, and the annotations written with them.

use kube::ResourceExt as _;

use super::fixture::{self, cpu, deployment, pods, uids, vpa};
use crate::support::wait;

#[tokio::test]
async fn pods_are_resized_in_place_and_annotated() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("resize").await else { return };
    deployment(&bed, &namespace, "web", 3).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    let flags = ["--canary-watch=1s", "--cool-down=1s", "--cool-down-urgent=1s"];
    let running = fixture::start(bed.client(), &namespace, &flags).await;
    let after = wait::until("all pods are resized", || async {
        let now = pods(&bed.client(), &namespace, "web").await;
        now.iter().all(|pod| cpu(pod) == Some("250m")).then_some(now)
    })
    .await;
    assert_eq!(uids(&after), before, "none was replaced");
    wait::until("they are annotated", || async {
        let now = pods(&bed.client(), &namespace, "web").await;
        now.iter()
            .all(|pod| {
                pod.annotations().get("vpaInPlaceUpdated").map(String::as_str) == Some("true")
            })
            .then_some(())
    })
    .await;
    let metrics = fixture::metrics(&running).await;
    let counted =
        metrics.lines().find(|line| line.starts_with("vpa_updater_in_place_updated_pods_total{"));
    assert!(counted.is_some_and(|line| line.ends_with(" 3")), "{counted:?}");
    running.stop().await;
}
