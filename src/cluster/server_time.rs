//! The current time by the API server's clock.

use std::time::Duration;

use http::{Request, header::DATE};
use kube::{Client, client::Body};
use plimsoll_core::types::Time;
use tokio::time::timeout;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The `Date` header of a response that every client may request; `None` without a response or without a date in it.
pub async fn server_time(client: &Client) -> Option<Time> {
    let request = Request::get("/version").body(Body::empty()).ok()?;
    let response = timeout(REQUEST_TIMEOUT, client.send(request)).await.ok()?.ok()?;
    parse_http_date(response.headers().get(DATE)?.to_str().ok()?)
}

fn parse_http_date(date: &str) -> Option<Time> {
    Some(jiff::fmt::rfc2822::parse(date).ok()?.timestamp().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_header_of_a_response_is_parsed() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(parse_http_date(date), Some(Time::from_secs(784_111_777)));
        assert_eq!(parse_http_date("some day"), None);
    }
}
