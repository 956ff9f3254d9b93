//! The label conventions of common monitoring installations.

use jiff::Timestamp;

use crate::support::prometheus_server::History;

/// How an installation labels its series.
#[derive(Clone, Copy, Debug)]
pub struct LabelFlavor {
    pub name: &'static str,
    /// Labels of usage series besides those of the container.
    pub usage: &'static [(&'static str, &'static str)],
    /// Names of the labels for namespace, pod and container.
    pub identity: [&'static str; 3],
    /// Labels of kube-state-metrics series besides those of the object.
    pub states: Option<&'static [(&'static str, &'static str)]>,
    /// Prefix of the object's labels.
    pub exported: &'static str,
    /// A label that distinguishes replicas of a series, and its values.
    pub copies: Option<(&'static str, [&'static str; 2])>,
}

const MODERN: [&str; 3] = ["namespace", "pod", "container"];
/// The target labels of the pod of kube-state-metrics.
const OF_TARGET: &[(&str, &str)] = &[
    ("job", "kube-state-metrics"),
    ("namespace", "monitoring"),
    ("pod", "kube-state-metrics-7d5f9c4b6d-x2x4z"),
    ("container", "kube-state-metrics"),
    ("service", "kube-state-metrics"),
];

/// The Prometheus Operator's stack, with two replicas behind one address.
pub const OPERATOR: LabelFlavor = LabelFlavor {
    name: "kube-prometheus-stack",
    usage: &[
        ("job", "kubelet"),
        ("metrics_path", "/metrics/cadvisor"),
        ("endpoint", "https-metrics"),
        ("service", "kubelet"),
        ("node", "node-1"),
        ("instance", "10.0.0.1:10250"),
        ("image", "registry.example/web:1"),
    ],
    identity: MODERN,
    states: Some(&[("job", "kube-state-metrics"), ("instance", "10.1.0.7:8080")]),
    exported: "",
    copies: Some(("prometheus_replica", ["prometheus-k8s-0", "prometheus-k8s-1"])),
};

/// The plain community Helm chart.
pub const CHART: LabelFlavor = LabelFlavor {
    name: "community chart",
    usage: &[
        ("job", "kubernetes-nodes-cadvisor"),
        ("instance", "node-1"),
        ("kubernetes_io_hostname", "node-1"),
        ("image", "registry.example/web:1"),
    ],
    identity: MODERN,
    states: Some(&[("job", "kubernetes-service-endpoints"), ("node", "node-2")]),
    exported: "",
    copies: None,
};

/// vmagent of VictoriaMetrics.
pub const AGENT: LabelFlavor = LabelFlavor {
    name: "vmagent",
    usage: &[
        ("job", "kubelet"),
        ("metrics_path", "/metrics/cadvisor"),
        ("cluster", "prod"),
        ("node", "node-1"),
    ],
    identity: MODERN,
    states: Some(OF_TARGET),
    exported: "exported_",
    copies: None,
};

/// Label names of scrape configurations for Kubernetes before 1.16.
pub const OLD: LabelFlavor = LabelFlavor {
    name: "old names",
    usage: &[("job", "kubernetes-cadvisor"), ("instance", "node-1")],
    identity: ["namespace", "pod_name", "container_name"],
    states: None,
    exported: "",
    copies: None,
};

/// Google Cloud Managed Service for Prometheus.
pub const MANAGED: LabelFlavor = LabelFlavor {
    name: "managed",
    usage: &[
        ("job", "kubelet"),
        ("metrics_path", "/metrics/cadvisor"),
        ("cluster", "prod"),
        ("location", "europe-west1"),
        ("project_id", "example"),
        ("node", "node-1"),
        ("instance", "node-1:cadvisor"),
    ],
    identity: MODERN,
    states: Some(OF_TARGET),
    exported: "exported_",
    copies: None,
};

/// All flavors.
pub const ALL: [LabelFlavor; 5] = [OPERATOR, CHART, AGENT, OLD, MANAGED];

impl LabelFlavor {
    /// Adds a series of a container.
    pub fn usage(
        &self,
        history: History,
        metric: &str,
        container: [&str; 3],
        value: impl Fn(Timestamp) -> Option<f64> + Send + Clone + 'static,
    ) -> History {
        self.usage_with(history, metric, container, &[], value)
    }

    /// Like [`Self::usage`], with more labels.
    pub fn usage_with(
        &self,
        mut history: History,
        metric: &str,
        container: [&str; 3],
        more: &[(&str, &str)],
        value: impl Fn(Timestamp) -> Option<f64> + Send + Clone + 'static,
    ) -> History {
        let names = self.identity.into_iter().zip(container);
        let labels = self.usage.iter().copied().chain(names).chain(more.iter().copied());
        let labels: Vec<_> = labels.collect();
        for copy in self.copies.map_or(vec![None], |(label, values)| {
            values.into_iter().map(|value| Some((label, value))).collect()
        }) {
            let labels: Vec<_> = labels.iter().copied().chain(copy).collect();
            history = history.series(metric, &labels, value.clone());
        }
        history
    }

    /// Adds a kube-state-metrics series, if the installation has them; `object` uses the label names of
    /// kube-state-metrics.
    pub fn state(
        &self,
        history: History,
        family: &str,
        object: &[(&str, &str)],
        value: impl Fn(Timestamp) -> Option<f64> + Send + 'static,
    ) -> History {
        let Some(states) = self.states else { return history };
        let of_object = ["namespace", "pod", "container"];
        let name = |label: &str| {
            let prefix = if of_object.contains(&label) { self.exported } else { "" };
            format!("{prefix}{label}")
        };
        let object: Vec<_> = object.iter().map(|(label, value)| (name(label), *value)).collect();
        let labels: Vec<_> = states
            .iter()
            .copied()
            .chain(object.iter().map(|(label, value)| (label.as_str(), *value)))
            .collect();
        history.series(family, &labels, value)
    }
}
