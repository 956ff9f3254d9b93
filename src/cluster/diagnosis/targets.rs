//! Whether the targets of VPAs exist. Those among the workloads do; the others are requested one by one.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use plimsoll_core::{
    diagnosis::facts::{Reading, VpaFacts},
    rightsizing::survey::Survey,
};
use serde::de::IgnoredAny;

use super::ListReader;
use crate::cluster::{paged_requests::version_path, path_segment::path_segment};

const MAX_REQUESTS: usize = 50;
const CONCURRENT_REQUESTS: usize = 4;

pub(crate) async fn find_targets(reader: &ListReader<'_>, vpas: &mut [VpaFacts], survey: &Survey) {
    let workloads: BTreeSet<_> =
        survey.workloads.iter().map(|one| (&*one.namespace, &*one.kind, &*one.name)).collect();
    let unknown = vpas.iter_mut().filter(|vpa| {
        let target = &vpa.spec.target_ref;
        !workloads.contains(&(&*vpa.namespace, &*target.kind, &*target.name))
    });
    let mut requested = Vec::new();
    for (index, vpa) in unknown.enumerate() {
        if index >= MAX_REQUESTS {
            let why = format!("more than {MAX_REQUESTS} targets are not among the workloads");
            vpa.target_exists = Err(why);
        } else {
            requested.push(vpa);
        }
    }
    let versions: BTreeSet<String> = requested.iter().map(|vpa| api_version(vpa)).collect();
    let kinds = versions.into_iter().map(|version| async move {
        let served = served_kinds(reader, &version).await;
        (version, served)
    });
    let kinds: BTreeMap<_, _> =
        stream::iter(kinds).buffer_unordered(CONCURRENT_REQUESTS).collect().await;
    let kinds = &kinds;
    let requests = requested.into_iter().map(|vpa| async move {
        vpa.target_exists = exists(reader, vpa, kinds).await;
    });
    stream::iter(requests).buffer_unordered(CONCURRENT_REQUESTS).collect::<()>().await;
}

/// The version of the target, or that of its kind if it has none.
fn api_version(vpa: &VpaFacts) -> String {
    let target = &vpa.spec.target_ref;
    let known = match &*target.kind {
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" => "apps/v1",
        "Job" | "CronJob" => "batch/v1",
        _ => "v1",
    };
    target
        .api_version
        .clone()
        .filter(|version| !version.is_empty())
        .unwrap_or_else(|| known.to_owned())
}

/// The plural of each kind of an API version; `None` if it is not served.
async fn served_kinds(
    reader: &ListReader<'_>,
    version: &str,
) -> Reading<Option<BTreeMap<String, String>>> {
    let served: Option<APIResourceList> = reader.find(&version_path(version)?).await?;
    Ok(served.map(|served| {
        let plain = served.resources.into_iter().filter(|one| !one.name.contains('/'));
        plain.map(|one| (one.kind, one.name)).collect()
    }))
}

async fn exists(
    reader: &ListReader<'_>,
    vpa: &VpaFacts,
    kinds: &BTreeMap<String, Reading<Option<BTreeMap<String, String>>>>,
) -> Reading<bool> {
    let (target, version) = (&vpa.spec.target_ref, api_version(vpa));
    let Some(served) = kinds.get(&version) else { return Ok(false) };
    let Some(plural) = served.as_ref()?.as_ref().and_then(|kinds| kinds.get(&target.kind)) else {
        return Ok(false);
    };
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let namespace = path_segment("namespace", &vpa.namespace)?;
    let name = path_segment("resource name", &target.name)?;
    let path = format!("{root}/{version}/namespaces/{namespace}/{plural}/{name}");
    Ok(reader.find::<IgnoredAny>(&path).await?.is_some())
}
