//! The series of single objects: rendered from the state of a role, a page at a time. All that is kept is which restrictions
//! have held so far.

mod held;
mod passes;
mod requests;
mod scrape;

use std::{fmt, str::FromStr, sync::Arc};

use plimsoll_core::types::VpaKey;

pub use self::requests::PodRequests;
pub(super) use self::{
    held::EverHeld,
    passes::Pass,
    scrape::{ObjectScrape, definitions},
};
use self::{
    held::HeldPage,
    passes::{OF_CONTAINER, OF_VPA, RESTRICTED, Rows, VPA_INFO},
};
use super::{labels::HistoryState, text::Lines};
use plimsoll_core::recommender::{Figures, Reason, estimate::Resource};

/// The `kind` of VPAs.
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
    /// Out-of-memory kills that count, since this process knows of the container.
    pub kills: u64,
    /// The requests as live pods have them now; `None` if no such pod has the container. Three families alone want
    /// them, and it takes a look at all pods.
    pub requests: &'a dyn Fn(Resource) -> Option<PodRequests>,
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
    /// Pods that it is about, without those that have ended.
    pub pods: usize,
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

/// The rows of two roles, of which only one has any of each kind.
struct Both(Arc<dyn Objects>, Arc<dyn Objects>);

impl Objects for Both {
    fn vpas(&self, after: Option<&VpaKey>, visit: &mut dyn FnMut(VpaRow<'_>)) -> Option<VpaKey> {
        let next = self.0.vpas(after, visit);
        self.1.vpas(after, visit).or(next)
    }

    fn containers(
        &self,
        after: Option<&VpaKey>,
        visit: &mut dyn FnMut(ContainerRow<'_>),
    ) -> Option<VpaKey> {
        let next = self.0.containers(after, visit);
        self.1.containers(after, visit).or(next)
    }

    fn updates(
        &self,
        after: Option<&VpaKey>,
        visit: &mut dyn FnMut(UpdateRow<'_>),
    ) -> Option<VpaKey> {
        let next = self.0.updates(after, visit);
        self.1.updates(after, visit).or(next)
    }
}

/// Which series of single objects there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cardinality {
    /// All, but for those of restrictions that have not held so far.
    #[default]
    Standard,
    /// All.
    All,
    /// Those of the object itself, and of the restrictions that have held so far.
    Restricted,
    /// None.
    Off,
}

impl FromStr for Cardinality {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "standard" => Ok(Self::Standard),
            "all" => Ok(Self::All),
            "restricted" => Ok(Self::Restricted),
            "off" => Ok(Self::Off),
            other => Err(format!("{other:?} is none of standard, all, restricted, off")),
        }
    }
}

/// Prints a role's objects, as many series as asked for.
pub struct ObjectMetrics {
    state: Arc<dyn Objects>,
    cardinality: Cardinality,
    /// Of containers, a bit for each reason of each resource.
    held: EverHeld,
    /// Of updates, a bit for each reason in the order of their rows.
    held_updates: EverHeld,
}

impl fmt::Debug for ObjectMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectMetrics").field(&self.cardinality).finish()
    }
}

impl ObjectMetrics {
    /// Prints this state.
    pub fn new(state: Arc<dyn Objects>, cardinality: Cardinality) -> Self {
        Self { state, cardinality, held: EverHeld::default(), held_updates: EverHeld::default() }
    }

    /// Prints what another role of the process knows as well. What one of them has rows of, the other has none of: one
    /// recommends, and the other updates.
    pub(super) fn beside(self, other: &Self) -> Self {
        let state = Arc::new(Both(Arc::clone(&self.state), Arc::clone(&other.state)));
        Self { state, ..self }
    }

