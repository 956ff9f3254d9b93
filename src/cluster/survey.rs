//! All workloads as they are now: what they request, how many pods they run, and what scales them.
//!
//! ```text
//!   API server: pages of 500 ──▶ reduced objects ──▶ SurveyBuilder: owners, templates ──┐
//!   Prometheus: kube-state-metrics, grouped by the server ──▶ rows ─────────────────────┴──▶ Survey
//! ```
//!
//! Pods belong to their topmost controller that is built in or has a scale subresource, as the target of a VPA. The
//! owners of other kinds, such as an Argo Workflow or a StrimziPodSet, are workloads if they own pods directly. What
//! cannot be read is named, with the permission that is missing, and everything else is still reported.

mod builder;
mod controller_id;
mod limit_ranges;
mod objects;
mod pod_groups;
mod reader;
mod scope;
mod series;
#[cfg(test)]
mod tests;

use kube::Client;
use plimsoll_core::rightsizing::survey::{Survey, Unread};

use self::{
    builder::SurveyBuilder,
    objects::SurveyedController,
    reader::{ServedKind, SurveyReader},
};
pub use self::{
    scope::{InvalidSelector, OwnerGroups, SurveyScope},
    series::{SeriesSurveyError, read_known_jobs, survey_series},
};
use super::paged_requests::ListedPart;

/// The built-in kinds of controllers. ReplicaSets are many, and only their owners are needed: the containers of those
/// without an owner are known from their pods.
const CONTROLLERS: [(&str, &str, &str, ListedPart); 7] = [
    ("apps/v1", "Deployment", "deployments", ListedPart::Object),
    ("apps/v1", "ReplicaSet", "replicasets", ListedPart::Metadata),
    ("apps/v1", "StatefulSet", "statefulsets", ListedPart::Object),
    ("apps/v1", "DaemonSet", "daemonsets", ListedPart::Object),
    ("v1", "ReplicationController", "replicationcontrollers", ListedPart::Object),
    ("batch/v1", "Job", "jobs", ListedPart::Object),
    ("batch/v1", "CronJob", "cronjobs", ListedPart::Object),
];

/// Reads the workloads of a cluster from its API server. Those that are equal to one of an earlier survey are shared with it.
pub async fn survey_cluster(
    client: &Client,
    scope: &SurveyScope,
    earlier: Option<&Survey>,
) -> Survey {
    let selector = match scope.selector() {
        Ok(selector) => selector,
        Err(why) => {
            let unread = Unread { what: "workloads".to_owned(), why: why.to_string() };
            return Survey { unread: vec![unread], ..Survey::default() };
        }
    };
    let reader = SurveyReader::new(client, scope).await;
    let pods = ServedKind::new("v1", "Pod", "pods");
    let hpas =
        ServedKind::new("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
    let vpas =
        ServedKind::new("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", "verticalpodautoscalers");
    let limit_ranges = ServedKind::new("v1", "LimitRange", "limitranges");
    let wpas = ServedKind::new(
        "datadoghq.com/v1alpha1",
        "WatermarkPodAutoscaler",
        "watermarkpodautoscalers",
    );
    // Boxed, because several lists are read concurrently.
    let ((), (), (), (), (), nodes) = tokio::join!(
        Box::pin(reader.list(&pods, ListedPart::Object, SurveyBuilder::add_pod)),
        Box::pin(reader.list_autoscalers(&hpas, SurveyBuilder::add_hpa)),
        // Only their names are shown.
        Box::pin(reader.list_optional(&vpas, "which are not named", SurveyBuilder::add_vpa)),
        // Their metrics are absolute, so only their names are shown.
        Box::pin(reader.list_optional(&wpas, "which are not named", SurveyBuilder::add_wpa)),
        Box::pin(reader.list_optional(
            &limit_ranges,
            "whose defaults are not counted as requests",
            |builder, range| builder.defaults.add(range),
        )),
        Box::pin(reader.nodes()),
    );
    let controllers = CONTROLLERS.iter().filter(|(_, kind, ..)| scope.needs_kind(kind));
    let lists = controllers.map(|&(api_version, kind, plural, part)| {
        let reader = &reader;
        Box::pin(async move {
            let served = ServedKind::new(api_version, kind, plural);
            let add = |builder: &mut SurveyBuilder, object: &SurveyedController| {
                builder.add_controller(api_version, kind, object);
            };
            reader.list(&served, part, add).await;
        })
    });
    futures::future::join_all(lists).await;
    let add = |builder: &mut SurveyBuilder, served: &ServedKind, object: &SurveyedController| {
        builder.add_controller(&served.api_version, &served.kind, object);
    };
    reader.list_custom_kinds(add).await;
    reader.check_owner_kinds();
    reader.check_namespaces().await;
    let (builder, unread, remarks) = reader.finish();
    let mut survey = Survey { unread, remarks, ..builder.build(&selector, earlier) };
    match nodes {
        Ok(nodes) => survey.nodes = nodes,
        Err(unread) => survey.nodes_unread = Some(unread),
    }
    survey
}
