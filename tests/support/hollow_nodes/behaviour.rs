//! Behaviour of pods on hollow nodes, as set by a test.

/// The behaviour of pods. A rule can change at any time; the nodes then sync immediately.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    /// How containers start.
    pub start: StartBehaviour,
    /// What happens after a container exits that should be restarted.
    pub restart: RestartBehaviour,
    /// The response to a resize.
    pub resize: ResizeBehaviour,
    /// What happens when the pod is deleted.
    pub stop: StopBehaviour,
    /// How a container is executed.
    pub run: ContainerMode,
    /// The pod IP, if it has to be an address of this machine: for pods that are called through a Service.
    pub address: Option<String>,
}

/// How containers start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StartBehaviour {
    /// They run and are ready.
    #[default]
    Ready,
    /// They run and are not ready.
    Unready,
    /// The pod stays Pending, as if an image cannot be pulled.
    Held,
}

/// What happens after a container exits that should be restarted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RestartBehaviour {
    /// It is restarted.
    #[default]
    AtOnce,
    /// It waits in CrashLoopBackOff.
    Held,
}

/// The response to a resize.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResizeBehaviour {
    /// Like a kubelet: infeasible if it exceeds the node, deferred if it exceeds the free resources, else done.
    #[default]
    ByCapacity,
    /// Always deferred.
    Deferred,
    /// Always infeasible.
    Infeasible,
    /// Accepted and never completed.
    Stalled,
    /// Accepted, but the runtime fails with this reason.
    Failing(String),
}

/// What happens when the pod is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StopBehaviour {
    /// It is removed when its processes have ended.
    #[default]
    AtOnce,
    /// It stays Terminating.
    Held,
}

/// How a container is executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ContainerMode {
    /// As a status only: it runs until the test ends it; a plain init container completes immediately.
    #[default]
    Hollow,
    /// As a process on this machine, with the token of the pod's service account in `KUBECONFIG`.
    Process {
        /// Replaces the image's entry point, for containers without a command.
        entry_point: Vec<String>,
        /// Added to the container's environment: an image has a `PATH`, and pods, which would each have their own
        /// ports, share the ports of this machine.
        environment: Vec<(String, VariableValue)>,
    },
}

/// The value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariableValue {
    /// A fixed text.
    Text(String),
    /// A free loopback address, as `127.0.0.1:PORT`; see [`HollowNodes::port`](super::HollowNodes::port).
    Address,
    /// A free port.
    Port,
}
