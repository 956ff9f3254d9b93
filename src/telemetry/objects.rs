//! Metrics of single objects, rendered from the state of a component page by page. Only the restrictions that have been
//! active so far are stored.

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

/// The label `kind` of VPAs.
const VPA: &str = "vpa";

/// The number of objects per page: enough to make taking the lock worthwhile, few enough to release it soon.
pub const PAGE_SIZE: usize = 64;

/// Metrics of one resource of one container.
#[derive(Clone, Copy)]
pub struct ContainerRow<'a> {
    /// The VPA.
    pub vpa: &'a ObjectKey,
    /// The name of the container.
    pub container: &'a str,
    /// The resource.
    pub resource: Resource,
    /// The last recommendation.
    pub recommendation: ResourceSummary,
    /// OOM kills added to the history since this process started tracking the container.
    pub oom_kills: u64,
    /// The current requests of live pods; `None` if no pod has the container. A closure, because only three families need
    /// them and it iterates over all pods.
    pub requests: &'a dyn Fn(Resource) -> Option<PodRequests>,
}

/// Metrics of one VPA.
#[derive(Clone, Copy, Debug)]
pub struct VpaRow<'a> {
    /// The VPA.
    pub vpa: &'a ObjectKey,
    /// The update mode, `Recreate` if unset.
    pub update_mode: &'a str,
    /// The state of its history.
    pub history_state: HistoryState,
    /// The age of the latest sample, if there is one.
    pub staleness_seconds: Option<f64>,
    /// Number of pods that have not terminated.
    pub pods: usize,
}

/// The restrictions on updates of one VPA.
#[derive(Clone, Copy, Debug)]
pub struct UpdateRow<'a> {
    /// The VPA.
    pub vpa: &'a ObjectKey,
    /// Each reason, and whether it is active.
    pub reasons: &'a [(&'static str, bool)],
}

/// The state of a component as rows. Each call visits one page of about [`PAGE_SIZE`] objects in order of their keys,
/// starting after the key `after`, and returns the key to continue from, or `None` after the last page. The lock is held
/// for one page only. Rows of the same object are adjacent.
pub trait VpaMetricsSource: Send + Sync {
    /// Visits a page of VPAs.
    fn vpas(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(VpaRow<'_>),
    ) -> Option<ObjectKey>;

    /// Visits the containers with a recommendation of a page of VPAs.
    fn containers(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(ContainerRow<'_>),
    ) -> Option<ObjectKey>;

    /// Visits the restrictions on updates of a page of VPAs. Only updaters have any.
    fn updates(
        &self,
        _after: Option<&ObjectKey>,
        _visit: &mut dyn FnMut(UpdateRow<'_>),
    ) -> Option<ObjectKey> {
        None
    }
}

/// The rows of two components in one process, of which only one has rows of each type.
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

/// Which series of single objects are exposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cardinality {
    /// All, except restrictions that have not been active so far.
    #[default]
    Standard,
    /// All series.
    All,
    /// Only series per object, and restrictions that have been active so far.
    Restricted,
    /// No series of objects.
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
            _ => Err("use standard, all, restricted or off".to_owned()),
        }
    }
}

/// Renders the objects of a component with the configured cardinality.
pub struct ObjectMetrics {
    source: Arc<dyn VpaMetricsSource>,
    cardinality: Cardinality,
    /// For containers: one bit for each reason of each resource.
    seen_restrictions: SeenRestrictions,
    /// For updates: one bit for each reason, in the order of the rows.
    seen_update_restrictions: SeenRestrictions,
}

impl fmt::Debug for ObjectMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectMetrics").field(&self.cardinality).finish()
    }
}

impl ObjectMetrics {
    /// Renders the objects of `source`.
    pub fn new(source: Arc<dyn VpaMetricsSource>, cardinality: Cardinality) -> Self {
        Self {
            source,
            cardinality,
            seen_restrictions: SeenRestrictions::default(),
            seen_update_restrictions: SeenRestrictions::default(),
        }
    }

    /// Merges the objects of another component in the same process. The two never have rows of the same type: one
    /// recommends, and the other updates.
    pub(super) fn merged_with(self, other: &Self) -> Self {
        let source = Arc::new(MergedSource(Arc::clone(&self.source), Arc::clone(&other.source)));
        Self { source, ..self }
    }

    /// How a family reads its values from rows; `None` if the family is not exposed.
    fn rows<'a>(&self, family: &'a ObjectFamily) -> Option<&'a VpaSeries> {
        family.vpa_series.as_ref().filter(|rows| match self.cardinality {
            Cardinality::Standard | Cardinality::All => true,
            Cardinality::Restricted => !matches!(rows, VpaSeries::Container(_)),
            Cardinality::Off => false,
        })
    }

    /// Renders a page of a family.
    fn write(
        &self,
        family: &ObjectFamily,
        after: Option<&ObjectKey>,
        lines: &mut FamilyWriter<'_>,
    ) -> Option<ObjectKey> {
        match self.rows(family)? {
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
                    for (index, (reason, holds)) in
                        RecommendationReason::RESTRICTIONS.into_iter().zip(reasons).enumerate()
                    {
                        if shown & (1 << index) != 0 {
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

    /// Renders a page of the restrictions on updates, which are in the same family as other restrictions.
    fn write_updates(
        &self,
        family: &ObjectFamily,
        after: Option<&ObjectKey>,
        lines: &mut FamilyWriter<'_>,
    ) -> Option<ObjectKey> {
        if !matches!(self.rows(family)?, VpaSeries::Restrictions) {
            return None;
        }
        let mut page = self.seen_update_restrictions.page();
        let next = self.source.updates(after, &mut |row| {
            let holds: Vec<bool> = row.reasons.iter().map(|(_, holds)| *holds).collect();
            let shown = self.visible_restrictions(&mut page, row.vpa, "", 0, &holds);
            for (index, &(reason, holds)) in row.reasons.iter().enumerate() {
                if shown & (1 << index) != 0 {
                    let ObjectKey { namespace, name } = row.vpa;
                    let labels = ["", VPA, name, namespace, reason, ""];
                    lines.write(RESTRICTION_LABELS, &labels, f64::from(u8::from(holds)));
                }
            }
        });
        page.end(after, next.as_ref());
        next
    }

    /// Which of these restrictions have a series, one bit for each. `first` is the index of the first one among all
    /// restrictions of the part.
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
        let active = holds.iter().enumerate().filter(|(_, holds)| **holds);
        let now = active.fold(0, |bits, (index, _)| bits | 1 << index);
        page.record(object, part, now << first) >> first & ((1 << holds.len()) - 1)
    }
}

const fn resource_label(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "cpu",
        Resource::Memory => "memory",
    }
}
