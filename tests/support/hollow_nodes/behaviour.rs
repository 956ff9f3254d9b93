//! Owns what a test can have the hollow nodes do with its pods.

/// What becomes of pods. A rule for them can change at any time; the nodes look again at once.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    /// How containers start.
    pub start: StartBehaviour,
    /// What happens after a container ended that is to run again.
    pub restart: RestartBehaviour,
    /// The answer to a resize.
    pub resize: ResizeBehaviour,
    /// What happens when the pod is deleted.
    pub stop: StopBehaviour,
    /// What a container is.
    pub run: ContainerMode,
    /// The pod's address, where it has to be one of this machine: for what is called through a Service.
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
    /// The pod stays Pending, as when an image cannot be pulled.
    Held,
}

/// What happens after a container ended that is to run again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RestartBehaviour {
    /// It runs again.
    #[default]
    AtOnce,
    /// It waits in CrashLoopBackOff.
    Held,
}

/// The answer to a resize.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResizeBehaviour {
    /// As a kubelet would: infeasible beyond the node, deferred beyond what is free on it, else done.
    #[default]
    ByCapacity,
    /// Deferred, whatever room there is.
    Deferred,
    /// Infeasible, whatever room there is.
    Infeasible,
    /// Accepted and never finished.
    Stalled,
    /// Accepted, and the runtime refuses it for this reason.
    Failing(String),
}

/// What happens when the pod is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StopBehaviour {
    /// It is gone when its processes are.
    #[default]
    AtOnce,
    /// It stays in Terminating.
    Held,
}

/// What a container is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ContainerMode {
    /// Nothing but a status: it runs until the test ends it; a plain init container is done at once.
    #[default]
    Hollow,
    /// Its command as a process of this machine, with the token of the pod's service account in `KUBECONFIG`.
    Process {
        /// Stands for the image's entry point, for containers without a command.
        entry_point: Vec<String>,
        /// Set beside what the container sets: an image has a `PATH`, and pods that would each have their own ports share
        /// those of this machine.
        environment: Vec<(String, VariableValue)>,
    },
}

/// What a variable is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariableValue {
    /// This.
    Text(String),
    /// An address of loopback that nobody else has, as `127.0.0.1:PORT`; see [`Nodes::port`](super::Nodes::port).
    Address,
    /// A port that nobody else has.
    Port,
}
