//! Finds the Prometheus of a cluster with nothing but access to its API server.
//!
//! ```text
//!   Services ──▶ candidates: at most 12 ──▶ probe, four at once: build, containers now and 7 d ago ──▶ ranking
//! ```
//!
//! Outside of the cluster servers are reached through the API server's proxy, in the cluster directly. `list` on `services`
//! and `get` on `services/proxy` are the only permissions that are needed. Where operators are installed, `list` on their
//! objects finds servers with a path of their own.

pub mod candidates;
mod error;
pub mod operated;
mod probe;
pub mod ranking;
mod service_list;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue};
use kube::Client;
use plimsoll_storage::prometheus::{
    selector::LabelMatchers,
    server_flavor::ServerFlavor,
    transport::{
        HttpTransport, Transport, TransportConfig, TransportError, TransportErrorKind, WallClock,
        config::{AuthConfig, Header, SecretSource},
    },
};

pub use self::error::DiscoveryError;
use self::{
    candidates::{Candidate, Recognition, ServerKind},
    probe::probe,
    ranking::{ProbedCandidate, ServerAnswer, rank},
    service_list::select_candidates,
};
use super::{
    clock::Clock,
    service_proxy::{ServiceProxy, address::ServiceAddress},
};

/// The maximum number of candidates that are asked at once.
const MAX_CONCURRENT_PROBES: usize = 4;
/// The header with the tenant of Mimir and Cortex.
const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Via {
    /// Directly in the cluster, through the API server's proxy outside of it.
    #[default]
    Auto,
    /// By the name of the Service.
    Direct,
    /// Through the API server's proxy.
    Proxy,
}

/// What to look for, and how to connect.
#[derive(Clone, Debug)]
pub struct DiscoveryOptions {
    /// The Service to use; `None` looks for one.
    pub service: Option<ServiceAddress>,
    pub via: Via,
    pub is_in_cluster: bool,
    /// Settings of the connection. The address is ignored. Through the proxy, only headers and the tenant are used.
    pub connection: TransportConfig,
    pub matchers: LabelMatchers,
    pub clock: Clock,
}

#[derive(Clone, Debug)]
pub struct Discovery {
    /// The Service, as `--prometheus-service` takes it.
    pub address: ServiceAddress,
    pub flavor: ServerFlavor,
    /// The release, if the product reports it.
    pub version: Option<String>,
    /// Whether it is reached through the API server's proxy.
    pub is_proxied: bool,
    pub transport: Arc<dyn Transport>,
    /// All candidates that were asked, the server first.
    pub candidates: Vec<ProbedCandidate>,
    /// The number of candidates that were not asked.
    pub omitted: usize,
}

/// Finds the Prometheus of a cluster. The client should have no read timeout, because the transport sends queries by it.
pub async fn discover(
    client: &Client,
    options: &DiscoveryOptions,
) -> Result<Discovery, DiscoveryError> {
    let connector = Connector::new(client, options)?;
    let (candidates, omitted) = if let Some(address) = &options.service {
        let (address, kind) = (address.clone(), ServerKind::Prometheus);
        (vec![Candidate { address, kind, recognition: Recognition::Labels }], 0)
    } else {
        ensure_no_credentials(&options.connection)?;
        let selection = select_candidates(client).await?;
        if selection.selected.is_empty() {
            return Err(DiscoveryError::NoCandidate { services: selection.services });
        }
        let omitted = selection.omitted();
        (selection.selected, omitted)
    };
    let now = options.clock.now();
    let probes = candidates.into_iter().map(|candidate| async {
        let answer = match connector.connect(&candidate.address) {
            Ok(transport) => probe(transport, &options.matchers, now).await,
            Err(error) => Err(error.to_string()),
        };
        ProbedCandidate { candidate, answer }
    });
    let answers = stream::iter(probes).buffer_unordered(MAX_CONCURRENT_PROBES).collect().await;
    let candidates = rank(answers);
    let Some((address, ServerAnswer { flavor, version, .. })) = candidates
        .first()
        .and_then(|first| Some((first.candidate.address.clone(), first.answer.clone().ok()?)))
    else {
        return Err(DiscoveryError::NoServer { candidates, omitted });
    };
    let transport = connector.connect(&address)?;
    let is_proxied = connector.proxy_headers.is_some();
    Ok(Discovery { address, flavor, version, is_proxied, transport, candidates, omitted })
}

