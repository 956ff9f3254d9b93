//! What time it is by the API server's clock.

use std::time::Duration;

use http::{Request, header::DATE};
use kube::{Client, client::Body};
use plimsoll_storage::Time;
use tokio::time::timeout;

/// How long its answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time of the server's answer to a request that everybody may make; `None` where there is no answer, or no date in it.
pub async fn server_time(client: &Client) -> Option<Time> {
    let request = Request::get("/version").body(Body::empty()).ok()?;
    let response = timeout(PATIENCE, client.send(request)).await.ok()?.ok()?;
    let date = response.headers().get(DATE)?.to_str().ok()?;
    Some(jiff::fmt::rfc2822::parse(date).ok()?.timestamp().into())
}
