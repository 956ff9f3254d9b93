//! The cluster for the watermark controller: Deployments with pods in the state that their controllers and nodes
//! would write, and an object for each.

use futures::future::join_all;
use serde_json::json;

use super::{
    metric_sources::{METRIC, Source, query},
    results::Case,
    support::{
        Testbed,
        bulk_objects::{self, ApiWrite, collection},
    },
    workload::Workload,
};
use kube::api::{Api, ListParams};
use plimsoll_core::api::wpa::WatermarkPodAutoscaler;

const GROUP: &str = "datadoghq.com/v1alpha1";
const IN_A_NAMESPACE: usize = 100;
/// Page size of the status polls.
const PAGE: u32 = 500;

/// The cluster.
#[derive(Debug)]
pub struct Cluster {
    objects: Vec<(String, String)>,
}

impl Cluster {
    /// Creates all objects.
    pub async fn create(bed: &Testbed, case: &Case) -> Self {
        define(bed).await;
        let wanted = case.objects.div_ceil(IN_A_NAMESPACE);
        let namespaces = join_all((0..wanted).map(|_| bed.namespace("team"))).await;
        bulk_objects::stop_controllers(bed).await;
        let place = |index: usize| {
            (namespaces[index / IN_A_NAMESPACE].clone(), format!("workload-{index}"))
        };
        let objects: Vec<_> = (0..case.objects).map(place).collect();
        let client = bed.client();
        let workload = |(namespace, name)| Workload { namespace, name, pods: case.pods };
        let names = objects.iter().map(|(namespace, name)| (&**namespace, &**name));
        let workloads = names.map(workload);
        bulk_objects::send(&client, workloads.clone().flat_map(Workload::objects)).await;
        let then = workloads.flat_map(|it| {
            let mut writes = it.statuses();
            writes.push(object(it.namespace, it.name, case.source));
            writes
        });
        bulk_objects::send(&client, then).await;
        Self { objects }
    }

    /// The objects, by namespace and name.
    pub fn objects(&self) -> &[(String, String)] {
        &self.objects
    }

    /// The number of objects whose status has no metric value yet.
    pub async fn undecided(&self, bed: &Testbed) -> usize {
        let api = Api::<WatermarkPodAutoscaler>::all(bed.client());
        let (mut decided, mut page) = (0, ListParams::default().limit(PAGE));
        loop {
            let Ok(found) = api.list(&page).await else { return self.objects.len() };
            decided += found.items.iter().filter(|object| is_active(object)).count();
            match found.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => page = page.continue_token(&next),
                None => return self.objects.len() - decided,
            }
        }
    }
}

fn is_active(object: &WatermarkPodAutoscaler) -> bool {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|one| one.kind == "ScalingActive" && one.status == "True")
}

async fn define(bed: &Testbed) {
    let definitions = plimsoll_core::api::crdgen::crds().expect("definitions");
    let writes = definitions.iter().map(|definition| {
        let definition = serde_json::to_value(definition).expect("plain data");
        ApiWrite::create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)
    });
    bulk_objects::send(&bed.client(), writes).await;
}

fn object(namespace: &str, name: &str, source: Source) -> ApiWrite {
    let mut metadata = json!({"name": name, "namespace": namespace});
    if source == Source::Prometheus {
        metadata["annotations"] = json!({format!("query.plimsoll.dev/{METRIC}"): query(name)});
    }
    let mut object = json!({
        "apiVersion": GROUP, "kind": "WatermarkPodAutoscaler", "metadata": metadata,
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1, "maxReplicas": 10, "algorithm": "average",
            "metrics": [{"type": "External", "external": {
                "metricName": METRIC, "metricSelector": {"matchLabels": {"app": name}},
                "lowWatermark": "50", "highWatermark": "100",
            }}],
        },
    });
    if source == Source::Busy {
        // The pods do not change with the replicas, because no controller runs.
        object["spec"]["algorithm"] = "absolute".into();
        object["spec"]["upscaleForbiddenWindowSeconds"] = 1.into();
        object["spec"]["downscaleForbiddenWindowSeconds"] = 1.into();
    }
    ApiWrite::create(collection(GROUP, namespace, "watermarkpodautoscalers"), &object)
}
