//! A plain HTTP GET with a timeout.

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
