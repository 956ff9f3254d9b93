//! Owns objects that many tests create: small ones, in YAML, as their users would write them.

use kube::Client;
use kube::api::{Api, PostParams};
use kube::core::{NamespaceResourceScope, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::wait;

/// Creates an object from YAML.
pub async fn create<K>(client: Client, namespace: &str, yaml: &str) -> K
where
    K: Resource<Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
    K::DynamicType: Default,
{
    let object: K = serde_saphyr::from_str(yaml).unwrap_or_else(|why| panic!("{why} in\n{yaml}"));
    let api = Api::<K>::namespaced(client, namespace);
    // An API that was registered a moment ago answers 404 until every part of the server has heard of it.
    wait::until("the object is created", || async {
        match api.create(&PostParams::default(), &object).await {
            Ok(created) => Some(created),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(why) => panic!("{why} for\n{yaml}"),
        }
    })
    .await
}

/// A Deployment of one container, `main`, with these requests.
pub fn deployment(name: &str, replicas: u32, cpu: &str, memory: &str) -> String {
    format!(
        "
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
      - name: main
        image: example/{name}
        resources: {{requests: {{cpu: {cpu}, memory: {memory}}}}}
"
    )
}

/// A pod of one container, `main`, with these requests and a restart policy.
pub fn pod(name: &str, restart_policy: &str, cpu: &str, memory: &str) -> String {
    format!(
        "
metadata: {{name: {name}}}
spec:
  restartPolicy: {restart_policy}
  containers:
  - name: main
    image: example/{name}
    resources: {{requests: {{cpu: {cpu}, memory: {memory}}}}}
"
    )
}
