//! Runs an admission controller on a real control plane whose API server calls it, and creates pods there.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration, apps::v1::Deployment, core::v1::Pod,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use plimsoll::controllers;
use plimsoll::{
    cli::admission_config,
    cluster::{
        clock::Clock,
        server::{certificate::CaBundle, webhook::check_webhook},
    },
    controllers::{AdmissionConfig, admission::AdmissionHandle},
};
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::json;
use tokio::time::MissedTickBehavior;

use crate::support::{Testbed, manifests, ports::Port, wait};

/// An admission controller that the testbed's API server calls at a port of this machine.
pub struct RunningWebhook {
    /// The running controller.
    pub running: AdmissionHandle,
    _port: Port,
}

/// Starts one with these flags in addition to the required ones.
pub async fn start(
    client: Client,
    flags: &[&str],
    adjust: impl FnOnce(&mut AdmissionConfig),
) -> RunningWebhook {
    let port = Port::claim();
    let (listen, called) = (format!("--port={port}"), format!("--webhook-port={port}"));
    let mut arguments = vec![
        "--address=127.0.0.1:0",
        "--register-by-url",
        "--webhook-address=https://127.0.0.1",
        "--status-lease-update-interval=1s",
        "--shutdown-delay=0",
        &listen,
        &called,
    ];
    arguments.extend(flags);
    let mut config = admission_config(&arguments, |_| String::new()).expect("valid flags");
    "127.0.0.1".clone_into(&mut config.listen.host);
    config.certificates.interval = Duration::from_millis(300);
    config.certificates.ca_propagation_delay = Duration::from_secs(2);
    adjust(&mut config);
    let running = controllers::start(config, client, Clock::wall()).await.expect("starts");
    RunningWebhook { running, _port: port }
}

pub async fn wait_until_ready(served: &RunningWebhook) {
    wait::until_ok("it is ready", || async {
        served.running.ready().map_err(|missing| missing.join("; "))
    })
    .await;
}

pub fn configurations(bed: &Testbed) -> Api<MutatingWebhookConfiguration> {
    Api::all(bed.client())
}

/// Waits until the API server calls the webhook: configurations take effect with a delay.
pub async fn wait_until_called(bed: &Testbed, namespace: &str) {
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    let target = json!({"kind": "Deployment", "name": "probe", "apiVersion": "apps/v1"});
    let probe = serde_json::from_value::<VerticalPodAutoscaler>(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "probe"}, "spec": {"targetRef": target},
    }))
    .expect("valid VPA");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    wait::until_ok("the API server calls the webhook", || async {
        let created = vpas.create(&dry, &probe).await.map_err(|why| why.to_string())?;
        created.spec.update_policy.map(drop).ok_or_else(|| "it is not called".to_owned())
    })
    .await;
}

/// Creates a workload without pods, and a VPA with a recommendation for it.
pub async fn workload(bed: &Testbed, namespace: &str) -> Deployment {
    let web = manifests::deployment("web", 0, "100m", "64Mi");
    recommended(bed, namespace, &web, "", &["main"]).await
}

/// Creates a VPA for the Deployment `web`, with this spec and recommendations for these containers.
pub async fn recommended(
    bed: &Testbed,
    namespace: &str,
    web: &str,
    more: &str,
    containers: &[&str],
) -> Deployment {
    let web = manifests::create::<Deployment>(bed.client(), namespace, web).await;
    let vpa = format!(
        "
metadata: {{name: web}}
spec: {{targetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}{more}}}
"
    );
    manifests::create::<VerticalPodAutoscaler>(bed.client(), namespace, &vpa).await;
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    let amounts = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
    let recommendations = containers.iter().map(|name| {
        json!({
            "containerName": name, "target": amounts("250m", "128Mi"),
            "lowerBound": amounts("200m", "100Mi"), "upperBound": amounts("1", "1Gi"),
        })
    });
    let recommendations: Vec<_> = recommendations.collect();
    let status =
        json!({"status": {"recommendation": {"containerRecommendations": recommendations}}});
    let parameters = PatchParams::default();
    vpas.patch_status("web", &parameters, &Patch::Merge(&status)).await.expect("valid status");
    web
}

/// Returns a pod of that workload, as its controllers would create it.
pub fn pod(owner: &Deployment, name: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "labels": {"app": "web"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": owner.name_any(),
                "uid": owner.uid().expect("created"), "controller": true,
            }],
        },
        "spec": {"containers": [{
            "name": "main", "image": "example/web",
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        }]},
    }))
    .expect("valid pod")
}

