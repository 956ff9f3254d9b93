//! Scalable kinds of scenarios. All other kinds are unknown to the API server.

use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use plimsoll_core::hpa::ScaleError;

/// The resource of a kind, once for each version to try, or the error.
pub fn mappings(target: &CrossVersionObjectReference) -> Result<Vec<String>, ScaleError> {
    let version = target.api_version.as_deref().unwrap_or_default();
    let group = match version.split('/').collect::<Vec<_>>()[..] {
        [_] => "",
        [group, _] => group,
        _ => {
            return Err(ScaleError::InvalidApiVersion(format!(
                "unexpected GroupVersion string: {version}"
            )));
        }
    };
    let (resource, versions) = match (group, target.kind.as_str()) {
        ("apps", "Deployment") => ("deployments.apps", 1),
        ("apps", "ReplicaSet") => ("replicasets.apps", 1),
        ("apps", "StatefulSet") => ("statefulsets.apps", 1),
        ("", "ReplicationController") => ("replicationcontrollers", 1),
        ("example.com", "Widget") => ("widgets.example.com", 2),
        (_, kind) => {
            return Err(ScaleError::Failed(format!("no matches for {group}/, Resource={kind}")));
        }
    };
    Ok(vec![resource.to_owned(); versions])
}
