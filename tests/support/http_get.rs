//! A plain HTTP GET with a timeout, and sums of metrics from the page that it returns.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Long enough for a response, and short compared to the timeout of a wait, so that a wait can retry.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The body of the response, whatever its status; `None` if there is no response.
pub async fn http_get(address: &str) -> Option<Bytes> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let address = address.parse().expect("an address");
    let answer = async { client.get(address).await.ok()?.into_body().collect().await.ok() };
    Some(tokio::time::timeout(TIMEOUT, answer).await.ok()??.to_bytes())
}

/// Sums the series of a metric that have all of these labels.
pub fn metric_sum(page: &str, name: &str, labels: &[&str]) -> f64 {
    let of_name = page.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    });
    let fits = of_name.filter(|line| labels.iter().all(|label| line.contains(label)));
    fits.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
