//! What a process is started in, besides its flags.

use std::{env, fmt, fs, rc::Rc};

use super::prometheus_auth::non_empty;

const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Environment variables, and the namespace of the pod: those of this process, or others in tests.
#[derive(Clone, Default)]
pub struct Environment(Option<Rc<Variables>>);

/// Returns the value of a variable; empty if it is not set.
type Variables = dyn Fn(&str) -> String;

impl Environment {
    /// Other variables than those of this process, and the namespace `default`.
    pub fn of(variable: impl Fn(&str) -> String + 'static) -> Self {
        Self(Some(Rc::new(variable)))
    }

    /// The value of a variable; empty if it is not set.
    pub fn variable(&self, name: &str) -> String {
        match &self.0 {
            Some(variable) => variable(name),
            None => env::var(name).unwrap_or_default(),
        }
    }

    /// The namespace of the pod, from its service account.
    pub fn pod_namespace(&self) -> Option<String> {
        if self.0.is_some() {
            return Some("default".to_owned());
        }
        non_empty(fs::read_to_string(NAMESPACE_FILE).ok()?.trim())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}
