//! What a check found: one finding for each check.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The maximum number of objects that a finding names. All are counted.
pub const MAX_OBJECTS: usize = 10;

/// The checks, in the order of the output.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CheckId {
    ApiVersion,
    CrdsServed,
    ResizeSupported,
    NodesCgroup2,
    NodesPsi,
    ClockSkew,
    MetricsApi,
    KsmFamilies,
    VpaTargetMissing,
    TwoVpasOneWorkload,
    HpaSameMetric,
    WpaAndHpa,
    SingleReplicaSkipped,
    PdbBlocksAll,
    QuotaWithoutRoom,
    LimitrangeFights,
    GomemlimitStatic,
    XmxAboveLimit,
    WebhookRegistered,
    WebhookAnswers,
    WebhookOrder,
    CaExpiring,
    Leases,
    TwoUpdaters,
    VersionSkew,
    Rights,
}

/// What a check is about.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::Display,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "UPPERCASE")]
pub enum Topic {
    /// The API server and the nodes.
    Cluster,
    /// Where usage comes from.
    Metrics,
    /// VPAs, HPAs and WPAs.
    Autoscalers,
    /// What prevents that a recommendation takes effect.
    Workloads,
    /// The admission webhook.
    Webhook,
    /// The roles of Plimsoll.
    Roles,
}

/// How severe a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// Nothing is wrong.
    Ok,
    /// What the check needs could not be read. This is not the same as nothing being wrong.
    Unknown,
    /// It works, and could be better.
    Warning,
    /// It does not work as it seems to.
    Problem,
}

/// The result of a check.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub id: CheckId,
    /// What the check is about.
    pub topic: Topic,
    /// How severe it is.
    pub level: Level,
    /// What was found.
    pub message: String,
    /// The value that was found.
    pub measured: Option<String>,
    /// The value that is needed.
    pub wanted: Option<String>,
    /// The first objects that are concerned, by name.
    pub objects: Vec<String>,
    /// The number of objects that are concerned.
    pub object_count: usize,
    /// A command that shows more or solves it.
    pub next: Option<String>,
    /// The page that describes what to do, from the root of the repository.
    pub runbook: String,
}

impl CheckId {
    /// What the check is about.
    pub const fn topic(self) -> Topic {
        match self {
            Self::ApiVersion
            | Self::CrdsServed
            | Self::ResizeSupported
            | Self::NodesCgroup2
            | Self::NodesPsi
            | Self::ClockSkew => Topic::Cluster,
            Self::MetricsApi | Self::KsmFamilies => Topic::Metrics,
            Self::VpaTargetMissing
            | Self::TwoVpasOneWorkload
            | Self::HpaSameMetric
            | Self::WpaAndHpa => Topic::Autoscalers,
            Self::SingleReplicaSkipped
            | Self::PdbBlocksAll
            | Self::QuotaWithoutRoom
            | Self::LimitrangeFights
            | Self::GomemlimitStatic
            | Self::XmxAboveLimit => Topic::Workloads,
            Self::WebhookRegistered
            | Self::WebhookAnswers
            | Self::WebhookOrder
            | Self::CaExpiring => Topic::Webhook,
            Self::Leases | Self::TwoUpdaters | Self::VersionSkew | Self::Rights => Topic::Roles,
        }
    }

    /// The runbook of the alert about the same, or the description of the check.
    pub fn runbook(self) -> String {
        let runbook = match self {
            Self::HpaSameMetric => "HpaVpaSameResource",
            Self::MetricsApi => "VpaUsageUnavailable",
            Self::WebhookRegistered => "VpaWebhookNotRegistered",
            Self::WebhookAnswers => "VpaWebhookUnreachable",
            Self::CaExpiring => "VpaWebhookCertificateExpiring",
            Self::Leases => "PlimsollNoLeader",
            Self::VersionSkew => "PlimsollVersionSkew",
            Self::Rights => "PlimsollWritesRefused",
            _ => return format!("docs/doctor.md#{self}"),
        };
        format!("docs/runbooks/{runbook}.md")
    }
}

impl Finding {
    /// A finding without details.
    pub fn new(id: CheckId, level: Level, message: impl Into<String>) -> Self {
        Self {
            id,
            topic: id.topic(),
            level,
            message: message.into(),
            measured: None,
            wanted: None,
            objects: Vec::new(),
            object_count: 0,
            next: None,
            runbook: id.runbook(),
        }
    }

    /// Nothing is wrong.
    pub fn ok(id: CheckId, message: impl Into<String>) -> Self {
        Self::new(id, Level::Ok, message)
    }

    /// It works, and could be better.
    pub fn warning(id: CheckId, message: impl Into<String>) -> Self {
        Self::new(id, Level::Warning, message)
    }

    /// It does not work as it seems to.
    pub fn problem(id: CheckId, message: impl Into<String>) -> Self {
        Self::new(id, Level::Problem, message)
    }

    /// What the check needs could not be read.
    pub fn unknown(id: CheckId, why: impl Into<String>) -> Self {
        Self::new(id, Level::Unknown, why)
    }

    /// Adds the value that was found, and the one that is needed.
    #[must_use]
    pub fn measured(mut self, measured: impl Into<String>, wanted: impl Into<String>) -> Self {
        self.measured = Some(measured.into());
        self.wanted = Some(wanted.into());
        self
    }

    /// Adds the objects that are concerned.
    #[must_use]
    pub fn objects(mut self, objects: impl IntoIterator<Item = impl Into<String>>) -> Self {
        for object in objects {
            if self.objects.len() < MAX_OBJECTS {
                self.objects.push(object.into());
            }
            self.object_count += 1;
        }
        self
    }

    /// Adds the next command.
    #[must_use]
    pub fn next(mut self, command: impl Into<String>) -> Self {
        self.next = Some(command.into());
        self
    }
}

pub(super) const HAVE: [&str; 2] = ["has", "have"];

/// `1 pod has`, `2 pods have`.
pub(super) fn subject(number: usize, singular: &str, [of_one, of_more]: [&str; 2]) -> String {
    format!("{} {}", count(number, singular), if number == 1 { of_one } else { of_more })
}

/// `1 pod`, `2 pods`.
pub(super) fn count(number: usize, singular: &str) -> String {
    format!("{number} {singular}{}", if number == 1 { "" } else { "s" })
}
