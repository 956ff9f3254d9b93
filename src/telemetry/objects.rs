//! Metrics of single objects, rendered from the state of a component page by page. Only the restrictions that have been
//! active so far are stored.

mod families;
mod scrape;
mod seen_restrictions;

use std::sync::Arc;

use plimsoll_core::{
    recommender::{RecommendationReason, ResourceSummary, estimate::Resource},
    types::{
        ObjectKey,
        units::{Bytes, MilliCpu},
    },
};
use strum::EnumString;

use self::{
    families::{CONTAINER_LABELS, RESTRICTION_LABELS, VPA_INFO_LABELS, VPA_LABELS, VpaSeries},
    seen_restrictions::SeenRestrictionsPage,
};
use super::{exposition::FamilyWriter, labels::HistoryState};

pub(super) use self::{
    families::{LabelledSeries, ObjectFamily},
    scrape::{ObjectScrape, definitions},
    seen_restrictions::SeenRestrictions,
};

/// The label `kind` of VPAs.
const VPA: &str = "vpa";

/// The number of objects per page: enough to make taking the lock worthwhile, few enough to release it soon.
pub const PAGE_SIZE: usize = 64;

/// Metrics of one resource of one container.
#[derive(Clone, Copy)]
pub struct ContainerRow<'a> {
    pub vpa: &'a ObjectKey,
    pub container: &'a str,
    pub resource: Resource,
    pub recommendation: ResourceSummary,
    /// OOM kills added to the history since this process started tracking the container.
    pub oom_kills: u64,
    /// The current requests of live pods; `None` if no pod has the container. A closure, because only three families need
    /// them and it iterates over all pods.
    pub requests: &'a dyn Fn(Resource) -> Option<PodRequests>,
}

#[derive(Clone, Copy, Debug)]
pub struct VpaRow<'a> {
    pub vpa: &'a ObjectKey,
    /// The update mode, `Recreate` if unset.
    pub update_mode: &'a str,
    pub history_state: HistoryState,
    /// The age of the latest sample, if there is one.
    pub staleness_seconds: Option<f64>,
    /// Number of pods that have not terminated.
    pub pods: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct UpdateRow<'a> {
    pub vpa: &'a ObjectKey,
    /// Each reason, and whether it is active.
    pub reasons: &'a [(&'static str, bool)],
}

