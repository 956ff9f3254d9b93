//! The law of assisting the HPA controller of the cluster: never fewer replicas than it would propose.
//!
//! That controller still adds replicas, but removes none, because its behavior for scaling down is disabled. With fewer than
//! it proposes, it would add them again in its next pass.

use super::decision::{Decision, Zone};
use crate::scaling::Restriction;

/// Our decision, with no fewer replicas than the HPA controller of the cluster would have. `native` is its decision for the
/// same observation. What it proposes is unknown if its metrics are not available, and then nothing is removed.
#[must_use]
pub fn assist(ours: &Decision, native: &Decision) -> Decision {
    let mut assisted = ours.clone();
    let Some(current) = ours.current else { return assisted };
    let native = native_replicas(native);
    // It leaves a workload alone that has zero replicas.
    if ours.desired == Some(0) && native.is_some_and(|native| native <= current) {
        return assisted;
    }
    let native = native.unwrap_or(current);
    match ours.desired {
        Some(desired) if desired < native => {
            assisted.restrict(Restriction::BuiltinActs);
            assisted.set_desired(current, native);
        }
        None if native > current => assisted.set_desired(current, native),
        _ => {}
    }
    assisted
}

/// The replicas that it would have; `None` if they are unknown.
fn native_replicas(native: &Decision) -> Option<i32> {
    let (current, desired) = (native.current?, native.desired?);
    if native.zone != Zone::Metrics {
        return Some(desired);
    }
    // It removes nothing. Of what it would keep it adds again only what its metrics ask for.
    let proposed = native.stabilization?.recommended;
    Some(if proposed > current { desired } else { proposed.max(native.bounds.0) })
}
