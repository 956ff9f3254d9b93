//! The inputs of the decision about one workload that come from other objects: LimitRanges, quotas, maintenance windows.

use std::sync::Arc;

use super::{Shared, matching::Workload};
use crate::cluster::cache::updater_pod::UpdaterPod;
use plimsoll_core::{
    coordination::{Retargeting, SharedRequest},
    recommender::conditions::are_requests_planned,
    sizing::{
        LimitPolicy, LimitRangeItem, NamespaceLimitRanges, SizingRules, VpaOptions, quota::Quota,
    },
    types::{Time, compat::Compat},
    updater::{
        self, PodSizing, Settings, VpaWithPods,
        guard::{MaintenanceWindows, WindowState},
    },
};

/// The flags that decisions about pods depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionFlags<'a> {
    pub settings: &'a Settings,
    pub native_sidecars: bool,
    pub limit_policy: LimitPolicy,
    /// Whether a surge may scale up Deployments.
    pub may_scale: bool,
}

/// The inputs of the decision about a workload, besides the workload itself.
#[derive(Debug)]
pub(crate) struct DecisionInputs<'a> {
    flags: DecisionFlags<'a>,
    ranges: NamespaceLimitRanges,
    quotas: Vec<Quota>,
    /// The requests that autoscalers of replicas use too.
    shared_requests: Vec<SharedRequest>,
    vpa_options: VpaOptions,
    pub windows: Option<MaintenanceWindows>,
    /// The current state of these windows, or of those of the flag.
    window_state: WindowState,
    pods: Vec<updater::Pod>,
}

impl<'a> DecisionInputs<'a> {
    /// The inputs, with the LimitRanges and quotas of the namespace, and the autoscalers of the workload.
    pub fn new(
        workload: &Workload,
        flags: DecisionFlags<'a>,
        limit_ranges: &[LimitRangeItem],
        quotas: Vec<Quota>,
        shared_requests: Vec<SharedRequest>,
        now: Time,
    ) -> Self {
        let windows = match (&workload.vpa.metadata.annotations, flags.settings.compat) {
            // Invalid windows are reported by the validation of VPAs; the flag applies instead.
            (Some(annotations), Compat::Plimsoll) => {
                MaintenanceWindows::from_annotations(annotations).ok().flatten()
            }
            _ => None,
        };
        let pod = |pod: &Arc<UpdaterPod>| updater::Pod {
            spec: pod.sizing.clone(),
            status: pod.status.clone(),
        };
        let window =
            windows.as_ref().unwrap_or(&flags.settings.guards.maintenance_windows).state_at(now);
        Self {
            flags,
            ranges: NamespaceLimitRanges::merge(limit_ranges),
            quotas,
            shared_requests,
            vpa_options: VpaOptions::from_vpa(&workload.vpa, flags.settings.compat),
            windows,
            window_state: window,
            pods: workload.pods.iter().map(pod).collect(),
        }
    }

    /// The inputs, with the objects of the watches.
    pub(super) fn from_stores(shared: &'a Shared, workload: &Workload, now: Time) -> Self {
        let Shared { config, stores, .. } = shared;
        let namespace = &workload.key.namespace;
        let flags = DecisionFlags {
            settings: &config.settings,
            native_sidecars: config.native_sidecars,
            limit_policy: config.limit_policy,
            may_scale: shared.permissions.allowed_writes().scale,
        };
        let (sizing, target) = (&stores.sizing, &workload.vpa.spec.target_ref);
        let ranges = sizing.limit_range_items(namespace);
        let template = sizing.template(namespace, target);
        let template = template.as_ref();
        let retargeting = shared.permissions.allowed_writes().targets
            && workload.vpa.spec.update_mode().changes_running_pods();
        let retargeting = retargeting.then_some(Retargeting { now, needs_record: false });
        let target = (&*target.kind, &*target.name);
        let mut shared = sizing.followers.shared_requests(namespace, target, template, retargeting);
        if let Some(template) = template {
            for request in &mut shared {
                let pods = workload.pods.iter();
                let containers = pods.flat_map(|pod| pod.sizing.sized_containers(true));
                let names = containers.map(|(_, container)| &*container.name);
                request.hold_if_others_count(template, names);
            }
        }
        Self::new(workload, flags, &ranges, sizing.quotas(namespace), shared, now)
    }

    pub fn vpa_with_pods<'b>(&'b self, workload: &'b Workload) -> VpaWithPods<'b> {
        let flags = self.flags;
        let rules = SizingRules {
            compat: flags.settings.compat,
            fixes: flags.settings.fixes,
            sidecars: flags.native_sidecars,
        };
        VpaWithPods {
            vpa: &workload.key,
            generation: workload.vpa.metadata.generation,
            sizing: PodSizing {
                spec: self
                    .vpa_options
                    .sizing_spec(&workload.vpa, flags.limit_policy)
                    .with_shared_requests(&self.shared_requests),
                limit_ranges: Some(&self.ranges),
                quotas: &self.quotas,
                rules,
            },
            maintenance_window: self.window_state,
            is_planned: workload
                .vpa
                .status
                .as_ref()
                .is_some_and(|status| are_requests_planned(&status.conditions)),
            surges: &*workload.target.0 == "Deployment" && flags.may_scale,
            pods: &self.pods,
        }
    }
}