/// The state of a component as rows. Each call visits one page of about [`PAGE_SIZE`] objects in order of their keys,
/// starting after the key `after`, and returns the key to continue from, or `None` after the last page. The lock is held
/// for one page only. Rows of the same object are adjacent.
pub trait VpaMetricsSource: Send + Sync {
    fn vpas(
        &self,
        _after: Option<&ObjectKey>,
        _visit: &mut dyn FnMut(VpaRow<'_>),
    ) -> Option<ObjectKey> {
        None
    }

    /// Visits the containers with a recommendation of a page of VPAs.
    fn containers(
        &self,
        _after: Option<&ObjectKey>,
        _visit: &mut dyn FnMut(ContainerRow<'_>),
    ) -> Option<ObjectKey> {
        None
    }

    /// Visits the restrictions on updates of a page of VPAs. Only updaters have any.
    fn updates(
        &self,
        _after: Option<&ObjectKey>,
        _visit: &mut dyn FnMut(UpdateRow<'_>),
    ) -> Option<ObjectKey> {
        None
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "lowercase", parse_err_ty = String, parse_err_fn = unknown_cardinality)]
pub enum Cardinality {
    /// All, except restrictions that have not been active so far.
    #[default]
    Standard,
    All,
    /// Only series per object, and restrictions that have been active so far.
    Restricted,
    /// No series of objects.
    Off,
}

fn unknown_cardinality(_: &str) -> String {
    "use standard, all, restricted or off".to_owned()
}

/// Renders the objects of the components of a process with the configured cardinality. No two components have rows of the
/// same type: one recommends, and the other updates.
pub struct ObjectMetrics {
    sources: Vec<Arc<dyn VpaMetricsSource>>,
    cardinality: Cardinality,
    /// For containers: one bit for each reason of each resource.
    seen_restrictions: SeenRestrictions,
    /// For updates: one bit for each reason, in the order of the rows.
    seen_update_restrictions: SeenRestrictions,
}

impl ObjectMetrics {
    pub fn new(source: Arc<dyn VpaMetricsSource>, cardinality: Cardinality) -> Self {
        Self {
            sources: vec![source],
            cardinality,
            seen_restrictions: SeenRestrictions::default(),
            seen_update_restrictions: SeenRestrictions::default(),
        }
    }

    /// Merges the objects of another component in the same process.
    pub(super) fn merged_with(mut self, other: &Self) -> Self {
        self.sources.extend(other.sources.iter().cloned());
        self
    }

    fn visit(
        &self,
        mut read: impl FnMut(&dyn VpaMetricsSource) -> Option<ObjectKey>,
    ) -> Option<ObjectKey> {
        self.sources.iter().fold(None, |next, source| read(&**source).or(next))
    }

    /// How a family reads its values from rows; `None` if the family is not exposed.
    fn rows<'a>(&self, family: &'a ObjectFamily) -> Option<&'a VpaSeries> {
        family.vpa_series.as_ref().filter(|rows| match self.cardinality {
            Cardinality::Standard | Cardinality::All => true,
            Cardinality::Restricted => !matches!(rows, VpaSeries::Container(_)),
            Cardinality::Off => false,
        })
    }

    fn write(
        &self,
        family: &ObjectFamily,
        after: Option<&ObjectKey>,
        lines: &mut FamilyWriter<'_>,
    ) -> Option<ObjectKey> {
        match self.rows(family)? {
            VpaSeries::Info => self.visit(|source| {
                source.vpas(after, &mut |row| {
                    let ObjectKey { namespace, name } = row.vpa;
                    let state = row.history_state.as_str();
                    lines.write(
                        VPA_INFO_LABELS,
                        &[state, VPA, name, namespace, row.update_mode],
                        1.0,
                    );
                })
            }),
            VpaSeries::Vpa(read) => self.visit(|source| {
                source.vpas(after, &mut |row| {
                    if let Some(value) = read(&row) {
                        lines.write(VPA_LABELS, &[VPA, &row.vpa.name, &row.vpa.namespace], value);
                    }
                })
            }),
            VpaSeries::Container(read) => self.visit(|source| {
                source.containers(after, &mut |row| {
                    if let Some(value) = read(&row) {
                        let ObjectKey { namespace, name } = row.vpa;
                        let labels = [row.container, VPA, name, namespace, row.resource.into()];
                        lines.write(CONTAINER_LABELS, &labels, value);
                    }
                })
            }),
            VpaSeries::Restrictions => {
                let mut page = self.seen_restrictions.page();
                let next = self.visit(|source| {
                    source.containers(after, &mut |row| {
                        let reasons = RecommendationReason::RESTRICTIONS
                            .map(|reason| (reason.into_str(), row.recommendation.reason == reason));
                        let part = (row.container, row.resource.into());
                        let first = row.resource as usize * reasons.len();
                        self.write_restrictions(&mut page, row.vpa, part, first, &reasons, lines);
                    })
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
        let next = self.visit(|source| {
            source.updates(after, &mut |row| {
                self.write_restrictions(&mut page, row.vpa, ("", ""), 0, row.reasons, lines);
            })
        });
        page.end(after, next.as_ref());
        next
    }

    /// Renders those of these restrictions that have a series. `first` is the index of the first one among all restrictions
    /// of the part.
    fn write_restrictions(
        &self,
        page: &mut SeenRestrictionsPage<'_>,
        object: &ObjectKey,
        (container, resource): (&str, &str),
        first: usize,
        reasons: &[(&str, bool)],
        lines: &mut FamilyWriter<'_>,
    ) {
        let active = reasons.iter().enumerate().filter(|(_, (_, holds))| *holds);
        let now = active.fold(0, |bits, (index, _)| bits | 1 << index);
        let shown = match self.cardinality {
            Cardinality::All => u64::MAX,
            _ => page.record(object, container, now << first) >> first,
        };
        for (index, (reason, holds)) in reasons.iter().enumerate() {
            if shown & (1 << index) != 0 {
                let ObjectKey { namespace, name } = object;
                let labels = [container, VPA, name, namespace, reason, resource];
                lines.write(RESTRICTION_LABELS, &labels, f64::from(u8::from(*holds)));
            }
        }
    }
}

/// Requests for one resource, in cores or bytes, over the pods with the container. Pods differ while they are replaced or
/// resized one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PodRequests {
    /// The largest request; `None` if no pod has one.
    pub largest: Option<f64>,
    /// The smallest request. A pod without a request counts as 0.
    pub smallest: f64,
    pub sum: f64,
}

impl PodRequests {
    /// Summarizes the requests of all pods with the container, in millicores or bytes. Returns `None` without pods.
    pub fn from_pods(
        resource: Resource,
        requests: impl Iterator<Item = Option<i64>>,
    ) -> Option<Self> {
        // Sums of integers are exact, sums of fractional cores are not.
        let (mut largest, mut smallest, mut sum) = (None, None, 0_i64);
        for request in requests {
            let reserved = request.unwrap_or(0);
            largest = largest.max(request);
            smallest = Some(smallest.map_or(reserved, |least: i64| least.min(reserved)));
            sum = sum.saturating_add(reserved);
        }
        let to_float = |amount| match resource {
            Resource::Cpu => MilliCpu(amount).as_cores(),
            Resource::Memory => Bytes(amount).as_f64(),
        };
        let smallest = to_float(smallest?);
        Some(Self { largest: largest.map(to_float), smallest, sum: to_float(sum) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_cpu(requests: &[Option<i64>]) -> Option<PodRequests> {
        PodRequests::from_pods(Resource::Cpu, requests.iter().copied())
    }

    #[test]
    fn a_single_raised_pod_does_not_hide_the_others() {
        let summary = of_cpu(&[Some(100), Some(700), Some(100), Some(100)]);
        let expected = PodRequests { largest: Some(0.7), smallest: 0.1, sum: 1.0 };
        assert_eq!(summary, Some(expected));
    }

    #[test]
    fn a_pod_without_a_request_counts_as_zero_and_no_pods_give_nothing() {
        let expected = PodRequests { largest: Some(0.25), smallest: 0.0, sum: 0.25 };
        assert_eq!(of_cpu(&[Some(250), None]), Some(expected));
        let expected = PodRequests { largest: None, smallest: 0.0, sum: 0.0 };
        assert_eq!(of_cpu(&[None, None]), Some(expected));
        assert_eq!(of_cpu(&[]), None);
    }
}
