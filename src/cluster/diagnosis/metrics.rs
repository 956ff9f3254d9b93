//! The metrics API: whether it is available, and which running pods have no sample.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::Pod, kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{api::ListParams, core::PartialObjectMeta};
use plimsoll_core::{
    diagnosis::facts::{MetricsApiFacts, Reading, SampleFacts},
    types::Time,
};

use super::{ListReader, list_reader::ListedResource, objects::names};
use crate::cluster::{
    container_usage::pod_metrics::{PodUsage, fetch_usage},
    paged_requests::ListedPart,
};

const SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io";
const SAMPLES_TIMEOUT: Duration = Duration::from_secs(15);
/// A pod has its first sample after two scrapes.
const FIRST_SAMPLE: Duration = Duration::from_mins(3);

pub(crate) async fn metrics_api(reader: &ListReader<'_>, now: Time) -> Reading<MetricsApiFacts> {
    let unavailable = match reader.find::<APIService>(SERVICE).await {
        Ok(Some(service)) => {
            let conditions = service.status.and_then(|status| status.conditions);
            let available = conditions.into_iter().flatten().find(|one| one.type_ == "Available");
            match available {
                Some(condition) if condition.status == "True" => None,
                Some(condition) => {
                    let reason = condition.reason.unwrap_or_default();
                    Some(format!("{reason}: {}", condition.message.unwrap_or_default()))
                }
                None => Some("its APIService has no condition Available".to_owned()),
            }
        }
        Ok(None) => Some("there is no APIService v1beta1.metrics.k8s.io".to_owned()),
        // The samples show it as well.
        Err(_) => None,
    };
    let samples = match unavailable {
        Some(_) => Err("the metrics API is not available".to_owned()),
        None => samples(reader, now).await,
    };
    Ok(MetricsApiFacts { unavailable, samples })
}

async fn samples(reader: &ListReader<'_>, now: Time) -> Reading<SampleFacts> {
    // Hashes, because only a few of the names are needed.
    let hashes = RandomState::new();
    let mut known: HashSet<u64> = HashSet::new();
    let mut newest: Option<Time> = None;
    {
        let mut add = |usage: PodUsage| {
            known.insert(hashes.hash_one((&*usage.namespace, &*usage.pod)));
            newest = newest.max(Some(usage.at));
        };
        let namespaces = reader.namespace.map(|namespace| [namespace]);
        let namespaces = namespaces.as_ref().map(|namespaces| &namespaces[..]);
        let fetched = fetch_usage(reader.client, namespaces, &mut add, SAMPLES_TIMEOUT).await;
        fetched.map_err(|why| why.to_string())?;
    }
    let mut without = Vec::new();
    let running = ListedResource {
        part: ListedPart::Metadata,
        selectors: ListParams::default().fields("status.phase=Running"),
        ..ListedResource::new("v1", "pods")
    };
    let add = |PartialObjectMeta { metadata, .. }: PartialObjectMeta<Pod>| {
        let is_young = (metadata.creation_timestamp.as_ref())
            .is_some_and(|at| Time::from(at.0).later(FIRST_SAMPLE) > now);
        let [namespace, name] = names(metadata);
        if !is_young && !known.contains(&hashes.hash_one((&*namespace, &*name))) {
            without.push(format!("{namespace}/{name}"));
        }
    };
    let listed = reader.fold(&running, add).await;
    Ok(SampleFacts { pods: known.len(), newest, pods_without: listed.map(|()| without) })
}
