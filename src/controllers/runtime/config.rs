//! Settings that all controllers have.

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc};

use super::{liveness_thread::Liveness, role_health::HealthReporter};
pub use crate::cluster::leader::ElectionConfig;
use crate::cluster::{
    leader::{Election, election_rules},
    write::{Permit, RateLimiter, WriteStats},
};
use plimsoll_core::types::compat::Compat;

/// Settings of a process, whichever controller it runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessConfig {
    /// Listen addresses of metrics and probes; metrics are at the first one.
    pub addresses: Vec<Address>,
    /// Path of the kubeconfig; `None` uses the in-cluster configuration.
    pub kubeconfig: Option<PathBuf>,
    /// Requests per second to the API server; infinite for no limit.
    pub qps: f32,
    /// Burst of requests to the API server.
    pub burst: u32,
    pub log: LogConfig,
    /// Warnings about flags; already logged by the command line.
    pub warnings: Vec<String>,
}

impl ProcessConfig {
    /// A limit of requests to the API server.
    pub(crate) fn rate_limiter(&self) -> RateLimiter {
        RateLimiter::new(self.qps, self.burst)
    }
}

/// A listen address in Go's syntax: `:8942` means all interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A name, or an IP address without brackets; empty for all interfaces.
    pub host: String,
    /// The port; 0 picks a free port.
    pub port: u16,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.rsplit_once(':').and_then(|(host, port)| {
            let unbracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let host = unbracketed.unwrap_or(host);
            // Like Go, require brackets around hosts with colons, because the port would be ambiguous otherwise.
            let is_unambiguous = unbracketed.is_some() || !host.contains(':');
            Some(Self { host: host.to_owned(), port: port.parse().ok()? })
                .filter(|_| is_unambiguous)
        });
        parts.ok_or_else(|| "use [HOST]:PORT, such as :8942 or 127.0.0.1:8942".to_owned())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The election of this process, for a Lease with this name; `None` if it is disabled. Each renewal of the Lease writes the
/// health.
pub(crate) fn new_election(
    config: &ElectionConfig,
    name: String,
    liveness: &Liveness,
    permit: &Permit,
    stats: Arc<WriteStats>,
    (health, compat): (&HealthReporter, Compat),
) -> Option<Election> {
    let config = ElectionConfig { name, ..config.clone() };
    let health = health.clone();
    config.enabled.then(|| {
        let (identity, fence) = (election_rules::identity(), permit.fence.clone());
        Election::new(liveness.client(), config, identity, fence, stats)
            .with_lease_annotation(move || health.annotation(compat))
    })
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// klog's verbosity: 4 is upstream's default.
    pub verbosity: i32,
    pub format: LogFormat,
    pub file: Option<PathBuf>,
    pub stderr: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "lowercase", parse_err_ty = String, parse_err_fn = unknown_format)]
pub enum LogFormat {
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

fn unknown_format(_: &str) -> String {
    "use text or json".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_like_go_does() {
        for (text, host, port) in [
            (":8942", "", 8942),
            ("0.0.0.0:80", "0.0.0.0", 80),
            ("[::1]:0", "::1", 0),
            ("localhost:8942", "localhost", 8942),
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!((&*address.host, address.port), (host, port));
            assert_eq!(address.to_string(), text);
        }
        for bad in ["", "8942", ":", "::1:80", ":65536", "host:http"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
