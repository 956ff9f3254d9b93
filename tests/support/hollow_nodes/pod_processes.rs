//! Pods as processes of this machine: runs a container's command with the token of its service account.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};

use super::behaviour::VariableValue;
use super::resource_amounts::long_running_containers;
use crate::support::control_plane::ControlPlane;
use crate::support::ports::Port;
use crate::support::process_guard::ProcessState;
use crate::support::wait;

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The processes of a testbed's pods.
pub struct PodProcesses {
    /// Weak, because the testbed owns the nodes.
    plane: Weak<ControlPlane>,
    client: Client,
    /// By process name and variable.
    ports: Mutex<HashMap<(String, String), Port>>,
}

// === impl PodProcesses ===

impl PodProcesses {
    pub fn new(plane: Weak<ControlPlane>, client: Client) -> Self {
        Self { plane, client, ports: Mutex::default() }
    }

    pub async fn start(
        &self,
        pod: &Pod,
        container: &str,
        run: i32,
        entry_point: &[String],
        beside: &[(String, VariableValue)],
    ) {
        let token = self.token(pod).await;
        let Some(plane) = self.plane.upgrade() else { return };
        let Some(container) = find(pod, container) else { return };
        let name = name(pod, &container.name, run);
        let kubeconfig = plane.process_guard().folder().join(format!("{name}.kubeconfig"));
        fs::write(&kubeconfig, plane.kubeconfig_for(&token))
            .expect("the testbed's folder is writable");

        let command = container.command.as_deref().filter(|words| !words.is_empty());
        let mut words = command.unwrap_or(entry_point).to_vec();
        words.extend(container.args.clone().unwrap_or_default());
        let Some((program, arguments)) = words.split_first() else {
            panic!(
                "container {} has no command, and the test names no entry point",
                container.name
            );
        };
        let mut environment: Vec<_> = container
            .env
            .iter()
            .flatten()
            .filter_map(|variable| Some((variable.name.clone(), value(pod, variable)?)))
            .collect();
        environment.push(("KUBECONFIG".to_owned(), kubeconfig.display().to_string()));
        for (variable, wanted) in beside {
            let text = match wanted {
                VariableValue::Text(text) => text.clone(),
                VariableValue::Address => format!("127.0.0.1:{}", self.claim(&name, variable)),
                VariableValue::Port => self.claim(&name, variable).to_string(),
            };
            environment.push((variable.clone(), text));
        }
        let environment: Vec<_> =
            environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        plane.process_guard().start(&name, Path::new(program), arguments, &environment);
    }

    /// Waits for the exit code of a process; `None` if the testbed is dropped first.
    pub async fn exit_code(&self, pod: &Pod, container: &str, run: i32) -> Option<i32> {
        let name = name(pod, container, run);
        loop {
            if let Some(ProcessState::Exited(code)) =
                self.plane.upgrade()?.process_guard().state(&name)
            {
                return Some(code);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Stops a pod's processes like a kubelet: SIGTERM, the grace period, then SIGKILL.
    pub async fn stop(&self, pod: &Pod) {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
        for container in containers(pod) {
            let Some(name) = self.latest_run(pod, &container.name) else { continue };
            let running = || {
                let plane = self.plane.upgrade()?;
                matches!(plane.process_guard().state(&name), Some(ProcessState::Running(_)))
                    .then_some(plane)
            };
            let Some(plane) = running() else { continue };
            plane.process_guard().signal(&name, "TERM");
            drop(plane);
            let limit = Duration::from_secs(grace.unsigned_abs());
            let ended = async {
                while running().is_some() {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            };
            if tokio::time::timeout(limit, ended).await.is_err()
                && let Some(plane) = running()
            {
                plane.process_guard().signal(&name, "KILL");
            }
        }
    }

    pub fn log(&self, pod: &Pod, container: &str) -> String {
        let plane = self.plane.upgrade();
        let name = self.latest_run(pod, container);
        plane.zip(name).map_or_else(String::new, |(plane, name)| {
            plane.process_guard().log_tail(&name, usize::MAX)
        })
    }

    fn claim(&self, name: &str, variable: &str) -> u16 {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let port = Port::claim();
        let number = port.number();
        ports.insert((name.to_owned(), variable.to_owned()), port);
        number
    }

    /// The port that the latest run of a container received in this variable.
    pub fn port(&self, pod: &Pod, container: &str, variable: &str) -> Option<u16> {
        let name = self.latest_run(pod, container)?;
        let ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.get(&(name, variable.to_owned())).map(Port::number)
    }

    /// The name of the latest process of a container.
    fn latest_run(&self, pod: &Pod, container: &str) -> Option<String> {
        let plane = self.plane.upgrade()?;
        let mut runs = (0..).map(|run| name(pod, container, run));
        runs.by_ref().take_while(|name| plane.process_guard().state(name).is_some()).last()
    }

    async fn token(&self, pod: &Pod) -> String {
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
        let accounts = Api::<ServiceAccount>::namespaced(
            self.client.clone(),
            &pod.namespace().unwrap_or_default(),
        );
        let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
        wait::until("a token for a pod's service account", || async {
            let answer = accounts
                .create_token_request(
                    account.unwrap_or("default"),
                    &PostParams::default(),
                    &request,
                )
                .await;
            Some(answer.ok()?.status?.token)
        })
        .await
    }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let plain = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref());
    let inits = plain.into_iter().flatten().filter(|container| container.restart_policy.is_none());
    inits.chain(long_running_containers(pod))
}

fn find<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    containers(pod).find(|container| container.name == name)
}

fn name(pod: &Pod, container: &str, run: i32) -> String {
    format!("pod-{}-{container}-{run}", pod.uid().unwrap_or_default())
}

/// The value of a variable, as far as a node without volumes supports it.
fn value(pod: &Pod, variable: &EnvVar) -> Option<String> {
    let Some(source) = &variable.value_from else {
        return Some(variable.value.clone().unwrap_or_default());
    };
    let spec = pod.spec.as_ref()?;
    match source.field_ref.as_ref()?.field_path.as_str() {
        "metadata.name" => Some(pod.name_any()),
        "metadata.namespace" => pod.namespace(),
        "metadata.uid" => pod.uid(),
        "spec.nodeName" => spec.node_name.clone(),
        "spec.serviceAccountName" => spec.service_account_name.clone(),
        "status.podIP" => pod.status.as_ref()?.pod_ip.clone(),
        _ => None,
    }
}
