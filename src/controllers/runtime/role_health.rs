//! What a role says of itself, kept until its Lease is renewed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::{
    api::role_health::{ANNOTATION, RoleHealth},
    types::compat::Compat,
};

/// How a role is.
#[derive(Clone, Debug)]
pub(crate) struct HealthReporter(Arc<Mutex<RoleHealth>>);

impl HealthReporter {
    /// Of a role that has not done anything yet.
    pub fn new(role: &str, interval: std::time::Duration) -> Self {
        Self(Arc::new(Mutex::new(RoleHealth::new(role, interval.as_secs_f64()))))
    }

    /// What is known of it, to be read or changed.
    pub fn lock(&self) -> MutexGuard<'_, RoleHealth> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The annotation that tells of it; upstream's Leases have none.
    pub fn annotation(&self, compat: Compat) -> Option<(&'static str, String)> {
        let text = serde_json::to_string(&*self.lock()).ok()?;
        (compat == Compat::Plimsoll).then_some((ANNOTATION, text))
    }
}
