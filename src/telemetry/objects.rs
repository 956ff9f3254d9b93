//! The series of single objects: rendered from the state of a role, a page at a time. All that is kept is which restrictions
//! have held so far.

mod families;
mod requests;
mod scrape;
mod seen_restrictions;

use std::{fmt, str::FromStr, sync::Arc};

use plimsoll_core::types::ObjectKey;

pub use self::requests::PodRequests;
pub(super) use self::{
    families::ObjectFamily,
    scrape::{ObjectScrape, definitions},
    seen_restrictions::SeenRestrictions,
};
use self::{
    families::{CONTAINER_LABELS, RESTRICTION_LABELS, VPA_INFO_LABELS, VPA_LABELS, VpaSeries},
    seen_restrictions::SeenRestrictionsPage,
};
use super::{labels::HistoryState, text::FamilyWriter};
use plimsoll_core::recommender::{RecommendationReason, ResourceSummary, estimate::Resource};

/// The `kind` of VPAs.
const VPA: &str = "vpa";

/// How many objects a page should have: enough to make a lock worth taking, few enough to give it back soon.
pub const PAGE_SIZE: usize = 64;

/// What is told of one resource of one container.
#[derive(Clone, Copy)]
pub struct ContainerRow<'a> {
    /// The VPA.
    pub vpa: &'a ObjectKey,
    /// Name of the container.
    pub container: &'a str,
    /// Which resource.
    pub resource: Resource,
    /// What was decided last.
    pub recommendation: ResourceSummary,
    /// Out-of-memory kills that count, since this process knows of the container.
    pub oom_kills: u64,
    /// The requests as live pods have them now; `None` if no such pod has the container. Three families alone want
    /// them, and it takes a look at all pods.
    pub requests: &'a dyn Fn(Resource) -> Option<PodRequests>,
}

/// What is told of one VPA.
#[derive(Clone, Copy, Debug)]
pub struct VpaRow<'a> {
    /// Which one.
    pub vpa: &'a ObjectKey,
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
    pub vpa: &'a ObjectKey,
    /// Each reason by its word, and whether it holds.
    pub reasons: &'a [(&'static str, bool)],
}

