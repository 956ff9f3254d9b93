//! The usage of the pods of a selector with its time and window, from `metrics.k8s.io`: of all resources and containers.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use plimsoll_core::types::{Time, quantity::Quantity};
use serde_json::Value;

use super::{
    read_values,
    resource_metrics::{API, Container, Item},
};
use crate::cluster::list_stream::{Deadline, UsageError};

#[derive(Clone, Debug, PartialEq)]
pub struct PodSample {
    pub pod: String,
    /// The end of the measurement window.
    pub at: Time,
    pub window: Duration,
    pub containers: Vec<(String, BTreeMap<String, Quantity>)>,
}

/// Fetches the usage of the pods that the selector matches. A malformed item is an error of the whole response, as it is
/// for kube-controller-manager.
pub async fn fetch_pod_samples(
    client: &Client,
    namespace: &str,
    selector: &str,
    timeout: Duration,
) -> Result<Vec<PodSample>, UsageError> {
    let path = API.path(namespace, "pods", selector);
    let samples = read_values(client, &path, Deadline::after(timeout), parse).await?;
    samples.map_err(|reason| UsageError::Malformed { path, reason })
}

fn parse(item: &[u8]) -> Result<PodSample, String> {
    let Item { metadata, timestamp, window, containers } =
        serde_json::from_slice(item).map_err(|why| why.to_string())?;
    let pod = metadata.name;
    let (timestamp, window) = (timestamp.unwrap_or_default(), window.unwrap_or_default());
    let at: Timestamp =
        timestamp.parse().map_err(|_| format!("pod {pod}: timestamp {timestamp:?}"))?;
    // jiff reads what Go writes, such as 1m0.5s.
    let span: SignedDuration =
        window.parse().map_err(|_| format!("pod {pod}: window {window:?}"))?;
    let amount = |(resource, amount): (Cow<'_, str>, Value)| {
        let amount: Quantity =
            serde_json::from_value(amount).map_err(|why| format!("pod {pod}: {why}"))?;
        Ok((resource.into_owned(), amount))
    };
    let usage = |container: Container<'_>| {
        let usage = container.usage.unwrap_or_default().into_iter().map(amount);
        Ok((container.name.into_owned(), usage.collect::<Result<_, String>>()?))
    };
    let containers = containers.unwrap_or_default().into_iter().map(usage);
    let containers = containers.collect::<Result<_, String>>()?;
    Ok(PodSample {
        pod: pod.to_string(),
        at: Time::from(at),
        window: span.unsigned_abs(),
        containers,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn item(window: &str, usage: &Value) -> Result<PodSample, String> {
        let item = json!({
            "metadata": {"name": "web-1", "namespace": "shop"}, "timestamp": "2027-01-15T08:00:00Z",
            "window": window, "containers": [{"name": "app", "usage": usage}],
        });
        parse(item.to_string().as_bytes())
    }

    #[test]
    fn windows_are_read_as_go_writes_them() {
        for (window, expected) in
            [("30s", 30_000), ("1m0s", 60_000), ("15.123s", 15_123), ("1m0.5s", 60_500), ("0s", 0)]
        {
            let sample = item(window, &json!({"cpu": "5m"})).expect(window);
            assert_eq!(sample.window, Duration::from_millis(expected), "{window}");
            assert_eq!(sample.at, Time::from_secs(1_800_000_000));
            assert_eq!(sample.containers[0].1["cpu"].milli_value(), 5);
        }
    }

    #[test]
    fn an_invalid_item_is_an_error() {
        item("soon", &json!({"cpu": "5m"})).expect_err("no duration");
        item("30s", &json!({"cpu": "many"})).expect_err("no quantity");
        parse(br#"{"metadata": {"name": "web-1"}}"#).expect_err("no time");
    }
}
