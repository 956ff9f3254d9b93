//! Resizes in place that are not done at once: those that wait, those that cannot be, and those that cost a restart.

use std::{collections::BTreeSet, sync::Mutex};

use http::Method;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use plimsoll_core::updater::guard::Charge;
use serde_json::json;

use super::{
    referee::Referee,
    stage::{
        self, booked, cpu, deployment, held_by, metrics, of_metrics, passes, pods, ready,
        recommend, uids, vpa,
    },
    way::{Way, What},
    webhook::Webhook,
};
use crate::support::{
    Bed, fleet,
    nodes::{Behaviour, Resize, Restart},
    objects,
    proxy::{self, Proxy},
    wait,
};

/// No rest and no canary: what holds a pod is what the kubelet says of it.
const FLAGS: &[&str] =
    &["--leader-elect=false", "--updater-interval=300ms", "--cool-down=0", "--canary-watch=0"];

fn behave(bed: &Bed, namespace: &str, resize: Resize) {
    bed.nodes().behave(namespace, "web-", Behaviour { resize, ..Behaviour::default() });
}

/// Waits until so many pods are left alone for that reason.
async fn skipped(running: &plimsoll::run::updater::Running, reason: &str, count: f64) {
    let labels = [format!("reason=\"{reason}\"")];
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    wait::until_ok(&format!("{count} pods are left alone: {reason}"), || async {
        let told = metrics(running).await;
        let is = of_metrics(&told, "plimsoll_updater_skipped_pods", &labels);
        if is == count { Ok(()) } else { Err(told) }
    })
    .await;
}

async fn have(bed: &Bed, namespace: &str, wanted: &str) -> Vec<Pod> {
    wait::until_ok(&format!("all have {wanted}, and the kubelet says so"), || async {
        let now = pods(&bed.client(), namespace, "web").await;
        let is_done = |pod: &Pod| {
            let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
            let requests = statuses.first()?.resources.as_ref()?.requests.as_ref()?;
            Some(cpu(pod) == Some(wanted) && requests["cpu"].0 == wanted)
        };
        if now.iter().all(|pod| is_done(pod) == Some(true)) {
            return Ok(now);
        }
        let vpa = stage::read(bed, namespace, "web").await;
        Err(format!("{:?} {:?} {now:?}", vpa.metadata.annotations, stage::held(&vpa)))
    })
    .await
}

#[tokio::test]
async fn a_resize_that_waits_for_room_is_waited_for_and_asked_for_once() {
    let Some((bed, namespace)) = stage::place("deferred").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 3).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    behave(&bed, &namespace, Resize::Deferred);
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    let way = Way::to(&bed, &namespace).await;
    let running = stage::start(way.client(), &namespace, FLAGS).await;
    skipped(&running, "resize_deferred", 3.0).await;
    passes(&running, 5).await;
    assert_eq!(way.asked(What::Resize), 3);
    assert_eq!(way.tried(What::Eviction), [""; 0], "five minutes are not over");
    // Another process knows no less: the times are those of the conditions.
    running.stop().await;
    let running = stage::start(way.client(), &namespace, FLAGS).await;
    skipped(&running, "resize_deferred", 3.0).await;
    behave(&bed, &namespace, Resize::ByRoom);
    let after = have(&bed, &namespace, "250m").await;
    skipped(&running, "near_target", 3.0).await;
    assert_eq!(uids(&after), before, "none was replaced");
    assert_eq!(way.asked(What::Resize), 3);
    running.stop().await;
}

