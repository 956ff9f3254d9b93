//! `plimsoll explain wpa`: reads an object and tells what its controller last decided about it.

use kube::{Api, ResourceExt, api::ListParams};

use crate::controllers::watermark::scaling_gates;
use crate::{
    cluster::clock::Clock,
    controllers::runtime::cluster::{Cluster, NoCluster},
    report::explain::{Finding, WpaReport, suggestions::suggestions},
};
use plimsoll_core::api::wpa::WatermarkPodAutoscaler;

/// Why an object could not be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainWpaError {
    /// No cluster is known.
    #[error(transparent)]
    NoCluster(#[from] NoCluster),
    /// The cluster does not answer as it should.
    #[error("{address}: WatermarkPodAutoscaler {namespace}/{name} cannot be read: {why}")]
    Unreadable {
        /// The cluster.
        address: String,
        /// Where it was looked for.
        namespace: String,
        /// By which name.
        name: String,
        /// What happened.
        why: String,
    },
    /// It is not there.
    #[error("there is no WatermarkPodAutoscaler {namespace}/{name}{hint}")]
    NotFound {
        /// Where it was looked for.
        namespace: String,
        /// By which name.
        name: String,
        /// What is there.
        hint: String,
    },
}

/// Explains an object of that namespace, or of the one that the kubeconfig means.
pub async fn explain(
    cluster: &Cluster,
    namespace: Option<&str>,
    name: &str,
) -> Result<WpaReport, ExplainWpaError> {
    let namespace = namespace.unwrap_or(&cluster.namespace).to_owned();
    let api = Api::<WatermarkPodAutoscaler>::namespaced(cluster.client.clone(), &namespace);
    let object = match api.get(name).await {
        Ok(object) => object,
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let hint = hint(&api, name).await;
            return Err(ExplainWpaError::NotFound { namespace, name: name.to_owned(), hint });
        }
        Err(why) => {
            let (address, why) = (cluster.address.clone(), why.to_string());
            return Err(ExplainWpaError::Unreadable {
                address,
                namespace,
                name: name.to_owned(),
                why,
            });
        }
    };
    let status = object.status.clone().unwrap_or_default();
    let annotations = object.annotations();
    let now = Clock::wall().now();
    let mut report = WpaReport::of((&namespace, name), annotations, &object.spec, &status, now);
    for bad in scaling_gates::invalid_gate_annotations(annotations) {
        report.findings.push(Finding::new("annotation_ignored", bad.to_string()));
    }
    Ok(report)
}

async fn hint(api: &Api<WatermarkPodAutoscaler>, name: &str) -> String {
    match api.list_metadata(&ListParams::default()).await {
        Ok(list) if list.items.is_empty() => ": the namespace has none".to_owned(),
        Ok(list) => {
            let names: Vec<String> = list.items.iter().map(ResourceExt::name_any).collect();
            let close = suggestions(name, names.iter().map(String::as_str)).join(" or ");
            format!(": did you mean {close}?")
        }
        Err(kube::Error::Api(status)) if status.code == 404 => {
            ": the cluster does not know the kind; plimsoll crds | kubectl apply -f -".to_owned()
        }
        Err(_) => String::new(),
    }
}
