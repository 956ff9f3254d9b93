//! Existing objects, and the objects that have series.

use std::collections::BTreeSet;

use serde_json::Value;

use super::support::Testbed;
use super::support::http_get::http_get;

/// All VPAs, as `NAMESPACE/NAME`, except those in terminating namespaces.
pub async fn live(bed: &Testbed) -> BTreeSet<String> {
    let path = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers";
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    let list: Value = bed.client().request(request).await.expect("the API server answers");
    let items = list["items"].as_array().cloned().unwrap_or_default();
    items
        .iter()
        .map(|item| {
            let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default();
            format!("{}/{}", text("namespace"), text("name"))
        })
        .collect()
}

/// The VPAs that have series of the recommender.
pub async fn shown(port: u16) -> BTreeSet<String> {
    let body = http_get(&format!("http://127.0.0.1:{port}/metrics")).await.unwrap_or_default();
    String::from_utf8_lossy(&body)
        .lines()
        .filter(|line| line.starts_with("plimsoll_") && label(line, "kind") == Some("vpa"))
        .filter_map(|line| Some(format!("{}/{}", label(line, "namespace")?, label(line, "name")?)))
        .collect()
}

/// The value of a label; object names contain nothing that is escaped.
fn label<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let labels = line.split_once('{')?.1;
    labels.split(',').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        (key == name).then(|| value.split('"').nth(1))?
    })
}
