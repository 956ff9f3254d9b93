//! The series of single objects: rendered from the state of a role, a page at a time, and kept nowhere.

use std::{fmt, str::FromStr, sync::Arc};

use plimsoll_storage::VpaKey;

use super::{
    definition::{Definition, gauge},
    labels::HistoryState,
    text::{write_header, write_row},
};
use crate::recommend::{Figures, Reason, estimate::Resource};

/// The `kind` of the objects.
const VPA: &str = "vpa";

/// How many objects a page should have: enough to make a lock worth taking, few enough to give it back soon.
pub const PAGE: usize = 64;

/// What is told of one resource of one container.
#[derive(Clone, Copy)]
pub struct ContainerRow<'a> {
    /// The VPA.
    pub vpa: &'a VpaKey,
    /// Name of the container.
    pub container: &'a str,
    /// Which resource.
    pub resource: Resource,
    /// What was decided last.
    pub figures: Figures,
    /// The request as pods have it now, in cores or bytes, if any is known. One family alone wants it, and it takes a
    /// look at all pods.
    pub request: &'a dyn Fn(Resource) -> Option<f64>,
}

/// What is told of one VPA.
#[derive(Clone, Copy, Debug)]
pub struct VpaRow<'a> {
    /// Which one.
    pub vpa: &'a VpaKey,
    /// Its update mode, `Recreate` if it has none.
    pub update_mode: &'a str,
    /// How far its history is.
    pub history_state: HistoryState,
    /// Age of its latest sample, if there is one.
    pub staleness_seconds: Option<f64>,
}

/// What holds updates of one VPA back.
#[derive(Clone, Copy, Debug)]
pub struct UpdateRow<'a> {
    /// Which one.
    pub vpa: &'a VpaKey,
    /// Each reason by its word, and whether it holds.
    pub reasons: &'a [(&'static str, bool)],
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

    /// Visits what holds updates back, of a page of VPAs; only updaters know.
    fn updates(
        &self,
        _after: Option<&VpaKey>,
        _visit: &mut dyn FnMut(UpdateRow<'_>),
    ) -> Option<VpaKey> {
        None
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
        rows: Rows::Container(|row| row.figures.peak),
    },
    Pass {
        definition: of_container(
            "plimsoll_low",
            "Below this something is done. Of a VPA: the lower bound, below which a request is raised.",
        ),
        rows: Rows::Container(|row| Some(row.figures.lower)),
    },
    Pass {
        definition: of_container(
            "plimsoll_high",
            "Above this something is done. Of a VPA: the upper bound, above which a request is cut.",
        ),
        rows: Rows::Container(|row| Some(row.figures.upper)),
    },
    Pass {
        definition: of_container("plimsoll_target", "What it should be. Of a VPA: the target."),
        rows: Rows::Container(|row| Some(row.figures.target)),
    },
    Pass {
        definition: of_container(
            "plimsoll_proposal",
            "What it would be without limits. Of a VPA: the uncapped target.",
        ),
        rows: Rows::Container(|row| Some(row.figures.uncapped)),
    },
    Pass {
        definition: of_container(
            "plimsoll_request",
            "The request of a container as its pods have it.",
        )
        .absent("no pod with a request is known"),
        rows: Rows::Container(|row| (row.request)(row.resource)),
    },
    Pass {
        definition: of_container(
            "plimsoll_confidence",
            "How much the numbers rest on. Of a VPA: days of samples.",
        )
        .unit("days"),
        rows: Rows::Container(|row| Some(f64::from(row.figures.confidence))),
    },
    Pass {
        definition: gauge(
            "plimsoll_restricted_scaling",
            "Whether the target would be another one, or pods would be changed, without this limit: 1 while it is so, else 0.",
        )
        .labels(
            &["container", "kind", "name", "namespace", "reason", "resource"],
            "7 for each of 2 per container, 23 per VPA of an updater; with `restricted` only those that are 1",
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
    /// The containers of the family were written, and its VPAs are not yet.
    halfway: bool,
    /// The family's two lines were written: it has a series.
    begun: bool,
}

impl ObjectScrape {
    pub(super) fn new(objects: Arc<ObjectMetrics>) -> Self {
        Self { objects, pass: 0, after: None, halfway: false, begun: false }
    }

    /// Writes the next page. `false`: there is none.
    pub(super) fn write(&mut self, text: &mut String) -> bool {
        let Self { objects, pass, after, halfway, begun } = self;
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
                let VpaRow { vpa: VpaKey { namespace, name }, update_mode, history_state, .. } =
                    vpa;
                row(&[history_state.as_str(), VPA, name, namespace, update_mode], 1.0);
            }),
            Rows::Vpa(read) => state.vpas(after.as_ref(), &mut |of| {
                if let Some(value) = read(&of) {
                    row(&[VPA, &of.vpa.name, &of.vpa.namespace], value);
                }
            }),
            Rows::Container(read) => state.containers(after.as_ref(), &mut |of| {
                if let Some(value) = read(&of) {
                    let resource = word(of.resource);
                    let VpaKey { namespace, name } = of.vpa;
                    row(&[of.container, VPA, name, namespace, resource], value);
                }
            }),
            Rows::Restrictions if *halfway => state.updates(after.as_ref(), &mut |of| {
                for (reason, holds) in of.reasons {
                    if *holds || objects.cardinality == Cardinality::All {
                        let VpaKey { namespace, name } = of.vpa;
                        let labels = ["", VPA, name, namespace, *reason, ""];
                        row(&labels, f64::from(u8::from(*holds)));
                    }
                }
            }),
            Rows::Restrictions => state.containers(after.as_ref(), &mut |of| {
                for reason in Reason::RESTRICTIONS {
                    let holds = of.figures.reason == reason;
                    if holds || objects.cardinality == Cardinality::All {
                        let (reason, resource) = (reason.name(), word(of.resource));
                        let VpaKey { namespace, name } = of.vpa;
                        let labels = [of.container, VPA, name, namespace, reason, resource];
                        row(&labels, f64::from(u8::from(holds)));
                    }
                }
            }),
        };
        if next.is_none() {
            if matches!(rows, Rows::Restrictions) && !*halfway {
                *halfway = true;
            } else {
                *pass += 1;
                *begun = false;
                *halfway = false;
            }
        }
        *after = next;
        true
    }
}

const fn word(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "cpu",
        Resource::Memory => "memory",
    }
}
