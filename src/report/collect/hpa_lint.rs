//! `plimsoll doctor hpa`: reads the HorizontalPodAutoscalers of a cluster with their pods, and checks them.

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::{
    autoscaling::v2::{CrossVersionObjectReference, HorizontalPodAutoscaler},
    core::v1::Pod as ApiPod,
};
use kube::{Api, ResourceExt as _, api::ListParams};
use plimsoll_core::{
    api::VerticalPodAutoscaler,
    hpa::{
        Pod, Selector, Spec,
        lint::{
            contested_resources, contested_warning, object_warnings, overlap_warning,
            request_warnings,
        },
        sentinel::SENTINEL_NAME,
    },
    types::Time,
};

use super::hpa::read_target;
use crate::{
    cluster::{
        snapshot::{ClusterSnapshot, ReadError, ReadErrorCause, SnapshotPart, list},
        target::scale::{CacheLifetimes, RequestGate, ScaleClient},
    },
    controllers::runtime::command_client::Cluster,
    report::doctor::hpa_lint::{HpaFinding, HpaLintReport},
};

const CONCURRENT_REQUESTS: usize = 8;
/// The scale and the pods of more objects than these are not read.
const MAX_OBJECTS: usize = 1000;

/// Whether an object is the one by which an active HPA controller is found.
fn is_sentinel(hpa: &HorizontalPodAutoscaler) -> bool {
    let target = hpa.spec.as_ref().map(|spec| spec.scale_target_ref.name.as_str());
    hpa.name_any() == SENTINEL_NAME && target == Some(SENTINEL_NAME)
}

/// Checks the objects of a namespace, or of the cluster.
pub async fn lint(
    cluster: &Cluster,
    namespace: Option<&str>,
    now: Time,
) -> Result<HpaLintReport, ReadError> {
    let parts = [SnapshotPart::Hpas, SnapshotPart::Vpas];
    let ClusterSnapshot { hpas, vpas, .. } =
        ClusterSnapshot::read(&cluster.client, namespace, &parts).await;
    let mut hpas = hpas?;
    hpas.objects.retain(|hpa| !is_sentinel(hpa));
    let invalid = hpas.invalid.iter().map(|invalid| {
        let metadata = &invalid.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        format!("{namespace}/{name}: {}", invalid.reason)
    });
    let mut notes: Vec<String> = invalid.collect();
    let vpas = vpas.map_or_else(
        |error| {
            // Without the CRD there are no VPAs.
            if error.cause != ReadErrorCause::NotServed {
                notes.push(error.to_string());
            }
            Vec::new()
        },
        |vpas| vpas.objects,
    );
    if hpas.objects.len() > MAX_OBJECTS {
        notes.push(format!("pods of more than {MAX_OBJECTS} objects: use --namespace"));
    }
    let mut by_namespace: BTreeMap<String, Vec<&HorizontalPodAutoscaler>> = BTreeMap::new();
    for hpa in hpas.objects.iter().take(MAX_OBJECTS) {
        by_namespace.entry(hpa.namespace().unwrap_or_default()).or_default().push(hpa);
    }
    let gate: RequestGate = Arc::new(|_| Box::pin(std::future::ready(())));
    let scales = ScaleClient::new(cluster.client.clone(), gate, CacheLifetimes::default());
    let mut findings = Vec::new();
    for hpa in hpas.objects.iter().skip(MAX_OBJECTS) {
        let namespace = hpa.namespace().unwrap_or_default();
        findings.extend(check_alone(&namespace, hpa, &mut notes).1);
    }
    for (namespace, hpas) in &by_namespace {
        let api = Api::namespaced(cluster.client.clone(), namespace);
        let what = format!("Pods of namespace {namespace}");
        let pods = list(api, &what, ListParams::default());
        let (pods, selectors) = tokio::join!(pods, selectors(&scales, namespace, hpas));
        let pods: Vec<ApiPod> = pods.map_or_else(
            |error| {
                notes.push(error.to_string());
                Vec::new()
            },
            |pods| pods.objects,
        );
        let pods: Vec<Pod> = pods.iter().map(Pod::read).collect();
        let vpas = vpas.iter().filter(|vpa| vpa.namespace().as_ref() == Some(namespace));
        let vpas: Vec<_> = vpas.collect();
        let selected = selectors.into_iter().zip(hpas).map(|(selector, hpa)| match selector {
            Ok(selector) => pods.iter().filter(|pod| selector.matches(&pod.labels)).collect(),
            Err(why) => {
                notes.push(format!("pods of {namespace}/{}: {why}", hpa.name_any()));
                Vec::new()
            }
        });
        let selected: Vec<Vec<&Pod>> = selected.collect();
        for (hpa, pods) in hpas.iter().zip(&selected) {
            let (spec, mut found) = check_alone(namespace, hpa, &mut notes);
            if let Some(spec) = &spec {
                found.extend(check_pods(namespace, hpa, spec, pods, &vpas));
            }
            let others = overlapping(hpa, pods, hpas.iter().zip(&selected));
            if !others.is_empty() {
                let others: Vec<_> = others.iter().map(String::as_str).collect();
                found.push(HpaFinding::new((namespace, &hpa.name_any()), overlap_warning(&others)));
            }
            findings.extend(found);
        }
    }
    findings
        .sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    Ok(HpaLintReport::new(now, hpas.objects.len(), findings, notes))
}

