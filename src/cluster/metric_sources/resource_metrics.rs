//! Usage of a resource by the pods of a selector, or by one container of each, from `metrics.k8s.io`.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use kube::Client;
use plimsoll_core::types::Time;
use serde::Deserialize;
use serde_json::Value;

use super::MetricsApi;
use crate::cluster::list_stream::{Deadline, read_items};
use plimsoll_core::scaling::{MetricError, MetricValue, Milli, pod_readiness::Usage};

pub(super) const API: MetricsApi = MetricsApi { name: "resource", group: "metrics.k8s.io" };

/// Fetches the usage of a resource, such as `cpu`, per pod: of all its containers, or of the one with this name. The
/// selector is text as [`Selector`] writes it, empty for all pods of the namespace. Leaves out pods with a container whose
/// usage is unknown. A single malformed amount makes the whole result unknown.
///
/// [`Selector`]: crate::cluster::cache::selector::Selector
pub async fn fetch_resource_metric(
    client: &Client,
    namespace: &str,
    resource: &str,
    container: Option<&str>,
    selector: &str,
    timeout: Duration,
) -> Result<MetricValue, MetricError> {
    let path = API.path(namespace, "pods", selector);
    let requested = RequestedUsage { resource, container };
    let (mut usage, mut pods, mut error) = (Usage::new(), 0_u64, None);
    let mut oldest: Option<Time> = None;
    let request = read_items(client, &path, Deadline::after(timeout), |item| {
        pods += 1;
        let parsed = match serde_json::from_slice::<Item<'_>>(item) {
            Ok(item) => {
                let at = item.timestamp.as_deref().and_then(time);
                oldest = [oldest, at].into_iter().flatten().min();
                requested.pod_usage(&item).map(|used| (Arc::from(&*item.metadata.name), used))
            }
            // An item that is not valid JSON ends the response.
            Err(why) if !why.is_data() => return Err(why),
            Err(why) => Err(API.request_failed(format!("the usage of a pod: {why}"))),
        };
        match parsed {
            Ok((pod, Some(used))) => drop(usage.insert(pod, used)),
            Ok((_, None)) => {}
            Err(why) => drop(error.get_or_insert(why)),
        }
        Ok(())
    });
    request.await.map_err(|failure| API.unavailable(&failure))?;
    match error {
        Some(error) => Err(error),
        None if pods == 0 => Err(API.no_values()),
        None => Ok(MetricValue::Usage { usage, is_cpu: resource == "cpu", at: oldest }),
    }
}

/// An invalid timestamp is ignored: the API's own server writes them.
fn time(text: &str) -> Option<Time> {
    let at: jiff::Timestamp = text.parse().ok()?;
    Some(Time::from_secs(at.as_second()))
}

/// The usage of a pod as the API sends it.
#[derive(Deserialize)]
pub(super) struct Item<'a> {
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    #[serde(borrow, default)]
    pub timestamp: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub window: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub containers: Option<Vec<Container<'a>>>,
}

#[derive(Deserialize)]
pub(super) struct Metadata<'a> {
    #[serde(borrow)]
    pub name: Cow<'a, str>,
}

#[derive(Deserialize)]
pub(super) struct Container<'a> {
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub usage: Option<BTreeMap<Cow<'a, str>, Value>>,
}

#[derive(Clone, Copy)]
struct RequestedUsage<'a> {
    resource: &'a str,
    container: Option<&'a str>,
}

impl RequestedUsage<'_> {
    /// The usage of one pod. Rounds each container up on its own, as upstream does.
    fn pod_usage(self, item: &Item<'_>) -> Result<Option<Milli>, MetricError> {
        let mut sum: Option<Milli> = None;
        for container in item.containers.iter().flatten() {
            if self.container.is_some_and(|name| name != container.name) {
                continue;
            }
            let used = container.usage.as_ref().and_then(|usage| usage.get(self.resource));
            let Some(used) = used.filter(|used| !used.is_null()) else { return Ok(None) };
            let pod = &item.metadata.name;
            let subject =
                format_args!("{} of container {} of pod {pod}", self.resource, container.name);
            let used = API.parse_milli(Some(used), subject)?;
            if used < 0 {
                return Err(API.request_failed(format!("the value of {subject} is negative")));
            }
            sum = Some(sum.unwrap_or(0).saturating_add(used));
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn used(
        containers: &Value,
        resource: &str,
        container: Option<&str>,
    ) -> Result<Option<Milli>, String> {
        let item = json!({"metadata": {"name": "web-1"}, "containers": containers}).to_string();
        let item: Item<'_> = serde_json::from_str(&item).expect("an item");
        RequestedUsage { resource, container }.pod_usage(&item).map_err(|why| why.to_string())
    }

    #[test]
    fn usage_of_a_pod_is_the_sum_of_its_containers_and_unknown_if_one_is() {
        let both = json!([
            {"name": "main", "usage": {"cpu": "250123456n", "memory": "100Mi"}},
            {"name": "side", "usage": {"cpu": "1m"}},
        ]);
        assert_eq!(used(&both, "cpu", None), Ok(Some(252)));
        assert_eq!(used(&both, "cpu", Some("side")), Ok(Some(1)));
        assert_eq!(used(&both, "memory", Some("main")), Ok(Some(104_857_600_000)));
        assert_eq!(used(&both, "memory", None), Ok(None), "the usage of one container is unknown");
        assert_eq!(used(&both, "memory", Some("side")), Ok(None));
        assert_eq!(used(&both, "cpu", Some("other")), Ok(None), "no such container");
        assert_eq!(used(&json!([]), "cpu", None), Ok(None));
        assert_eq!(used(&json!(null), "cpu", None), Ok(None));
        assert_eq!(
            used(&json!([{"name": "main", "usage": {"cpu": "0"}}]), "cpu", None),
            Ok(Some(0))
        );
        assert_eq!(used(&json!([{"name": "main", "usage": {"cpu": null}}]), "cpu", None), Ok(None));
    }

    #[test]
    fn an_invalid_amount_is_reported_with_its_container() {
        let container = |amount: &str| json!([{"name": "main", "usage": {"cpu": amount}}]);
        assert_eq!(
            used(&container("NaN"), "cpu", None),
            Err("the value is not a number".to_owned())
        );
        for (amount, why) in [("-1", "is negative"), ("few", "\"few\" is not a quantity")] {
            let message = used(&container(amount), "cpu", None).expect_err(amount);
            assert!(
                message.contains("the value of cpu of container main of pod web-1"),
                "{message}"
            );
            assert!(message.contains(why), "{message}");
        }
    }
}
