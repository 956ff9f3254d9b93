//! The series of single objects: rendered from the state of a role, a page at a time, and kept nowhere.

use std::{fmt, str::FromStr, sync::Arc};

use plimsoll_storage::VpaKey;

use super::{
    definition::{Definition, gauge},
    health::HistoryState,
    text::{write_header, write_row},
};
use crate::recommend::{Reason, estimate::Resource};

/// The `kind` of the objects.
const VPA: &str = "vpa";

/// How many objects a page should have: enough to make a lock worth taking, few enough to give it back soon.
pub const PAGE: usize = 64;

/// What is told of one resource of one container. CPU is in cores, memory in bytes.
#[derive(Clone, Copy, Debug)]
pub struct ContainerRow<'a> {
    /// Namespace of the VPA.
    pub namespace: &'a str,
    /// Name of the VPA.
    pub name: &'a str,
    /// Name of the container.
    pub container: &'a str,
    /// Which resource.
    pub resource: Resource,
    /// The target.
    pub target: f64,
    /// The lower bound.
    pub lower: f64,
    /// The upper bound.
    pub upper: f64,
    /// The target as it would be without the policy's limits.
    pub uncapped: f64,
    /// The request as pods have it now, if any is known.
    pub request: Option<f64>,
    /// The largest use of late, if any was seen.
    pub usage_peak: Option<f64>,
    /// Confidence: how many days of samples there are.
    pub confidence: f64,
    /// What keeps the target from being another one.
    pub reason: Option<Restriction>,
}

/// What is told of one VPA.
#[derive(Clone, Copy, Debug)]
pub struct VpaRow<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its update mode, `Recreate` if it has none.
    pub update_mode: &'a str,
    /// How far its history is.
    pub history_state: HistoryState,
    /// Age of its latest sample, if there is one.
    pub staleness_seconds: Option<f64>,
}

/// The state of a role, as rows. Each call visits one page of about [`PAGE`] objects in order of their keys, from the
/// first key after `after` on, and says from where to go on; it holds its lock no longer than that. `None`: that was
/// the last page. Rows of the same object are neighbours.
pub trait Objects: Send + Sync {
    /// Visits a page of VPAs.
    fn vpas(&self, after: Option<&VpaKey>, visit: &mut dyn FnMut(VpaRow<'_>)) -> Option<VpaKey>;

    /// Visits the containers of a page of VPAs: those that have a recommendation.
    fn containers(
        &self,
        after: Option<&VpaKey>,
        visit: &mut dyn FnMut(ContainerRow<'_>),
    ) -> Option<VpaKey>;
}

/// What keeps a number from being another one: the words of `restricted_scaling{reason}`, of conditions and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restriction {
    /// The policy's minimum.
    MinAllowed,
    /// The policy's maximum.
    MaxAllowed,
    /// The maximum for the whole cluster.
    GlobalMaxAllowed,
    /// The floor.
    Floor,
    /// The largest multiple of the target that the upper bound may be.
    UpperBoundFactor,
    /// The largest node.
    NodeCap,
    /// The limit for all containers of a pod together.
    PodCap,
}

impl Restriction {
    /// All there are.
    pub const ALL: [Self; 7] = [
        Self::MinAllowed,
        Self::MaxAllowed,
        Self::GlobalMaxAllowed,
        Self::Floor,
        Self::UpperBoundFactor,
        Self::NodeCap,
        Self::PodCap,
    ];

    /// The restriction that a reason is, if it is one.
    pub const fn of(reason: Reason) -> Option<Self> {
        match reason {
            Reason::NoData | Reason::Usage | Reason::OomBump | Reason::LargestReplica => None,
            Reason::Floor => Some(Self::Floor),
            Reason::UpperBoundFactor => Some(Self::UpperBoundFactor),
            Reason::MinAllowed => Some(Self::MinAllowed),
            Reason::MaxAllowed => Some(Self::MaxAllowed),
            Reason::GlobalMaxAllowed => Some(Self::GlobalMaxAllowed),
            Reason::NodeCap => Some(Self::NodeCap),
            Reason::PodCap => Some(Self::PodCap),
        }
    }

    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MinAllowed => "min_allowed",
            Self::MaxAllowed => "max_allowed",
            Self::GlobalMaxAllowed => "global_max_allowed",
            Self::Floor => "floor",
            Self::UpperBoundFactor => "upper_bound_factor",
            Self::NodeCap => "node_cap",
            Self::PodCap => "pod_cap",
        }
    }
}

