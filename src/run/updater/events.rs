//! Events of the updater: what was done to pods and what holds it back, for `kubectl describe`.

use kube::ResourceExt as _;
use plimsoll_core::types::Time;

use super::{Role, matching::Workload};
use crate::{
    act::{About, Happening},
    observe::running::RunningPod,
};
use plimsoll_core::{api::vpa::UpdateMode, updater::Action};

impl Role {
    /// Events of what was done, with upstream's words where upstream has them.
    pub(super) fn tell_done(&self, workload: &Workload, pod: &RunningPod, action: &Action) {
        let at = self.clock.now();
        match action {
            Action::Evict { .. } => {
                let message = "Pod was evicted by VPA Updater to apply resource recommendation.";
                self.tell_pod(pod, "EvictedByVPA", message, at);
                let message = format!(
                    "VPA Updater evicted Pod {} to apply resource recommendation.",
                    pod.name_any()
                );
                self.tell_vpa(workload, "EvictedPod", message, at, false);
            }
            Action::Resize { .. } | Action::Unboost { .. } => {
                let message = "Pod was resized in place by VPA Updater.";
                self.tell_pod(pod, "InPlaceResizedByVPA", message, at);
            }
            Action::Surge => {
                let message = "A second replica is started before the only one is evicted.";
                self.tell_vpa(workload, "SurgeStarted", message.to_owned(), at, false);
            }
            Action::EndSurge => {
                let message = "The second replica is not needed any more.";
                self.tell_vpa(workload, "SurgeEnded", message.to_owned(), at, false);
            }
        }
    }

    /// Resizes that are not tried, because they were found impossible. Upstream says so in every pass.
    pub(super) fn tell_skipped(&self, workload: &Workload, news: &[&RunningPod], at: Time) {
        if workload.vpa.spec.update_mode() != UpdateMode::InPlace {
            return;
        }
        for pod in news {
            let message = "VPA Updater leaves out a resize in place: its node had no room for one to no less.";
            self.tell_pod(pod, "InPlaceResizeSkipped", message, at);
        }
    }

    fn tell_pod(&self, pod: &RunningPod, reason: &'static str, message: &str, at: Time) {
        let (about, message) = (about_pod(pod), message.to_owned());
        self.tell(Happening { about, is_warning: false, reason, message, at });
    }

    /// An event about a VPA.
    pub(super) fn tell_vpa(
        &self,
        workload: &Workload,
        reason: &'static str,
        message: String,
        at: Time,
        is_warning: bool,
    ) {
        let about = About {
            api_version: "autoscaling.k8s.io/v1",
            kind: "VerticalPodAutoscaler",
            namespace: workload.key.namespace.to_string(),
            name: workload.key.name.to_string(),
            uid: workload.vpa.uid().unwrap_or_default(),
        };
        self.tell(Happening { about, is_warning, reason, message, at });
    }

    fn tell(&self, happening: Happening) {
        if self.config.dry_run.is_none_or(|dry| dry.events) && self.may_tell() {
            self.events.tell(happening);
        }
    }
}

fn about_pod(pod: &RunningPod) -> About {
    About {
        api_version: "v1",
        kind: "Pod",
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
    }
}
