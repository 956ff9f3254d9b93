//! A cluster for manifests: with RBAC, Pod Security and an audit log, nodes that run the images, a metrics API, and a
//! network to Services.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Namespace, Pod, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{audit_log::AuditLog, image, rendered_manifests::title};
use crate::support::{
    MetricsServer, Testbed,
    hollow_nodes::{Behaviour, ContainerMode, VariableValue, is_ready},
    service_network::ServiceNetwork,
    wait,
};

/// The variable in which a container receives its port. Pods have their own ports, but processes on one machine do
/// not, so each receives a free port in the variable of the corresponding flag. The arguments of the container stay
/// unchanged.
pub fn port_variable(port: i32) -> Option<&'static str> {
    match port {
        8942..=8945 => Some("PLIMSOLL_FLAG_ADDRESS"),
        8000 => Some("PLIMSOLL_FLAG_PORT"),
        8383 => Some("PLIMSOLL_FLAG_METRICS_ADDR"),
        9440 => Some("PLIMSOLL_FLAG_HEALTH_PORT"),
        _ => None,
    }
}

/// The cluster.
pub struct Fixture {
    pub bed: Testbed,
    pub usage: MetricsServer,
    pub audit: AuditLog,
    image: TempDir,
    _network: ServiceNetwork,
}

impl Fixture {
    /// Starts a cluster with three nodes and additional API server flags. Returns `None` after reporting why it is
    /// not available.
    pub async fn new(more: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let network = ServiceNetwork::start();
        let mut flags = AuditLog::flags(folder.path());
        flags.push(network.egress_selector_flag());
        flags.extend(more.iter().map(ToString::to_string));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let bed = Testbed::private_with(&flags, crate::support::Clock::wall()).await;
        let bed = bed.filter(Testbed::has_controllers)?;
        network.route_to(&bed, port_variable).await;
        for node in ["one", "two", "three"] {
            bed.nodes().add(node, "16", "64Gi").await;
        }
        let usage = MetricsServer::serve(&bed).await;
        let audit = AuditLog::of(bed.process_guard().folder());
        let image = tempfile::tempdir().expect("a folder");
        Some(Self { bed, usage, audit, image, _network: network })
    }

    /// Runs pods whose names start with `prefix` as processes, with the entry point of this image.
    pub fn run(&self, namespace: &str, prefix: &str, target: &str, more: &[(&str, &str)]) {
        let image = self.image.path().join(target);
        if !image.exists() {
            std::fs::create_dir(&image).expect("writable");
            image::unpack(&image);
        }
        let mut words = image::entry_point(target);
        words[0] = image.join(words[0].trim_start_matches('/')).display().to_string();
        let path = image.join("usr/local/bin").display().to_string();
        let text =
            |name: &str, value: &str| (name.to_owned(), VariableValue::Text(value.to_owned()));
        let mut environment = vec![text("PATH", &path)];
        for port in [8942, 8000, 8383, 9440] {
            let variable = port_variable(port).expect("known");
            let is_port = matches!(port, 8000 | 9440);
            let wanted = if is_port { VariableValue::Port } else { VariableValue::Address };
            environment.push((variable.to_owned(), wanted));
        }
        environment.extend(more.iter().map(|(name, value)| text(name, value)));
        self.behave(namespace, prefix, words, environment);
    }

    /// Runs pods as processes of any program.
    pub fn behave(
        &self,
        namespace: &str,
        prefix: &str,
        entry_point: Vec<String>,
        environment: Vec<(String, VariableValue)>,
    ) {
        let run = ContainerMode::Process { entry_point, environment };
        self.bed.nodes().set_behaviour(
            namespace,
            prefix,
            Behaviour { run, ..Behaviour::default() },
        );
    }

