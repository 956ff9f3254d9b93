//! The address of a Service: as users write it, as the API server's proxy takes it, and as pods use it.

use std::{fmt, str::FromStr};

/// The local port in the hint to run `kubectl port-forward`.
const LOCAL_PORT: u16 = 9090;
/// The maximum length of the path before `/api/v1`.
const MAX_PATH_CHARS: usize = 256;

/// A port of a Service, and the path before `/api/v1`. Written as `NAMESPACE/[https:]NAME:PORT[/PATH]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceAddress {
    namespace: String,
    name: String,
    port: u16,
    is_https: bool,
    /// Empty, or with a slash at the start and none at the end.
    path: String,
}

/// A text that is not the address of a Service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid Service {text:?}: {why}: expected NAMESPACE/NAME:PORT or NAMESPACE/https:NAME:PORT"
)]
pub struct InvalidServiceAddress {
    text: String,
    why: &'static str,
}

impl ServiceAddress {
    /// Creates an address. `path` is the path before `/api/v1`.
    pub fn new(
        namespace: &str,
        name: &str,
        port: u16,
        is_https: bool,
        path: &str,
    ) -> Result<Self, InvalidServiceAddress> {
        let path = path.trim_matches('/');
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        let address =
            Self { namespace: namespace.to_owned(), name: name.to_owned(), port, is_https, path };
        match address.flaw() {
            Some(why) => Err(InvalidServiceAddress { text: address.to_string(), why }),
            None => Ok(address),
        }
    }

    fn flaw(&self) -> Option<&'static str> {
        let is_plain = |segment: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
            !matches!(segment, "" | "." | "..") && segment.bytes().all(is_allowed)
        };
        if !is_dns_label(&self.namespace) {
            return Some("the namespace is not a DNS label");
        }
        if !is_dns_label(&self.name) {
            return Some("the name is not a DNS label");
        }
        if self.port == 0 {
            return Some("the port is not a number from 1 to 65535");
        }
        if self.path.len() > MAX_PATH_CHARS || !self.path.split('/').skip(1).all(is_plain) {
            return Some("the path is invalid");
        }
        None
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path of the API server's proxy up to `/api/v1` of the server behind it.
    pub(super) fn proxy_path(&self) -> String {
        let Self { namespace, name, port, path, .. } = self;
        let scheme = self.scheme_prefix();
        format!("/api/v1/namespaces/{namespace}/services/{scheme}{name}:{port}/proxy{path}")
    }

    /// The URL for clients in the cluster.
    pub fn direct_url(&self) -> String {
        let Self { namespace, name, port, path, .. } = self;
        let scheme = if self.is_https { "https" } else { "http" };
        format!("{scheme}://{name}.{namespace}.svc:{port}{path}")
    }

    /// How to reach the Service without the API server's proxy, as the end of an error.
    pub fn port_forward_hint(&self) -> String {
        let Self { namespace, name, port, path, .. } = self;
        let scheme = if self.is_https { "https" } else { "http" };
        port_forward_hint(namespace, name, &port.to_string(), scheme, path)
    }

    fn scheme_prefix(&self) -> &'static str {
        if self.is_https { "https:" } else { "" }
    }
}

/// The hint for a Service that is not known.
pub(crate) fn generic_port_forward_hint() -> String {
    port_forward_hint("NAMESPACE", "NAME", "PORT", "http", "")
}

fn port_forward_hint(namespace: &str, name: &str, port: &str, scheme: &str, path: &str) -> String {
    format!(
        "run `kubectl port-forward -n {namespace} service/{name} {LOCAL_PORT}:{port}` and pass \
         --prometheus-address={scheme}://127.0.0.1:{LOCAL_PORT}{path}"
    )
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, port, path, .. } = self;
        write!(f, "{namespace}/{}{name}:{port}{path}", self.scheme_prefix())
    }
}