/// A workload whose resizes end so. All pods are evicted, each once, and at most two of four are down.
async fn ends_in_evictions(name: &str, resize: Resize, flags: &[&str]) {
    let Some((bed, namespace)) = stage::place(name).await else {
        return;
    };
    deployment(&bed, &namespace, "web", 4).await;
    behave(&bed, &namespace, resize);
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    let _webhook = Webhook::start(&bed, &namespace, "web", "250m").await;
    stage::aged(&bed, &namespace, "web", 6).await;
    let referee = Referee::watch(bed.client(), &namespace, "web").await;
    let way = Way::to(&bed, &namespace).await;
    let flags = [FLAGS, flags].concat();
    let running = stage::start(way.client(), &namespace, &flags).await;
    wait::until("all were replaced", || async { (referee.ever() == 8).then_some(()) }).await;
    referee.settled(4).await;
    passes(&running, 4).await;
    running.stop().await;
    assert_eq!((referee.ever(), referee.with("250m")), (8, 4), "{:?}", referee.lives());
    assert!(referee.least() >= 2, "{} of 4 were up", referee.least());
    assert_eq!(way.asked(What::Resize), 4, "each was asked for once");
    assert_eq!(way.tried(What::Eviction).len(), 4);
}

#[tokio::test]
async fn a_resize_that_waits_for_too_long_ends_in_an_eviction() {
    let flags = ["--deferred-resize-timeout=2s"];
    ends_in_evictions("too-long", Resize::Deferred, &flags).await;
}

#[tokio::test]
async fn a_resize_that_the_node_finds_impossible_ends_in_an_eviction() {
    ends_in_evictions("impossible", Resize::Infeasible, &[]).await;
}

const IN_PLACE: &[&str] =
    &["--feature-gates=InPlace=true", "--in-recommendation-bounds-eviction-lifetime-threshold=0"];

#[tokio::test]
async fn without_evictions_an_impossible_resize_is_remembered_until_less_is_wanted() {
    let Some((bed, namespace)) = stage::place("remembered").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 3).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    behave(&bed, &namespace, Resize::Infeasible);
    vpa(&bed, &namespace, "web", "InPlace", "250m").await;
    let way = Way::to(&bed, &namespace).await;
    let flags = [FLAGS, IN_PLACE].concat();
    let running = stage::start(way.client(), &namespace, &flags).await;
    skipped(&running, "infeasible", 3.0).await;
    held_by(&bed, &namespace, "web", "Infeasible").await;
    passes(&running, 4).await;
    running.stop().await;
    let running = stage::start(way.client(), &namespace, &flags).await;
    skipped(&running, "infeasible", 3.0).await;
    passes(&running, 4).await;
    assert_eq!(way.asked(What::Resize), 3, "each was asked for once");
    recommend(&bed, &namespace, "web", "300m").await;
    skipped(&running, "infeasible", 3.0).await;
    passes(&running, 4).await;
    assert_eq!(way.asked(What::Resize), 3, "more is no less impossible");

    behave(&bed, &namespace, Resize::ByRoom);
    recommend(&bed, &namespace, "web", "150m").await;
    let after = have(&bed, &namespace, "150m").await;
    assert_eq!(uids(&after), before);
    assert_eq!(way.asked(What::Resize), 6);
    assert_eq!(way.tried(What::Eviction), [""; 0]);
    running.stop().await;
}

