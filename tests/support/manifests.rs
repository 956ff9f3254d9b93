//! Common test objects: small YAML manifests as users would write them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::core::{NamespaceResourceScope, Resource};
use kube::{Client, ResourceExt as _};
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
    create_with_retry(&api, &object).await
}

/// Creates an object of an API that was just registered: until all parts of the server know it, the response is 404,
/// or 429 while its storage is being set up.
pub async fn create_with_retry<K>(api: &Api<K>, object: &K) -> K
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    wait::until("the object is created", || async {
        match api.create(&PostParams::default(), object).await {
            Ok(created) => Some(created),
            Err(kube::Error::Api(status)) if [404, 429].contains(&status.code) => None,
            Err(why) => panic!("{why} for {object:?}"),
        }
    })
    .await
}

/// Registers a CRD, unless it exists, and waits until its objects can be created.
pub async fn create_definition(client: Client, definition: &CustomResourceDefinition) {
    let api = Api::<CustomResourceDefinition>::all(client);
    match api.create(&PostParams::default(), definition).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(why) => panic!("{why}"),
    }
    wait::until("the definition is established", || async {
        let status = api.get_status(&definition.name_any()).await.ok()?.status?;
        let mut conditions = status.conditions.into_iter().flatten();
        conditions.any(|is| is.type_ == "Established" && is.status == "True").then_some(())
    })
    .await;
}

/// A Deployment with one container, `main`, with these requests.
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

/// A pod with one container, `main`, with these requests and restart policy.
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
