//! Webhooks that change pods: their order, the endpoints of their Service, and their CA.

use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    },
    discovery::v1::EndpointSlice,
};
use kube::ResourceExt as _;
use plimsoll_core::{
    diagnosis::facts::{Reading, WebhookFacts},
    types::Time,
};
use serde::Deserialize;

use super::{ListReader, list_reader::ListedResource};
use crate::cluster::{
    list_stream::encode_query,
    path_segment::path_segment,
    server::certificate::{Validity, parse_certificates},
};

/// The name of the configuration, as in upstream.
const CONFIGURATION: &str = "vpa-webhook-config";
/// The name of the webhook in it, as in upstream.
const WEBHOOK: &str = "vpa.k8s.io";

pub(crate) async fn webhooks(reader: &ListReader<'_>) -> Reading<Vec<WebhookFacts>> {
    let resource = ListedResource::of_cluster(
        "admissionregistration.k8s.io/v1",
        "mutatingwebhookconfigurations",
    );
    let configurations: Vec<MutatingWebhookConfiguration> = reader.collect(&resource, Some).await?;
    let mut facts = Vec::new();
    for configuration in configurations {
        let name = configuration.name_any();
        let webhooks = configuration.webhooks.unwrap_or_default();
        let is_own = name == CONFIGURATION || webhooks.iter().any(|one| one.name == WEBHOOK);
        let mutating: Vec<_> = webhooks.iter().filter(|one| is_for_pods(one)).collect();
        let service = mutating.iter().find_map(|one| one.client_config.service.as_ref());
        let without_endpoints = match service.filter(|_| is_own) {
            Some(service) => without_endpoints(reader, service).await,
            None => None,
        };
        let bundle = mutating.iter().find_map(|one| one.client_config.ca_bundle.as_ref());
        let is_reinvoked =
            mutating.iter().any(|one| one.reinvocation_policy.as_deref() == Some("IfNeeded"));
        facts.push(WebhookFacts {
            name: name.into(),
            is_admission_controller: is_own,
            mutates_pods: !mutating.is_empty(),
            is_reinvoked,
            without_endpoints,
            ca_expires: ca_expires(bundle.map_or(&[][..], |bundle| bundle.0.as_slice())),
        });
    }
    Ok(facts)
}

/// Whether a webhook is called when a pod is created.
fn is_for_pods(webhook: &MutatingWebhook) -> bool {
    let has = |list: &Option<Vec<String>>, wanted: &str| {
        list.iter().flatten().any(|one| one == "*" || one == wanted)
    };
    let applies = |rule: &RuleWithOperations| {
        has(&rule.api_groups, "")
            && has(&rule.operations, "CREATE")
            && (has(&rule.resources, "pods") || has(&rule.resources, "*/*"))
    };
    webhook.rules.iter().flatten().any(applies)
}

/// When the last certificate of a bundle expires.
fn ca_expires(bundle: &[u8]) -> Reading<Time> {
    if bundle.is_empty() {
        return Err("it has no caBundle".to_owned());
    }
    let certificates = parse_certificates(bundle, "caBundle").map_err(|why| why.to_string())?;
    let validities = certificates.iter().filter_map(Validity::from_der);
    validities
        .map(|validity| validity.not_after)
        .max()
        .ok_or_else(|| "its caBundle has no certificate".to_owned())
}

#[derive(Deserialize)]
struct EndpointSlices {
    items: Vec<EndpointSlice>,
}

/// The Service, if it has no ready endpoint.
async fn without_endpoints(
    reader: &ListReader<'_>,
    service: &ServiceReference,
) -> Option<Reading<String>> {
    let ServiceReference { namespace, name, .. } = service;
    let path = match path_segment("namespace", namespace) {
        Ok(namespace) => format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices\
             ?limit=500&labelSelector=kubernetes.io%2Fservice-name%3D{}",
            encode_query(name)
        ),
        Err(why) => return Some(Err(why)),
    };
    match reader.find::<EndpointSlices>(&path).await {
        Ok(slices) => {
            let slices = slices.map_or_else(Vec::new, |slices| slices.items);
            let mut endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
            let is_ready = endpoints.any(|endpoint| {
                endpoint.conditions.as_ref().and_then(|one| one.ready).unwrap_or(true)
            });
            (!is_ready).then(|| Ok(format!("{namespace}/{name}")))
        }
        Err(why) => Some(Err(format!("failed to list endpoints of {namespace}/{name}: {why}"))),
    }
}
