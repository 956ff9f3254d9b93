//! Pods on hollow nodes behave like real ones: the scheduler binds them, controllers own them, and their status
//! reports what happens to them like a kubelet.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::api::policy::v1::{Eviction, PodDisruptionBudget};
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::support::hollow_nodes::{
    Behaviour, ResizeBehaviour, RestartBehaviour, StartBehaviour, StopBehaviour, has_condition,
    is_ready,
};
use crate::support::{Clock, Testbed, manifests, wait};

#[tokio::test]
async fn pods_of_a_deployment_are_scheduled_by_the_real_scheduler() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    let namespace = bed.namespace("web").await;
    let web = manifests::deployment("web", 3, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;

    let pods = bed.nodes().pods(&namespace, "web-", 3, "are ready", is_ready).await;
    for pod in &pods {
        let status = main_container(pod);
        let request = &status.allocated_resources.as_ref().expect("allocated")["cpu"];
        assert_eq!(request.0, "100m");
        assert!(status.resources.is_some() && status.restart_count == 0);
        assert_eq!(pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()), Some("shared"));
    }
    let deployments = Api::<Deployment>::namespaced(bed.client(), &namespace);
    wait::until("the deployment counts its pods as available", || async {
        let status = deployments.get_status("web").await.ok()?.status?;
        (status.available_replicas == Some(3)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_deleted_pod_terminates_and_its_owner_replaces_it() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    let namespace = bed.namespace("delete").await;
    bed.nodes().set_behaviour(
        &namespace,
        "web-",
        Behaviour { stop: StopBehaviour::Held, ..Behaviour::default() },
    );
    let web = manifests::deployment("web", 1, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
    let pods = bed.nodes().pods(&namespace, "web-", 1, "are ready", is_ready).await;

    let old = pods[0].name_any();
    let api = Api::<Pod>::namespaced(bed.client(), &namespace);
    api.delete(&old, &DeleteParams::default()).await.expect("deleted");
    let is_terminating = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
    bed.nodes().pod(&namespace, &old, "terminates", is_terminating).await;
    let fresh = bed.nodes().pods(&namespace, "web-", 1, "are ready", is_ready).await;
    assert_ne!(fresh[0].name_any(), old);
    bed.nodes().set_behaviour(&namespace, "web-", Behaviour::default());
    wait::until("the old pod is gone", || async {
        api.get_opt(&old).await.expect("readable").is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_pdb_rejects_an_eviction() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    let namespace = bed.namespace("budget").await;
    let web = manifests::deployment("web", 2, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
    let budget = "
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
";
    manifests::create::<PodDisruptionBudget>(bed.client(), &namespace, budget).await;
    let pods = bed.nodes().pods(&namespace, "web-", 2, "are ready", is_ready).await;
    let budgets = Api::<PodDisruptionBudget>::namespaced(bed.client(), &namespace);
    wait::until("the budget has counted the pods", || async {
        let status = budgets.get_status("web").await.ok()?.status?;
        (status.current_healthy == 2).then_some(())
    })
    .await;

    let name = pods[0].name_any();
    let refusal = evict(bed.client(), &namespace, &name).await.expect_err("nothing may go");
    let kube::Error::Api(status) = refusal else { panic!("no answer: {refusal}") };
    assert_eq!(status.code, 429, "{}", status.message);
    let causes = status.details.as_ref().map(|details| &details.causes).expect("causes");
    assert!(causes.iter().any(|cause| cause.reason == "DisruptionBudget"), "{causes:?}");

    let looser = Patch::Merge(json!({ "spec": { "minAvailable": 1 } }));
    budgets.patch("web", &PatchParams::default(), &looser).await.expect("patched");
    wait::until("one pod may go", || async { evict(bed.client(), &namespace, &name).await.ok() })
        .await;
}

#[tokio::test]
async fn a_resize_completes_without_a_restart() {
    let Some(bed) = Testbed::shared().await else { return };
    let (namespace, pod) = running_pod(&bed, "resize").await;
    let before = main_container(&pod).restart_count;
    resize(bed.client(), &namespace, "one", "200m", "128Mi").await;
    let pod = bed
        .nodes()
        .pod(&namespace, "one", "is resized", |pod| actual_cpu(pod) == "200m" && is_settled(pod))
        .await;
    assert_eq!(main_container(&pod).restart_count, before);
    assert_eq!(
        main_container(&pod).allocated_resources.as_ref().expect("set")["memory"].0,
        "128Mi"
    );
}

#[tokio::test]
async fn a_resize_beyond_the_free_capacity_is_deferred_until_it_fits() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    bed.nodes().add("small", "2", "4Gi").await;
    let namespace = bed.namespace("deferred").await;
    for name in ["one", "two"] {
        let yaml = manifests::pod(name, "Always", "800m", "64Mi");
        manifests::create::<Pod>(bed.client(), &namespace, &yaml).await;
        bed.nodes().pod(&namespace, name, "is ready", is_ready).await;
    }
    resize(bed.client(), &namespace, "one", "1500m", "64Mi").await;
    let pod = bed.nodes().pod(&namespace, "one", "is refused", |pod| pending(pod).is_some()).await;
    assert_eq!(pending(&pod).as_deref(), Some("Deferred"));
    assert_eq!(actual_cpu(&pod), "800m");

    let api = Api::<Pod>::namespaced(bed.client(), &namespace);
    api.delete("two", &DeleteParams::default()).await.expect("deleted");
    bed.nodes()
        .pod(&namespace, "one", "is resized", |pod| actual_cpu(pod) == "1500m" && is_settled(pod))
        .await;
}

#[tokio::test]
async fn a_resize_beyond_the_node_capacity_is_rejected_by_the_server() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    bed.nodes().add("small", "2", "4Gi").await;
    let namespace = bed.namespace("beyond").await;
    let yaml = manifests::pod("one", "Always", "100m", "64Mi");
    manifests::create::<Pod>(bed.client(), &namespace, &yaml).await;
    bed.nodes().pod(&namespace, "one", "is ready", is_ready).await;
    let refusal = try_resize(bed.client(), &namespace, "one", "3", "64Mi").await;
    let Err(kube::Error::Api(status)) = refusal else { panic!("not refused: {refusal:?}") };
    assert_eq!(status.code, 403, "{}", status.message);
    let causes = status.details.as_ref().map(|details| &details.causes).expect("causes");
    assert!(causes.iter().any(|cause| cause.reason == "NodeCapacity"), "{causes:?}");
}

#[tokio::test]
async fn a_test_can_make_a_resize_infeasible() {
    let Some(bed) = Testbed::shared().await else { return };
    let (namespace, _) = running_pod(&bed, "infeasible").await;
    let behaviour = Behaviour { resize: ResizeBehaviour::Infeasible, ..Behaviour::default() };
    bed.nodes().set_behaviour(&namespace, "", behaviour);
    resize(bed.client(), &namespace, "one", "200m", "64Mi").await;
    let pod = bed.nodes().pod(&namespace, "one", "is refused", |pod| pending(pod).is_some()).await;
    assert_eq!(pending(&pod).as_deref(), Some("Infeasible"));
    assert_eq!(actual_cpu(&pod), "100m", "the container keeps what it has");
}

#[tokio::test]
async fn a_resize_can_stall_and_fail_on_the_node() {
    let Some(bed) = Testbed::shared().await else { return };
    let (namespace, _) = running_pod(&bed, "stalled").await;
    let stalled = Behaviour { resize: ResizeBehaviour::Stalled, ..Behaviour::default() };
    bed.nodes().set_behaviour(&namespace, "", stalled);
    resize(bed.client(), &namespace, "one", "200m", "64Mi").await;
    let under_way = |pod: &Pod| has_condition(pod, "PodResizeInProgress", "True");
    let pod = bed.nodes().pod(&namespace, "one", "is in progress", under_way).await;
    assert_eq!(main_container(&pod).allocated_resources.as_ref().expect("set")["cpu"].0, "200m");
    assert_eq!(actual_cpu(&pod), "100m");

    let resize = ResizeBehaviour::Failing("the runtime says no".to_owned());
    bed.nodes().set_behaviour(&namespace, "", Behaviour { resize, ..Behaviour::default() });
    let failed = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.reason.as_deref() == Some("Error"))
    };
    bed.nodes().pod(&namespace, "one", "has failed", failed).await;
    bed.nodes().set_behaviour(&namespace, "", Behaviour::default());
    bed.nodes().pod(&namespace, "one", "is resized", |pod| actual_cpu(pod) == "200m").await;
}

#[tokio::test]
async fn an_oom_kill_appears_in_the_last_state() {
    let Some(bed) = Testbed::shared().await else { return };
    let (namespace, _) = running_pod(&bed, "oom").await;
    bed.nodes().oom_kill(&namespace, "one", "main").await;
    let restarted = |pod: &Pod| main_container(pod).restart_count == 1 && is_ready(pod);
    let pod = bed.nodes().pod(&namespace, "one", "is back", restarted).await;
    let last = main_container(&pod).last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let last = last.expect("the last state is recorded");
    assert_eq!((last.exit_code, last.reason.as_deref()), (137, Some("OOMKilled")));

    let held = Behaviour { restart: RestartBehaviour::Held, ..Behaviour::default() };
    bed.nodes().set_behaviour(&namespace, "", held);
    bed.nodes().oom_kill(&namespace, "one", "main").await;
    let waits = |pod: &Pod| {
        let state = main_container(pod).state.as_ref();
        let waiting = state.and_then(|state| state.waiting.as_ref()?.reason.as_deref());
        waiting == Some("CrashLoopBackOff")
    };
    let pod = bed.nodes().pod(&namespace, "one", "waits", waits).await;
    assert!(!is_ready(&pod));
}

#[tokio::test]
async fn init_containers_run_in_order_and_sidecars_keep_running() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    let namespace = bed.namespace("inits").await;
    let yaml = "
metadata: {name: one}
spec:
  initContainers:
  - {name: first, image: example/first}
  - {name: proxy, image: example/proxy, restartPolicy: Always}
  - {name: second, image: example/second}
  containers:
  - {name: main, image: example/main}
";
    manifests::create::<Pod>(bed.client(), &namespace, yaml).await;
    let pod = bed.nodes().pod(&namespace, "one", "is ready", is_ready).await;
    let statuses = pod.status.as_ref().and_then(|status| status.init_container_statuses.as_ref());
    let states: Vec<_> = statuses
        .expect("statuses")
        .iter()
        .map(|status| {
            let state = status.state.as_ref().expect("a state");
            (status.name.as_str(), state.terminated.as_ref().map(|end| end.exit_code))
        })
        .collect();
    assert_eq!(states, [("first", Some(0)), ("proxy", None), ("second", Some(0))]);
}

#[tokio::test]
async fn a_pod_can_stay_pending_or_unready() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    let namespace = bed.namespace("slow").await;
    bed.nodes().set_behaviour(
        &namespace,
        "",
        Behaviour { start: StartBehaviour::Held, ..Behaviour::default() },
    );
    let yaml = manifests::pod("one", "Always", "100m", "64Mi");
    manifests::create::<Pod>(bed.client(), &namespace, &yaml).await;
    bed.nodes().pod(&namespace, "one", "is bound", |pod| phase(pod) == "Pending").await;
    bed.nodes().set_behaviour(
        &namespace,
        "",
        Behaviour { start: StartBehaviour::Unready, ..Behaviour::default() },
    );
    let pod = bed.nodes().pod(&namespace, "one", "runs", |pod| phase(pod) == "Running").await;
    assert!(!is_ready(&pod));
    bed.nodes().set_behaviour(&namespace, "", Behaviour::default());
    bed.nodes().pod(&namespace, "one", "is ready", is_ready).await;
}

