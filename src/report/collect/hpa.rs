//! `plimsoll explain hpa`: repeats one pass of the HPA controller with the code of `plimsoll_core::hpa`, on what the cluster
//! has now. Values of objects and external systems are taken from the status, so that their APIs are not asked twice.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::{
    autoscaling::v2::{CrossVersionObjectReference, HorizontalPodAutoscaler},
    core::v1::Pod as ApiPod,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use plimsoll_core::{
    api::{VerticalPodAutoscaler, annotations::HOLD_WHILE},
    coordination::{ScalePoint, Template},
    hpa::{
        Answer, Config, Decision, Fetched, Fix, Fixes, HpaOptions, HpaRecord, MetricRequest,
        NO_OPTIONS, Observed, Pod, ScaleError, ScaleValues, Selector, SharedMemory, Spec, assist,
        decide,
        lint::contested_resources,
        metric_requests,
        options::UtilizationOf,
        record::RECORD_ANNOTATION,
        reported_replicas::ReportedReplicas,
        samples::PodMetrics,
        scale_point::{RequestMetric, request_metrics},
        spec::Metric,
        status_values::StatusValues,
        takeover::{ObjectMode, takeover},
        vpa_rules::{TargetVpa, VpaContext, VpaRules},
    },
    types::Time,
};

use super::lookup::{ExplainError, find_object};
use crate::{
    cluster::{
        cache::controllers::WellKnown,
        metric_sources::{firing_alerts::alert_query, pod_samples::fetch_pod_samples},
        snapshot::{ClusterSnapshot, ReadError, ReadErrorCause, SnapshotPart, list},
        target::scale::{
            CacheLifetimes, ObjectReference, RequestGate, ScaleClient, ScaleReadError,
        },
    },
    controllers::runtime::{command_client::Cluster, target_vpas::target_vpa},
    report::explain::hpa::report::{Contested, FixEffect, HpaInput, HpaReport},
};

/// Concurrent requests for the scales of other objects.
const CONCURRENT_REQUESTS: usize = 8;
/// The selectors of more other objects than these are not compared.
const MAX_OTHERS: usize = 200;
/// The default of `--horizontal-pod-autoscaler-sync-period`.
const DEFAULT_PERIOD: Duration = Duration::from_secs(15);
const USAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The target's scale, and the UID of the target.
pub(super) struct Target {
    pub(super) scale: Result<ScaleValues, ScaleError>,
    uid: Box<str>,
}

