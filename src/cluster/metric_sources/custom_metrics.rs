//! Metrics of `custom.metrics.k8s.io`: the values of the pods of a selector, or of one object, with their times and windows.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::Client;
use moka::future::Cache;
use plimsoll_core::types::{Time, quantity::Quantity};
use serde::Deserialize;

use super::{MetricsApi, api_cause, read_values};
use crate::cluster::list_stream::{Deadline, UsageError, encode_query};

const API: MetricsApi = MetricsApi { name: "custom", group: "custom.metrics.k8s.io" };
/// The versions that are supported, the preferred one first.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// How long the served version is cached.
const VERSION_LIFETIME: Duration = Duration::from_mins(1);

#[derive(Clone, Debug, PartialEq)]
pub struct CustomValue {
    pub object: String,
    pub value: Quantity,
    /// The end of the measurement window.
    pub at: Time,
    pub window_seconds: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
pub enum MeasuredObject<'a> {
    /// The pods of a selector, as the API writes it.
    Pods {
        selector: &'a str,
    },
    /// An object of the namespace. `resource` is the plural name, followed by a dot and the group unless that is the core
    /// group.
    Object {
        resource: &'a str,
        name: &'a str,
    },
    Namespace,
}

#[derive(Clone, Copy, Debug)]
pub struct CustomMetric<'a> {
    pub namespace: &'a str,
    pub of: MeasuredObject<'a>,
    pub name: &'a str,
    /// Selects the series of the metric; empty for all.
    pub selector: &'a str,
}

impl CustomMetric<'_> {
    fn path(&self, version: &str) -> String {
        let (namespace, name) = (encode_query(self.namespace), encode_query(self.name));
        let group = API.group;
        let (object, pods) = match self.of {
            MeasuredObject::Pods { selector } => ("pods/*".to_owned(), selector),
            MeasuredObject::Object { resource, name } => {
                (format!("{}/{}", encode_query(resource), encode_query(name)), "")
            }
            MeasuredObject::Namespace => ("metrics".to_owned(), ""),
        };
        let parameters = [("labelSelector", pods), ("metricLabelSelector", self.selector)];
        let parameters = parameters.iter().filter(|(_, selector)| !selector.is_empty());
        let parameters: Vec<_> = parameters
            .map(|(name, selector)| format!("{name}={}", encode_query(selector)))
            .collect();
        let path = format!("/apis/{group}/{version}/namespaces/{namespace}/{object}/{name}");
        if parameters.is_empty() { path } else { format!("{path}?{}", parameters.join("&")) }
    }
}

/// The served version of the API, which is discovered once a minute.
#[derive(Clone, Debug)]
pub(super) struct ServedVersion(Cache<(), &'static str>);

impl Default for ServedVersion {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(1).time_to_live(VERSION_LIFETIME).build())
    }
}

impl ServedVersion {
    /// Concurrent callers share one request. Errors are not cached.
    async fn get(&self, client: &Client, deadline: Deadline) -> Result<&'static str, String> {
        let discovered = self.0.try_get_with((), async {
            let path = format!("/apis/{}", API.group);
            let found = deadline.run(&path, discover(client, &path)).await;
            let served = found.map_err(|failure| api_cause(&failure))?;
            let is_served = |version: &&&str| served.iter().any(|served| served == **version);
            // With upstream's message.
            let missing = || format!("no custom metrics API ({}) registered", API.group);
            VERSIONS.iter().find(is_served).copied().ok_or_else(missing)
        });
        discovered.await.map_err(|why: Arc<String>| why.to_string())
    }
}

