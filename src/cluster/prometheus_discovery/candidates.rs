//! Which Services may be Prometheus servers, by the labels, names and ports that charts and operators give them. Pure.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort};

use super::operated::OperatedServers;
use crate::cluster::service_proxy::address::ServiceAddress;

pub const MAX_PROBES: usize = 12;

/// The annotations by which OpenShift issues a serving certificate for a Service.
const SERVING_CERTIFICATE_ANNOTATIONS: [&str; 2] = [
    "service.beta.openshift.io/serving-cert-secret-name",
    "service.alpha.openshift.io/serving-cert-secret-name",
];

/// Words in the names of Services that belong to a monitoring stack and cannot be queried.
const OTHER_COMPONENTS: [&str; 20] = [
    "adapter",
    "agent",
    "alert",
    "anomaly",
    "auth",
    "backup",
    "blackbox",
    "compact",
    "discovery",
    "exporter",
    "grafana",
    "grpc",
    "insert",
    "metrics-server",
    "operator",
    "pushgateway",
    "ruler",
    "state-metrics",
    "storage",
    "webhook",
];

/// What a Service is, as its labels and its name say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    Prometheus,
    ThanosQuery,
    /// The query frontend of Thanos, which splits and caches queries.
    ThanosQueryFrontend,
    /// VictoriaMetrics on a single node.
    VmSingle,
    /// The component of a VictoriaMetrics cluster that evaluates queries.
    VmSelect,
    MimirQueryFrontend,
}

/// How a Service is recognized, from the most to the least certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recognition {
    /// By labels of a chart or an operator.
    Labels,
    /// The headless Service that the Prometheus operator creates. There usually is another one for the same pods.
    GoverningService,
    /// By its name and a usual port.
    Name,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The port for queries.
    pub address: ServiceAddress,
    pub kind: ServerKind,
    pub recognition: Recognition,
}

impl ServerKind {
    /// Whether it evaluates queries over several servers.
    pub fn is_query_layer(self) -> bool {
        !matches!(self, Self::Prometheus | Self::VmSingle)
    }

    /// The path before `/api/v1`.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::VmSelect => "/select/0/prometheus",
            Self::MimirQueryFrontend => "/prometheus",
            _ => "",
        }
    }

    /// The names of ports for queries, the most specific first.
    fn port_names(self) -> &'static [&'static str] {
        match self {
            Self::Prometheus => &["http-web", "web", "http", "https", "https-web"],
            Self::ThanosQuery | Self::ThanosQueryFrontend => {
                &["http-query", "http", "web", "https", "http-web"]
            }
            Self::VmSingle | Self::VmSelect => &["http", "https"],
            Self::MimirQueryFrontend => &["http-metrics", "http", "https"],
        }
    }

    fn port_numbers(self) -> &'static [i32] {
        match self {
            Self::Prometheus => &[9090, 9091],
            Self::ThanosQuery | Self::ThanosQueryFrontend => &[9090, 10902, 9091],
            Self::VmSingle => &[8428, 8429],
            Self::VmSelect => &[8481],
            Self::MimirQueryFrontend => &[8080],
        }
    }
}

pub fn candidate(service: &Service, operated: &OperatedServers) -> Option<Candidate> {
    let (namespace, name) =
        (service.metadata.namespace.as_deref()?, service.metadata.name.as_deref()?);
    let spec = service.spec.as_ref()?;
    // It has no endpoints for the API server's proxy.
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    let labels = Labels(service.metadata.labels.as_ref());
    let operated = operated.behind(service);
    let ports = spec.ports.as_deref().unwrap_or_default();
    let port_of_object = operated.and_then(|server| {
        let wanted = server.port_name.as_deref()?;
        ports.iter().find(|port| port.name.as_deref() == Some(wanted))
    });
    let is_server_of_operator = port_of_object.is_some() && !is_other_component(name);
    let (kind, recognition) = if let Some(kind) = kind_by_labels(labels) {
        (kind, Recognition::Labels)
    } else if labels.get("operated-prometheus") == "true" {
        (ServerKind::Prometheus, Recognition::GoverningService)
    } else if let Some(kind) = kind_by_name(name, labels) {
        (kind, Recognition::Name)
    } else {
        (operated.filter(|_| is_server_of_operator)?.kind, Recognition::Labels)
    };
    let port = port_of_object.or_else(|| port(kind, recognition, ports))?;
    let path = operated.and_then(|server| server.path.as_deref());
    let number = u16::try_from(port.port).ok()?;
    let has_certificate = service.metadata.annotations.as_ref().is_some_and(|annotations| {
        SERVING_CERTIFICATE_ANNOTATIONS.iter().any(|name| annotations.contains_key(*name))
    });
    let is_https = has_certificate || is_https(port);
    let address =
        ServiceAddress::new(namespace, name, number, is_https, path.unwrap_or(kind.path())).ok()?;
    Some(Candidate { address, kind, recognition })
}

/// The labels of an object; a missing label is empty.
#[derive(Clone, Copy)]
struct Labels<'a>(Option<&'a BTreeMap<String, String>>);

impl<'a> Labels<'a> {
    fn get(self, name: &str) -> &'a str {
        self.0.and_then(|labels| labels.get(name)).map_or("", String::as_str)
    }
}