/// The state of a role, as rows. Each call visits one page of about [`PAGE`] objects in order of their keys, from the
/// first key after `after` on, and says from where to go on; it holds its lock no longer than that. `None`: that was
/// the last page. Rows of the same object are neighbours.
pub trait VpaMetricsSource: Send + Sync {
    /// Visits a page of VPAs.
    fn vpas(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(VpaRow<'_>),
    ) -> Option<ObjectKey>;

    /// Visits the containers of a page of VPAs: those that have a recommendation.
    fn containers(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(ContainerRow<'_>),
    ) -> Option<ObjectKey>;

    /// Visits what holds updates back, of a page of VPAs; only updaters know.
    fn updates(
        &self,
        _after: Option<&ObjectKey>,
        _visit: &mut dyn FnMut(UpdateRow<'_>),
    ) -> Option<ObjectKey> {
        None
    }
}

/// The rows of two roles, of which only one has any of each kind.
struct MergedSource(Arc<dyn VpaMetricsSource>, Arc<dyn VpaMetricsSource>);

impl VpaMetricsSource for MergedSource {
    fn vpas(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(VpaRow<'_>),
    ) -> Option<ObjectKey> {
        let next = self.0.vpas(after, visit);
        self.1.vpas(after, visit).or(next)
    }

    fn containers(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(ContainerRow<'_>),
    ) -> Option<ObjectKey> {
        let next = self.0.containers(after, visit);
        self.1.containers(after, visit).or(next)
    }

    fn updates(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(UpdateRow<'_>),
    ) -> Option<ObjectKey> {
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
    source: Arc<dyn VpaMetricsSource>,
    cardinality: Cardinality,
    /// Of containers, a bit for each reason of each resource.
    seen_restrictions: SeenRestrictions,
    /// Of updates, a bit for each reason in the order of their rows.
    seen_update_restrictions: SeenRestrictions,
}

impl fmt::Debug for ObjectMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectMetrics").field(&self.cardinality).finish()
    }
}

impl ObjectMetrics {
    /// Prints this state.
    pub fn new(state: Arc<dyn VpaMetricsSource>, cardinality: Cardinality) -> Self {
        Self {
            source: state,
            cardinality,
            seen_restrictions: SeenRestrictions::default(),
            seen_update_restrictions: SeenRestrictions::default(),
        }
    }

    /// Prints what another role of the process knows as well. What one of them has rows of, the other has none of: one
    /// recommends, and the other updates.
    pub(super) fn merged_with(self, other: &Self) -> Self {
        let state = Arc::new(MergedSource(Arc::clone(&self.source), Arc::clone(&other.source)));
        Self { source: state, ..self }
    }

    /// What is taken from each row for a family, if it is printed at all.
    fn rows<'a>(&self, pass: &'a ObjectFamily) -> Option<&'a VpaSeries> {
        pass.vpa_series.as_ref().filter(|rows| match self.cardinality {
            Cardinality::Standard | Cardinality::All => true,
            Cardinality::Restricted => !matches!(rows, VpaSeries::Container(_)),
            Cardinality::Off => false,
        })
    }

    /// Writes a page of a family.
    fn write(
        &self,
        pass: &ObjectFamily,
        after: Option<&ObjectKey>,
        lines: &mut FamilyWriter<'_>,
    ) -> Option<ObjectKey> {
        match self.rows(pass)? {
            VpaSeries::Info => self.source.vpas(after, &mut |row| {
                let ObjectKey { namespace, name } = row.vpa;
                let state = row.history_state.as_str();
                lines.write(VPA_INFO_LABELS, &[state, VPA, name, namespace, row.update_mode], 1.0);
            }),
            VpaSeries::Vpa(read) => self.source.vpas(after, &mut |row| {
                if let Some(value) = read(&row) {
                    lines.write(VPA_LABELS, &[VPA, &row.vpa.name, &row.vpa.namespace], value);
                }
            }),
            VpaSeries::Container(read) => self.source.containers(after, &mut |row| {
                if let Some(value) = read(&row) {
                    let ObjectKey { namespace, name } = row.vpa;
                    let labels =
                        [row.container, VPA, name, namespace, resource_label(row.resource)];
                    lines.write(CONTAINER_LABELS, &labels, value);
                }
            }),
            VpaSeries::Restrictions => {
                let mut page = self.seen_restrictions.page();
                let next = self.source.containers(after, &mut |row| {
                    let reasons = RecommendationReason::RESTRICTIONS
                        .map(|reason| row.recommendation.reason == reason);
                    let first = row.resource as usize * reasons.len();
                    let shown = self.visible_restrictions(
                        &mut page,
                        row.vpa,
                        row.container,
                        first,
                        &reasons,
                    );
                    for (place, (reason, holds)) in
                        RecommendationReason::RESTRICTIONS.into_iter().zip(reasons).enumerate()
                    {
                        if shown & (1 << place) != 0 {
                            let ObjectKey { namespace, name } = row.vpa;
                            let (reason, resource) = (reason.name(), resource_label(row.resource));
                            let labels = [row.container, VPA, name, namespace, reason, resource];
                            lines.write(RESTRICTION_LABELS, &labels, f64::from(u8::from(holds)));
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
        pass: &ObjectFamily,
        after: Option<&ObjectKey>,
        lines: &mut FamilyWriter<'_>,
    ) -> Option<ObjectKey> {
        if !matches!(self.rows(pass)?, VpaSeries::Restrictions) {
            return None;
        }
        let mut page = self.seen_update_restrictions.page();
        let next = self.source.updates(after, &mut |row| {
            let holds: Vec<bool> = row.reasons.iter().map(|(_, holds)| *holds).collect();
            let shown = self.visible_restrictions(&mut page, row.vpa, "", 0, &holds);
            for (place, &(reason, holds)) in row.reasons.iter().enumerate() {
                if shown & (1 << place) != 0 {
                    let ObjectKey { namespace, name } = row.vpa;
                    let labels = ["", VPA, name, namespace, reason, ""];
                    lines.write(RESTRICTION_LABELS, &labels, f64::from(u8::from(holds)));
                }
            }
        });
        page.end(after, next.as_ref());
        next
    }

    /// Which of these restrictions have a series, a bit for each. `first` is the place of the first one among all of the
    /// part.
    fn visible_restrictions(
        &self,
        page: &mut SeenRestrictionsPage<'_>,
        object: &ObjectKey,
        part: &str,
        first: usize,
        holds: &[bool],
    ) -> u64 {
        if self.cardinality == Cardinality::All {
            return u64::MAX;
        }
        let places = holds.iter().enumerate().filter(|(_, holds)| **holds);
        let now = places.fold(0, |bits, (place, _)| bits | 1 << place);
        page.record(object, part, now << first) >> first & ((1 << holds.len()) - 1)
    }
}

const fn resource_label(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "cpu",
        Resource::Memory => "memory",
    }
}