/// Explains an object at the given time, with the flags of the HPA controller. Without a namespace, that of the kubeconfig's
/// current context is used.
#[expect(clippy::too_many_lines, reason = "reads one input of the decision after the other")]
pub async fn explain(
    config: &Config,
    cluster: &Cluster,
    (namespace, name): (Option<&str>, &str),
    now: Time,
) -> Result<HpaReport, ExplainError> {
    let (client, namespace) = (&cluster.client, namespace.unwrap_or(&cluster.namespace));
    let parts = [SnapshotPart::Hpas, SnapshotPart::Vpas];
    let snapshot = ClusterSnapshot::read(client, Some(namespace), &parts).await;
    let object = find_object(cluster, &snapshot.hpas, namespace, name)?;
    let api_spec = object.spec.clone().unwrap_or_default();
    let reference = &api_spec.scale_target_ref;
    let spec = Spec::read(&api_spec).map_err(|error| {
        let what = format!("HorizontalPodAutoscaler {namespace}/{name}");
        let error = ReadError { what, cause: ReadErrorCause::Failed, why: error.to_string() };
        ExplainError::unreadable(cluster, &error)
    })?;
    // The API server accepts a minimum of 0 only with the feature gate HPAScaleToZero.
    let controller_config = Config { scale_to_zero: spec.min_replicas == 0, ..*config };
    let gate: RequestGate = Arc::new(|_| Box::pin(std::future::ready(())));
    let scales = ScaleClient::new(client.clone(), gate, CacheLifetimes::default());
    let target = read_target(&scales, namespace, reference).await;
    let selector = target.scale.as_ref().map_or("", |scale| &scale.selector);
    let hpas = snapshot.hpas.as_ref().map_or(&[][..], |list| &list.objects);
    let (pods, others) = tokio::join!(
        read_pods(client, namespace, selector),
        selectors_of_others(&scales, namespace, name, hpas),
    );
    let api_pods = pods.map_err(|error| ExplainError::unreadable(cluster, &error))?;
    let pods = with_owners(&scales, namespace, &target.uid, &api_pods).await;
    let status = object.status.clone().unwrap_or_default();
    let scale = target.scale.as_ref();
    let empty = ScaleValues::default();
    let reported = |scale| ReportedReplicas::default().observe(scale, &status, Duration::ZERO, now);
    let reported_replicas = scale.map_or(0, reported);
    let scale_values = scale.unwrap_or(&empty);
    let values =
        StatusValues { status: &status, scale: scale_values, reported_replicas, pods: &pods, now };
    let takeover = takeover(object.annotations(), object.owner_references(), &spec);
    let is_adopted = takeover.mode != ObjectMode::Shadow;
    let record = object.annotations().get(RECORD_ANNOTATION).filter(|_| is_adopted);
    let record = record.and_then(|text| HpaRecord::parse(text).ok());
    // What Plimsoll stored is exact, what the HPA controller remembers can only be inferred.
    let memory =
        record.as_ref().map_or_else(|| values.memory(), |record| record.restored_memory(now));
    let (mut options, mut invalid) = if is_adopted {
        HpaOptions::from_annotations(object.annotations(), DEFAULT_PERIOD)
    } else {
        Default::default()
    };
    if is_adopted {
        invalid.extend(HOLD_WHILE.read(object.annotations(), alert_query).err());
    }
    options.require_query_for_zero();
    // Only the controller has a Prometheus.
    let queried = std::mem::take(&mut options.metrics);
    let queried: Vec<&str> = queried.iter().filter_map(Metric::query_name).collect();
    let original = spec;
    let spec = takeover.effective_spec(&original);
    // Without the CRD there are no VPAs.
    let vpas = snapshot.vpas.as_ref().map_or(&[][..], |list| &list.objects);
    let vpas = of_target(vpas, reference);
    let asks_for_template = options.utilization_of == Some(UtilizationOf::Template);
    let template = if vpas.is_empty() && !asks_for_template {
        Template::Unsupported
    } else {
        read_template(client, namespace, reference).await
    };
    let target_key = (&*reference.kind, &*reference.name);
    let uid = object.metadata.uid.as_deref();
    let shared_memory = record.as_ref().map_or_else(SharedMemory::default, |record| {
        SharedMemory::restored(record, uid, target_key, now)
    });
    let vpa_rules = if is_adopted {
        let context = VpaContext {
            vpas: Some(&vpas),
            pods: &pods,
            template: &template,
            is_only_writer: takeover.mode == ObjectMode::Drive,
            utilization_of: options.utilization_of,
            pod_level_resources: controller_config.pod_level_resources,
            memory: &shared_memory,
            readiness: options.config(&controller_config).initial_readiness_delay,
            now,
        };
        VpaRules::new(&spec, context)
    } else {
        VpaRules::default()
    };
    let contested = match takeover.mode {
        ObjectMode::Drive => Vec::new(),
        ObjectMode::Shadow | ObjectMode::Assist => contested(&vpas, &template, &original, &pods),
    };
    let spec = vpa_rules.spec.clone().unwrap_or(spec);
    let observed = Observed {
        namespace,
        name,
        uid,
        spec: &spec,
        status: &status,
        scale,
        pods: &pods,
        others: &others,
        memory: &memory,
        config: &controller_config,
        fixes: if is_adopted { Fixes::ALL } else { Fixes::UPSTREAM },
        options: &options,
        now,
    };
    let answers = fetch(client, namespace, &observed, values.answers(&spec)).await;
    let mut decision = decide(&observed, &answers);
    if takeover.mode == ObjectMode::Assist {
        let builtin =
            Observed { spec: &original, fixes: Fixes::UPSTREAM, options: &NO_OPTIONS, ..observed };
        decision = assist(&decision, &decide(&builtin, &answers));
    }
    vpa_rules.apply(&mut decision);
    let fixes = if is_adopted { Vec::new() } else { effects(&observed, &answers, &decision) };
    let foreign = pods.iter().filter(|pod| pod.is_foreign);
    let foreign: Vec<String> = foreign.map(|pod| pod.name.clone()).collect();
    Ok(HpaReport::of(&HpaInput {
        observed: &observed,
        target: target_key,
        decision: &decision,
        fixes: &fixes,
        foreign_pods: &foreign,
        contested: &contested,
        vpa_rules: &vpa_rules,
        takeover: &takeover,
        invalid: &invalid,
        queried: &queried,
        record: record.as_ref(),
    }))
}

