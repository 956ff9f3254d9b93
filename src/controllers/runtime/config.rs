//! Settings that all controllers have.

use std::{
    fmt, io,
    net::{Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use crate::{
    cluster::leader::{ElectionOptions, lease},
    telemetry::Cardinality,
};

/// An address to listen on, as Go writes it: `:8942` is every interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A name or an address without brackets; empty for every interface.
    pub host: String,
    /// The port; 0 is any that is free.
    pub port: u16,
}

impl Address {
    /// What to try to listen on, in this order; the first that works is enough.
    pub fn sockets(&self) -> io::Result<Vec<SocketAddr>> {
        if self.host.is_empty() {
            // The IPv6 socket hears both families where there is IPv6 at all.
            let all = [Ipv6Addr::UNSPECIFIED.into(), std::net::Ipv4Addr::UNSPECIFIED.into()];
            return Ok(all.map(|host| SocketAddr::new(host, self.port)).to_vec());
        }
        Ok((&*self.host, self.port).to_socket_addrs()?.collect())
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.rsplit_once(':').and_then(|(host, port)| {
            let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let host = bare.unwrap_or(host);
            // Go wants brackets around colons too: without, nobody knows where the port begins.
            let clear = bare.is_some() || !host.contains(':');
            Some(Self { host: host.to_owned(), port: port.parse().ok()? }).filter(|_| clear)
        });
        parts.ok_or_else(|| "give [HOST]:PORT, such as :8942 or 127.0.0.1:8942".to_owned())
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

/// Who leads, of several replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    /// Whether only the leader writes.
    pub enabled: bool,
    /// Whether it was set to false by hand: then a Lease that is forbidden is no reason not to write.
    pub explicitly_disabled: bool,
    /// How long a lease holds that is not renewed.
    pub lease_duration: Duration,
    /// How long the leader tries to renew before it stops.
    pub renew_deadline: Duration,
    /// Between two tries.
    pub retry_period: Duration,
    /// The Lease.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

impl ElectionConfig {
    /// How this process contends for the Lease of that name.
    pub(crate) fn options(&self, name: String) -> ElectionOptions {
        ElectionOptions {
            name,
            namespace: self.namespace.clone(),
            identity: lease::identity(),
            lease_duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
        }
    }

    /// What upstream's library refuses.
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

/// Of which objects there are series of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectMetrics {
    /// Of all, without those of limits that have not held so far.
    #[default]
    Standard,
    /// Of all.
    All,
    /// Of those whose recommendation is held back.
    Restricted,
    /// Of none.
    Off,
}

impl ObjectMetrics {
    /// As the registry knows it.
    pub(crate) const fn cardinality(self) -> Cardinality {
        match self {
            Self::Standard => Cardinality::Standard,
            Self::All => Cardinality::All,
            Self::Restricted => Cardinality::Restricted,
            Self::Off => Cardinality::Off,
        }
    }
}

impl FromStr for ObjectMetrics {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "standard" => Ok(Self::Standard),
            "all" => Ok(Self::All),
            "restricted" => Ok(Self::Restricted),
            "off" => Ok(Self::Off),
            _ => Err("use standard, all, restricted or off".to_owned()),
        }
    }
}

/// Where words about the work go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// klog's verbosity: 4 is upstream's default.
    pub verbosity: i32,
    /// In which form.
    pub format: LogFormat,
    /// Appended to this file.
    pub file: Option<PathBuf>,
    /// To standard error.
    pub stderr: bool,
}

/// Form of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// An object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("use text or json".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_go_reads_it() {
        for (text, host, port) in [
            (":8942", "", 8942),
            ("0.0.0.0:80", "0.0.0.0", 80),
            ("[::1]:0", "::1", 0),
            ("localhost:8942", "localhost", 8942),
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!((&*address.host, address.port), (host, port));
            assert_eq!(address.to_string(), text);
            assert!(!address.sockets().expect("can be looked up").is_empty());
        }
        for bad in ["", "8942", ":", "::1:80", ":65536", "host:http"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