pub fn cpu(pod: &Pod) -> Option<&str> {
    let container = pod.spec.as_ref()?.containers.first()?;
    let requests = container.resources.as_ref()?.requests.as_ref()?;
    requests.get("cpu").map(|amount| &*amount.0)
}

/// Waits until a pod would be created like this, and returns it; watches report changes with a delay.
pub async fn wait_until_created(
    bed: &Testbed,
    namespace: &str,
    pod: &Pod,
    description: &str,
    is_so: impl Fn(&Pod) -> bool,
) -> Pod {
    let pods = Api::<Pod>::namespaced(bed.client(), namespace);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    wait::until_ok(description, || async {
        let created = pods.create(&dry, pod).await.map_err(|why| why.to_string())?;
        let spec = serde_json::to_string(&created.spec).expect("JSON");
        if is_so(&created) { Ok(created) } else { Err(spec) }
    })
    .await
}

/// Pods created during a test: the number of concurrent lanes, and the time between two pods of a lane, if any.
#[derive(Clone, Copy, Debug)]
pub struct PodCreationLoad {
    lanes: usize,
    pace: Option<Duration>,
}

/// Twenty pods a second, so that other tests get enough CPU.
pub const PACED_LOAD: PodCreationLoad =
    PodCreationLoad { lanes: 1, pace: Some(Duration::from_millis(50)) };
/// As many pods as the machine can create.
pub const FULL_LOAD: PodCreationLoad = PodCreationLoad { lanes: 4, pace: None };

/// Creates pods until stopped; returns the first rejected or unchanged one.
async fn lane(
    bed: &Testbed,
    namespace: &str,
    web: &Deployment,
    stopped: &AtomicBool,
    created: &AtomicUsize,
    (lane, pace): (usize, Option<Duration>),
) -> Result<(), String> {
    let pods = Api::<Pod>::namespaced(bed.client(), namespace);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let mut ticks = pace.map(tokio::time::interval);
    if let Some(ticks) = &mut ticks {
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    while !stopped.load(SeqCst) {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        let pod = pod(web, &format!("web-{lane}"));
        let made_one = pods.create(&dry, &pod).await.map_err(|why| why.to_string())?;
        if cpu(&made_one) != Some("250m") {
            return Err(format!("a pod was left as it is: {:?}", cpu(&made_one)));
        }
        created.fetch_add(1, SeqCst);
    }
    Ok(())
}

/// Creates pods continuously during an operation; none may be rejected or left unchanged.
pub async fn under_load(
    bed: &Testbed,
    namespace: &str,
    web: &Deployment,
    load: PodCreationLoad,
    meanwhile: impl Future<Output = ()>,
) {
    let pods = Api::<Pod>::namespaced(bed.client(), namespace);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    wait::until("pods get the recommendation", || async {
        let created = pods.create(&dry, &pod(web, "web")).await.ok()?;
        (cpu(&created) == Some("250m")).then_some(())
    })
    .await;
    let (stopped, created) = (AtomicBool::new(false), AtomicUsize::new(0));
    let lanes = (0..load.lanes)
        .map(|number| lane(bed, namespace, web, &stopped, &created, (number, load.pace)));
    let lanes = futures::future::join_all(lanes);
    let end = async {
        meanwhile.await;
        let before = created.load(SeqCst);
        wait::until("pods are still admitted", || async {
            (created.load(SeqCst) > before + 20).then_some(())
        })
        .await;
        stopped.store(true, SeqCst);
    };
    let (admitted, ()) = futures::future::join(lanes, end).await;
    assert_eq!(admitted.into_iter().collect::<Result<Vec<()>, _>>().map(drop), Ok(()));
    assert!(created.load(SeqCst) > 20, "only {} pods", created.load(SeqCst));
}

/// Waits until the webhook serves a certificate of this CA.
pub async fn wait_until_served(served: &RunningWebhook, trusts: &CaBundle) {
    let (address, limit) = (served.running.webhook(), Duration::from_secs(5));
    wait::until_ok("another certificate is served", || async {
        let found = check_webhook(address, "127.0.0.1", trusts.root_store(), limit).await;
        found.map_err(|why| why.to_string())
    })
    .await;
}