impl FromStr for ServiceAddress {
    type Err = InvalidServiceAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |why| InvalidServiceAddress { text: text.to_owned(), why };
        let (namespace, rest) = text.split_once('/').ok_or_else(|| invalid("no namespace"))?;
        let (rest, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (is_https, rest) = match (rest.strip_prefix("https:"), rest.strip_prefix("http:")) {
            // A Service may be named `https`.
            (Some(rest), _) if rest.contains(':') => (true, rest),
            (_, Some(rest)) if rest.contains(':') => (false, rest),
            _ => (false, rest),
        };
        let (name, port) = rest.split_once(':').ok_or_else(|| invalid("no port"))?;
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|_| is_number).unwrap_or_default();
        Self::new(namespace, name, port, is_https, path)
            .map_err(|InvalidServiceAddress { why, .. }| invalid(why))
    }
}

fn is_dns_label(text: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(|first| is_alphanumeric(*first))
        && bytes.last().is_some_and(|last| is_alphanumeric(*last))
        && bytes.iter().all(|byte| is_alphanumeric(*byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> ServiceAddress {
        text.parse().expect(text)
    }

    #[test]
    fn addresses_are_printed_as_they_are_parsed() {
        for (text, proxy, direct) in [
            (
                "monitoring/prometheus-operated:9090",
                "/api/v1/namespaces/monitoring/services/prometheus-operated:9090/proxy",
                "http://prometheus-operated.monitoring.svc:9090",
            ),
            (
                "m/https:prometheus-k8s:9091",
                "/api/v1/namespaces/m/services/https:prometheus-k8s:9091/proxy",
                "https://prometheus-k8s.m.svc:9091",
            ),
            (
                "vm/vmselect-main:8481/select/0:1/prometheus",
                "/api/v1/namespaces/vm/services/vmselect-main:8481/proxy/select/0:1/prometheus",
                "http://vmselect-main.vm.svc:8481/select/0:1/prometheus",
            ),
            (
                "m/https:443",
                "/api/v1/namespaces/m/services/https:443/proxy",
                "http://https.m.svc:443",
            ),
        ] {
            let address = address(text);
            assert_eq!(address.to_string(), text);
            assert_eq!((&*address.proxy_path(), &*address.direct_url()), (proxy, direct));
        }
        assert_eq!(address("m/http:web:80/").to_string(), "m/web:80");
    }

    #[test]
    fn an_invalid_address_is_rejected_with_its_flaw() {
        for (text, why) in [
            ("prometheus:9090", "no namespace"),
            ("m/prometheus", "no port"),
            ("m/https:prometheus", "the port is not a number from 1 to 65535"),
            ("m/prometheus:web", "the port is not a number from 1 to 65535"),
            ("m/prometheus:0", "the port is not a number from 1 to 65535"),
            ("m/prometheus:+90", "the port is not a number from 1 to 65535"),
            ("m/prometheus:65536", "the port is not a number from 1 to 65535"),
            ("M/prometheus:80", "the namespace is not a DNS label"),
            ("/prometheus:80", "the namespace is not a DNS label"),
            ("m/:80", "the name is not a DNS label"),
            ("m/a%2fb:80", "the name is not a DNS label"),
            ("m/..:80", "the name is not a DNS label"),
            ("m/ftp:web:80", "the port is not a number from 1 to 65535"),
            ("m/web:80/../../secrets", "the path is invalid"),
            ("m/web:80/a//b", "the path is invalid"),
            ("m/web:80/a?b=1", "the path is invalid"),
        ] {
            let error = text.parse::<ServiceAddress>().expect_err(text);
            assert_eq!((&*error.text, error.why), (text, why));
        }
    }

    #[test]
    fn the_hint_names_the_command_to_run_and_the_address_to_pass() {
        assert_eq!(
            address("m/prometheus:80/prom").port_forward_hint(),
            "run `kubectl port-forward -n m service/prometheus 9090:80` and pass \
             --prometheus-address=http://127.0.0.1:9090/prom"
        );
        assert!(address("m/https:p:443").port_forward_hint().ends_with("https://127.0.0.1:9090"));
    }
}