/// Checks an object by itself, and returns its spec.
fn check_alone(
    namespace: &str,
    hpa: &HorizontalPodAutoscaler,
    notes: &mut Vec<String>,
) -> (Option<Spec>, Vec<HpaFinding>) {
    let name = hpa.name_any();
    match Spec::read(&hpa.spec.clone().unwrap_or_default()) {
        Ok(spec) => {
            let warnings = object_warnings(hpa.annotations(), hpa.owner_references(), &spec);
            let warnings = warnings.into_iter();
            let findings = warnings.map(|warning| HpaFinding::new((namespace, &name), warning));
            let findings = findings.collect();
            (Some(spec), findings)
        }
        Err(error) => {
            notes.push(format!("{namespace}/{name}: {error}"));
            (None, Vec::new())
        }
    }
}

fn check_pods(
    namespace: &str,
    hpa: &HorizontalPodAutoscaler,
    spec: &Spec,
    pods: &[&Pod],
    vpas: &[&VerticalPodAutoscaler],
) -> Vec<HpaFinding> {
    let mut warnings = request_warnings(spec, pods);
    let target = target_of(hpa);
    for vpa in vpas {
        let reference = &vpa.spec.target_ref;
        if (&*reference.kind, &*reference.name) == (&*target.kind, &*target.name) {
            let contested = contested_resources(spec, pods, &vpa.spec);
            if !contested.is_empty() {
                warnings.push(contested_warning(&vpa.name_any(), &contested));
            }
        }
    }
    let name = hpa.name_any();
    warnings.into_iter().map(|warning| HpaFinding::new((namespace, &name), warning)).collect()
}

fn target_of(hpa: &HorizontalPodAutoscaler) -> CrossVersionObjectReference {
    hpa.spec.as_ref().map(|spec| spec.scale_target_ref.clone()).unwrap_or_default()
}

/// The names of other objects with the same target, or with a pod that both select.
fn overlapping<'a>(
    hpa: &HorizontalPodAutoscaler,
    pods: &[&Pod],
    all: impl Iterator<Item = (&'a &'a HorizontalPodAutoscaler, &'a Vec<&'a Pod>)>,
) -> Vec<String> {
    let (name, target) = (hpa.name_any(), target_of(hpa));
    let others = all.filter(|(other, _)| other.name_any() != name);
    let is_same = |other: &HorizontalPodAutoscaler| {
        let other = target_of(other);
        (other.kind, other.name) == (target.kind.clone(), target.name.clone())
    };
    let shares_pod =
        |theirs: &[&Pod]| theirs.iter().any(|pod| pods.iter().any(|own| std::ptr::eq(*own, *pod)));
    let overlapping = others.filter(|(other, theirs)| is_same(other) || shares_pod(theirs));
    overlapping.map(|(other, _)| other.name_any()).collect()
}

/// The selector of the target of each object, or why it is not known.
async fn selectors(
    scales: &ScaleClient,
    namespace: &str,
    hpas: &[&HorizontalPodAutoscaler],
) -> Vec<Result<Selector, String>> {
    let selectors = hpas.iter().map(|hpa| target_of(hpa)).map(|target| async move {
        let scale = read_target(scales, namespace, &target).await.scale;
        let scale = scale.map_err(|error| error.to_string())?;
        if scale.selector.is_empty() {
            return Err("the target's scale has no selector".to_owned());
        }
        Selector::parse(&scale.selector).map_err(|error| error.to_string())
    });
    stream::iter(selectors.collect::<Vec<_>>()).buffered(CONCURRENT_REQUESTS).collect().await
}
