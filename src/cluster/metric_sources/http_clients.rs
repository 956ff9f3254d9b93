//! HTTP clients for recommenders: one for each TLS configuration, never shared, rebuilt when its files change, and removed
//! when it is idle.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use hyper_util::client::proxy::matcher::Matcher;
use parking_lot::Mutex;
use plimsoll_storage::prometheus::transport::{ReloadingClient, is_loopback};
use reqwest::{
    Client, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    header::HeaderValue,
};
use tokio::time::Instant;

use super::external_recommender::RequestLimits;
use plimsoll_core::api::scale_target::TlsConfig;

/// The TLS configuration of an object with defaults. Only file names have defaults of the process; all other fields are the
/// object's own, as soon as it has a TLS configuration at all.
pub(super) fn effective_tls_config(own: Option<&TlsConfig>, defaults: &TlsConfig) -> TlsConfig {
    let Some(own) = own else { return defaults.clone() };
    let file = |own: &String, default: &String| {
        if own.is_empty() { default.clone() } else { own.clone() }
    };
    TlsConfig {
        ca_file: file(&own.ca_file, &defaults.ca_file),
        cert_file: file(&own.cert_file, &defaults.cert_file),
        key_file: file(&own.key_file, &defaults.key_file),
        ..own.clone()
    }
}

pub(super) struct Endpoint {
    pub(super) client: Client,
    pub(super) url: Url,
    /// The `Host` header, if it differs from the host of the URL.
    pub(super) host: Option<HeaderValue>,
}

pub(super) struct HttpClients {
    user_agent: &'static str,
    limits: RequestLimits,
    proxies: Matcher,
    slots: Mutex<HashMap<ClientKey, ClientSlot>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct ClientKey {
    /// `None` for plain HTTP.
    tls: Option<TlsConfig>,
    route: Route,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Route {
    /// Through the proxy of the environment variables.
    Proxied,
    Direct,
    /// Directly to this host, although the URL has the name that its certificate must have. That name is sent as SNI, by
    /// which a server with several names selects its certificate.
    ServerNameOverride(Box<str>),
}

struct ClientSlot {
    last_used: Instant,
    client: Arc<ReloadingClient>,
}

impl HttpClients {
    pub(super) fn new(user_agent: &'static str, limits: RequestLimits) -> Self {
        Self { user_agent, limits, proxies: Matcher::from_env(), slots: Mutex::default() }
    }

    pub(super) async fn endpoint(&self, tls: &TlsConfig, url: Url) -> Result<Endpoint, String> {
        let (route, url, host) = self.route(tls, url);
        let tls = (url.scheme() == "https").then(|| tls.clone());
        let client = self.client(ClientKey { tls, route }).get().await;
        Ok(Endpoint { client: client.map_err(|why| why.to_string())?, url, host })
    }

    fn route(&self, tls: &TlsConfig, url: Url) -> (Route, Url, Option<HeaderValue>) {
        let is_proxied = !is_loopback(&url)
            && url.as_str().parse().is_ok_and(|uri| self.proxies.intercept(&uri).is_some());
        if is_proxied {
            return (Route::Proxied, url, None);
        }
        // An IP address is not sent as SNI: only the certificate is checked for it, and nothing else changes.
        let name = Some(&*tls.server_name).filter(|name| {
            url.scheme() == "https" && !name.is_empty() && name.parse::<IpAddr>().is_err()
        });
        let (Some(name), Some(host)) = (name, url.host_str()) else {
            return (Route::Direct, url, None);
        };
        let host_header =
            url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let mut renamed = url.clone();
        match (HeaderValue::try_from(host_header), renamed.set_host(Some(name))) {
            (Ok(host_header), Ok(())) => {
                let host = host.trim_matches(['[', ']']).into();
                (Route::ServerNameOverride(host), renamed, Some(host_header))
            }
            _ => (Route::Direct, url, None),
        }
    }

    fn client(&self, key: ClientKey) -> Arc<ReloadingClient> {
        let now = Instant::now();
        let mut slots = self.slots.lock();
        if !slots.contains_key(&key) {
            slots.retain(|_, slot| now - slot.last_used < self.limits.idle_timeout);
        }
        let slot = slots.entry(key).or_insert_with_key(|key| ClientSlot {
            last_used: now,
            client: Arc::new(key.client(self.user_agent, self.limits)),
        });
        slot.last_used = now;
        Arc::clone(&slot.client)
    }
}

impl ClientKey {
    fn client(&self, user_agent: &'static str, limits: RequestLimits) -> ReloadingClient {
        let route = self.route.clone();
        ReloadingClient::new(self.tls.clone(), limits.reload_interval, move |builder| {
            let builder = builder.user_agent(user_agent);
            match &route {
                Route::Proxied => builder,
                Route::Direct => builder.no_proxy(),
                Route::ServerNameOverride(host) => {
                    builder.no_proxy().dns_resolver(Arc::new(FixedHostResolver(host.clone())))
                }
            }
        })
    }
}

struct FixedHostResolver(Box<str>);

impl Resolve for FixedHostResolver {
    fn resolve(&self, _: Name) -> Resolving {
        let host = self.0.clone();
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((&*host, 0)).await?.collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_files_default_to_those_of_the_process_and_other_settings_do_not() {
        let defaults = TlsConfig {
            ca_file: "/ca".to_owned(),
            cert_file: "/cert".to_owned(),
            key_file: "/key".to_owned(),
            server_name: "all".to_owned(),
            insecure_skip_verify: true,
            min_version: "TLS13".to_owned(),
            max_version: "TLS13".to_owned(),
        };
        assert_eq!(effective_tls_config(None, &defaults), defaults);
        let files = TlsConfig {
            ca_file: "/ca".to_owned(),
            cert_file: "/cert".to_owned(),
            key_file: "/key".to_owned(),
            ..TlsConfig::default()
        };
        assert_eq!(effective_tls_config(Some(&TlsConfig::default()), &defaults), files);
        let own = TlsConfig {
            ca_file: "/own".to_owned(),
            server_name: "mine".to_owned(),
            ..TlsConfig::default()
        };
        let expected =
            TlsConfig { ca_file: "/own".to_owned(), server_name: "mine".to_owned(), ..files };
        assert_eq!(effective_tls_config(Some(&own), &defaults), expected);
        assert_eq!(effective_tls_config(Some(&own), &TlsConfig::default()), own);
    }
}
