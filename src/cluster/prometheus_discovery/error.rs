//! Why no Prometheus was found: one line with what was looked for, what is missing, and what to run instead.

use plimsoll_storage::prometheus::transport::TransportError;

use super::ranking::ProbedCandidate;
use crate::cluster::service_proxy::address::generic_port_forward_hint;

const LOOKED_FOR: &str =
    "the labels, names and ports of Prometheus, Thanos Query, VictoriaMetrics and Mimir";

#[derive(Clone, Debug, thiserror::Error)]
pub enum DiscoveryError {
    #[error(
        "cannot look for a Prometheus among the Services of the cluster, because RBAC does not allow it ({why}): grant \
         `list` on `services`, name one with --prometheus-service=NAMESPACE/NAME:PORT, or {}",
        generic_port_forward_hint()
    )]
    ListForbidden { why: String },
    #[error(
        "failed to list the Services of the cluster to look for a Prometheus: {why}: name one with \
         --prometheus-service=NAMESPACE/NAME:PORT, or pass --prometheus-address=URL"
    )]
    ListFailed { why: String },
    #[error(
        "found no Prometheus: none of {services} Services has {LOOKED_FOR}: name one with \
         --prometheus-service=NAMESPACE/NAME:PORT, or {}",
        generic_port_forward_hint()
    )]
    NoCandidate { services: usize },
    #[error("found no Prometheus: {}", summary(.candidates, *.omitted))]
    NoServer { candidates: Vec<ProbedCandidate>, omitted: usize },
    /// A user who may create a Service with the name of a Prometheus would receive the credentials.
    #[error(
        "{what} would be sent to every Service that looks like a Prometheus: name the one with \
         --prometheus-service=NAMESPACE/NAME:PORT, or pass --prometheus-address=URL"
    )]
    CredentialsForAnyService { what: &'static str },
    #[error(
        "{what} cannot be sent through the API server's proxy: {}",
        generic_port_forward_hint()
    )]
    NotThroughProxy { what: &'static str },
    #[error(transparent)]
    Transport(#[from] TransportError),
}

fn summary(candidates: &[ProbedCandidate], omitted: usize) -> String {
    let Some(first) = candidates.first() else { return "there are no candidates".to_owned() };
    let others = match candidates.len() - 1 {
        0 => String::new(),
        1 => "; another candidate failed too".to_owned(),
        count => format!("; {count} other candidates failed too"),
    };
    let omitted = match omitted {
        0 => String::new(),
        1 => "; 1 more was not asked".to_owned(),
        count => format!("; {count} more were not asked"),
    };
    let line = format!("{first}{others}{omitted}");
    if line.contains("kubectl port-forward") {
        return line;
    }
    format!("{line}: {}", first.candidate.address.port_forward_hint())
}
