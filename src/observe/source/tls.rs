//! HTTP clients for recommenders: one for each TLS setting and never shared with another, made anew when its files
//! change, and forgotten when nobody asks for it.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{
    Client, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    header::HeaderValue,
    redirect::Policy,
};
use rustls::ClientConfig;
use tokio::{sync::Mutex as Turns, time::Instant};

use super::{
    recommender::Pace,
    trust::{Files, client_config, no_trust},
};
use plimsoll_core::api::scaled::TlsConfig;

/// What of both holds. Files that an object does not name are those of the process; all else is the object's own
/// affair, as soon as it says anything at all.
pub(super) fn effective(own: Option<&TlsConfig>, defaults: &TlsConfig) -> TlsConfig {
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

/// A way to a recommender.
pub(super) struct Way {
    /// Whoever speaks.
    pub(super) client: Client,
    /// The address that is dialled.
    pub(super) url: Url,
    /// What it is called in the request, where that is not the host of the address.
    pub(super) host: Option<HeaderValue>,
}

/// The clients that there are.
pub(super) struct Clients {
    /// Who asks.
    agent: &'static str,
    pace: Pace,
    proxies: Matcher,
    kept: Mutex<HashMap<Key, Arc<Slot>>>,
}

/// What a client is for.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    /// Nothing where nothing is encrypted.
    tls: Option<TlsConfig>,
    reach: Reach,
}

/// How a client gets there.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Reach {
    /// Through the proxy that the environment names.
    Proxied,
    /// By itself.
    Direct,
    /// By itself and to this host, though it calls it by the name that its certificate has to have. That name is
    /// told in the handshake, by which a server with many names chooses what it shows.
    Renamed(Box<str>),
}

struct Slot {
    used: Mutex<Instant>,
    made: Turns<Made>,
}

/// A client, or why there is none.
#[derive(Default)]
struct Made {
    client: Option<(Client, Files)>,
    failure: Option<String>,
    look: Option<Instant>,
}

impl Clients {
    pub(super) fn new(agent: &'static str, pace: Pace) -> Self {
        Self { agent, pace, proxies: Matcher::from_env(), kept: Mutex::default() }
    }

    /// The way to an address under a setting.
    pub(super) async fn way(&self, tls: &TlsConfig, url: Url) -> Result<Way, String> {
        let (reach, url, host) = self.reach(tls, url);
        let tls = (url.scheme() == "https").then(|| tls.clone());
        let key = Key { tls, reach };
        let slot = self.slot(&key);
        let mut made = slot.made.lock().await;
        if made.look.is_none_or(|look| look <= Instant::now()) {
            made.look(&key, self.agent, self.pace).await;
        }
        let client = match (&made.client, &made.failure) {
            (Some((client, _)), _) => client.clone(),
            (None, Some(failure)) => return Err(failure.clone()),
            (None, None) => return Err("there is no client".to_owned()),
        };
        Ok(Way { client, url, host })
    }

    fn reach(&self, tls: &TlsConfig, url: Url) -> (Reach, Url, Option<HeaderValue>) {
        let is_proxied = !is_loopback(&url)
            && url.as_str().parse().is_ok_and(|uri| self.proxies.intercept(&uri).is_some());
        if is_proxied {
            return (Reach::Proxied, url, None);
        }
        // An address is not told in a handshake: the certificate is looked at for it, and nothing else changes.
        let name = Some(&*tls.server_name).filter(|name| {
            url.scheme() == "https" && !name.is_empty() && name.parse::<IpAddr>().is_err()
        });
        let (Some(name), Some(host)) = (name, url.host_str()) else {
            return (Reach::Direct, url, None);
        };
        let said = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let mut renamed = url.clone();
        match (HeaderValue::try_from(said), renamed.set_host(Some(name))) {
            (Ok(said), Ok(())) => {
                let host = host.trim_matches(['[', ']']).into();
                (Reach::Renamed(host), renamed, Some(said))
            }
            _ => (Reach::Direct, url, None),
        }
    }

