//! In-place resizes that are not done at once: deferred, infeasible, and those that need a restart.

use std::{collections::BTreeSet, sync::Mutex};

use http::Method;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use plimsoll_core::updater::guard::BudgetKind;
use serde_json::json;

use super::{
    availability_watch::AvailabilityWatch,
    fixture::{
        self, cpu, deployment, metric_sum, metrics, pods, recommend, recorded_disruptions, uids,
        vpa, wait_for_passes, wait_for_ready_pods, wait_until_blocked_by,
    },
    sizing_webhook::SizingWebhook,
};
use crate::support::{
    Testbed,
    api_proxy::{self, ApiProxy},
    bulk_objects,
    holding_proxy::{HoldingProxy, RoleWrite},
    hollow_nodes::{Behaviour, ResizeBehaviour, RestartBehaviour},
    manifests, wait,
};

/// No cooldown and no canary: only the kubelet's response delays a pod.
const FLAGS: &[&str] =
    &["--leader-elect=false", "--updater-interval=300ms", "--cool-down=0", "--canary-watch=0"];

fn behave(bed: &Testbed, namespace: &str, resize: ResizeBehaviour) {
    bed.nodes().set_behaviour(namespace, "web-", Behaviour { resize, ..Behaviour::default() });
}

/// Waits until this many pods are skipped for this reason.
async fn skipped(
    running: &plimsoll::controllers::updater::UpdaterHandle,
    reason: &str,
    count: f64,
) {
    let labels = [format!("reason=\"{reason}\"")];
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    wait::until_ok(&format!("{count} pods are skipped: {reason}"), || async {
        let page = metrics(running).await;
        let value = metric_sum(&page, "plimsoll_updater_skipped_pods", &labels);
        if value == count { Ok(()) } else { Err(page) }
    })
    .await;
}

async fn wait_for_cpu(bed: &Testbed, namespace: &str, wanted: &str) -> Vec<Pod> {
    wait::until_ok(&format!("all pods have {wanted} in their status"), || async {
        let now = pods(&bed.client(), namespace, "web").await;
        let is_done = |pod: &Pod| {
            let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
            let requests = statuses.first()?.resources.as_ref()?.requests.as_ref()?;
            Some(cpu(pod) == Some(wanted) && requests["cpu"].0 == wanted)
        };
        if now.iter().all(|pod| is_done(pod) == Some(true)) {
            return Ok(now);
        }
        let vpa = fixture::read(bed, namespace, "web").await;
        Err(format!(
            "{:?} {:?} {now:?}",
            vpa.metadata.annotations,
            fixture::blocked_condition(&vpa)
        ))
    })
    .await
}

#[tokio::test]
async fn a_deferred_resize_is_requested_once_and_awaited() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("deferred").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 3).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    behave(&bed, &namespace, ResizeBehaviour::Deferred);
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    let proxy = HoldingProxy::start(&bed, &namespace).await;
    let running = fixture::start(proxy.client(), &namespace, FLAGS).await;
    skipped(&running, "resize_deferred", 3.0).await;
    wait_for_passes(&running, 5).await;
    assert_eq!(proxy.attempt_count(RoleWrite::Resize), 3);
    assert_eq!(proxy.attempted_paths(RoleWrite::Eviction), [""; 0], "five minutes are not over");
    // A restarted process knows as much: the times come from the conditions.
    running.stop().await;
    let running = fixture::start(proxy.client(), &namespace, FLAGS).await;
    skipped(&running, "resize_deferred", 3.0).await;
    behave(&bed, &namespace, ResizeBehaviour::ByCapacity);
    let after = wait_for_cpu(&bed, &namespace, "250m").await;
    skipped(&running, "near_target", 3.0).await;
    assert_eq!(uids(&after), before, "none was replaced");
    assert_eq!(proxy.attempt_count(RoleWrite::Resize), 3);
    running.stop().await;
}

