//! Which of several VPAs a pod belongs to.

use crate::types::Time;

use super::plan::Plan;
use crate::api::vpa::TargetRef;

/// By what VPAs of one target are told apart: the smallest one has the pod. That is the oldest, and by its name among
/// those of one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim<'a> {
    /// When the VPA was created; one that does not say is older than all others.
    pub created: Option<Time>,
    /// Its name.
    pub name: &'a str,
}

/// The topmost controller of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// Its kind. The group is not looked at, as upstream does not.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// A VPA that may have a pod.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// What it wants.
    pub plan: Plan<'a>,
    /// Its namespace.
    pub namespace: &'a str,
    /// When it was created.
    pub created: Option<Time>,
    /// Whether the selector of its target takes the pod's labels; not so where the selector is not known.
    pub selects: bool,
}

impl Owner<'_> {
    /// Whether a target is this controller.
    pub fn is(&self, target: &TargetRef) -> bool {
        target.kind == self.kind && target.name == self.name
    }
}

/// The VPA that has a pod of this controller: among those that aim at it and select the pod the one with the smallest
/// claim.
pub fn choose<'a>(
    owner: Owner<'_>,
    namespace: &str,
    candidates: impl IntoIterator<Item = Candidate<'a>>,
) -> Option<Candidate<'a>> {
    candidates
        .into_iter()
        .filter(|one| one.namespace == namespace && one.selects)
        .filter(|one| owner.is(&one.plan.spec.target_ref))
        .min_by_key(|one| Claim { created: one.created, name: one.plan.vpa })
}