/// Charts and operators label Services with the name of the product and the component, or with `app`.
fn kind_by_labels(labels: Labels<'_>) -> Option<ServerKind> {
    let component = labels.get("app.kubernetes.io/component");
    match (labels.get("app.kubernetes.io/name"), component) {
        ("prometheus" | "kube-prometheus", "" | "server" | "prometheus") => {
            return Some(ServerKind::Prometheus);
        }
        ("thanos-query" | "thanos-querier", _) | ("thanos", "query" | "querier") => {
            return Some(ServerKind::ThanosQuery);
        }
        ("thanos-query-frontend", _) | ("thanos", "query-frontend") => {
            return Some(ServerKind::ThanosQueryFrontend);
        }
        ("vmsingle" | "victoria-metrics-single", _) => return Some(ServerKind::VmSingle),
        ("vmselect", _) => return Some(ServerKind::VmSelect),
        ("mimir", "query-frontend") => return Some(ServerKind::MimirQueryFrontend),
        _ => {}
    }
    match (labels.get("app"), labels.get("component")) {
        ("prometheus", "" | "server") | ("prometheus-server", _) => Some(ServerKind::Prometheus),
        // kube-prometheus-stack, prometheus-operator and Rancher: the name of the chart comes first.
        (app, _) if app.ends_with("-prometheus") => Some(ServerKind::Prometheus),
        ("thanos-query" | "thanos-querier", _) => Some(ServerKind::ThanosQuery),
        ("thanos-query-frontend", _) => Some(ServerKind::ThanosQueryFrontend),
        ("vmsingle", _) => Some(ServerKind::VmSingle),
        ("vmselect", _) => Some(ServerKind::VmSelect),
        _ => None,
    }
}

fn is_other_component(name: &str) -> bool {
    OTHER_COMPONENTS.iter().any(|word| name.contains(word))
}

/// A name of a release may come before that of the server, and the component after it.
fn kind_by_name(name: &str, labels: Labels<'_>) -> Option<ServerKind> {
    let names = [name, labels.get("app.kubernetes.io/name"), labels.get("app")];
    if names.into_iter().any(is_other_component) {
        return None;
    }
    let is_called = |wanted: &str| name.starts_with(wanted) || name.contains(&format!("-{wanted}"));
    if is_called("thanos-query-frontend") {
        Some(ServerKind::ThanosQueryFrontend)
    } else if is_called("thanos-quer") {
        Some(ServerKind::ThanosQuery)
    } else if is_called("mimir-query-frontend") {
        Some(ServerKind::MimirQueryFrontend)
    } else if is_called("vmselect") {
        Some(ServerKind::VmSelect)
    } else if name.starts_with("vm") || is_called("victoria-metrics") {
        Some(ServerKind::VmSingle)
    } else if is_called("prometheus") {
        Some(ServerKind::Prometheus)
    } else {
        None
    }
}

/// The port for queries. A port that nothing speaks for is used only if the labels leave no doubt and there is no other.
fn port(kind: ServerKind, recognition: Recognition, ports: &[ServicePort]) -> Option<&ServicePort> {
    let name = |port: &ServicePort| port.name.clone().unwrap_or_default();
    let is_usable = |port: &&ServicePort| {
        let is_tcp = port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
        let name = name(port);
        is_tcp && !name.contains("grpc") && !name.contains("reloader")
    };
    let usable = || ports.iter().filter(is_usable);
    let by_name =
        kind.port_names().iter().find_map(|wanted| usable().find(|port| name(port) == *wanted));
    let by_number =
        || kind.port_numbers().iter().find_map(|wanted| usable().find(|port| port.port == *wanted));
    let only = || {
        let mut usable = usable();
        let first = usable.next().filter(|_| recognition != Recognition::Name);
        first.filter(|_| usable.next().is_none())
    };
    by_name.or_else(by_number).or_else(only)
}

fn is_https(port: &ServicePort) -> bool {
    let protocol = port.app_protocol.as_deref().unwrap_or_default().to_ascii_lowercase();
    let name = port.name.as_deref().unwrap_or_default();
    match &*protocol {
        "https" => true,
        "http" => false,
        _ if name.starts_with("https") => true,
        _ => matches!(port.port, 443 | 8443) && !name.starts_with("http"),
    }
}

/// The candidates among the Services of a cluster: only those that are asked are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CandidateSelection {
    operated: OperatedServers,
    pub selected: Vec<Candidate>,
    pub services: usize,
    candidates: usize,
}

impl CandidateSelection {
    pub fn new(operated: OperatedServers) -> Self {
        Self { operated, ..Self::default() }
    }

    pub fn add(&mut self, service: &Service) {
        self.services += 1;
        let Some(candidate) = candidate(service, &self.operated) else { return };
        self.candidates += 1;
        let place = self.selected.partition_point(|other| priority(other) <= priority(&candidate));
        self.selected.insert(place, candidate);
        self.selected.truncate(MAX_PROBES);
    }

    /// The number of candidates that are not asked, because others are more likely.
    pub fn omitted(&self) -> usize {
        self.candidates - self.selected.len()
    }
}

fn priority(candidate: &Candidate) -> (Recognition, bool, &ServiceAddress) {
    (candidate.recognition, !candidate.kind.is_query_layer(), &candidate.address)
}
