//! Metrics of VPAs and containers, read from the state page by page at each scrape.

use std::sync::Arc;

use plimsoll_core::{
    recommender::{HistoryState, estimate::Resource},
    types::{
        ObjectKey,
        units::{Bytes, MilliCpu},
    },
};

use super::Shared;
use crate::telemetry::{
    ContainerRow, HistoryState as Progress, PodRequests, VpaMetricsSource, VpaRow,
    objects::PAGE_SIZE,
};

pub(super) struct RecommenderObjectMetrics(pub Arc<Shared>);

impl VpaMetricsSource for RecommenderObjectMetrics {
    fn vpas(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(VpaRow<'_>),
    ) -> Option<ObjectKey> {
        let now = self.0.clock.now();
        let state = self.0.state.lock();
        let mut last = None;
        for key in state.vpa_registry.keys_after(after).take(PAGE_SIZE) {
            last = Some(key.clone());
            let (Some(registered), Some(vpa)) = (state.vpa_registry.get(key), state.index.vpa(key))
            else {
                continue;
            };
            let sample = registered.last_sample;
            let live = state.index.pods_of(key).filter(|(_, pod)| !pod.is_finished);
            visit(VpaRow {
                vpa: key,
                update_mode: vpa.mode.unwrap_or_default().into_str(),
                history_state: match registered.state {
                    HistoryState::Waiting => Progress::Loading,
                    HistoryState::Loaded if registered.is_stored() => Progress::Loaded,
                    HistoryState::Loaded => Progress::Absent,
                    HistoryState::Missing => Progress::Failed,
                },
                staleness_seconds: sample.map(|time| now.nanos_since(time).max(0) as f64 / 1e9),
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
        let state = self.0.state.lock();
        let mut last = None;
        for key in state.vpa_registry.keys_after(after).take(PAGE_SIZE) {
            last = Some(key.clone());
            let Some(registered) = state.vpa_registry.get(key) else { continue };
            for summary in &registered.summaries {
                let requests = |resource| {
                    let live = state.index.pods_of(key).filter(|(_, pod)| !pod.is_finished);
                    let containers = live.filter_map(|(_, pod)| pod.container(&summary.container));
                    let values = containers.map(|container| match resource {
                        Resource::Cpu => container.requests.cpu.map(|MilliCpu(milli)| milli),
                        Resource::Memory => container.requests.memory.map(|Bytes(bytes)| bytes),
                    });
                    PodRequests::from_pods(resource, values)
                };
                for resource in [Resource::Cpu, Resource::Memory] {
                    let Some(recommendation) = summary.resources.get(resource) else { continue };
                    visit(ContainerRow {
                        vpa: key,
                        container: &summary.container,
                        resource,
                        recommendation: *recommendation,
                        oom_kills: registered.oom_count(&summary.container),
                        requests: &requests,
                    });
                }
            }
        }
        last
    }
}
