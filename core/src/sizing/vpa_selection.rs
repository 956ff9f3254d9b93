//! Which of several VPAs a pod belongs to.

use crate::types::Time;

use super::sizing_spec::SizingSpec;
use crate::api::vpa::TargetRef;

/// By what VPAs of one target are told apart: the smallest one has the pod. That is the oldest, and by its name among
/// those of one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VpaPrecedence<'a> {
    /// When the VPA was created; one that does not say is older than all others.
    pub created: Option<Time>,
    /// Its name.
    pub name: &'a str,
}

/// The topmost controller of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopOwner<'a> {
    /// Its kind. The group is not looked at, as upstream does not.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// A VPA that may have a pod.
#[derive(Clone, Copy, Debug)]
pub struct VpaCandidate<'a> {
    /// What it wants.
    pub spec: SizingSpec<'a>,
    /// Its namespace.
    pub namespace: &'a str,
    /// When it was created.
    pub created: Option<Time>,
    /// Whether the selector of its target takes the pod's labels; not so where the selector is not known.
    pub selects_pod: bool,
}

impl TopOwner<'_> {
    /// Whether a target is this controller.
    pub fn is_target(&self, target: &TargetRef) -> bool {
        target.kind == self.kind && target.name == self.name
    }
}

/// The VPA that has a pod of this controller: among those that aim at it and select the pod the one with the smallest
/// claim.
pub fn select_vpa<'a>(
    owner: TopOwner<'_>,
    namespace: &str,
    candidates: impl IntoIterator<Item = VpaCandidate<'a>>,
) -> Option<VpaCandidate<'a>> {
    candidates
        .into_iter()
        .filter(|one| one.namespace == namespace && one.selects_pod)
        .filter(|one| owner.is_target(&one.spec.spec.target_ref))
        .min_by_key(|one| VpaPrecedence { created: one.created, name: one.spec.vpa })
}
