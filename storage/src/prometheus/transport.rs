//! Authenticated HTTP requests to servers with the Prometheus HTTP API.
//!
//! ```text
//!   TransportConfig ──▶ HttpTransport ─┬─ ReloadingClient ── CA file, client certificate
//!                                      ├─ Authenticator ── password, token, key, OAuth 2 ──┬─ ReloadingFile
//!                                      └─ headers, tenant ─────────────────────────────────┘
//! ```
//!
//! Files are checked every few seconds at most. When the server rejects a request, all files are reread at once, and the
//! request is retried if something changed. So a rotated secret works within seconds and without a restart. Concurrent
//! requests share one token fetch, and a token is cached until shortly before it expires. Redirects are not followed:
//! the target would get the credentials, or it is a login page for humans.

mod authenticator;
#[cfg(feature = "aws")]
mod aws;
mod azure;
mod cached_token;
pub mod compressed_body;
pub mod config;
mod error;
mod google;
mod oauth;
mod reloading_client;
mod reloading_file;
mod secret;
pub mod tls;
mod token_endpoint;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::{
    Client, Method, StatusCode, Url,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION},
};

pub use reqwest::Response;

use self::{
    authenticator::{Authenticator, RequestAuth},
    compressed_body::with_plain_body,
    config::{AuthConfig, Header},
    reloading_file::{Reload, ReloadingFile},
    token_endpoint::{hidden, url},
};
pub use self::{
    config::TransportConfig,
    error::{TransportError, TransportErrorKind},
    reloading_client::{ReloadingClient, is_loopback},
    secret::Secret,
};
use plimsoll_core::{api::scale_target::TlsConfig, types::Time};

/// Long enough for a handshake, but short compared to a query: do not wait for an address that drops packets.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");
/// Headers that describe how a request is encoded. Users cannot set them.
const RESERVED_HEADERS: [&str; 6] = [
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
];

/// Sends requests: [`HttpTransport`], one through another server, or a fake in tests.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync {
    /// Sends a form to a path below the server's address: in the body of a POST request, or in the query of a GET request
    /// where only reads are allowed. Redirects and authentication failures are errors; every other
    /// response is returned, whatever its status. `timeout` includes reading the body.
    async fn send(
        &self,
        path: &str,
        form: &[(&str, String)],
        timeout: Duration,
    ) -> Result<Response, TransportError>;
}

/// Wall-clock time, which signatures and expiry times of credentials need.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> Time + Send + Sync>);

impl WallClock {
    pub fn new(clock: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self(Arc::new(clock))
    }

    pub fn now(&self) -> Time {
        (self.0)()
    }

    /// The time until `end`; zero if `end` is in the past.
    fn until(&self, end: Timestamp) -> Duration {
        let left = Time::from(end).nanos_since((self.0)());
        Duration::from_nanos(u64::try_from(left).unwrap_or_default())
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}

/// Sends authenticated requests to one server.
pub struct HttpTransport {
    base: Url,
    display_address: String,
    client: ReloadingClient,
    signer: Authenticator,
    headers: Vec<(HeaderName, ReloadingFile)>,
    accepts_gzip: bool,
}

impl fmt::Debug for HttpTransport {
    /// Omits the query of the address: some gateways expect an API key there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base: _, display_address, client, signer, headers, accepts_gzip: _ } = self;
        f.debug_struct("HttpTransport")
            .field("address", display_address)
            .field("client", client)
            .field("signer", signer)
            .field("headers", headers)
            .finish()
    }
}

/// What a request is sent with, read from files that may change.
#[derive(Debug, PartialEq)]
struct PreparedRequest {
    /// How often the client was built so far.
    client_version: u64,
    auth: RequestAuth,
    headers: HeaderMap,
}

impl HttpTransport {
    /// Validates the settings. Reads no files and sends no requests.
    pub fn new(config: TransportConfig, clock: WallClock) -> Result<Self, TransportError> {
        let TransportConfig { address, tls, mut auth, headers, tenant, timing, .. } = config;
        let mut base = url("the Prometheus address", &address)?;
        if let Some(url_auth) = take_url_auth(&mut base)
            && auth == AuthConfig::None
        {
            auth = url_auth;
        }
        let mut header_files = Vec::new();
        for Header { name, value } in headers {
            let header = HeaderName::from_bytes(name.as_bytes()).ok();
            let header =
                header.filter(|name| !RESERVED_HEADERS.contains(&name.as_str())).ok_or_else(
                    || TransportError::setting(format!("the header {name:?}"), "it cannot be set"),
                )?;
            if header == reqwest::header::AUTHORIZATION && auth != AuthConfig::None {
                let why = "authentication already sets it";
                return Err(TransportError::setting("the header Authorization", why));
            }
            header_files.push((
                header,
                ReloadingFile::new("the header value", value, timing.reload_interval),
            ));
        }
        if let Some(tenant) = tenant {
            let source = Secret::from(tenant).into();
            header_files
                .push((TENANT, ReloadingFile::new("the tenant", source, timing.reload_interval)));
        }
        let client = http_client(tls, &base, false, timing.reload_interval);
        let signer = Authenticator::new(auth, timing, clock)?;
        let accepts_gzip = config.compresses_plain_http || base.scheme() == "https";
        let display_address = redacted(&base);
        Ok(Self { display_address, base, client, signer, headers: header_files, accepts_gzip })
    }

    /// Returns the server's address without secrets.
    pub fn address(&self) -> &str {
        &self.display_address
    }

