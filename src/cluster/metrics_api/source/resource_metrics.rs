//! What the pods that a selector finds use of a resource, or one container of each, from `metrics.k8s.io`.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use kube::Client;
use plimsoll_core::types::Time;
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::list_stream::{Deadline, read_items},
    MetricsApi,
};
use plimsoll_core::scaling::{MetricError, MetricValue, Milli, pod_readiness::Usage};

const API: MetricsApi = MetricsApi { name: "resource", group: "metrics.k8s.io" };

/// Asks what pods use of a resource, such as `cpu`: all containers of each, or the one of this name. The selector is
/// text as [`Selector`] writes it, empty for all pods of the namespace. Nothing is said of a pod whose containers are
/// not all known, and an amount that cannot be read leaves all of it unknown.
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
    let wanted = RequestedUsage { resource, container };
    let (mut usage, mut pods, mut flaw) = (Usage::new(), 0_u64, None);
    let mut oldest: Option<Time> = None;
    let read = read_items(client, &path, Deadline::after(timeout), |item| {
        pods += 1;
        let read = match serde_json::from_slice::<Item<'_>>(item) {
            Ok(item) => {
                let at = item.timestamp.as_deref().and_then(time);
                oldest = [oldest, at].into_iter().flatten().min();
                wanted.pod_usage(&item).map(|used| (Arc::from(&*item.metadata.name), used))
            }
            // An item that is not even JSON is the end of the answer.
            Err(why) if !why.is_data() => return Err(why),
            Err(why) => Err(API.request_failed(format!("the usage of a pod: {why}"))),
        };
        match read {
            Ok((pod, Some(used))) => drop(usage.insert(pod, used)),
            Ok((_, None)) => {}
            Err(why) => drop(flaw.get_or_insert(why)),
        }
        Ok(())
    });
    read.await.map_err(|failure| API.unavailable(&failure))?;
    match flaw {
        Some(flaw) => Err(flaw),
        None if pods == 0 => Err(API.no_values()),
        None => Ok(MetricValue::Usage { usage, is_cpu: resource == "cpu", at: oldest }),
    }
}

/// One that cannot be read is none: the API's own server writes them.
fn time(text: &str) -> Option<Time> {
    let at: jiff::Timestamp = text.parse().ok()?;
    Some(Time::from_secs(at.as_second()))
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    timestamp: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    containers: Option<Vec<Container<'a>>>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Container<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    usage: Option<BTreeMap<Cow<'a, str>, Value>>,
}

/// What is asked about each pod.
#[derive(Clone, Copy)]
struct RequestedUsage<'a> {
    resource: &'a str,
    container: Option<&'a str>,
}

impl RequestedUsage<'_> {
    /// What a pod uses of it. Each container is rounded up by itself, as upstream does it.
    fn pod_usage(self, item: &Item<'_>) -> Result<Option<Milli>, MetricError> {
        let mut sum: Option<Milli> = None;
        for container in item.containers.iter().flatten() {
            if self.container.is_some_and(|name| name != container.name) {
                continue;
            }
            let used = container.usage.as_ref().and_then(|usage| usage.get(self.resource));
            let Some(used) = used.filter(|used| !used.is_null()) else { return Ok(None) };
            let pod = &item.metadata.name;
            let of = format_args!("{} of container {} of pod {pod}", self.resource, container.name);
            let used = API.parse_milli(Some(used), of)?;
            if used < 0 {
                return Err(API.request_failed(format!("the value of {of} is below zero")));
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
    fn a_pod_uses_what_its_containers_use_and_is_unknown_where_one_of_them_is() {
        let both = json!([
            {"name": "main", "usage": {"cpu": "250123456n", "memory": "100Mi"}},
            {"name": "side", "usage": {"cpu": "1m"}},
        ]);
        assert_eq!(used(&both, "cpu", None), Ok(Some(252)));
        assert_eq!(used(&both, "cpu", Some("side")), Ok(Some(1)));
        assert_eq!(used(&both, "memory", Some("main")), Ok(Some(104_857_600_000)));
        assert_eq!(used(&both, "memory", None), Ok(None), "one of two is not known");
        assert_eq!(used(&both, "memory", Some("side")), Ok(None));
        assert_eq!(used(&both, "cpu", Some("other")), Ok(None), "there is no such container");
        assert_eq!(used(&json!([]), "cpu", None), Ok(None));
        assert_eq!(used(&json!(null), "cpu", None), Ok(None));
        assert_eq!(
            used(&json!([{"name": "main", "usage": {"cpu": "0"}}]), "cpu", None),
            Ok(Some(0))
        );
        assert_eq!(used(&json!([{"name": "main", "usage": {"cpu": null}}]), "cpu", None), Ok(None));
    }

    #[test]
    fn an_amount_that_cannot_be_read_says_whose_it_is() {
        let one = |amount: &str| json!([{"name": "main", "usage": {"cpu": amount}}]);
        assert_eq!(used(&one("NaN"), "cpu", None), Err("the value is not a number".to_owned()));
        for (amount, why) in [("-1", "is below zero"), ("few", "\"few\" is not a quantity")] {
            let told = used(&one(amount), "cpu", None).expect_err(amount);
            assert!(told.contains("the value of cpu of container main of pod web-1"), "{told}");
            assert!(told.contains(why), "{told}");
        }
    }
}