/// Checks a workload whose resizes end like this: all pods are evicted, each once, and at most two of four are unavailable.
async fn assert_evicted_instead(name: &str, resize: ResizeBehaviour, flags: &[&str]) {
    let Some((bed, namespace)) = fixture::testbed_and_namespace(name).await else {
        return;
    };
    deployment(&bed, &namespace, "web", 4).await;
    behave(&bed, &namespace, resize);
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    let _webhook = SizingWebhook::start(&bed, &namespace, "web", "250m").await;
    fixture::wait_for_age(&bed, &namespace, "web", 6).await;
    let availability = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
    let proxy = HoldingProxy::start(&bed, &namespace).await;
    let flags = [FLAGS, flags].concat();
    let running = fixture::start(proxy.client(), &namespace, &flags).await;
    wait::until("all pods were replaced", || async {
        (availability.total_pods() == 8).then_some(())
    })
    .await;
    availability.wait_until_available(4).await;
    wait_for_passes(&running, 4).await;
    running.stop().await;
    assert_eq!(
        (availability.total_pods(), availability.count_with_cpu("250m")),
        (8, 4),
        "{:?}",
        availability.requests_over_time()
    );
    assert!(
        availability.min_available() >= 2,
        "only {} of 4 were ready",
        availability.min_available()
    );
    assert_eq!(proxy.attempt_count(RoleWrite::Resize), 4, "each was requested once");
    assert_eq!(proxy.attempted_paths(RoleWrite::Eviction).len(), 4);
}

#[tokio::test]
async fn a_resize_deferred_for_too_long_becomes_an_eviction() {
    let flags = ["--deferred-resize-timeout=2s"];
    assert_evicted_instead("too-long", ResizeBehaviour::Deferred, &flags).await;
}

#[tokio::test]
async fn an_infeasible_resize_becomes_an_eviction() {
    assert_evicted_instead("impossible", ResizeBehaviour::Infeasible, &[]).await;
}

const IN_PLACE: &[&str] =
    &["--feature-gates=InPlace=true", "--in-recommendation-bounds-eviction-lifetime-threshold=0"];

#[tokio::test]
async fn without_evictions_an_infeasible_resize_is_retried_only_for_a_lower_target() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("remembered").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 3).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    behave(&bed, &namespace, ResizeBehaviour::Infeasible);
    vpa(&bed, &namespace, "web", "InPlace", "250m").await;
    let proxy = HoldingProxy::start(&bed, &namespace).await;
    let flags = [FLAGS, IN_PLACE].concat();
    let running = fixture::start(proxy.client(), &namespace, &flags).await;
    skipped(&running, "infeasible", 3.0).await;
    wait_until_blocked_by(&bed, &namespace, "web", "Infeasible").await;
    wait_for_passes(&running, 4).await;
    running.stop().await;
    let running = fixture::start(proxy.client(), &namespace, &flags).await;
    skipped(&running, "infeasible", 3.0).await;
    wait_for_passes(&running, 4).await;
    assert_eq!(proxy.attempt_count(RoleWrite::Resize), 3, "each was requested once");
    recommend(&bed, &namespace, "web", "300m").await;
    skipped(&running, "infeasible", 3.0).await;
    wait_for_passes(&running, 4).await;
    assert_eq!(proxy.attempt_count(RoleWrite::Resize), 3, "a larger resize is infeasible too");

    behave(&bed, &namespace, ResizeBehaviour::ByCapacity);
    recommend(&bed, &namespace, "web", "150m").await;
    let after = wait_for_cpu(&bed, &namespace, "150m").await;
    assert_eq!(uids(&after), before);
    assert_eq!(proxy.attempt_count(RoleWrite::Resize), 6);
    assert_eq!(proxy.attempted_paths(RoleWrite::Eviction), [""; 0]);
    running.stop().await;
}

