//! What decisions about one workload are made from, beside what holds for all of them.

use std::sync::Arc;

use plimsoll_core::types::Time;

use super::{Role, matching::Workload};
use crate::observe::running::RunningPod;
use plimsoll_core::{
    sizing::{Ranges, Rules, Wishes, quota::Quota},
    types::compat::Compat,
    updater::{
        self, Sizing, Subject,
        guard::{WindowState, Windows},
    },
};

/// What a decision about a workload stands on, beside the workload itself.
#[derive(Debug)]
pub(super) struct Ground {
    ranges: Ranges,
    quotas: Vec<Quota>,
    wishes: Wishes,
    pub windows: Option<Windows>,
    /// What these windows, or else those of the flag, say about now.
    window: WindowState,
    pods: Vec<updater::Pod>,
}

impl Role {
    /// What a decision about a workload stands on.
    pub(super) fn ground(&self, workload: &Workload, now: Time) -> Ground {
        let windows = match (&workload.vpa.metadata.annotations, self.config.settings.compat) {
            // One that makes no sense is named by whoever checks VPAs, and the flag holds.
            (Some(annotations), Compat::Plimsoll) => Windows::of(annotations).ok().flatten(),
            _ => None,
        };
        let window = windows.as_ref().unwrap_or(&self.config.settings.guards.windows).at(now);
        Ground {
            ranges: Ranges::merge(&self.seen.limits(&workload.key.namespace)),
            quotas: self.quotas.of(&workload.key.namespace),
            wishes: Wishes::of(&workload.vpa, self.config.settings.compat),
            windows,
            window,
            pods: workload.subjects(),
        }
    }

    pub(super) fn subject<'a>(&self, workload: &'a Workload, ground: &'a Ground) -> Subject<'a> {
        let settings = &self.config.settings;
        let rules = Rules {
            compat: settings.compat,
            fixes: settings.fixes,
            sidecars: self.config.native_sidecars,
        };
        let plan = ground.wishes.plan(&workload.vpa, self.config.limit_policy);
        Subject {
            vpa: &workload.key,
            generation: workload.vpa.metadata.generation,
            sizing: Sizing { plan, ranges: Some(&ground.ranges), quotas: &ground.quotas, rules },
            window: ground.window,
            surges: &*workload.target.0 == "Deployment" && self.may_scale(),
            pods: &ground.pods,
        }
    }
}

impl Workload {
    /// Its pods as decisions see them.
    pub fn subjects(&self) -> Vec<updater::Pod> {
        let pod = |pod: &Arc<RunningPod>| updater::Pod {
            size: pod.sizes.clone(),
            life: pod.life.clone(),
        };
        self.pods.iter().map(pod).collect()
    }
}
