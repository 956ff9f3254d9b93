//! Why a manifest, or a value in it, is not edited.

use std::fmt;

/// Something that is not edited, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path of the file.
    pub file: Box<str>,
    /// The line, from 1.
    pub line: usize,
    /// What is not edited, such as `shop/Deployment/checkout, container main, memory`; `None` for a whole
    /// file.
    pub subject: Option<String>,
    pub reason: Refusal,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        if let Some(subject) = &self.subject {
            write!(f, "{subject}: ")?;
        }
        self.reason.fmt(f)
    }
}

/// Why something is not edited, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The file is too large.
    #[error("the file is larger than {} MiB: split it", super::MAX_FILE_BYTES >> 20)]
    TooLarge,
    /// The file has too many nodes.
    #[error("the file has more than {0} values: split it")]
    TooManyNodes(usize),
    /// There are too many files.
    #[error("there are more than {} files: name a smaller folder", super::MAX_FILES)]
    TooManyFiles,
    /// The files are too large together.
    #[error(
        "the files with workloads have more than {} MiB together: name a smaller folder",
        super::MAX_KEPT_BYTES >> 20
    )]
    TooManyBytes,
    /// The file could not be read.
    #[error("{0}")]
    Unreadable(String),
    /// The file is no YAML.
    #[error("invalid YAML: {0}")]
    Syntax(String),
    /// A template of Helm or another program.
    #[error("this is a template: set the values of the chart (-o helm-values) instead")]
    Template,
    /// A line ends with a carriage return alone.
    #[error("a line ends with a carriage return without a line feed: convert the line ends")]
    LineEnd,
    /// The value, or something around it, is an alias.
    #[error("this is an alias of another value: edit it by hand")]
    Alias,
    /// The value, or something around it, is used elsewhere by an alias.
    #[error("aliases use this value elsewhere in the file: edit it by hand")]
    Anchor,
    /// The value may come from a merge key.
    #[error("a merge key (<<) may set this value: edit it by hand")]
    MergeKey,
    /// The value has a tag.
    #[error("the value has a tag: edit it by hand")]
    Tag,
    /// A key exists twice.
    #[error("the key {0:?} exists twice: remove one")]
    DuplicateKey(String),
    /// A mapping was expected.
    #[error("{0:?} is not a mapping: edit it by hand")]
    NotMapping(String),
    /// A sequence was expected.
    #[error("{0:?} is not a list: edit it by hand")]
    NotList(String),
    /// A value on one line was expected.
    #[error("{0:?} is not a value on one line: edit it by hand")]
    NotScalar(String),
    /// The value is no quantity.
    #[error("{0:?} is not a quantity: another program may replace it; edit it by hand")]
    NotQuantity(String),
    /// The value is no whole number.
    #[error("{0:?} is not a whole number: another program may replace it; edit it by hand")]
    NotNumber(String),
    /// A comment would be lost.
    #[error("the edit would remove a comment: edit it by hand")]
    Comment,
    /// The text around the value is written in an unusual way.
    #[error("the lines around it are written in an unusual way: edit it by hand")]
    Layout,
    /// Two objects have the name.
    #[error("the object is also in {file}:{line}: name the file to edit")]
    SeveralObjects {
        /// The other file.
        file: Box<str>,
        /// The line of the other object.
        line: usize,
    },
    /// Several workloads have the name.
    #[error(
        "the object has no namespace and can be any of {0} workloads: select one with -n or --context"
    )]
    SeveralWorkloads(usize),
    /// Workloads of several clusters have the name and the namespace.
    #[error("the object can be a workload in each of {0} clusters: select one with --context")]
    SeveralClusters(usize),
    /// Another workload has the same pod template: a Rollout with a `workloadRef`, and its Deployment.
    #[error("{0} uses the same pod template and has other recommendations: edit it by hand")]
    SharedTemplate(String),
    /// A JSON patch sets resources.
    #[error("a JSON patch (RFC 6902) sets these resources: edit the patch by hand")]
    JsonPatch,
    /// A patch within a kustomization sets resources.
    #[error("a patch within the kustomization sets these resources: edit the patch by hand")]
    InlinePatch,
    /// The object has no pod template.
    #[error("the object has no pod template: edit it by hand")]
    NoPodTemplate,
    /// The container is not in the file.
    #[error("the container is not in this file: something else adds it")]
    ContainerMissing,
    /// The request would exceed the limit.
    #[error("the request {request} would exceed the limit {limit}: change both by hand")]
    RequestAboveLimit { request: String, limit: String },
    /// The autoscaler is in no file.
    #[error("the target of HorizontalPodAutoscaler {0} has to change too, and it is in no file")]
    AutoscalerMissing(Box<str>),
    /// The autoscaler has no such metric.
    #[error("the autoscaler has no utilization target for this resource: edit it by hand")]
    MetricMissing,
    /// The autoscaler is of another kind.
    #[error("the watermarks of {0} have to change too: edit both by hand")]
    OtherAutoscaler(Box<str>),
    /// Something that has to change together with it is refused.
    #[error("left as it is, because {0} has to change together with it and is refused")]
    ChangesTogether(String),
    #[error(
        "the edited text does not have the wanted values: report this as a bug; edit it by hand"
    )]
    NotVerified,
}

/// A refusal with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub line: usize,
    pub reason: Refusal,
}
