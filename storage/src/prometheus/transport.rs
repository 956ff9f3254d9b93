//! How a request to a server that speaks Prometheus' API is signed in.
//!
//! ```text
//!   DoorConfig ──▶ Door ─┬─ who it is, who we are ── CA file, client certificate ─┐
//!                        ├─ who asks ── password, token, key, exchanged token ────┼─ files, read again
//!                        └─ what is said besides ── headers, tenant ──────────────┘  when they changed
//! ```
//!
//! A file is looked at every few seconds at most; a refusal looks at once and, if something changed, asks
//! once again. So a secret that is rotated works within seconds, and nothing is restarted. Tokens are fetched by one
//! request for all, and kept until shortly before they expire. Redirects are not followed: whoever answers with one
//! would get the credentials, or wants a human.

mod authenticator;
#[cfg(feature = "aws")]
mod aws;
mod azure;
pub mod config;
mod error;
mod google;
mod http_clients;
mod oauth;
mod reloading_file;
mod secret;
mod token_cache;
mod token_endpoint;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::{
    Method, StatusCode, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION},
};

/// What a [`Transport`] brings.
pub use reqwest::Response;

use self::{
    authenticator::{Authenticator, RequestAuth},
    config::{AuthConfig, Header},
    http_clients::{HttpClientFactory, ProxyPolicy},
    reloading_file::{Reload, ReloadingFile},
    token_endpoint::{hidden, url},
};
pub use self::{config::TransportConfig, error::TransportError, secret::Secret};
use plimsoll_core::types::Time;

const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");
/// Headers that say how a request is written, which is not for settings.
const RESERVED_HEADERS: [&str; 6] = [
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
];

/// Whatever sends questions: a [`Door`], or a test's own.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync {
    /// Posts a form to a path below the server's address. An answer is whatever the server says that is neither a
    /// redirect nor a refusal to let us in; `timeout` is for all of it, the reading included.
    async fn send(
        &self,
        path: &str,
        form: &[(&str, String)],
        timeout: Duration,
    ) -> Result<Response, TransportError>;
}

/// The wall's time: signatures carry it, and the ends of credentials are told by it.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> Time + Send + Sync>);

impl WallClock {
    /// By whoever tells it.
    pub fn new(now: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// What time it is.
    pub fn now(&self) -> Time {
        (self.0)()
    }

    /// How long it is until then; nothing if that was before.
    fn until(&self, end: Timestamp) -> Duration {
        let left = Time::from(end).nanos_since((self.0)());
        Duration::from_nanos(u64::try_from(left).unwrap_or_default())
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wall")
    }
}

/// A way into a server.
pub struct HttpTransport {
    base: Url,
    display_address: String,
    client_factory: HttpClientFactory,
    signer: Authenticator,
    headers: Vec<(HeaderName, ReloadingFile)>,
}

impl fmt::Debug for HttpTransport {
    /// Without the query of the address, in which some gateways want a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base: _, display_address: shown, client_factory: dialer, signer, headers } =
            self;
        f.debug_struct("Door")
            .field("address", shown)
            .field("dialer", dialer)
            .field("signer", signer)
            .field("headers", headers)
            .finish()
    }
}

/// A request with everything that lets it in.
#[derive(Debug)]
struct PreparedRequest {
    client: reqwest::Client,
    auth: RequestAuth,
    headers: HeaderMap,
    /// How often client, pass and headers changed until now.
    versions: [u64; 3],
}

impl HttpTransport {
    /// Checks what can be checked without reading a file or asking anybody.
    pub fn new(config: TransportConfig, now: WallClock) -> Result<Self, TransportError> {
        let TransportConfig { address, tls, auth: mut sign_in, headers, tenant, timing: pace } =
            config;
        let mut base = url("the address of the Prometheus", &address)?;
        if let Some(own) = sign_in_of(&mut base)
            && sign_in == AuthConfig::None
        {
            sign_in = own;
        }
        let mut held = Vec::new();
        for Header { name, value } in headers {
            let known = HeaderName::from_bytes(name.as_bytes()).ok();
            let known = known
                .filter(|name| !RESERVED_HEADERS.contains(&name.as_str()))
                .ok_or_else(|| {
                    TransportError::setting(
                        format!("the header {name:?}"),
                        "it is not one that can be set",
                    )
                })?;
            if known == reqwest::header::AUTHORIZATION && sign_in != AuthConfig::None {
                let why = "the sign-in sets it already";
                return Err(TransportError::setting("the header Authorization", why));
            }
            held.push((
                known,
                ReloadingFile::new("the value of a header", value, pace.reload_interval),
            ));
        }
        if let Some(tenant) = tenant {
            let word = Secret::from(tenant).into();
            held.push((TENANT, ReloadingFile::new("the tenant", word, pace.reload_interval)));
        }
        let dialer =
            HttpClientFactory::new(tls, &base, ProxyPolicy::FromEnvironment, pace.reload_interval);
        let signer = Authenticator::new(sign_in, pace, now)?;
        Ok(Self {
            display_address: redacted(&base),
            base,
            client_factory: dialer,
            signer,
            headers: held,
        })
    }