#[tokio::test]
async fn a_rejected_resize_is_requested_once_and_becomes_an_eviction_if_allowed() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("beyond").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 3).await;
    // The node has 64 cores.
    vpa(&bed, &namespace, "web", "InPlace", "100").await;
    let availability = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
    let proxy = HoldingProxy::start(&bed, &namespace).await;
    let flags = [FLAGS, IN_PLACE].concat();
    let running = fixture::start(proxy.client(), &namespace, &flags).await;
    skipped(&running, "infeasible", 3.0).await;
    wait_for_passes(&running, 4).await;
    assert_eq!(proxy.attempt_count(RoleWrite::Resize), 3);
    let page = metrics(&running).await;
    let refused =
        metric_sum(&page, "plimsoll_updater_actions_total", &[r#"outcome="no_capacity""#]);
    assert_eq!(refused, 3.0);
    assert_eq!((availability.total_pods(), availability.count_with_cpu("100m")), (3, 3));
    running.stop().await;

    // Nothing sizes new pods here, so the first one shows that evictions have no effect.
    fixture::set_mode(&bed, &namespace, "web", "InPlaceOrRecreate").await;
    let running = fixture::start(proxy.client(), &namespace, &flags).await;
    wait_until_blocked_by(&bed, &namespace, "web", "BreakerOpen").await;
    wait_for_passes(&running, 4).await;
    assert_eq!(proxy.attempted_paths(RoleWrite::Eviction).len(), 1);
    running.stop().await;
}

#[tokio::test]
async fn a_pod_with_a_concurrent_write_is_resized_later_and_not_evicted() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("touched").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 3).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    let (client, met) = (bed.client(), Mutex::new(BTreeSet::new()));
    let proxy = ApiProxy::start(bed.client(), move |method, path| {
        let pod = path.strip_suffix("/resize").filter(|_| *method == Method::PATCH);
        let is_first = |pod: &&str| met.lock().expect("no panic").insert((*pod).to_owned());
        let Some(pod) = pod.filter(is_first) else {
            return api_proxy::pass_through();
        };
        let touched = json!({"metadata": {"annotations": {"example.com/touched": "yes"}}});
        let (client, pod) = (client.clone(), pod.to_owned());
        Box::pin(async move {
            bulk_objects::send(&client, [bulk_objects::ApiWrite::patch(pod, &touched)]).await;
            None
        })
    })
    .await;
    let running = fixture::start(proxy.client.clone(), &namespace, FLAGS).await;
    let after = wait_for_cpu(&bed, &namespace, "250m").await;
    assert_eq!(uids(&after), before, "none was replaced");
    let attempts = proxy.arrival_times(&Method::PATCH, "/resize").len();
    let late =
        proxy.conflict_count(|method, path| *method == Method::PATCH && path.ends_with("/resize"));
    assert!(late >= 3, "each had a concurrent write");
    assert_eq!(attempts - late, 3, "each was retried once");
    assert_eq!(proxy.arrival_times(&Method::POST, "/eviction").len(), 0);
    running.stop().await;
}

#[tokio::test]
async fn a_resize_that_restarts_containers_is_a_disruption_within_the_budget() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("restarts").await else {
        return;
    };
    let policy = "
        resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]";
    let yaml = manifests::deployment("web", 4, "100m", "64Mi");
    let yaml = yaml.replace("        resources:", &format!("{}\n        resources:", &policy[1..]));
    manifests::create::<Deployment>(bed.client(), &namespace, &yaml).await;
    let before = uids(&wait_for_ready_pods(&bed, &namespace, "web", 4).await);
    let availability = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
    let held = Behaviour { restart: RestartBehaviour::Held, ..Behaviour::default() };
    bed.nodes().set_behaviour(&namespace, "web-", held);
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    let flags = [FLAGS, &["--circuit-breaker=false"]].concat();
    let running = fixture::start(bed.client(), &namespace, &flags).await;
    wait::until_ok("two pods are down", || async {
        let page = metrics(&running).await;
        let skipped: Vec<&str> =
            page.lines().filter(|line| line.starts_with("plimsoll_updater_skipped")).collect();
        if availability.up() == 2 { Ok(()) } else { Err(skipped.join("\n")) }
    })
    .await;
    wait_for_passes(&running, 4).await;
    assert_eq!(availability.min_available(), 2, "no third one follows");
    bed.nodes().set_behaviour(&namespace, "web-", Behaviour::default());
    let after = wait_for_cpu(&bed, &namespace, "250m").await;
    availability.wait_until_available(4).await;
    wait_for_passes(&running, 3).await;
    running.stop().await;
    assert_eq!(uids(&after), before, "none was replaced");
    assert_eq!(availability.min_available(), 2);
    assert_eq!(recorded_disruptions(&bed, &namespace, BudgetKind::Disruption).await, 4);
    assert_eq!(recorded_disruptions(&bed, &namespace, BudgetKind::Resize).await, 0);
    let restarts = |pod: &Pod| {
        let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
        Some(statuses.first()?.restart_count)
    };
    let now = pods(&bed.client(), &namespace, "web").await;
    assert!(now.iter().all(|pod| restarts(pod) == Some(1)), "each restarts once");
}
