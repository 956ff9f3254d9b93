//! Settings that all controllers have.

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use super::{liveness_thread::Liveness, role_health::HealthReporter};
use crate::cluster::{
    leader::{Election, ElectionOptions, Fence, election_rules},
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

/// Leader election settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    /// Whether leader election is enabled.
    pub enabled: bool,
    /// Duration of a lease that is not renewed.
    pub lease_duration: Duration,
    /// How long the leader retries to renew its lease before it steps down.
    pub renew_deadline: Duration,
    /// Interval between attempts.
    pub retry_period: Duration,
    pub name: String,
    pub namespace: String,
}

impl ElectionConfig {
    /// The election of this process, for a Lease with this name; `None` if it is disabled. Each renewal of the Lease writes
    /// the health.
    pub(crate) fn election(
        &self,
        name: String,
        liveness: &Liveness,
        permit: &Permit,
        stats: Arc<WriteStats>,
        (health, compat): (&HealthReporter, Compat),
    ) -> Option<Election> {
        let options = ElectionOptions {
            name,
            namespace: self.namespace.clone(),
            identity: election_rules::identity(),
            lease_duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
        };
        let health = health.clone();
        self.enabled.then(|| {
            Election::new(liveness.client(), options, permit.fence.clone(), stats)
                .with_lease_annotation(move || health.annotation(compat))
        })
    }

    /// The permit to write while this process has the Lease. A dry run holds none, and writes nothing but events.
    pub(crate) fn permit(&self, limiter: RateLimiter, is_dry_run: bool) -> Permit {
        let needs_no_lease = is_dry_run || !self.enabled;
        Permit::new(if needs_no_lease { Fence::open() } else { Fence::closed() }, limiter)
    }

    /// Rejects the same values as client-go.
    pub fn validate(&self) -> Result<(), &'static str> {
        if self.lease_duration <= self.renew_deadline {
            return Err(
                "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline",
            );
        }
        if self.renew_deadline.as_secs_f64() <= 1.2 * self.retry_period.as_secs_f64() {
            return Err(
                "--leader-elect-renew-deadline must be longer than 1.2 times --leader-elect-retry-period",
            );
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// klog's verbosity: 4 is upstream's default.
    pub verbosity: i32,
    pub format: LogFormat,
    pub file: Option<PathBuf>,
    /// Whether to log to standard error.
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