    /// The server's address, without secrets.
    pub fn address(&self) -> &str {
        &self.display_address
    }

    /// Asks by GET or POST; the form is the query of the one and the body of the other. As [`Transport::send`]
    /// otherwise.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        form: &[(&str, String)],
        timeout: Duration,
    ) -> Result<Response, TransportError> {
        let dressed = self.prepare(Reload::IfDue).await?;
        let answer = self.send_once(&dressed, &method, path, form, timeout).await;
        let Err(refusal) = answer else { return answer };
        if !may_be_stale(&refusal) {
            return Err(refusal);
        }
        let anew = self.prepare(Reload::Now).await?;
        if anew.versions == dressed.versions {
            return Err(refusal);
        }
        tracing::info!(server = %self.display_address, "refused; asked again with what changed since");
        self.send_once(&anew, &method, path, form, timeout).await
    }

    async fn prepare(&self, fresh: Reload) -> Result<PreparedRequest, TransportError> {
        let (client, certificates) = self.client_factory.client(fresh).await?;
        let mut headers = HeaderMap::new();
        let mut words = 0;
        for (name, held) in &self.headers {
            let (word, changes) = held.read(fresh).await?;
            headers.append(name, hidden(name.as_str(), word.reveal())?);
            words += changes;
        }
        let (pass, signs) = self.signer.request_auth(fresh).await?;
        Ok(PreparedRequest { client, auth: pass, headers, versions: [certificates, words, signs] })
    }

    async fn send_once(
        &self,
        dressed: &PreparedRequest,
        method: &Method,
        path: &str,
        form: &[(&str, String)],
        timeout: Duration,
    ) -> Result<Response, TransportError> {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        let mut headers = dressed.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let mut body = String::new();
        if *method == Method::POST {
            headers.insert(CONTENT_TYPE, FORM);
            body = form_urlencoded::Serializer::new(body).extend_pairs(form).finish();
        } else if !form.is_empty() {
            url.query_pairs_mut().extend_pairs(form);
            // A plus is a blank in forms only: everywhere else, signatures included, it is a plus.
            let query = url.query().map(|query| query.replace('+', "%20"));
            url.set_query(query.as_deref());
        }
        dressed.auth.apply(method, &url, &mut headers, body.as_bytes())?;
        let request = dressed.client.request(method.clone(), url).timeout(timeout).headers(headers);
        let request = if body.is_empty() { request } else { request.body(body) };
        let response = request
            .send()
            .await
            .map_err(|error| TransportError::of_request(&self.display_address, &error, timeout))?;
        self.check_status(response)
    }

    /// An answer, if the server lets us in.
    fn check_status(&self, response: Response) -> Result<Response, TransportError> {
        let server = self.display_address.clone();
        let (credentials, advice) = self.signer.refusal_hints();
        match response.status() {
            StatusCode::UNAUTHORIZED => {
                Err(TransportError::Unauthorized { server, credentials, advice })
            }
            StatusCode::FORBIDDEN => Err(TransportError::Forbidden { server, credentials }),
            status if status.is_redirection() => {
                let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
                let to = to.and_then(|to| response.url().join(to).ok());
                let to = to.as_ref().map_or_else(|| "nowhere".to_owned(), redacted);
                Err(TransportError::Redirected { server, to, status: status.as_u16() })
            }
            _ => Ok(response),
        }
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
        let answer = self.request(Method::POST, path, form, timeout).await?;
        match answer.status() {
            // Some paths are only for reading, and some proxies take every POST for writing.
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
                self.request(Method::GET, path, form, timeout).await
            }
            _ => Ok(answer),
        }
    }
}

/// Whether newer secrets may change the answer. AWS says 403 to an expired key.
fn may_be_stale(refusal: &TransportError) -> bool {
    matches!(
        refusal,
        TransportError::Unauthorized { .. }
            | TransportError::Forbidden { .. }
            | TransportError::Untrusted { .. }
            | TransportError::ClientCertificate { .. }
    )
}

/// The name and password in an address, which is without them then.
fn sign_in_of(url: &mut Url) -> Option<AuthConfig> {
    let decoded = |word: &str| {
        // The form's decoder takes a plus for a blank, which in an address is none.
        let word = word.replace('+', "%2B");
        let mut pairs = form_urlencoded::parse(word.as_bytes());
        pairs.next().map(|(word, _)| word.into_owned()).unwrap_or_default()
    };
    let user = decoded(url.username());
    let password = url.password().map(decoded).unwrap_or_default();
    // Both only fail for addresses without a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    (!user.is_empty()).then(|| AuthConfig::Basic {
        user,
        password: config::SecretSource::Literal(password.into()),
    })
}

/// An address as errors show it: whatever may be secret in it is left out.
fn redacted(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string().trim_end_matches('/').to_owned()
}
