//! The lifecycle of a pod on a hollow node: computes the next status from the pod. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::behaviour::{Behaviour, ContainerMode, RestartBehaviour, StartBehaviour};
use super::in_place_resize;
use super::resource_amounts::{ResourceAmounts, is_sidecar};

/// The inputs of a step other than the pod.
#[derive(Clone, Debug)]
pub struct StepContext {
    /// The behaviour that the test has set.
    pub behaviour: Behaviour,
    /// Allocatable resources of the node.
    pub allocatable: ResourceAmounts,
    /// Resources that other pods leave free.
    pub free: ResourceAmounts,
    /// The pod IP, if it is assigned in this step.
    pub address: String,
    /// The node's time.
    pub now: Timestamp,
}

/// A container run that starts in a step: container name and restart count.
pub type StartedRun = (String, i32);

/// The next status and the runs that start with it; `None` if nothing changes.
pub fn next_status(pod: &Pod, context: &StepContext) -> Option<(PodStatus, Vec<StartedRun>)> {
    let before = pod.status.clone().unwrap_or_default();
    let phase = before.phase.as_deref().unwrap_or("Pending");
    if matches!(phase, "Succeeded" | "Failed") || context.behaviour.start == StartBehaviour::Held {
        return None;
    }
    let mut life = LifecycleStep { pod, context, status: before.clone(), started_runs: Vec::new() };
    life.advance();
    (life.status != before).then_some((life.status, life.started_runs))
}

struct LifecycleStep<'a> {
    pod: &'a Pod,
    context: &'a StepContext,
    status: PodStatus,
    started_runs: Vec<StartedRun>,
}

// === impl LifecycleStep ===

impl LifecycleStep<'_> {
    fn advance(&mut self) {
        let Some(spec) = &self.pod.spec else { return };
        self.status.observed_generation = self.pod.metadata.generation;
        if self.status.start_time.is_none() {
            self.status.start_time = Some(Time(self.context.now));
            self.status.host_ip = Some("127.0.0.1".to_owned());
            self.status.pod_ip = Some(self.context.address.clone());
            self.status.pod_ips = Some(vec![PodIP { ip: self.context.address.clone() }]);
        }
        let mut inits = self.status.init_container_statuses.take().unwrap_or_default();
        let initialized =
            self.initialize(spec.init_containers.as_deref().unwrap_or(&[]), &mut inits);
        self.status.init_container_statuses = (!inits.is_empty()).then_some(inits);
        self.condition("PodReadyToStartContainers", true);
        self.condition("Initialized", initialized);
        if !initialized {
            self.condition("ContainersReady", false);
            self.condition("Ready", false);
            return;
        }
        let mut statuses = self.status.container_statuses.take().unwrap_or_default();
        for container in &spec.containers {
            let status = entry(&mut statuses, container);
            self.run(container, status);
        }
        self.status.container_statuses = Some(statuses);
        in_place_resize::advance(self.pod, &mut self.status, self.context);
        self.set_phase_and_readiness();
    }

    /// Runs init containers one after the other; returns whether the main containers may start.
    fn initialize(
        &mut self,
        containers: &[Container],
        statuses: &mut Vec<ContainerStatus>,
    ) -> bool {
        for container in containers {
            let status = entry(statuses, container);
            if is_sidecar(container) {
                self.run(container, status);
                continue;
            }
            let state = status.state.clone().unwrap_or_default();
            match state.terminated {
                Some(end) if end.exit_code == 0 => {}
                Some(_) => {
                    self.run(container, status);
                    return false;
                }
                None if state.running.is_none() => {
                    self.begin(container, status);
                    status.ready = false;
                    return false;
                }
                None => {
                    if self.context.behaviour.run == ContainerMode::Hollow {
                        end(status, 0, "Completed", self.context.now);
                        status.ready = true;
                    }
                    return false;
                }
            }
        }
        true
    }

    /// Starts a container, or restarts it after it ended.
    fn run(&mut self, container: &Container, status: &mut ContainerStatus) {
        let state = status.state.clone().unwrap_or_default();
        if let Some(end) = &state.terminated {
            status.ready = false;
            if !self.runs_again(container, end.exit_code) {
                return;
            }
            status.last_state = Some(state);
            if self.context.behaviour.restart == RestartBehaviour::Held {
                status.started = Some(false);
                status.state = Some(waiting("CrashLoopBackOff"));
                return;
            }
            status.restart_count += 1;
            self.begin(container, status);
        } else if state.running.is_none() {
            let crashed = state
                .waiting
                .is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"));
            if crashed && self.context.behaviour.restart == RestartBehaviour::Held {
                return;
            }
            status.restart_count += i32::from(crashed);
            self.begin(container, status);
        } else {
            status.ready = self.context.behaviour.start == StartBehaviour::Ready;
        }
    }

    fn runs_again(&self, container: &Container, exit_code: i32) -> bool {
        let policy = self.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        is_sidecar(container)
            || match policy {
                Some("Never") => false,
                Some("OnFailure") => exit_code != 0,
                _ => true,
            }
    }

    fn begin(&mut self, container: &Container, status: &mut ContainerStatus) {
        let uid = self.pod.metadata.uid.as_deref().unwrap_or_default();
        status.container_id =
            Some(format!("hollow://{uid}-{}-{}", container.name, status.restart_count));
        status.state = Some(ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(Time(self.context.now)) }),
            ..ContainerState::default()
        });
        status.started = Some(true);
        status.ready = self.context.behaviour.start == StartBehaviour::Ready;
        if status.resources.is_none() {
            status.resources.clone_from(&container.resources);
            status.allocated_resources =
                container.resources.as_ref().and_then(|resources| resources.requests.clone());
        }
        self.started_runs.push((container.name.clone(), status.restart_count));
    }

    /// Derives phase and readiness from the containers.
    fn set_phase_and_readiness(&mut self) {
        let statuses = self.status.container_statuses.as_deref().unwrap_or(&[]);
        // A container that runs again, such as after a resize with restart, is not terminated.
        let last_end = |status: &ContainerStatus| {
            let code = status.state.as_ref()?.terminated.as_ref()?.exit_code;
            let mut containers = self.pod.spec.as_ref()?.containers.iter();
            let container = containers.find(|one| one.name == status.name)?;
            (!self.runs_again(container, code)).then_some(code)
        };
        let ends: Vec<_> = statuses.iter().filter_map(last_end).collect();
        let all_ended = !ends.is_empty() && ends.len() == statuses.len();
        let ready = !all_ended && statuses.iter().all(|status| status.ready);
        let phase = match () {
            () if !all_ended => "Running",
            () if ends.iter().all(|code| *code == 0) => "Succeeded",
            () => "Failed",
        };
        self.status.phase = Some(phase.to_owned());
        self.condition("ContainersReady", ready);
        self.condition("Ready", ready);
    }

    fn condition(&mut self, kind: &str, holds: bool) {
        let status = if holds { "True" } else { "False" };
        let generation = self.pod.metadata.generation;
        set_condition(&mut self.status, kind, status, None, None, generation, self.context.now);
    }
}

