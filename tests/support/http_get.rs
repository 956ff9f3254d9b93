//! Owns one GET of plain HTTP, which never takes for ever: a server that hangs has not answered.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Long for an answer, and short beside the patience of a wait, so that a wait can ask again.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The body that a server answers with, whatever the status; `None` when there is no answer.
pub async fn http_get(address: &str) -> Option<Bytes> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let address = address.parse().expect("an address");
    let answer = async { client.get(address).await.ok()?.into_body().collect().await.ok() };
    Some(tokio::time::timeout(TIMEOUT, answer).await.ok()??.to_bytes())
}