async fn discover(client: &Client, path: &str) -> Result<Vec<String>, UsageError> {
    let unreachable = |reason: String| UsageError::Unreachable { path: path.to_owned(), reason };
    let request =
        http::Request::get(path).body(Vec::new()).map_err(|why| unreachable(why.to_string()))?;
    match client.request::<APIGroup>(request).await {
        Ok(group) => Ok(group.versions.into_iter().map(|version| version.version).collect()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(kube::Error::Api(status)) => Err(UsageError::Rejected {
            path: path.to_owned(),
            code: status.code,
            message: status.message,
        }),
        Err(why) => Err(unreachable(why.to_string())),
    }
}

/// Fetches the values of a metric. A malformed item is an error of the whole response. The error is a one-line message.
pub(super) async fn fetch_custom_metric(
    client: &Client,
    version: &ServedVersion,
    metric: &CustomMetric<'_>,
    timeout: Duration,
) -> Result<Vec<CustomValue>, String> {
    let deadline = Deadline::after(timeout);
    let path = metric.path(version.get(client, deadline).await?);
    let values = read_values(client, &path, deadline, parse).await;
    let values = values.map_err(|failure| api_cause(&failure))?;
    values.map_err(|why| format!("a value of {}: {why}", metric.name))
}

/// An item of either version: `window` is the name in v1beta1.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    described_object: DescribedObject,
    #[serde(default)]
    timestamp: Option<Timestamp>,
    #[serde(default, alias = "window")]
    window_seconds: Option<i64>,
    /// As a `Quantity`, null would be zero.
    value: Option<Quantity>,
}

#[derive(Deserialize)]
struct DescribedObject {
    #[serde(default)]
    name: String,
}

fn parse(item: &[u8]) -> Result<CustomValue, String> {
    let Item { described_object, timestamp, window_seconds, value } =
        serde_json::from_slice(item).map_err(|why| why.to_string())?;
    let value = value.ok_or("the value is missing")?;
    // Without a time a value would be too old for every pod that is starting.
    let at = timestamp.map_or(Time::EPOCH, Time::from);
    Ok(CustomValue { object: described_object.name, value, at, window_seconds })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_names_the_object_and_both_selectors() {
        let path = |of, selector| {
            CustomMetric { namespace: "shop", of, name: "http/requests", selector }.path("v1beta2")
        };
        let root = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop";
        for (of, selector, expected) in [
            (
                MeasuredObject::Pods { selector: "app=web" },
                "code=500",
                "pods/*/http%2Frequests?labelSelector=app%3Dweb&metricLabelSelector=code%3D500",
            ),
            (MeasuredObject::Pods { selector: "" }, "", "pods/*/http%2Frequests"),
            (
                MeasuredObject::Object { resource: "ingresses.networking.k8s.io", name: "main" },
                "",
                "ingresses.networking.k8s.io/main/http%2Frequests",
            ),
            (MeasuredObject::Namespace, "a", "metrics/http%2Frequests?metricLabelSelector=a"),
        ] {
            assert_eq!(path(of, selector), format!("{root}/{expected}"));
        }
    }

    #[test]
    fn items_of_both_versions_are_read_and_one_without_a_value_is_an_error() {
        let item = |extra: serde_json::Value| {
            let mut item = json!({"describedObject": {"kind": "Pod", "name": "web-1"},
                "timestamp": "2027-01-15T08:00:00Z", "value": "1500m"});
            for (key, value) in extra.as_object().into_iter().flatten() {
                item[key] = value.clone();
            }
            parse(item.to_string().as_bytes())
        };
        for (extra, window) in [
            (json!({"metricName": "rps", "window": 30}), Some(30)),
            (json!({"metric": {"name": "rps"}, "windowSeconds": 60}), Some(60)),
            (json!({"windowSeconds": null}), None),
            (json!({}), None),
        ] {
            let value = item(extra.clone()).expect("a value");
            assert_eq!((&*value.object, value.value.milli_value()), ("web-1", 1500));
            assert_eq!((value.at, value.window_seconds), (Time::from_secs(1_800_000_000), window));
        }
        assert_eq!(item(json!({"timestamp": null})).expect("a value").at, Time::EPOCH);
        for value in [json!(null), json!("NaN"), json!("many"), json!({})] {
            item(json!({ "value": value })).expect_err("no quantity");
        }
        parse(br#"{"value": "1"}"#).expect_err("no object");
    }
}
