//! What is shown of single objects, for metrics: read from the state page by page, and kept nowhere.

use std::sync::Weak;

use plimsoll_core::types::ObjectKey;

use super::Recommender;
use crate::telemetry::{
    ContainerRow, HistoryState as Progress, PodRequests, VpaMetricsSource, VpaRow,
    objects::PAGE_SIZE,
};
use plimsoll_core::{
    recommender::{HistoryState, estimate::Resource},
    types::units::{Bytes, MilliCpu},
};

/// The rows of a role.
#[derive(Debug)]
pub struct RecommenderObjectMetrics(pub Weak<Recommender>);

impl VpaMetricsSource for RecommenderObjectMetrics {
    fn vpas(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(VpaRow<'_>),
    ) -> Option<ObjectKey> {
        let role = self.0.upgrade()?;
        let now = role.clock.now();
        let core = role.state.lock();
        let mut last = None;
        for key in core.vpa_registry.keys_after(after).take(PAGE_SIZE) {
            last = Some(key.clone());
            let (Some(watched), Some(vpa)) = (core.vpa_registry.get(key), core.index.vpa(key))
            else {
                continue;
            };
            let sample = watched.last_sample();
            let live = core.index.pods_of(key).filter(|(_, pod)| !pod.is_finished);
            visit(VpaRow {
                vpa: key,
                update_mode: vpa.mode.unwrap_or_default().as_str(),
                history_state: match watched.state() {
                    HistoryState::Waiting => Progress::Loading,
                    HistoryState::Loaded if watched.is_stored() => Progress::Loaded,
                    HistoryState::Loaded => Progress::Absent,
                    HistoryState::Missing => Progress::Failed,
                },
                staleness_seconds: sample.map(|at| now.nanos_since(at).max(0) as f64 / 1e9),
                pods: live.count(),
            });
        }
        last
    }

    fn containers(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(ContainerRow<'_>),
    ) -> Option<ObjectKey> {
        let role = self.0.upgrade()?;
        let core = role.state.lock();
        let mut last = None;
        for key in core.vpa_registry.keys_after(after).take(PAGE_SIZE) {
            last = Some(key.clone());
            let Some(watched) = core.vpa_registry.get(key) else { continue };
            for advice in watched.summaries() {
                let requests = |resource| {
                    let live = core.index.pods_of(key).filter(|(_, pod)| !pod.is_finished);
                    let containers = live.filter_map(|(_, pod)| pod.container(&advice.container));
                    let stated = containers.map(|it| match resource {
                        Resource::Cpu => it.requests.cpu.map(|MilliCpu(milli)| milli),
                        Resource::Memory => it.requests.memory.map(|Bytes(bytes)| bytes),
                    });
                    PodRequests::from_pods(resource, stated)
                };
                for resource in [Resource::Cpu, Resource::Memory] {
                    let Some(figures) = advice.resource(resource) else { continue };
                    visit(ContainerRow {
                        vpa: key,
                        container: &advice.container,
                        resource,
                        recommendation: *figures,
                        oom_kills: watched.oom_count(&advice.container),
                        requests: &requests,
                    });
                }
            }
        }
        last
    }
}