    fn slot(&self, key: &Key) -> Arc<Slot> {
        let now = Instant::now();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = kept.get(key) {
            *slot.used.lock().unwrap_or_else(PoisonError::into_inner) = now;
            return Arc::clone(slot);
        }
        let idle = self.pace.idle;
        kept.retain(|_, slot| {
            now - *slot.used.lock().unwrap_or_else(PoisonError::into_inner) < idle
        });
        let slot = Arc::new(Slot { used: Mutex::new(now), made: Turns::default() });
        kept.insert(key.clone(), Arc::clone(&slot));
        slot
    }
}

impl Made {
    /// Looks at the files, and makes a client of what is new in them. What is wrong with them is looked at again
    /// later; a client of before is used on meanwhile: a certificate and its key cannot change in the same moment.
    async fn look(&mut self, key: &Key, agent: &'static str, pace: Pace) {
        let looked = self.renew(key, agent).await;
        let pause = match looked {
            Ok(()) => {
                self.failure = None;
                pace.look
            }
            Err(why) => {
                if self.client.is_some() {
                    tracing::warn!(why, "the certificates that were read before are used on");
                }
                self.failure = Some(why);
                pace.retry
            }
        };
        self.look = Some(Instant::now() + pause);
    }

    async fn renew(&mut self, key: &Key, agent: &'static str) -> Result<(), String> {
        let Some(tls) = &key.tls else {
            if self.client.is_none() {
                self.client = Some((client(agent, no_trust()?, &key.reach)?, Files::default()));
            }
            return Ok(());
        };
        let read = {
            let tls = tls.clone();
            tokio::task::spawn_blocking(move || Files::read(&tls))
        };
        let files = read.await.map_err(|why| format!("files of certificates: {why}"))??;
        if self.client.as_ref().is_none_or(|(_, before)| *before != files) {
            let config = client_config(tls, &files)?;
            self.client = Some((client(agent, config, &key.reach)?, files));
        }
        Ok(())
    }
}

fn client(agent: &str, config: ClientConfig, reach: &Reach) -> Result<Client, String> {
    // Redirects are followed by whoever asks: each is a request of its own.
    let mut builder = Client::builder()
        .user_agent(agent)
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .tls_backend_preconfigured(config);
    match reach {
        Reach::Proxied => {}
        Reach::Direct => builder = builder.no_proxy(),
        Reach::Renamed(host) => {
            builder = builder.no_proxy().dns_resolver(Arc::new(At(host.clone())));
        }
    }
    builder.build().map_err(|why| format!("there can be no HTTP client: {why}"))
}

/// Finds one host, whatever it is called.
struct At(Box<str>);

impl Resolve for At {
    fn resolve(&self, _: Name) -> Resolving {
        let host = self.0.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((&*host, 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Whether it is on this machine, where no proxy gets.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_fall_back_one_by_one_and_all_else_is_the_objects_own() {
        let defaults = TlsConfig {
            ca_file: "/ca".to_owned(),
            cert_file: "/cert".to_owned(),
            key_file: "/key".to_owned(),
            server_name: "all".to_owned(),
            insecure_skip_verify: true,
            min_version: "TLS13".to_owned(),
            max_version: "TLS13".to_owned(),
        };
        assert_eq!(effective(None, &defaults), defaults);
        let files = TlsConfig {
            ca_file: "/ca".to_owned(),
            cert_file: "/cert".to_owned(),
            key_file: "/key".to_owned(),
            ..TlsConfig::default()
        };
        assert_eq!(effective(Some(&TlsConfig::default()), &defaults), files);
        let own = TlsConfig {
            ca_file: "/own".to_owned(),
            server_name: "mine".to_owned(),
            ..TlsConfig::default()
        };
        let expected =
            TlsConfig { ca_file: "/own".to_owned(), server_name: "mine".to_owned(), ..files };
        assert_eq!(effective(Some(&own), &defaults), expected);
        assert_eq!(effective(Some(&own), &TlsConfig::default()), own);
    }
}
