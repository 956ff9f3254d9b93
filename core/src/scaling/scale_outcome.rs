//! How a decided change of replicas ended, and the events that report it.

/// Event reason for a failed status update.
pub const STATUS_UPDATE_FAILED: &str = "FailedUpdateStatus";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScaleOutcome {
    NoChange,
    /// The change is about to be sent, and has to be recorded first.
    Pending,
    Done,
    /// The change was skipped in dry-run mode.
    DryRun,
    /// The server rejected the change.
    Failed(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether the type is `Warning` rather than `Normal`.
    pub is_warning: bool,
    pub reason: &'static str,
    pub message: String,
}