impl fmt::Display for Restriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Which series of single objects there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cardinality {
    /// All.
    #[default]
    All,
    /// Those of the VPA itself, and a series for each restriction that holds.
    Restricted,
    /// None.
    Off,
}

impl FromStr for Cardinality {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "restricted" => Ok(Self::Restricted),
            "off" => Ok(Self::Off),
            other => Err(format!("{other:?} is none of all, restricted, off")),
        }
    }
}

/// Prints a role's objects, as many series as asked for.
pub struct ObjectMetrics {
    state: Arc<dyn Objects>,
    passes: Vec<&'static Pass>,
    cardinality: Cardinality,
}

impl fmt::Debug for ObjectMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectMetrics").field(&self.cardinality).finish()
    }
}

impl ObjectMetrics {
    /// Prints this state.
    pub fn new(state: Arc<dyn Objects>, cardinality: Cardinality) -> Self {
        let printed = |pass: &&Pass| match cardinality {
            Cardinality::All => true,
            Cardinality::Restricted => !matches!(pass.rows, Rows::Container(_)),
            Cardinality::Off => false,
        };
        Self { state, passes: PASSES.iter().filter(printed).collect(), cardinality }
    }

    /// What the families are.
    pub fn definitions(&self) -> impl Iterator<Item = Definition> {
        self.passes.iter().map(|pass| pass.definition)
    }
}

/// A family, and what it takes from each row. The text format wants a family in one piece, so each is a pass of its own.
struct Pass {
    definition: Definition,
    rows: Rows,
}