    /// What is taken from each row for a family, if it is printed at all.
    fn rows<'a>(&self, pass: &'a Pass) -> Option<&'a Rows> {
        pass.vpas.as_ref().filter(|rows| match self.cardinality {
            Cardinality::Standard | Cardinality::All => true,
            Cardinality::Restricted => !matches!(rows, Rows::Container(_)),
            Cardinality::Off => false,
        })
    }

    /// Writes a page of a family.
    fn write(&self, pass: &Pass, after: Option<&VpaKey>, lines: &mut Lines<'_>) -> Option<VpaKey> {
        match self.rows(pass)? {
            Rows::Info => self.state.vpas(after, &mut |row| {
                let VpaKey { namespace, name } = row.vpa;
                let state = row.history_state.as_str();
                lines.write(VPA_INFO, &[state, VPA, name, namespace, row.update_mode], 1.0);
            }),
            Rows::Vpa(read) => self.state.vpas(after, &mut |row| {
                if let Some(value) = read(&row) {
                    lines.write(OF_VPA, &[VPA, &row.vpa.name, &row.vpa.namespace], value);
                }
            }),
            Rows::Container(read) => self.state.containers(after, &mut |row| {
                if let Some(value) = read(&row) {
                    let VpaKey { namespace, name } = row.vpa;
                    let labels = [row.container, VPA, name, namespace, word(row.resource)];
                    lines.write(OF_CONTAINER, &labels, value);
                }
            }),
            Rows::Restrictions => {
                let mut page = self.held.page();
                let next = self.state.containers(after, &mut |row| {
                    let reasons = Reason::RESTRICTIONS.map(|reason| row.figures.reason == reason);
                    let first = row.resource as usize * reasons.len();
                    let shown = self.shown(&mut page, row.vpa, row.container, first, &reasons);
                    for (place, (reason, holds)) in
                        Reason::RESTRICTIONS.into_iter().zip(reasons).enumerate()
                    {
                        if shown & (1 << place) != 0 {
                            let VpaKey { namespace, name } = row.vpa;
                            let (reason, resource) = (reason.name(), word(row.resource));
                            let labels = [row.container, VPA, name, namespace, reason, resource];
                            lines.write(RESTRICTED, &labels, f64::from(u8::from(holds)));
                        }
                    }
                });
                page.end(after, next.as_ref());
                next
            }
        }
    }

    /// Writes a page of what holds updates back, which belongs to the same family as restrictions.
    fn write_updates(
        &self,
        pass: &Pass,
        after: Option<&VpaKey>,
        lines: &mut Lines<'_>,
    ) -> Option<VpaKey> {
        if !matches!(self.rows(pass)?, Rows::Restrictions) {
            return None;
        }
        let mut page = self.held_updates.page();
        let next = self.state.updates(after, &mut |row| {
            let holds: Vec<bool> = row.reasons.iter().map(|(_, holds)| *holds).collect();
            let shown = self.shown(&mut page, row.vpa, "", 0, &holds);
            for (place, &(reason, holds)) in row.reasons.iter().enumerate() {
                if shown & (1 << place) != 0 {
                    let VpaKey { namespace, name } = row.vpa;
                    let labels = ["", VPA, name, namespace, reason, ""];
                    lines.write(RESTRICTED, &labels, f64::from(u8::from(holds)));
                }
            }
        });
        page.end(after, next.as_ref());
        next
    }

    /// Which of these restrictions have a series, a bit for each. `first` is the place of the first one among all of the
    /// part.
    fn shown(
        &self,
        page: &mut HeldPage<'_>,
        object: &VpaKey,
        part: &str,
        first: usize,
        holds: &[bool],
    ) -> u64 {
        if self.cardinality == Cardinality::All {
            return u64::MAX;
        }
        let places = holds.iter().enumerate().filter(|(_, holds)| **holds);
        let now = places.fold(0, |bits, (place, _)| bits | 1 << place);
        page.note(object, part, now << first) >> first & ((1 << holds.len()) - 1)
    }
}

const fn word(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "cpu",
        Resource::Memory => "memory",
    }
}
