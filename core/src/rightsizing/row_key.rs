//! What identifies a row in reports of different times.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{
    report::{ContainerReport, ResourceReport, WorkloadReport},
    survey::Resource,
};

/// One resource of one container of one workload.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RowKey {
    /// The cluster, if the report covers several.
    pub cluster: Option<String>,
    pub namespace: String,
    /// The kind of the workload.
    pub kind: String,
    /// The name of the workload.
    pub name: String,
    pub container: String,
    pub resource: Resource,
}

impl RowKey {
    pub fn of(
        workload: &WorkloadReport,
        container: &ContainerReport,
        resource: &ResourceReport,
    ) -> Self {
        Self {
            cluster: workload.cluster.clone(),
            namespace: workload.namespace.clone(),
            kind: workload.kind.clone(),
            name: workload.name.clone(),
            container: container.name.clone(),
            resource: resource.resource,
        }
    }
}

/// `shop/Deployment/checkout main memory`, after the cluster and a slash if there are several.
impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cluster) = &self.cluster {
            write!(f, "{cluster}/")?;
        }
        let Self { namespace, kind, name, container, resource, .. } = self;
        write!(f, "{namespace}/{kind}/{name} {container} {resource}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_printed_as_rows_are_named() {
        let key = |cluster: Option<&str>| RowKey {
            cluster: cluster.map(Into::into),
            namespace: "shop".to_owned(),
            kind: "Deployment".to_owned(),
            name: "checkout".to_owned(),
            container: "main".to_owned(),
            resource: Resource::Memory,
        };
        assert_eq!(key(None).to_string(), "shop/Deployment/checkout main memory");
        assert_eq!(key(Some("eu")).to_string(), "eu/shop/Deployment/checkout main memory");
    }
}