fn of_target(
    vpas: &[VerticalPodAutoscaler],
    target: &CrossVersionObjectReference,
) -> Vec<Arc<TargetVpa>> {
    let vpas = vpas.iter().filter(|vpa| {
        let own = &vpa.spec.target_ref;
        (&*own.kind, &*own.name) == (&*target.kind, &*target.name)
    });
    vpas.map(|vpa| Arc::new(target_vpa(vpa.clone()))).collect()
}

/// The requests in the pod template of the target, as far as it may be listed.
async fn read_template(
    client: &Client,
    namespace: &str,
    target: &CrossVersionObjectReference,
) -> Template {
    let Some(kind) = WellKnown::from_kind(&target.kind) else { return Template::Unsupported };
    let (parts, kinds) = ([SnapshotPart::Controllers], [&*target.kind]);
    let snapshot = ClusterSnapshot::read_for_targets(client, namespace, &parts, &kinds).await;
    let template = snapshot.controllers.template(kind, namespace, &target.name);
    template.map_or(Template::Unsupported, Template::Known)
}

/// The VPAs that change requests which the target of a metric is a percentage of.
fn contested<'a>(
    vpas: &[Arc<TargetVpa>],
    template: &Template,
    spec: &'a Spec,
    pods: &[Pod],
) -> Vec<Contested<'a>> {
    let own: Vec<&Pod> = pods.iter().filter(|pod| !pod.is_foreign).collect();
    let of_vpa = |vpa: &Arc<TargetVpa>| {
        let resources = contested_resources(spec, &own, &vpa.spec);
        let average_value = |metric: RequestMetric<'_>| {
            let Template::Known(template) = template else { return None };
            let request = template.request(metric.resource, metric.container);
            let point = ScalePoint::of(metric.percent, request, None)?;
            let amount = metric.resource.quantity(point.milli);
            let is_contested = resources.contains(&&*metric.resource.to_string());
            is_contested.then(|| format!("{}: averageValue: {amount}", metric.resource))
        };
        let average_values = request_metrics(spec).filter_map(average_value).collect();
        Contested { vpa: vpa.name.to_string(), resources, average_values }
    };
    vpas.iter().map(of_vpa).filter(|vpa| !vpa.resources.is_empty()).collect()
}

fn key(namespace: &str, reference: &CrossVersionObjectReference) -> ObjectReference {
    ObjectReference {
        namespace: namespace.into(),
        api_version: reference.api_version.as_deref().unwrap_or_default().into(),
        kind: (&*reference.kind).into(),
        name: (&*reference.name).into(),
    }
}

pub(super) async fn read_target(
    scales: &ScaleClient,
    namespace: &str,
    reference: &CrossVersionObjectReference,
) -> Target {
    match scales.fetch(&key(namespace, reference)).await {
        Ok(fetched) => {
            let selector = fetched.body.pointer("/status/selector");
            let selector = selector.and_then(|selector| selector.as_str()).unwrap_or_default();
            let scale = ScaleValues {
                replicas: fetched.state.spec_replicas,
                status_replicas: fetched.state.status_replicas,
                selector: selector.to_owned(),
            };
            Target { scale: Ok(scale), uid: fetched.state.uid }
        }
        Err(error) => {
            let message = error.to_string();
            let error = match error {
                ScaleReadError::InvalidVersion(_) => ScaleError::InvalidApiVersion(message),
                _ => ScaleError::Failed(message),
            };
            Target { scale: Err(error), uid: Box::default() }
        }
    }
}

