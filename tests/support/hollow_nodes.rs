//! Hollow nodes: they register with the API server and run the pods that the scheduler binds to them.
//!
//! ```text
//!   watch of pods ──▶ lifecycle (pure) ──▶ pods/status, or the end of a pod
//!                          ▲     └──────▶ processes of this machine, for pods that are to have them
//!          rules and commands of the test
//! ```

mod agent;
mod behaviour;
mod in_place_resize;
mod pod_lifecycle;
mod pod_processes;
mod resource_amounts;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus, NodeSystemInfo, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinHandle;

use super::clock::Clock;
use super::control_plane::ControlPlane;
use super::wait;
use agent::Agent;
pub use behaviour::{
    Behaviour, ContainerMode, ResizeBehaviour, RestartBehaviour, StartBehaviour, StopBehaviour,
    VariableValue,
};

/// The hollow nodes of a testbed.
#[derive(Debug)]
pub struct HollowNodes {
    agent: Arc<Agent>,
    watch: JoinHandle<()>,
}

/// A view of the nodes' pods, for other parts of the testbed.
#[derive(Clone, Debug)]
pub struct NodeView(Arc<Agent>);

// === impl NodeView ===

impl NodeView {
    /// All pods that are bound to a node.
    pub fn pods(&self) -> Vec<Pod> {
        self.0.all()
    }

    /// The pods of a namespace.
    pub fn pods_of(&self, namespace: &str) -> Vec<Pod> {
        self.0.pods_with_prefix(namespace, "")
    }

    /// The pods of a namespace whose names start with `prefix`.
    pub fn pods_with_prefix(&self, namespace: &str, prefix: &str) -> Vec<Pod> {
        self.0.pods_with_prefix(namespace, prefix)
    }

    /// See [`HollowNodes::port`].
    pub fn port(&self, pod: &Pod, container: &str, variable: &str) -> Option<u16> {
        self.0.port(pod, container, variable)
    }
}

// === impl HollowNodes ===

impl HollowNodes {
    /// Starts the node agent; there are no nodes yet. The client belongs to the current runtime, which must outlive
    /// the nodes.
    pub fn start(plane: &Arc<ControlPlane>, client: Client, clock: Clock) -> Self {
        let agent = Arc::new(Agent::new(Arc::downgrade(plane), client, clock));
        let watch = tokio::spawn(Arc::clone(&agent).watch());
        Self { agent, watch }
    }

    /// Registers a ready node of this size.
    pub async fn add(&self, name: &str, cpu: &str, memory: &str) {
        let quantity = |text: &str| Quantity(text.to_owned());
        let capacity = [("cpu", cpu), ("memory", memory), ("pods", "5000")]
            .map(|(name, amount)| (name.to_owned(), quantity(amount)));
        let now = Time(self.agent.clock().now());
        let condition = |kind: &str, status: &str, reason: &str| NodeCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            last_heartbeat_time: Some(now.clone()),
            last_transition_time: Some(now.clone()),
            ..NodeCondition::default()
        };
        let status = NodeStatus {
            capacity: Some(capacity.clone().into()),
            allocatable: Some(capacity.into()),
            conditions: Some(vec![
                condition("Ready", "True", "KubeletReady"),
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            ]),
            node_info: Some(NodeSystemInfo {
                kubelet_version: "v1.36.3".to_owned(),
                operating_system: "linux".to_owned(),
                architecture: "amd64".to_owned(),
                container_runtime_version: "hollow://1".to_owned(),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        };
        let labels = [("kubernetes.io/hostname", name), ("kubernetes.io/os", "linux")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let node = Node {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels.into()),
                ..ObjectMeta::default()
            },
            ..Node::default()
        };
        let api = Api::<Node>::all(self.agent.client());
        api.create(&PostParams::default(), &node).await.expect("a node of a new name");
        self.agent.add_node(name, &status);
        let plain = PatchParams::default();
        api.patch_status(name, &plain, &Patch::Merge(json!({ "status": status })))
            .await
            .expect("the node reports its status");
        // Admission taints every new node as not ready, and the controller that removes the taint does not run.
        api.patch(name, &plain, &Patch::Merge(json!({ "spec": { "taints": null } })))
            .await
            .expect("the node is untainted");
    }

    /// A view of the nodes' pods.
    pub fn view(&self) -> NodeView {
        NodeView(Arc::clone(&self.agent))
    }

    /// Sets the behaviour of pods in a namespace whose name starts with `prefix`, including existing ones. The latest
    /// rule wins.
    pub fn set_behaviour(&self, namespace: &str, prefix: &str, behaviour: Behaviour) {
        self.agent.add_rule(namespace, prefix, behaviour);
    }

    /// Ends a running container with this exit code and reason; it is restarted according to the pod's restart
    /// policy.
    pub async fn end_container(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        exit_code: i32,
        reason: &str,
    ) {
        self.agent.end(namespace, pod, container, exit_code, reason).await;
    }

    /// OOM-kills a container.
    pub async fn oom_kill(&self, namespace: &str, pod: &str, container: &str) {
        self.end_container(namespace, pod, container, 137, "OOMKilled").await;
    }

    /// The output of a container's process in its latest run.
    pub fn log(&self, pod: &Pod, container: &str) -> String {
        self.agent.log(pod, container)
    }

    /// The port that a container's process received in this variable in its latest run.
    pub fn port(&self, pod: &Pod, container: &str, variable: &str) -> Option<u16> {
        self.agent.port(pod, container, variable)
    }

    /// Waits until a pod satisfies a condition, and returns it.
    pub async fn pod(
        &self,
        namespace: &str,
        name: &str,
        what: &str,
        is: impl Fn(&Pod) -> bool,
    ) -> Pod {
        wait::until(&format!("pod {name} {what}"), || async {
            self.agent.find_pod(namespace, name).filter(|pod| is(pod)).map(|pod| Pod::clone(&pod))
        })
        .await
    }

    /// Waits until `count` pods with this prefix satisfy a condition, and returns them by name.
    pub async fn pods(
        &self,
        namespace: &str,
        prefix: &str,
        count: usize,
        what: &str,
        is: impl Fn(&Pod) -> bool,
    ) -> Vec<Pod> {
        wait::until(&format!("{count} pods {prefix}* {what}"), || async {
            let mut pods = self.agent.pods_with_prefix(namespace, prefix);
            pods.retain(|pod| is(pod));
            pods.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
            (pods.len() == count).then_some(pods)
        })
        .await
    }
}

impl Drop for HollowNodes {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Whether the pod is running and ready.
pub fn is_ready(pod: &Pod) -> bool {
    has_condition(pod, "Ready", "True") && pod.metadata.deletion_timestamp.is_none()
}

/// Whether the pod has a condition with this status.
pub fn has_condition(pod: &Pod, kind: &str, status: &str) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == kind && condition.status == status)
}
