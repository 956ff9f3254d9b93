//! What there is in a cluster.

use std::collections::BTreeSet;

use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams},
    discovery::{Discovery, verbs},
};

use crate::support::wait;

/// All objects of a cluster, but for those that come and go by themselves.
pub async fn everything(client: &Client) -> BTreeSet<String> {
    // Groups come and go while definitions do.
    let found =
        wait::until("discovery", || async { Discovery::new(client.clone()).run().await.ok() })
            .await;
    let mut all = BTreeSet::new();
    for group in found.groups() {
        // What is measured is nobody's object.
        if group.name().ends_with("metrics.k8s.io") {
            continue;
        }
        for (resource, capabilities) in group.recommended_resources() {
            let passing = ["Event", "Lease", "EndpointSlice", "Endpoints", "ComponentStatus"];
            let is_lease = resource.kind == "Lease";
            if !capabilities.supports_operation(verbs::LIST)
                || (passing.contains(&resource.kind.as_str()) && !is_lease)
            {
                continue;
            }
            let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
            let what = format!("a list of {}", resource.plural);
            let list = wait::until_ok(&what, || async {
                match api.list(&ListParams::default()).await {
                    Ok(list) => Ok(list.items),
                    // Its definition is gone by now.
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
                    Err(why) => Err(why.to_string()),
                }
            })
            .await;
            for object in list {
                // The controller-manager makes one of each in every namespace, in its own time.
                let name = object.name_any();
                if matches!(
                    (resource.kind.as_str(), name.as_str()),
                    ("ConfigMap", "kube-root-ca.crt") | ("ServiceAccount", "default")
                ) {
                    continue;
                }
                let namespace = object.namespace().unwrap_or_default();
                all.insert(format!("{} {namespace}/{name}", resource.kind));
            }
        }
    }
    all
}
