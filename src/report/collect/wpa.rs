//! `plimsoll explain wpa`: reads an object and reports its controller's last decision.

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
    /// The API server returned an error.
    #[error("{address}: failed to read WatermarkPodAutoscaler {namespace}/{name}: {why}")]
    Unreadable {
        /// The cluster.
        address: String,
        /// Namespace of the object.
        namespace: String,
        /// Name of the object.
        name: String,
        /// The error.
        why: String,
    },
    /// The object does not exist.
    #[error("WatermarkPodAutoscaler {namespace}/{name} not found{hint}")]
    NotFound {
        /// Namespace of the object.
        namespace: String,
        /// Name of the object.
        name: String,
        /// Similar names, or what else the user can try.
        hint: String,
    },
}

/// Explains an object. Without a namespace, that of the kubeconfig's current context is used.
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
        Ok(list) if list.items.is_empty() => {
            ": the namespace has no WatermarkPodAutoscalers".to_owned()
        }
        Ok(list) => {
            let names: Vec<String> = list.items.iter().map(ResourceExt::name_any).collect();
            let close = suggestions(name, names.iter().map(String::as_str)).join(" or ");
            format!(": did you mean {close}?")
        }
        Err(kube::Error::Api(status)) if status.code == 404 => {
            ": the CRD is not installed; run plimsoll crds | kubectl apply -f -".to_owned()
        }
        Err(_) => String::new(),
    }
}
