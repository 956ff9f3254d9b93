//! The version, the clock, the definitions and the resources of the API server.

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::{apis::meta::v1::APIResourceList, version::Info},
};
use kube::ResourceExt as _;
use plimsoll_core::{
    api::crds,
    diagnosis::{
        facts::{CrdFacts, Reading},
        missing_fields,
    },
    types::Time,
};

use super::ListReader;
use crate::cluster::{clock::Clock, server_time::server_time};

/// The definition without which only one role does not work.
const OPTIONAL_CRD: &str = "watermarkpodautoscalers.datadoghq.com";

pub(crate) async fn api_version(reader: &ListReader<'_>) -> Reading<String> {
    let info: Info = reader.get("/version", "/version").await?;
    Ok(info.git_version)
}

/// The time of the API server at `now` by this machine's clock.
pub(crate) async fn api_time(reader: &ListReader<'_>, clock: &Clock, now: Time) -> Reading<Time> {
    let before = clock.now();
    let Some(time) = server_time(reader.client).await else {
        return Err("the response of the API server has no date".to_owned());
    };
    let until = clock.now().nanos_since(before) / 2 + before.nanos_since(now);
    Ok(Time::from_nanos(time.as_nanos().saturating_sub(until)))
}

/// Compares the served definitions with those of this program.
pub(crate) async fn served_crds(reader: &ListReader<'_>) -> Vec<CrdFacts> {
    let wanted = match crds() {
        Ok(wanted) => wanted,
        Err(why) => {
            let served = Err(why.to_string());
            let name = "CustomResourceDefinitions".to_owned();
            return vec![CrdFacts { name, is_optional: false, served }];
        }
    };
    let compared = wanted.iter().map(|wanted| async move {
        let name = wanted.name_any();
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        let served = reader.find::<CustomResourceDefinition>(&path).await;
        let served = served.map(|served| Some(missing_fields(wanted, &served?)));
        CrdFacts { is_optional: name == OPTIONAL_CRD, name, served }
    });
    futures::future::join_all(compared).await
}

pub(crate) async fn resize_served(reader: &ListReader<'_>) -> Reading<bool> {
    let served: APIResourceList = reader.get("/api/v1", "/api/v1").await?;
    Ok(served.resources.iter().any(|resource| resource.name == "pods/resize"))
}
