//! The servers that operators run, by their objects: they tell ports and paths that Services do not show.
//!
//! Objects are only listed if their kinds exist. Without the permission for it, Services have to be enough.

#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::APIGroup};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
    core::GroupVersionKind,
};
use tokio::time::timeout;

use super::candidates::ServerKind;
use crate::cluster::list_stream::error_message;

const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_OBJECTS: u32 = 500;

const KINDS: [(&str, &str, &str); 3] = [
    ("monitoring.coreos.com", "Prometheus", "prometheuses"),
    ("operator.victoriametrics.com", "VMSingle", "vmsingles"),
    ("operator.victoriametrics.com", "VMCluster", "vmclusters"),
];

/// The labels by which Services select the pods of a Prometheus.
const PROMETHEUS_SELECTORS: [&str; 2] = ["operator.prometheus.io/name", "prometheus"];
/// The Service that the Prometheus operator creates.
const GOVERNING_SERVICE: &str = "prometheus-operated";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatedServer {
    owner_kind: Box<str>,
    namespace: Box<str>,
    name: Box<str>,
    /// Its Service, if it is not recognized by its owner.
    service: Option<Box<str>>,
    pub kind: ServerKind,
    /// The name of the port for queries, if it is known.
    pub port_name: Option<Box<str>>,
    /// The path before `/api/v1`; `None` is the usual one.
    pub path: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatedServers(Vec<OperatedServer>);

impl OperatedServer {
    /// The server of an object; `None` if it runs none that can be queried.
    fn of_object(kind: &str, object: &DynamicObject) -> Option<Self> {
        let text =
            |pointer: &str| object.data.pointer(pointer)?.as_str().filter(|it| !it.is_empty());
        let prefix = |pointer: &str| text(pointer).map(|path| path.trim_matches('/').to_owned());
        let (server, service, port_name, path) = match kind {
            "Prometheus" => {
                let port = text("/spec/portName").unwrap_or("web");
                let service = text("/spec/serviceName").unwrap_or(GOVERNING_SERVICE);
                let path = prefix("/spec/routePrefix");
                (ServerKind::Prometheus, Some(service.into()), Some(port.into()), path)
            }
            "VMSingle" => {
                let path = prefix("/spec/extraArgs/http.pathPrefix");
                (ServerKind::VmSingle, None, None, path)
            }
            "VMCluster" => {
                object.data.pointer("/spec/vmselect").filter(|select| !select.is_null())?;
                let own = ServerKind::VmSelect.path();
                let path = prefix("/spec/vmselect/extraArgs/http.pathPrefix");
                (ServerKind::VmSelect, None, None, path.map(|path| format!("{path}{own}")))
            }
            _ => return None,
        };
        Some(Self {
            owner_kind: kind.into(),
            namespace: object.metadata.namespace.as_deref()?.into(),
            name: object.metadata.name.as_deref()?.into(),
            service,
            kind: server,
            port_name,
            path,
        })
    }

    fn is_behind(&self, service: &Service) -> bool {
        let metadata = &service.metadata;
        if metadata.namespace.as_deref() != Some(&self.namespace) {
            return false;
        }
        let name = metadata.name.as_deref().unwrap_or_default();
        let owners = metadata.owner_references.iter().flatten();
        let is_owned = owners
            .into_iter()
            .any(|owner| *owner.kind == *self.owner_kind && *owner.name == *self.name);
        match self.kind {
            ServerKind::Prometheus => {
                let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
                let selects = |label: &str| {
                    selector.and_then(|selector| selector.get(label)).map(|it| &**it)
                        == Some(&*self.name)
                };
                is_owned
                    || self.service.as_deref() == Some(name)
                    || PROMETHEUS_SELECTORS.into_iter().any(selects)
            }
            // The Services of the other components have the same owner.
            ServerKind::VmSelect => {
                name == format!("vmselect-{}", self.name)
                    || is_owned && name.starts_with("vmselect")
            }
            _ => name == format!("vmsingle-{}", self.name) || is_owned,
        }
    }
}

impl OperatedServers {
    /// Reads them. What cannot be read is left out.
    pub(super) async fn read(client: &Client) -> Self {
        timeout(TIMEOUT, read_all(client)).await.unwrap_or_else(|_| {
            tracing::debug!("objects of Prometheus operators were not read within {TIMEOUT:?}");
            Self::default()
        })
    }

    pub(super) fn behind(&self, service: &Service) -> Option<&OperatedServer> {
        self.0.iter().find(|server| server.is_behind(service))
    }
}

async fn read_all(client: &Client) -> OperatedServers {
    let groups = match client.list_api_groups().await {
        Ok(groups) => groups.groups,
        Err(error) => {
            let error = error_message(&error);
            tracing::debug!(%error, "failed to list the API groups of the cluster");
            return OperatedServers::default();
        }
    };
    let lists = KINDS.iter().filter_map(|&(group, kind, plural)| {
        let served = groups.iter().find(|served| served.name == group)?;
        Some(list(client, served, kind, plural))
    });
    OperatedServers(futures::future::join_all(lists).await.concat())
}

async fn list(client: &Client, group: &APIGroup, kind: &str, plural: &str) -> Vec<OperatedServer> {
    let preferred = group.preferred_version.as_ref().or(group.versions.first());
    let Some(version) = preferred.map(|version| &*version.version) else { return Vec::new() };
    let kind_of = GroupVersionKind::gvk(&group.name, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&kind_of, plural);
    let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
    match api.list(&ListParams::default().limit(MAX_OBJECTS)).await {
        Ok(list) => {
            list.items.iter().filter_map(|object| OperatedServer::of_object(kind, object)).collect()
        }
        Err(error) => {
            let error = error_message(&error);
            tracing::debug!(%error, "failed to list {plural}.{}", group.name);
            Vec::new()
        }
    }
}