async fn read_pods(
    client: &Client,
    namespace: &str,
    selector: &str,
) -> Result<Vec<ApiPod>, ReadError> {
    // An empty selector would select all pods.
    if selector.is_empty() {
        return Ok(Vec::new());
    }
    let api = Api::namespaced(client.clone(), namespace);
    let what = format!("Pods of namespace {namespace}");
    Ok(list(api, &what, ListParams::default().labels(selector)).await?.objects)
}

/// The pods, with whether the target owns them. If that is not known, they count as owned.
async fn with_owners(
    scales: &ScaleClient,
    namespace: &str,
    target_uid: &str,
    pods: &[ApiPod],
) -> Vec<Pod> {
    let mut result = Vec::with_capacity(pods.len());
    for api_pod in pods {
        let mut pod = Pod::read(api_pod);
        let controller =
            api_pod.owner_references().iter().find(|owner| owner.controller == Some(true));
        pod.is_foreign = match controller {
            _ if target_uid.is_empty() => false,
            None => true,
            Some(owner) => {
                // The owners of owners are cached.
                let is_owned = scales.owners.contains(target_uid, namespace, &owner.into()).await;
                is_owned == Some(false)
            }
        };
        result.push(pod);
    }
    result
}

/// The selectors of the targets of all other objects in the namespace, where they can be read.
async fn selectors_of_others(
    scales: &ScaleClient,
    namespace: &str,
    name: &str,
    hpas: &[HorizontalPodAutoscaler],
) -> Vec<(String, Selector)> {
    let others = hpas.iter().filter(|other| other.name_any() != name).take(MAX_OTHERS);
    let selectors = others.map(|other| async move {
        let reference = &other.spec.as_ref()?.scale_target_ref;
        let scale = read_target(scales, namespace, reference).await.scale.ok()?;
        if scale.selector.is_empty() {
            return None;
        }
        Some((other.name_any(), Selector::parse(&scale.selector).ok()?))
    });
    let selectors: Vec<_> = selectors.collect();
    let mut found: Vec<(String, Selector)> = stream::iter(selectors)
        .buffer_unordered(CONCURRENT_REQUESTS)
        .filter_map(std::future::ready)
        .collect()
        .await;
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

/// The responses to all requests: usage is fetched once, everything else is taken from the status.
async fn fetch(
    client: &Client,
    namespace: &str,
    observed: &Observed<'_>,
    mut from_status: Vec<Option<Fetched>>,
) -> Vec<Option<Fetched>> {
    let requests = metric_requests(observed);
    let selector = requests.iter().flatten().find_map(|request| match request {
        MetricRequest::Resource { selector } => Some(selector.to_string()),
        _ => None,
    });
    let usage = match selector {
        Some(selector) => Some(fetch_usage(client, namespace, &selector).await),
        None => None,
    };
    let answer = |(index, request): (usize, Option<MetricRequest>)| match request? {
        MetricRequest::Resource { .. } => usage.clone(),
        _ => from_status.get_mut(index).and_then(Option::take),
    };
    requests.into_iter().enumerate().map(answer).collect()
}

async fn fetch_usage(client: &Client, namespace: &str, selector: &str) -> Fetched {
    let samples = fetch_pod_samples(client, namespace, selector, USAGE_TIMEOUT).await;
    let samples = samples.map_err(|error| error.to_string())?;
    let usage = samples.into_iter().map(|sample| PodMetrics {
        pod: sample.pod,
        timestamp: sample.at,
        window: sample.window,
        containers: sample.containers,
    });
    Ok(Answer::Resource(usage.collect()))
}

/// The desired replicas with each fix that changes them.
fn effects(
    observed: &Observed<'_>,
    answers: &[Option<Fetched>],
    decision: &Decision,
) -> Vec<FixEffect> {
    let with = |fix: Fix| {
        let desired =
            decide(&Observed { fixes: Fixes::UPSTREAM.with(fix), ..*observed }, answers).desired;
        (desired != decision.desired).then(|| FixEffect { fix: fix.to_string(), desired })
    };
    Fix::ALL.iter().copied().filter_map(with).collect()
}
