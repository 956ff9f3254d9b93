//! What is shown of single objects, for metrics: read from the state page by page, and kept nowhere.

use std::sync::Weak;

use plimsoll_core::types::VpaKey;

use super::Role;
use crate::metrics::{
    ContainerRow, HistoryState as Progress, Objects, PodRequests, VpaRow, objects::PAGE,
};
use plimsoll_core::{
    recommender::{HistoryState, estimate::Resource},
    types::units::{Bytes, MilliCpu},
};

/// The rows of a role.
#[derive(Debug)]
pub struct Rows(pub Weak<Role>);

impl Objects for Rows {
    fn vpas(&self, after: Option<&VpaKey>, visit: &mut dyn FnMut(VpaRow<'_>)) -> Option<VpaKey> {
        let role = self.0.upgrade()?;
        let now = role.clock.now();
        let core = role.state.lock();
        let mut last = None;
        for key in core.fleet.keys_after(after).take(PAGE) {
            last = Some(key.clone());
            let (Some(watched), Some(vpa)) = (core.fleet.get(key), core.index.vpa(key)) else {
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
        after: Option<&VpaKey>,
        visit: &mut dyn FnMut(ContainerRow<'_>),
    ) -> Option<VpaKey> {
        let role = self.0.upgrade()?;
        let core = role.state.lock();
        let mut last = None;
        for key in core.fleet.keys_after(after).take(PAGE) {
            last = Some(key.clone());
            let Some(watched) = core.fleet.get(key) else { continue };
            for advice in watched.advice() {
                let requests = |resource| {
                    let live = core.index.pods_of(key).filter(|(_, pod)| !pod.is_finished);
                    let containers = live.filter_map(|(_, pod)| pod.container(&advice.container));
                    let stated = containers.map(|it| match resource {
                        Resource::Cpu => it.requests.cpu.map(|MilliCpu(milli)| milli),
                        Resource::Memory => it.requests.memory.map(|Bytes(bytes)| bytes),
                    });
                    PodRequests::of(resource, stated)
                };
                for resource in [Resource::Cpu, Resource::Memory] {
                    let Some(figures) = advice.of(resource) else { continue };
                    visit(ContainerRow {
                        vpa: key,
                        container: &advice.container,
                        resource,
                        figures: *figures,
                        kills: watched.kills(&advice.container),
                        requests: &requests,
                    });
                }
            }
        }
        last
    }
}
