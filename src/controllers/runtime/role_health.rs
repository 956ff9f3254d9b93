//! The health of a controller, published as an annotation when its Lease is renewed.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use plimsoll_core::{
    api::role_health::{ANNOTATION, RoleHealth},
    types::compat::Compat,
};

#[derive(Clone, Debug)]
pub(crate) struct HealthReporter(Arc<Mutex<RoleHealth>>);

impl HealthReporter {
    /// The health of a controller that has not run yet.
    pub fn new(role: &str, interval: std::time::Duration) -> Self {
        Self(Arc::new(Mutex::new(RoleHealth::new(role, interval.as_secs_f64()))))
    }

    pub fn lock(&self) -> MutexGuard<'_, RoleHealth> {
        self.0.lock()
    }

    /// The annotation with the health. Upstream's Leases have none.
    pub fn annotation(&self, compat: Compat) -> Option<(&'static str, String)> {
        let text = serde_json::to_string(&*self.lock()).ok()?;
        (compat == Compat::Plimsoll).then_some((ANNOTATION, text))
    }
}
