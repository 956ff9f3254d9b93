//! Where history in a Prometheus is, by upstream's names: accepted today, so that upstream's manifests start, and
//! used as soon as there is a storage that reads it.

use plimsoll_storage::prometheus::door::Secret;

/// How to sign in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Login {
    /// Not at all.
    #[default]
    None,
    /// With a token.
    Bearer(Secret),
    /// With a name and a password.
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: Secret,
    },
}

/// A Prometheus, and what its series are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrometheusConfig {
    /// Its base URL.
    pub address: String,
    /// Whether any certificate will do.
    pub insecure: bool,
    /// How to sign in.
    pub login: Login,
    /// The job that scrapes the containers; empty for any.
    pub cadvisor_job: String,
    /// How far to look back, as Prometheus writes it.
    pub length: String,
    /// The step of range queries, as Prometheus writes it.
    pub resolution: String,
    /// How long a query may take, as Go writes it.
    pub query_timeout: String,
    /// The counter of CPU seconds.
    pub cpu_metric: String,
    /// The gauge of memory.
    pub memory_metric: String,
    /// The query that gives labels of pods.
    pub pod_labels_query: String,
    /// What stands before the labels of a pod there.
    pub pod_label_prefix: String,
    /// The label with the namespace there.
    pub pod_namespace_label: String,
    /// The label with the pod's name there.
    pub pod_name_label: String,
    /// The label with the namespace on series of containers.
    pub container_namespace_label: String,
    /// The label with the pod's name on series of containers.
    pub container_pod_name_label: String,
    /// The label with the container's name on series of containers.
    pub container_name_label: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown() {
        let login = Login::Basic { user: "vpa".into(), password: "hunter2".into() };
        assert_eq!(format!("{login:?}"), r#"Basic { user: "vpa", password: Secret(..) }"#);
    }
}
