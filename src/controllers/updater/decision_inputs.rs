//! The inputs of the decision about one workload that come from other objects: LimitRanges, quotas, maintenance windows.

use std::sync::Arc;

use plimsoll_core::types::Time;

use super::{Updater, matching::Workload};
use crate::cluster::cache::updater_pod::UpdaterPod;
use plimsoll_core::{
    sizing::{NamespaceLimitRanges, SizingRules, VpaOptions, quota::Quota},
    types::compat::Compat,
    updater::{
        self, PodSizing, VpaWithPods,
        guard::{MaintenanceWindows, WindowState},
    },
};

/// The inputs of the decision about a workload, besides the workload itself.
#[derive(Debug)]
pub(super) struct DecisionInputs {
    ranges: NamespaceLimitRanges,
    quotas: Vec<Quota>,
    vpa_options: VpaOptions,
    pub windows: Option<MaintenanceWindows>,
    /// The current state of these windows, or of those of the flag.
    window_state: WindowState,
    pods: Vec<updater::Pod>,
}

impl Updater {
    /// Collects the inputs of the decision about a workload.
    pub(super) fn decision_inputs(&self, workload: &Workload, now: Time) -> DecisionInputs {
        let windows = match (&workload.vpa.metadata.annotations, self.config.settings.compat) {
            // Invalid windows are reported by the validation of VPAs; the flag applies instead.
            (Some(annotations), Compat::Plimsoll) => {
                MaintenanceWindows::from_annotations(annotations).ok().flatten()
            }
            _ => None,
        };
        let window = windows
            .as_ref()
            .unwrap_or(&self.config.settings.guards.maintenance_windows)
            .state_at(now);
        DecisionInputs {
            ranges: NamespaceLimitRanges::merge(
                &self.stores.limit_range_items(&workload.key.namespace),
            ),
            quotas: self.quotas.in_namespace(&workload.key.namespace),
            vpa_options: VpaOptions::from_vpa(&workload.vpa, self.config.settings.compat),
            windows,
            window_state: window,
            pods: workload.decision_pods(),
        }
    }

    pub(super) fn vpa_with_pods<'a>(
        &self,
        workload: &'a Workload,
        inputs: &'a DecisionInputs,
    ) -> VpaWithPods<'a> {
        let settings = &self.config.settings;
        let rules = SizingRules {
            compat: settings.compat,
            fixes: settings.fixes,
            sidecars: self.config.native_sidecars,
        };
        let spec = inputs.vpa_options.sizing_spec(&workload.vpa, self.config.limit_policy);
        VpaWithPods {
            vpa: &workload.key,
            generation: workload.vpa.metadata.generation,
            sizing: PodSizing {
                spec,
                limit_ranges: Some(&inputs.ranges),
                quotas: &inputs.quotas,
                rules,
            },
            maintenance_window: inputs.window_state,
            surges: &*workload.target.0 == "Deployment" && self.may_scale(),
            pods: &inputs.pods,
        }
    }
}

impl Workload {
    /// The pods in the form that decisions use.
    pub fn decision_pods(&self) -> Vec<updater::Pod> {
        let pod = |pod: &Arc<UpdaterPod>| updater::Pod {
            spec: pod.sizing.clone(),
            status: pod.status.clone(),
        };
        self.pods.iter().map(pod).collect()
    }
}
