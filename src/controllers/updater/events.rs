//! Events of the updater for `kubectl describe`: actions on pods, and why updates are held back.

use std::sync::Arc;

use kube::{Resource as _, ResourceExt as _};

use super::{Shared, matching::Workload};
use crate::cluster::{
    cache::updater_pod::UpdaterPod,
    write::{EventDetails, EventRecorder},
};
use plimsoll_core::{
    api::vpa::UpdateMode,
    types::Time,
    updater::{Action, Decision},
};

/// Emits the events of the updater.
pub(super) struct EventReporter {
    pub shared: Arc<Shared>,
    pub recorder: EventRecorder,
}

impl EventReporter {
    /// Emits the events of an action, with upstream's messages where upstream has them.
    pub fn emit_action_events(&self, workload: &Workload, pod: &UpdaterPod, action: &Action) {
        let at = self.shared.clock.now();
        match action {
            Action::Evict { .. } => {
                let message = "Pod was evicted by VPA Updater to apply resource recommendation.";
                self.emit_pod_event(pod, "EvictedByVPA", message, at);
                let message = format!(
                    "VPA Updater evicted Pod {} to apply resource recommendation.",
                    pod.name_any()
                );
                self.emit_vpa_event(workload, "EvictedPod", message, at, false);
            }
            Action::Resize { .. } | Action::RemoveBoost { .. } => {
                let message = "Pod was resized in place by VPA Updater.";
                self.emit_pod_event(pod, "InPlaceResizedByVPA", message, at);
            }
            Action::Surge => {
                let message = "Scaled up to a second replica before the only one is evicted.";
                self.emit_vpa_event(workload, "SurgeStarted", message.to_owned(), at, false);
            }
            Action::EndSurge => {
                let message = "Scaled back to one replica: the second one is no longer needed.";
                self.emit_vpa_event(workload, "SurgeEnded", message.to_owned(), at, false);
            }
        }
    }

    /// Reports resizes that are skipped because they are infeasible. Upstream emits this event in every pass.
    pub fn emit_skipped_resize_events(&self, workload: &Workload, pods: &[&UpdaterPod], at: Time) {
        if workload.vpa.spec.update_mode() != UpdateMode::InPlace {
            return;
        }
        for pod in pods {
            let message = "VPA Updater skipped the in-place resize: the node could not fit an equal or smaller one.";
            self.emit_pod_event(pod, "InPlaceResizeSkipped", message, at);
        }
    }

    /// Reports findings of a pass that pause updates.
    pub fn emit_findings(&self, workload: &Workload, decision: &Decision, at: Time) {
        if let Some(regression) = decision.regression {
            let message = format!("Updates are paused: {regression}.");
            self.emit_vpa_event(workload, "PodsGotWorse", message, at, true);
        }
        if decision.externally_overwritten {
            let message =
                "Updates are paused: another controller overwrites the resources of the pods.";
            self.emit_vpa_event(workload, "ResourcesRewritten", message.to_owned(), at, true);
        }
    }

    fn emit_pod_event(&self, pod: &UpdaterPod, reason: &'static str, message: &str, at: Time) {
        let (involved_object, message) = (pod.object_ref(&()), message.to_owned());
        self.emit_event(EventDetails { involved_object, is_warning: false, reason, message, at });
    }

    pub fn emit_vpa_event(
        &self,
        workload: &Workload,
        reason: &'static str,
        message: String,
        at: Time,
        is_warning: bool,
    ) {
        let involved_object = workload.vpa.object_ref(&());
        self.emit_event(EventDetails { involved_object, is_warning, reason, message, at });
    }

    fn emit_event(&self, event: EventDetails) {
        if self.shared.config.dry_run.is_none_or(|dry| dry.events)
            && self.shared.permissions.allowed_writes().events
        {
            self.recorder.publish(event);
        }
    }
}