#[tokio::test]
async fn nodes_use_the_clock_of_the_test() {
    let start: Timestamp = "2031-05-01T00:00:00Z".parse().expect("a time");
    let clock = Clock::frozen_at(start);
    let Some(bed) =
        Testbed::private_with(&[], clock.clone()).await.filter(Testbed::has_controllers)
    else {
        return;
    };
    bed.nodes().add("node", "4", "8Gi").await;
    let namespace = bed.namespace("clock").await;
    let yaml = manifests::pod("one", "Always", "100m", "64Mi");
    manifests::create::<Pod>(bed.client(), &namespace, &yaml).await;
    bed.nodes().pod(&namespace, "one", "is ready", is_ready).await;
    clock.step(SignedDuration::from_hours(3));
    bed.nodes().oom_kill(&namespace, "one", "main").await;
    let restarted = |pod: &Pod| main_container(pod).restart_count == 1;
    let pod = bed.nodes().pod(&namespace, "one", "is back", restarted).await;
    let last = main_container(&pod).last_state.clone().and_then(|state| state.terminated);
    let last = last.expect("the last state is recorded");
    assert_eq!(last.started_at.map(|time| time.0), Some(start));
    assert_eq!(last.finished_at.map(|time| time.0), Some(clock.now()));
}

async fn running_pod(bed: &Testbed, name: &str) -> (String, Pod) {
    let namespace = bed.namespace(name).await;
    let mut yaml = manifests::pod("one", "Always", "100m", "64Mi");
    // Without a scheduler the pod is bound to its node directly.
    yaml.push_str("  nodeName: shared\n");
    manifests::create::<Pod>(bed.client(), &namespace, &yaml).await;
    let pod = bed.nodes().pod(&namespace, "one", "is ready", is_ready).await;
    (namespace, pod)
}

