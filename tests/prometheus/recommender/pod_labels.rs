//! With a query for pod labels, labels identify a VPA's past pods.

use super::fixture::{CORES, Fixture, cores, recommendation, with_usage};
use crate::prometheus::label_flavors::OPERATOR;

/// A pod whose name does not show its owner.
const LEGACY: &str = "legacy";

#[tokio::test]
async fn a_vpa_gets_the_history_of_the_pods_that_its_target_selects() {
    let fixture = Fixture::with_past(4 * 24, |history, namespace, end| {
        let history = with_usage(history, namespace, LEGACY, CORES * 4.0, end);
        let labels = [("namespace", namespace), ("pod", LEGACY), ("label_app", "web")];
        OPERATOR.state(history, "kube_pod_labels", &labels, |_| Some(1.0))
    });
    let Some(fixture) = fixture.await else { return };
    for (flags, usual) in [
        (&["--recommender-name=default"][..], CORES),
        (&["--metric-for-pod-labels=kube_pod_labels"], CORES * 4.0),
        (&["--metric-for-pod-labels=kube_pod_labels[4d]", "--pod-name-label=pod"], CORES * 4.0),
        // No such series: owner series and names decide.
        (&["--metric-for-pod-labels=kube_pod_annotations"], CORES),
    ] {
        let running = fixture.start(flags).await;
        fixture.wait_for_history(&running).await;
        let description = format!("{usual} cores are known of with {flags:?}");
        let vpa = fixture
            .vpa("web", &description, |vpa| {
                let target = recommendation(vpa).map(|recommended| cores(recommended)[1]);
                target.is_some_and(|target| (usual..usual * 1.4).contains(&target))
            })
            .await;
        assert!(recommendation(&vpa).is_some());
        running.stop().await;
    }
}