enum Rows {
    Info,
    Vpa(fn(&VpaRow<'_>) -> Option<f64>),
    Container(fn(&ContainerRow<'_>) -> Option<f64>),
    Restrictions,
}

const OF_VPA: &[&str] = &["kind", "name", "namespace"];
const OF_CONTAINER: &[&str] = &["container", "kind", "name", "namespace", "resource"];
const PER_VPA: &str = "1 per VPA";
const PER_RESOURCE: &str = "2 per container";

const fn of_container(name: &'static str, help: &'static str) -> Definition {
    gauge(name, help)
        .labels(OF_CONTAINER, PER_RESOURCE)
        .unit("cores or bytes")
        .absent("the container has no recommendation")
}

static PASSES: [Pass; 10] = [
    Pass {
        definition: gauge(
            "plimsoll_object_info",
            "Always 1; what else is to be known of an object.",
        )
        .labels(&["history_state", "kind", "name", "namespace", "update_mode"], PER_VPA),
        rows: Rows::Info,
    },
    Pass {
        definition: gauge("plimsoll_staleness_seconds", "Age of the latest sample of an object.")
            .labels(OF_VPA, PER_VPA)
            .unit("seconds")
            .absent("no sample was ever seen"),
        rows: Rows::Vpa(|row| row.staleness_seconds),
    },
    Pass {
        definition: of_container(
            "plimsoll_value",
            "What is measured. Of a VPA: the largest use of a container of late.",
        )
        .absent("no use was seen"),
        rows: Rows::Container(|row| row.usage_peak),
    },
    Pass {
        definition: of_container(
            "plimsoll_low",
            "Below this something is done. Of a VPA: the lower bound, below which a request is raised.",
        ),
        rows: Rows::Container(|row| Some(row.lower)),
    },
    Pass {
        definition: of_container(
            "plimsoll_high",
            "Above this something is done. Of a VPA: the upper bound, above which a request is cut.",
        ),
        rows: Rows::Container(|row| Some(row.upper)),
    },
    Pass {
        definition: of_container("plimsoll_target", "What it should be. Of a VPA: the target."),
        rows: Rows::Container(|row| Some(row.target)),
    },
    Pass {
        definition: of_container(
            "plimsoll_proposal",
            "What it would be without limits. Of a VPA: the uncapped target.",
        ),
        rows: Rows::Container(|row| Some(row.uncapped)),
    },
    Pass {
        definition: of_container(
            "plimsoll_request",
            "The request of a container as its pods have it.",
        )
        .absent("no pod with a request is known"),
        rows: Rows::Container(|row| row.request),
    },
    Pass {
        definition: of_container(
            "plimsoll_confidence",
            "How much the numbers rest on. Of a VPA: days of samples.",
        )
        .unit("days"),
        rows: Rows::Container(|row| Some(row.confidence)),
    },
    Pass {
        definition: gauge(
            "plimsoll_restricted_scaling",
            "Whether the target would be another one without this limit: 1 while it would, else 0.",
        )
        .labels(
            &["container", "kind", "name", "namespace", "reason", "resource"],
            "7 for each of 2 per container; with `restricted` only those that are 1",
        )
        .absent("the container has no recommendation"),
        rows: Rows::Restrictions,
    },
];

/// One scrape of the objects under way.
pub(super) struct ObjectScrape {
    objects: Arc<ObjectMetrics>,
    pass: usize,
    after: Option<VpaKey>,
    /// The family's two lines were written: it has a series.
    begun: bool,
}

impl ObjectScrape {
    pub(super) fn new(objects: Arc<ObjectMetrics>) -> Self {
        Self { objects, pass: 0, after: None, begun: false }
    }

    /// Writes the next page. `false`: there is none.
    pub(super) fn write(&mut self, text: &mut String) -> bool {
        let Self { objects, pass, after, begun } = self;
        let Some(Pass { definition, rows }) = objects.passes.get(*pass) else { return false };
        let mut row = |labels: &[&str], value: f64| {
            // What is not known has no series: a NaN or an infinity would poison every sum over objects.
            if !value.is_finite() {
                return;
            }
            if !*begun {
                write_header(text, definition);
                *begun = true;
            }
            write_row(text, definition, labels, value);
        };
        let state = &objects.state;
        let next = match rows {
            Rows::Info => state.vpas(after.as_ref(), &mut |vpa| {
                let VpaRow { namespace, name, update_mode, history_state, .. } = vpa;
                row(&[history_state.as_str(), VPA, name, namespace, update_mode], 1.0);
            }),
            Rows::Vpa(read) => state.vpas(after.as_ref(), &mut |vpa| {
                if let Some(value) = read(&vpa) {
                    row(&[VPA, vpa.name, vpa.namespace], value);
                }
            }),
            Rows::Container(read) => state.containers(after.as_ref(), &mut |of| {
                if let Some(value) = read(&of) {
                    let resource = name(of.resource);
                    row(&[of.container, VPA, of.name, of.namespace, resource], value);
                }
            }),
            Rows::Restrictions => state.containers(after.as_ref(), &mut |of| {
                for restriction in Restriction::ALL {
                    let holds = of.reason == Some(restriction);
                    if holds || objects.cardinality == Cardinality::All {
                        let (reason, resource) = (restriction.as_str(), name(of.resource));
                        let labels = [of.container, VPA, of.name, of.namespace, reason, resource];
                        row(&labels, f64::from(u8::from(holds)));
                    }
                }
            }),
        };
        if next.is_none() {
            *pass += 1;
            *begun = false;
        }
        *after = next;
        true
    }
}

const fn name(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "cpu",
        Resource::Memory => "memory",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restriction_and_its_reason_have_the_same_word() {
        for reason in [
            Reason::NoData,
            Reason::Usage,
            Reason::OomBump,
            Reason::LargestReplica,
            Reason::Floor,
            Reason::UpperBoundFactor,
            Reason::MinAllowed,
            Reason::MaxAllowed,
            Reason::GlobalMaxAllowed,
        ] {
            let restriction = Restriction::of(reason);
            assert_eq!(restriction.is_some(), reason.restricts(), "{reason}");
            assert!(restriction.is_none_or(|word| word.to_string() == reason.to_string()));
        }
    }
}