#[tokio::test]
async fn what_the_api_server_itself_refuses_is_asked_once_and_ends_in_one_eviction_where_those_are_allowed()
 {
    let Some((bed, namespace)) = stage::place("beyond").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 3).await;
    // The node has 64 cores.
    vpa(&bed, &namespace, "web", "InPlace", "100").await;
    let referee = Referee::watch(bed.client(), &namespace, "web").await;
    let way = Way::to(&bed, &namespace).await;
    let flags = [FLAGS, IN_PLACE].concat();
    let running = stage::start(way.client(), &namespace, &flags).await;
    skipped(&running, "infeasible", 3.0).await;
    passes(&running, 4).await;
    assert_eq!(way.asked(What::Resize), 3);
    let told = metrics(&running).await;
    let refused =
        of_metrics(&told, "plimsoll_updater_actions_total", &[r#"outcome="no_capacity""#]);
    assert_eq!(refused, 3.0);
    assert_eq!((referee.ever(), referee.with("100m")), (3, 3));
    running.stop().await;

    // Nobody sizes new pods here, so the first one shows that nothing is won.
    stage::set_mode(&bed, &namespace, "web", "InPlaceOrRecreate").await;
    let running = stage::start(way.client(), &namespace, &flags).await;
    held_by(&bed, &namespace, "web", "BreakerOpen").await;
    passes(&running, 4).await;
    assert_eq!(way.tried(What::Eviction).len(), 1);
    running.stop().await;
}

#[tokio::test]
async fn a_pod_that_somebody_writes_to_meanwhile_is_resized_later_and_not_evicted_for_it() {
    let Some((bed, namespace)) = stage::place("touched").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 3).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    let (client, met) = (bed.client(), Mutex::new(BTreeSet::new()));
    let proxy = Proxy::start(bed.client(), move |method, path| {
        let pod = path.strip_suffix("/resize").filter(|_| *method == Method::PATCH);
        let is_first = |pod: &&str| met.lock().expect("no panic").insert((*pod).to_owned());
        let Some(pod) = pod.filter(is_first) else {
            return proxy::pass();
        };
        let touched = json!({"metadata": {"annotations": {"example.com/touched": "yes"}}});
        let (client, pod) = (client.clone(), pod.to_owned());
        Box::pin(async move {
            fleet::send(&client, [fleet::Write::patch(pod, &touched)]).await;
            None
        })
    })
    .await;
    let running = stage::start(proxy.client.clone(), &namespace, FLAGS).await;
    let after = have(&bed, &namespace, "250m").await;
    assert_eq!(uids(&after), before, "none was replaced");
    let all = proxy.arrivals(&Method::PATCH, "/resize").len();
    let late = proxy.late(|method, path| *method == Method::PATCH && path.ends_with("/resize"));
    assert!(late >= 3, "each was written to by somebody else");
    assert_eq!(all - late, 3, "each was asked for again, and once");
    assert_eq!(proxy.arrivals(&Method::POST, "/eviction").len(), 0);
    running.stop().await;
}

#[tokio::test]
async fn a_resize_that_restarts_containers_counts_as_a_disruption_and_keeps_to_the_budget() {
    let Some((bed, namespace)) = stage::place("restarts").await else {
        return;
    };
    let policy = "
        resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]";
    let yaml = objects::deployment("web", 4, "100m", "64Mi");
    let yaml = yaml.replace("        resources:", &format!("{}\n        resources:", &policy[1..]));
    objects::create::<Deployment>(bed.client(), &namespace, &yaml).await;
    let before = uids(&ready(&bed, &namespace, "web", 4).await);
    let referee = Referee::watch(bed.client(), &namespace, "web").await;
    let held = Behaviour { restart: Restart::Held, ..Behaviour::default() };
    bed.nodes().behave(&namespace, "web-", held);
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    let flags = [FLAGS, &["--circuit-breaker=false"]].concat();
    let running = stage::start(bed.client(), &namespace, &flags).await;
    wait::until_ok("two are down", || async {
        let told = metrics(&running).await;
        let skipped: Vec<&str> =
            told.lines().filter(|line| line.starts_with("plimsoll_updater_skipped")).collect();
        if referee.up() == 2 { Ok(()) } else { Err(skipped.join("\n")) }
    })
    .await;
    passes(&running, 4).await;
    assert_eq!(referee.least(), 2, "no third one follows");
    bed.nodes().behave(&namespace, "web-", Behaviour::default());
    let after = have(&bed, &namespace, "250m").await;
    referee.settled(4).await;
    passes(&running, 3).await;
    running.stop().await;
    assert_eq!(uids(&after), before, "none was replaced");
    assert_eq!(referee.least(), 2);
    assert_eq!(booked(&bed, &namespace, Charge::Disruption).await, 4);
    assert_eq!(booked(&bed, &namespace, Charge::Resize).await, 0);
    let restarts = |pod: &Pod| {
        let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
        Some(statuses.first()?.restart_count)
    };
    let now = pods(&bed.client(), &namespace, "web").await;
    assert!(now.iter().all(|pod| restarts(pod) == Some(1)), "each restarts once");
}