async fn resize(client: Client, namespace: &str, pod: &str, cpu: &str, memory: &str) {
    try_resize(client, namespace, pod, cpu, memory).await.expect("taken");
}

async fn try_resize(
    client: Client,
    namespace: &str,
    pod: &str,
    cpu: &str,
    memory: &str,
) -> Result<Pod, kube::Error> {
    let requests = json!({ "requests": { "cpu": cpu, "memory": memory } });
    let body = json!({ "spec": { "containers": [{ "name": "main", "resources": requests }] } });
    let api = Api::<Pod>::namespaced(client, namespace);
    api.patch_resize(pod, &PatchParams::default(), &Patch::Strategic(body)).await
}

async fn evict(client: Client, namespace: &str, pod: &str) -> Result<Status, kube::Error> {
    let metadata = ObjectMeta {
        name: Some(pod.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ObjectMeta::default()
    };
    let eviction = Eviction { metadata, delete_options: None };
    let api = Api::<Pod>::namespaced(client, namespace);
    api.create_subresource("eviction", pod, &PostParams::default(), &eviction).await
}

pub fn main_container(pod: &Pod) -> &ContainerStatus {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.and_then(|statuses| statuses.first()).expect("the pod has a container status")
}

fn actual_cpu(pod: &Pod) -> String {
    let resources = main_container(pod).resources.as_ref();
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    requests.map(|requests| requests["cpu"].0.clone()).unwrap_or_default()
}

fn pending(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "PodResizePending")?.reason.clone()
}

fn is_settled(pod: &Pod) -> bool {
    !has_condition(pod, "PodResizeInProgress", "True") && pending(pod).is_none()
}

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}