    /// Sends a GET request with the form as its query, or a POST request with the form as its body. See
    /// [`Transport::send`].
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        form: &[(&str, String)],
        timeout: Duration,
    ) -> Result<Response, TransportError> {
        use TransportErrorKind::{ClientCertificate, Refused, Untrusted};
        let (client, prepared) = self.prepare(Reload::IfDue).await?;
        let response = self.send_once(&client, &prepared, &method, path, form, timeout).await;
        let Err(refusal) = response else { return response };
        // Reloaded secrets may help. AWS responds with 403 to an expired key.
        if !matches!(refusal.kind, Refused | Untrusted | ClientCertificate) {
            return Err(refusal);
        }
        let (client, reloaded) = self.prepare(Reload::Now).await?;
        if reloaded == prepared {
            return Err(refusal);
        }
        tracing::info!(server = %self.display_address, "request rejected; retrying with reloaded credentials");
        self.send_once(&client, &reloaded, &method, path, form, timeout).await
    }

    async fn prepare(&self, reload: Reload) -> Result<(Client, PreparedRequest), TransportError> {
        let (client, client_version) = self.client.get_version(reload).await?;
        let mut headers = HeaderMap::new();
        for (name, file) in &self.headers {
            let value = file.read(reload).await?;
            headers.append(name, hidden(name.as_str(), value.reveal())?);
        }
        let auth = self.signer.request_auth(reload).await?;
        Ok((client, PreparedRequest { client_version, auth, headers }))
    }

    async fn send_once(
        &self,
        client: &Client,
        prepared: &PreparedRequest,
        method: &Method,
        path: &str,
        form: &[(&str, String)],
        timeout: Duration,
    ) -> Result<Response, TransportError> {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        let mut headers = prepared.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let mut body = String::new();
        if *method == Method::POST {
            headers.insert(CONTENT_TYPE, FORM);
            body = form_urlencoded::Serializer::new(body).extend_pairs(form).finish();
        } else if !form.is_empty() {
            url.query_pairs_mut().extend_pairs(form);
            // A plus means a space only in forms. Everywhere else, including signatures, it is a literal plus.
            let query = url.query().map(|query| query.replace('+', "%20"));
            url.set_query(query.as_deref());
        }
        self.signer.apply(&prepared.auth, method, &url, &mut headers, body.as_bytes())?;
        // Not part of a signature: a proxy may change it.
        if self.accepts_gzip {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let request = client.request(method.clone(), url).timeout(timeout).headers(headers);
        let request = if body.is_empty() { request } else { request.body(body) };
        let response = request
            .send()
            .await
            .map_err(|error| TransportError::of_request(&self.display_address, &error, timeout))?;
        self.check_status(response).map(with_plain_body)
    }

    /// Turns authentication failures and redirects into errors.
    fn check_status(&self, response: Response) -> Result<Response, TransportError> {
        let server = &self.display_address;
        let (credentials, advice) = self.signer.refusal_hints();
        let (kind, message) = match response.status() {
            StatusCode::UNAUTHORIZED => (
                TransportErrorKind::Refused,
                format!("{server} rejected {credentials} (401): {advice}"),
            ),
            StatusCode::FORBIDDEN => {
                let advice = "grant permission to query, or check the tenant";
                let message = format!("{server} denied access with {credentials} (403): {advice}");
                (TransportErrorKind::Refused, message)
            }
            status if status.is_redirection() => {
                let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
                let to = to.and_then(|to| response.url().join(to).ok());
                let to = to.as_ref().map_or_else(|| "an invalid location".to_owned(), redacted);
                let message = format!(
                    "{server} redirects to {to} ({}), and redirects are not followed: configure authentication, or use \
                     the final address",
                    status.as_u16()
                );
                (TransportErrorKind::Redirected, message)
            }
            _ => return Ok(response),
        };
        Err(TransportError::new(kind, message))
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn send(
        &self,
        path: &str,
        form: &[(&str, String)],
        timeout: Duration,
    ) -> Result<Response, TransportError> {
        let response = self.request(Method::POST, path, form, timeout).await?;
        match response.status() {
            // Some paths are read-only, and some proxies treat every POST as a write.
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
                self.request(Method::GET, path, form, timeout).await
            }
            _ => Ok(response),
        }
    }
}

/// Creates the client of a server. It uses the proxy of the environment, unless only this machine can reach the server.
fn http_client(
    tls: TlsConfig,
    url: &Url,
    is_local: bool,
    check_interval: Duration,
) -> ReloadingClient {
    let is_encrypted = url.scheme() == "https";
    let is_direct = is_local || is_loopback(url);
    ReloadingClient::new(is_encrypted.then_some(tls), check_interval, move |builder| {
        let builder = builder
            .user_agent(concat!("plimsoll/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT);
        let builder = if is_direct { builder.no_proxy() } else { builder };
        // Responses are decompressed where their bytes are counted.
        builder.no_gzip()
    })
}

/// Takes the user name and password out of an address.
fn take_url_auth(url: &mut Url) -> Option<AuthConfig> {
    let decoded = |text: &str| {
        // The form decoder turns a plus into a space, but in an address it is a literal plus.
        let text = text.replace('+', "%2B");
        let mut pairs = form_urlencoded::parse(text.as_bytes());
        pairs.next().map(|(text, _)| text.into_owned()).unwrap_or_default()
    };
    let user = decoded(url.username());
    let password = url.password().map(decoded).unwrap_or_default();
    // Both fail only for addresses without a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    (!user.is_empty()).then(|| AuthConfig::Basic {
        user,
        password: config::SecretSource::Literal(password.into()),
    })
}

/// An address for errors, without the parts that may contain secrets.
fn redacted(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string().trim_end_matches('/').to_owned()
}
