//! Labels of pods tell a VPA its pods of the past where somebody names the query that has them.

use super::fixture::{CORES, Fixture, cores, recommendation, with_usage};
use crate::prometheus::label_flavors::OPERATOR;

/// Nobody could tell by its name whose it was.
const LEGACY: &str = "legacy";

#[tokio::test]
async fn a_vpa_gets_the_history_of_the_pods_that_its_target_selects_whatever_they_were_called() {
    let stage = Fixture::with_past(4 * 24, |past, namespace, end| {
        let past = with_usage(past, namespace, LEGACY, CORES * 4.0, end);
        let labels = [("namespace", namespace), ("pod", LEGACY), ("label_app", "web")];
        OPERATOR.state(past, "kube_pod_labels", &labels, |_| Some(1.0))
    });
    let Some(stage) = stage.await else { return };
    for (flags, usual) in [
        (&["--recommender-name=default"][..], CORES),
        (&["--metric-for-pod-labels=kube_pod_labels"], CORES * 4.0),
        (&["--metric-for-pod-labels=kube_pod_labels[4d]", "--pod-name-label=pod"], CORES * 4.0),
        // No such series: owners and names tell.
        (&["--metric-for-pod-labels=kube_pod_annotations"], CORES),
    ] {
        let running = stage.start(flags).await;
        stage.wait_for_history(&running).await;
        let what = format!("{usual} cores are known of with {flags:?}");
        let vpa = stage
            .vpa("web", &what, |vpa| {
                let target = recommendation(vpa).map(|said| cores(said)[1]);
                target.is_some_and(|target| (usual..usual * 1.4).contains(&target))
            })
            .await;
        assert!(recommendation(&vpa).is_some());
        running.stop().await;
    }
}
