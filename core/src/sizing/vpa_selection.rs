//! Selects the VPA that controls a pod.

use crate::types::Time;

use super::sizing_spec::SizingSpec;
use crate::api::vpa::TargetRef;

/// Orders VPAs with the same target: the smallest one controls the pod. The oldest comes first, then by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VpaPrecedence<'a> {
    /// When the VPA was created; `None` counts as oldest.
    pub created: Option<Time>,
    /// Name of the VPA.
    pub name: &'a str,
}

/// The topmost controller of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopOwner<'a> {
    /// The kind. The API group is ignored, as upstream does.
    pub kind: &'a str,
    /// Name of the controller.
    pub name: &'a str,
}

/// A VPA that may control a pod.
#[derive(Clone, Copy, Debug)]
pub struct VpaCandidate<'a> {
    /// How it sizes pods.
    pub spec: SizingSpec<'a>,
    /// Namespace of the VPA.
    pub namespace: &'a str,
    /// When it was created.
    pub created: Option<Time>,
    /// Whether the selector of its target matches the pod's labels; false if the selector is unknown.
    pub selects_pod: bool,
}

impl TopOwner<'_> {
    /// Whether a `targetRef` refers to this controller.
    pub fn is_target(&self, target: &TargetRef) -> bool {
        target.kind == self.kind && target.name == self.name
    }
}

/// Returns the VPA that controls a pod of this owner: of the matching candidates, the first by [`VpaPrecedence`].
pub fn select_vpa<'a>(
    owner: TopOwner<'_>,
    namespace: &str,
    candidates: impl IntoIterator<Item = VpaCandidate<'a>>,
) -> Option<VpaCandidate<'a>> {
    candidates
        .into_iter()
        .filter(|vpa| vpa.namespace == namespace && vpa.selects_pod)
        .filter(|vpa| owner.is_target(&vpa.spec.spec.target_ref))
        .min_by_key(|vpa| VpaPrecedence { created: vpa.created, name: vpa.spec.vpa })
}