/// Terminates a running container; returns whether it was running.
pub fn end(status: &mut ContainerStatus, exit_code: i32, reason: &str, now: Timestamp) -> bool {
    let Some(running) = status.state.as_ref().and_then(|state| state.running.clone()) else {
        return false;
    };
    status.state = Some(ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: status.container_id.clone(),
            exit_code,
            finished_at: Some(Time(now)),
            reason: Some(reason.to_owned()),
            started_at: running.started_at,
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    });
    status.ready = false;
    status.started = Some(false);
    true
}

/// Sets one condition and keeps the others; its transition time only changes with its status.
pub fn set_condition(
    pod: &mut PodStatus,
    kind: &str,
    status: &str,
    reason: Option<&str>,
    message: Option<&str>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let conditions = pod.conditions.get_or_insert_default();
    let known = conditions.iter().position(|condition| condition.type_ == kind);
    let since = known
        .map(|index| &conditions[index])
        .filter(|condition| condition.status == status)
        .and_then(|condition| condition.last_transition_time.clone());
    let condition = PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.map(str::to_owned),
        message: message.map(str::to_owned),
        last_transition_time: since.or(Some(Time(now))),
        last_probe_time: None,
        observed_generation: generation,
    };
    match known {
        Some(index) => conditions[index] = condition,
        None => conditions.push(condition),
    }
}

fn entry<'a>(
    statuses: &'a mut Vec<ContainerStatus>,
    container: &Container,
) -> &'a mut ContainerStatus {
    let index = statuses.iter().position(|status| status.name == container.name);
    let index = index.unwrap_or_else(|| {
        statuses.push(ContainerStatus {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            image_id: "hollow".to_owned(),
            state: Some(waiting("ContainerCreating")),
            ..ContainerStatus::default()
        });
        statuses.len() - 1
    });
    &mut statuses[index]
}

fn waiting(reason: &str) -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message: None }),
        ..ContainerState::default()
    }
}
