//! Requests to a server behind a Service, sent through the API server's proxy: a kubeconfig is enough to read the
//! Prometheus of a cluster.
//!
//! ```text
//!   PrometheusClient ──▶ ServiceProxy ──▶ GET /api/v1/namespaces/NS/services/NAME:PORT/proxy/api/v1/query?query=…
//!                                              │ kube's client: TLS, credentials, impersonation
//!                                              ▼
//!                                          API server ──▶ a pod of the Service
//! ```
//!
//! Every request is a GET, which needs the permission `get` on `services/proxy`; a POST would need `create`. The API server
//! drops the header `Authorization`, so a server that requires authentication cannot be queried in this way.

pub mod address;
mod api_error;
mod body_stream;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use http::{
    HeaderMap, HeaderValue, Request, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, LOCATION, RETRY_AFTER},
};
use kube::{Client, client::Body};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use plimsoll_storage::prometheus::transport::{
    Response, Transport, TransportError, TransportErrorKind, compressed_body::BodyStream,
};
use tokio::time::{Instant, timeout_at};

use self::{
    address::ServiceAddress,
    api_error::ApiStatus,
    body_stream::{body_stream, peek},
};

/// The maximum length of a request's URL. Go's servers accept up to 1 MiB of headers; load balancers in front of an API
/// server accept less, many of them 16 KiB or more. Patterns in queries have at most 4 KiB before they are encoded.
const MAX_URL_BYTES: usize = 16 << 10;
/// Bytes to read of an error response, to find out whether it is from the API server.
const MAX_STATUS_BYTES: usize = 64 << 10;
/// Bytes of a query that need no encoding. A plus and a semicolon have a meaning in the query of a URL.
const QUERY: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b':')
    .remove(b'/')
    .remove(b'?')
    .remove(b'!')
    .remove(b'$')
    .remove(b'=');
/// The same for names, which end with an equals sign.
const QUERY_NAME: AsciiSet = QUERY.add(b'=');

/// Sends requests to a Service through the API server's proxy.
#[derive(Clone)]
pub struct ServiceProxy {
    client: Client,
    address: ServiceAddress,
    headers: HeaderMap,
}

impl fmt::Debug for ServiceProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceProxy").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ServiceProxy {
    /// Creates the transport. The client should have no read timeout, because a query may take longer.
    pub fn new(client: Client, address: ServiceAddress) -> Self {
        Self { client, address, headers: HeaderMap::new() }
    }

    /// Adds headers to every request, such as the tenant.
    #[must_use]
    pub fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    fn request(
        &self,
        path: &str,
        form: &[(&str, String)],
    ) -> Result<Request<Body>, TransportError> {
        let mut url = format!("{}{path}", self.address.proxy_path());
        let mut separator = '?';
        for (name, value) in form {
            url.push(separator);
            url.extend(utf8_percent_encode(name, &QUERY_NAME));
            url.push('=');
            url.extend(utf8_percent_encode(value, &QUERY));
            separator = '&';
        }
        let invalid = |why: String| {
            let line = format!("the query for {} cannot be sent: {why}", self.address);
            TransportError::new(TransportErrorKind::InvalidSetting, line)
        };
        if url.len() > MAX_URL_BYTES {
            return Err(invalid(format!(
                "its URL has {} bytes, and the API server's proxy is sent at most {MAX_URL_BYTES}: select less with \
                 --namespace, or {}",
                url.len(),
                self.address.port_forward_hint()
            )));
        }
        let mut request =
            Request::get(url).body(Body::empty()).map_err(|why| invalid(why.to_string()))?;
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        Ok(request)
    }

    /// Turns errors of the API server, authentication failures and redirects into errors.
    async fn check_status(
        &self,
        head: http::response::Parts,
        body: BodyStream,
    ) -> Result<Response, TransportError> {
        let code = head.status;
        if code.is_success() {
            return Ok(response(head, body));
        }
        let location = head.headers.get(LOCATION).and_then(|to| to.to_str().ok());
        if code.is_redirection()
            && let Some(error) = api_error::of_login(&self.address, code, location)
        {
            return Err(error);
        }
        let (beginning, body) = peek(body, MAX_STATUS_BYTES).await;
        let Some(status) = ApiStatus::parse(&beginning) else {
            return match api_error::of_login(&self.address, code, location) {
                Some(error) => Err(error),
                None => Ok(response(head, body)),
            };
        };
        match api_error::of_api_server(&self.address, code, &status) {
            Some(error) => Err(error),
            None => Ok(busy(code, &status, head.headers.get(RETRY_AFTER))),
        }
    }
}

#[async_trait]
impl Transport for ServiceProxy {
    async fn send(
        &self,
        path: &str,
        form: &[(&str, String)],
        timeout: Duration,
    ) -> Result<Response, TransportError> {
        let deadline = Instant::now() + timeout;
        let request = self.request(path, form)?;
        let response = timeout_at(deadline, self.client.send(request))
            .await
            .map_err(|_| api_error::timed_out(&self.address, timeout))?
            .map_err(|error| api_error::of_request(&self.address, &error))?;
        let (mut head, body) = response.into_parts();
        let (body, transferred) = body_stream(body, &mut head.headers, deadline);
        head.extensions.insert(transferred);
        self.check_status(head, body).await
    }
}

fn response(head: http::response::Parts, body: BodyStream) -> Response {
    http::Response::from_parts(head, reqwest::Body::wrap_stream(body)).into()
}

/// The response of an API server that is too busy, with its message as plain text.
fn busy(code: StatusCode, status: &ApiStatus, retry_after: Option<&HeaderValue>) -> Response {
    let mut response = http::Response::new(reqwest::Body::from(status.message()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    if let Some(retry_after) = retry_after {
        headers.insert(RETRY_AFTER, retry_after.clone());
    }
    response.into()
}