/// Only a Service that was named gets credentials. The name of a tenant is none.
fn ensure_no_credentials(connection: &TransportConfig) -> Result<(), DiscoveryError> {
    let what = if connection.auth != AuthConfig::None {
        "the credentials"
    } else if !connection.headers.is_empty() {
        "the headers"
    } else {
        return Ok(());
    };
    Err(DiscoveryError::CredentialsForAnyService { what })
}

struct Connector<'a> {
    client: &'a Client,
    options: &'a DiscoveryOptions,
    /// The headers of requests through the API server's proxy; `None` if it is not used.
    proxy_headers: Option<HeaderMap>,
}

impl<'a> Connector<'a> {
    fn new(client: &'a Client, options: &'a DiscoveryOptions) -> Result<Self, DiscoveryError> {
        let is_proxied = match options.via {
            Via::Auto => !options.is_in_cluster,
            Via::Direct => false,
            Via::Proxy => true,
        };
        let proxy_headers = if is_proxied { Some(headers(&options.connection)?) } else { None };
        Ok(Self { client, options, proxy_headers })
    }

    /// Creates a transport. Sends no requests.
    fn connect(&self, address: &ServiceAddress) -> Result<Arc<dyn Transport>, TransportError> {
        if let Some(headers) = &self.proxy_headers {
            let proxy = ServiceProxy::new(self.client.clone(), address.clone());
            return Ok(Arc::new(proxy.with_headers(headers.clone())));
        }
        let connection =
            TransportConfig { address: address.direct_url(), ..self.options.connection.clone() };
        let clock = self.options.clock.clone();
        let transport = HttpTransport::new(connection, WallClock::new(move || clock.now()))?;
        Ok(Arc::new(transport))
    }
}

/// The headers of requests through the API server's proxy.
fn headers(connection: &TransportConfig) -> Result<HeaderMap, DiscoveryError> {
    if connection.auth != AuthConfig::None {
        let what = "the header Authorization";
        return Err(DiscoveryError::NotThroughProxy { what });
    }
    let mut headers = HeaderMap::new();
    for Header { name, value } in &connection.headers {
        let SecretSource::Literal(value) = value else {
            let what = "a header with its value in a file";
            return Err(DiscoveryError::NotThroughProxy { what });
        };
        if name.eq_ignore_ascii_case("authorization") {
            let what = "the header Authorization";
            return Err(DiscoveryError::NotThroughProxy { what });
        }
        let invalid = || invalid_header(name);
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        headers.append(name, header_value(value.reveal()).ok_or_else(invalid)?);
    }
    if let Some(tenant) = &connection.tenant {
        headers.append(TENANT, header_value(tenant).ok_or_else(|| invalid_header("the tenant"))?);
    }
    Ok(headers)
}

fn header_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn invalid_header(name: &str) -> DiscoveryError {
    let line =
        format!("the header {name:?} is invalid: it contains characters that HTTP does not allow");
    TransportError::new(TransportErrorKind::InvalidSetting, line).into()
}

impl fmt::Display for ProbedCandidate {
    /// One line: the Service, and what it answered.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { candidate: Candidate { address, .. }, answer } = self;
        let count = |count: &Result<u64, String>| match count {
            Ok(1) => "1 container".to_owned(),
            Ok(count) => format!("{count} containers"),
            Err(why) => format!("an unknown number of containers ({why})"),
        };
        match answer {
            Ok(ServerAnswer { flavor, version, containers_now, containers_week_ago }) => {
                write!(f, "{address}: {}", flavor.name())?;
                if let Some(version) = version {
                    write!(f, " {version}")?;
                }
                let (now, week_ago) = (count(containers_now), count(containers_week_ago));
                write!(f, ", {now} now, {week_ago} 7 days ago")
            }
            // Some errors name the Service themselves.
            Err(why) if why.contains(&address.to_string()) => f.write_str(why),
            Err(why) => write!(f, "{address}: {why}"),
        }
    }
}
