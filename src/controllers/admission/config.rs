//! What the admission controller runs by: flags and environment, checked once and turned into plain data.

use std::{path::PathBuf, time::Duration};

use crate::{
    cluster::{
        server::webhook::{CipherSuites, MinVersion, WebhookLimits},
        write::webhook_config::{self, WebhookClientConfig},
    },
    controllers::runtime::config::{Address, LogConfig},
};
use plimsoll_core::{
    recommender::NamespaceScope,
    sizing::LimitPolicy,
    types::{
        compat::{Compat, Fixes},
        quantity::Quantity,
    },
};

/// Everything about the admission controller that flags can set.
#[derive(Clone, Debug)]
pub struct AdmissionConfig {
    /// Whose numbers are wanted.
    pub compat: Compat,
    /// The fixes that are on.
    pub fixes: Fixes,
    /// Where the webhook is served.
    pub listen: Address,
    /// Where metrics and health are served.
    pub address: Address,
    /// How TLS is spoken.
    pub tls: TlsConfig,
    /// Where certificates come from.
    pub certificates: CertificateConfig,
    /// The names by which API servers call the webhook, the first as they register it.
    pub server_names: Vec<String>,
    /// What is registered; `None` when others do that.
    pub registration: Option<webhook_config::DesiredWebhook>,
    /// The Lease that says that the webhook is reachable.
    pub lease: LeaseConfig,
    /// Which namespaces are looked after.
    pub scope: NamespaceScope,
    /// How to reach the API server; none is from inside of the cluster.
    pub kubeconfig: Option<PathBuf>,
    /// Requests a second to the API server; infinite for no limit.
    pub qps: f32,
    /// How many requests may go at once before that.
    pub burst: u32,
    /// What may be done beyond the usual.
    pub feature_gates: AdmissionGates,
    /// What becomes of limits.
    pub limit_policy: LimitPolicy,
    /// The most CPU that a boosted container may request; zero and none are no limit.
    pub max_boost: Option<Quantity>,
    /// How long the webhook goes on answering once it was told to end: callers need a moment to hear of that.
    pub shutdown_delay: Duration,
    /// How much whoever connects can ask of it.
    pub limits: WebhookLimits,
    /// Where words about the work go.
    pub log: LogConfig,
    /// What was given and should be looked at; already logged by the command line.
    pub warnings: Vec<String>,
}

/// How TLS is spoken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// The oldest version.
    pub min_version: MinVersion,
    /// The ciphers of TLS 1.2.
    pub ciphers: CipherSuites,
}

/// Features that gates open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one gate of its own")]
pub struct AdmissionGates {
    /// More CPU while a pod starts.
    pub startup_boost: bool,
    /// The mode InPlace.
    pub in_place: bool,
    /// Overrides in policies.
    pub per_vpa_config: bool,
    /// Sidecars among the init containers.
    pub native_sidecars: bool,
}

/// Where certificates come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateConfig {
    /// From files or from nowhere; `None` is from files where there are any.
    pub source: Option<CertificateSource>,
    /// The files.
    pub files: CertificateFiles,
    /// Where they are kept that are made here.
    pub secret: SecretConfig,
    /// How often is looked for new ones, and at the registration.
    pub interval: Duration,
    /// How long API servers may take to learn of a new authority.
    pub ca_propagation_delay: Duration,
}

/// Where certificates come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// From files.
    Mounted,
    /// They are made here.
    SelfSigned,
}

/// Certificates in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// What the API server shall trust.
    pub authority: PathBuf,
    /// What is shown.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Whether changes of them count.
    pub reload: bool,
}

/// Certificates that are made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretConfig {
    /// Where the Secret is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How long each one holds.
    pub lifetime: Duration,
}

/// The Lease that says that the webhook is reachable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// Where it is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How often it is renewed.
    pub interval: Duration,
}

impl AdmissionConfig {
    /// The name by which API servers call the webhook.
    pub fn server_name(&self) -> &str {
        self.server_names.first().map_or("localhost", String::as_str)
    }
}

/// The names that a certificate must have for API servers that call by this.
pub fn certificate_names(caller: &WebhookClientConfig) -> Vec<String> {
    match caller {
        WebhookClientConfig::Service { namespace, name } => {
            let full = format!("{name}.{namespace}.svc");
            vec![full.clone(), format!("{name}.{namespace}"), format!("{full}.cluster.local")]
        }
        WebhookClientConfig::Url(url) => {
            let host = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            let host = host.split(['/', '?']).next().unwrap_or_default();
            let host = match host.strip_prefix('[') {
                Some(rest) => rest.split(']').next().unwrap_or_default(),
                None => host.split(':').next().unwrap_or_default(),
            };
            vec![host.to_owned()]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_webhook_are_those_that_it_is_called_by() {
        let service = WebhookClientConfig::Service {
            namespace: "kube-system".into(),
            name: "vpa-webhook".into(),
        };
        assert_eq!(
            certificate_names(&service),
            [
                "vpa-webhook.kube-system.svc",
                "vpa-webhook.kube-system",
                "vpa-webhook.kube-system.svc.cluster.local"
            ]
        );
        for (url, expected) in [
            ("https://hook.example:8000", "hook.example"),
            ("https://10.0.0.1:8000/path", "10.0.0.1"),
            ("https://[::1]:8000", "::1"),
            ("hook:1", "hook"),
            ("", ""),
        ] {
            assert_eq!(
                certificate_names(&WebhookClientConfig::Url(url.into())),
                [expected],
                "{url}"
            );
        }
    }
}
