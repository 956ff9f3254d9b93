//! The objects in a cluster.

use std::collections::BTreeSet;

use kube::Client;

use crate::support::inventory;

/// Titles of all objects except those that the controller manager creates in every namespace asynchronously.
pub async fn all_objects(client: &Client) -> BTreeSet<String> {
    let is_made_anywhere = |found: &inventory::ClusterObject| {
        matches!(
            (found.resource.kind.as_str(), found.name.as_str()),
            ("ConfigMap", "kube-root-ca.crt") | ("ServiceAccount", "default")
        )
    };
    let found = inventory::all_objects(client).await.into_iter();
    found.filter(|(_, found)| !is_made_anywhere(found)).map(|(title, _)| title).collect()
}