    /// Creates or updates a namespace with the Pod Security level `restricted` or `privileged`.
    pub async fn restrict_if(&self, name: &str, is_restricted: bool) {
        let level = if is_restricted { "restricted" } else { "privileged" };
        let namespaces = Api::<Namespace>::all(self.bed.client());
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {
                "pod-security.kubernetes.io/enforce": level,
                "pod-security.kubernetes.io/enforce-version": "latest",
            }},
        });
        let ours = PatchParams::apply("test").force();
        namespaces.patch(name, &ours, &Patch::Apply(&object)).await.expect("a namespace");
    }

    /// Applies objects like `kubectl apply`.
    pub async fn apply(&self, objects: &[Value]) {
        for object in objects {
            let (api, name) = api(&self.bed.client(), object);
            let ours = PatchParams::apply("test").force();
            wait::until_ok(&title(object), || async {
                let applied = api.patch(&name, &ours, &Patch::Apply(object)).await;
                applied.map(drop).map_err(|why| why.to_string())
            })
            .await;
        }
    }

    /// Deletes a namespace with its contents.
    pub async fn delete_namespace(&self, namespace: &str) {
        let namespaces = Api::<Namespace>::all(self.bed.client());
        let plain = kube::api::DeleteParams::default();
        namespaces.delete(namespace, &plain).await.expect("it exists");
        // The namespace controller retries after five seconds, and again after half the grace period of the remaining
        // pods.
        let pods = Api::<Pod>::namespaced(self.bed.client(), namespace);
        pods.delete_collection(&plain, &ListParams::default()).await.expect("pods can be deleted");
        wait::until("it is gone", || async {
            namespaces.get_opt(namespace).await.ok()?.is_none().then_some(())
        })
        .await;
    }

    /// Deletes objects.
    pub async fn delete(&self, objects: &[Value]) {
        for object in objects {
            let (api, name) = api(&self.bed.client(), object);
            match api.delete(&name, &kube::api::DeleteParams::background()).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(why) => panic!("{}: {why}", title(object)),
            }
        }
    }

    /// Waits until this many pods with these labels pass their probes, and returns them.
    pub async fn ready(&self, namespace: &str, labels: &str, count: usize) -> Vec<Pod> {
        let pods = Api::<Pod>::namespaced(self.bed.client(), namespace);
        let of = ListParams::default().labels(labels);
        wait::until_ok(&format!("{count} pods with {labels} are ready"), || async {
            let found = pods.list(&of).await.map_err(|why| why.to_string())?.items;
            let up = |pod: &&Pod| is_ready(pod);
            let (all, up) = (found.len(), found.iter().filter(up).count());
            if all != count || up != count {
                return Err(format!("{up} of {all} run"));
            }
            for pod in &found {
                self.check_probes(pod).await?;
            }
            Ok(found)
        })
        .await
    }

    /// Warnings in the logs of pods with these labels.
    pub async fn warnings(&self, namespace: &str, labels: &str) -> String {
        let is_warning = |line: &&str| line.contains("WARN") || line.contains("ERROR");
        self.logs(namespace, labels, |lines| lines.into_iter().filter(is_warning).collect()).await
    }

    /// The log tails of pods with these labels.
    pub async fn log_tails(&self, namespace: &str, labels: &str) -> String {
        self.logs(namespace, labels, |lines| lines[lines.len().saturating_sub(60)..].into()).await
    }

    /// Selected log lines of each container of pods with these labels.
    async fn logs(
        &self,
        namespace: &str,
        labels: &str,
        some: impl Fn(Vec<&str>) -> Vec<&str>,
    ) -> String {
        let pods = Api::<Pod>::namespaced(self.bed.client(), namespace);
        let found = pods.list(&ListParams::default().labels(labels)).await;
        let mut parts = Vec::new();
        for pod in found.map(|list| list.items).unwrap_or_default() {
            for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
                let log = self.bed.nodes().log(&pod, &container.name);
                let lines = some(log.lines().collect()).join("\n");
                parts.push(format!("log of {} in {}:\n{lines}", container.name, pod.name_any()));
            }
        }
        parts.join("\n")
    }

    /// The local address of a container's port.
    pub fn local_address(
        &self,
        pod: &Pod,
        container: &Container,
        port: &IntOrString,
    ) -> Result<u16, String> {
        let number = match port {
            IntOrString::Int(number) => *number,
            IntOrString::String(name) => {
                let mut ports = container.ports.iter().flatten();
                let port = ports.find(|port| port.name.as_ref() == Some(name));
                port.map(|port| port.container_port).ok_or(format!("no port {name}"))?
            }
        };
        let variable = port_variable(number).ok_or(format!("port {number} is not served"))?;
        let port = self.bed.nodes().port(pod, &container.name, variable);
        port.ok_or_else(|| "it was not started".to_owned())
    }

    /// Runs a pod's probes like a kubelet.
    async fn check_probes(&self, pod: &Pod) -> Result<(), String> {
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            for probe in [&container.liveness_probe, &container.readiness_probe] {
                let Some(Probe { http_get: Some(get), .. }) = probe else {
                    return Err(format!("{} has no probe", container.name));
                };
                let path = get.path.clone().unwrap_or_default();
                self.get(pod, container, &get.port, &path).await?;
            }
        }
        Ok(())
    }

    /// The response of a container's port; an error unless the status is 200.
    pub async fn get(
        &self,
        pod: &Pod,
        container: &Container,
        port: &IntOrString,
        path: &str,
    ) -> Result<String, String> {
        let answer = get_of(self.local_address(pod, container, port)?, path).await?;
        if !answer.starts_with("HTTP/1.1 200") {
            let log = self.bed.nodes().log(pod, &container.name);
            let end: Vec<&str> = log.lines().rev().take(8).collect();
            return Err(format!("{} {path}: {answer}\n{end:#?}", pod.name_any()));
        }
        Ok(answer)
    }
}

/// The response of a local port.
async fn get_of(port: u16, path: &str) -> Result<String, String> {
    let request = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let limit = Duration::from_secs(5);
    let answer = tokio::time::timeout(limit, request).await.map_err(|_| "no answer".to_owned())?;
    answer.map_err(|why| why.to_string())
}

/// The API and the name of an object.
pub fn api(client: &Client, object: &Value) -> (Api<DynamicObject>, String) {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = word(&object["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let kind = GroupVersionKind::gvk(group, version, &word(&object["kind"]));
    let resource = ApiResource::from_gvk(&kind);
    let name = word(&object["metadata"]["name"]);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => (Api::namespaced_with(client.clone(), namespace, &resource), name),
        None => (Api::all_with(client.clone(), &resource), name),
    }
}
