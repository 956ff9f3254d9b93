//! Configuration of the admission controller: validated flags and environment variables.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;

use crate::{
    cluster::{
        server::webhook::{CipherSuites, MinVersion},
        write::webhook_config::{self, WebhookClientConfig},
    },
    controllers::runtime::config::{Address, ProcessConfig},
};
use plimsoll_core::{
    admission::validation::FeatureGates,
    recommender::NamespaceScope,
    sizing::{LimitPolicy, SizingRules},
    types::{
        compat::{Compat, Fixes},
        quantity::Quantity,
    },
};

/// Configuration of the admission controller.
#[derive(Clone, Debug)]
pub struct AdmissionConfig {
    pub process: ProcessConfig,
    /// Whether to behave like upstream or like Plimsoll.
    pub compat: Compat,
    pub fixes: Fixes,
    pub listen: Address,
    pub tls: TlsConfig,
    pub certificates: CertificateConfig,
    /// Server names that API servers use for the webhook. The first one is in the webhook configuration.
    pub server_names: Vec<String>,
    /// The webhook configuration to write; `None` if it is managed by someone else.
    pub registration: Option<webhook_config::DesiredWebhook>,
    /// The Lease that reports that the webhook is reachable.
    pub lease: LeaseConfig,
    pub scope: NamespaceScope,
    /// Enabled feature gates of VPA fields.
    pub feature_gates: FeatureGates,
    /// Sidecars (restartable init containers).
    pub native_sidecars: bool,
    /// How to set limits.
    pub limit_policy: LimitPolicy,
    /// Whether requests change whose target the updater changes with them.
    pub retarget_hpas: bool,
    pub horizontal_lease_namespace: String,
    /// Maximum CPU request of a container with startup boost; zero and `None` mean no limit.
    pub max_boost: Option<Quantity>,
    /// How long the webhook keeps serving after shutdown was requested, until clients stop sending requests.
    pub shutdown_delay: Duration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    pub min_version: MinVersion,
    pub ciphers: CipherSuites,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateConfig {
    /// The source; `None` uses files if they exist.
    pub source: Option<CertificateSource>,
    /// Paths of mounted files.
    pub files: CertificateFiles,
    pub secret: SecretConfig,
    /// How often certificates and the webhook configuration are reconciled.
    pub interval: Duration,
    /// How long API servers may take to pick up a new CA.
    pub ca_propagation_delay: Duration,
}

/// Source of the certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CertificateSource {
    /// From the files
    Mounted,
    /// Self-signed, and stored in a Secret
    SelfSigned,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The CA for the webhook configuration.
    pub authority: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub reload: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretConfig {
    pub namespace: String,
    pub name: String,
    /// Validity period of certificates.
    pub lifetime: Duration,
}

/// The Lease that reports that the webhook is reachable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    pub namespace: String,
    pub name: String,
    /// How often it is renewed.
    pub interval: Duration,
}

impl AdmissionConfig {
    /// The server name that API servers use for the webhook.
    pub fn server_name(&self) -> &str {
        self.server_names.first().map_or("localhost", String::as_str)
    }

    pub(super) fn sizing_rules(&self) -> SizingRules {
        SizingRules { compat: self.compat, fixes: self.fixes, sidecars: self.native_sidecars }
    }
}

/// The server names that a certificate needs for this client config.
pub fn certificate_names(client_config: &WebhookClientConfig) -> Vec<String> {
    match client_config {
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
    fn a_certificate_has_all_names_of_the_webhook_service() {
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
