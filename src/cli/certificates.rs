//! The flags for the webhook's certificates and TLS, with upstream's names where they exist.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args};

use super::{go_values, parsed_flags::ParsedFlags};
use crate::{
    cluster::server::webhook::{CipherSuites, MinVersion},
    controllers::admission::config::{
        CertificateConfig, CertificateFiles, CertificateSource, SecretConfig, TlsConfig,
    },
};

/// How often certificates and the registration are checked.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long to wait before using a certificate of a new CA, so that API servers have received the new CA bundle. An API
/// server that is disconnected for longer than this cannot admit pods anyway.
const CA_PROPAGATION_DELAY: Duration = Duration::from_mins(1);

/// The flags for certificates and TLS.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "TLS")]
pub struct CertificateArgs {
    /// Source of certificates [default: the files, if there are any]
    #[arg(long, value_name = "SOURCE")]
    certificates: Option<CertificateSource>,
    /// CA certificates that the API server should trust
    #[arg(long, value_name = "FILE", default_value = "/etc/tls-certs/caCert.pem")]
    #[arg(hide_short_help = true)]
    client_ca_file: PathBuf,
    /// Certificate of the webhook
    #[arg(long, value_name = "FILE", default_value = "/etc/tls-certs/serverCert.pem")]
    tls_cert_file: PathBuf,
    /// Private key of the webhook
    #[arg(long, value_name = "FILE", default_value = "/etc/tls-certs/serverKey.pem")]
    tls_private_key: PathBuf,
    /// Reloads certificates when they change [default: true, false with --compat=upstream]
    #[arg(long, action = ArgAction::Set, value_name = "BOOL", hide_short_help = true)]
    reload_cert: Option<bool>,
    /// Minimum TLS version: `tls1_2` or `tls1_3`
    #[arg(long, value_name = "VERSION", default_value = "tls1_2", hide_short_help = true)]
    min_tls_version: MinVersion,
    /// TLS 1.2 cipher suites by their Go names, separated by commas or colons
    #[arg(long, value_name = "NAMES", default_value = "", hide_short_help = true)]
    tls_ciphers: String,
    /// Secret that stores self-signed certificates
    #[arg(long, value_name = "NAME", default_value = "plimsoll-webhook-tls")]
    #[arg(hide_short_help = true)]
    certificate_secret: String,
    /// Lifetime of self-signed certificates; they are rotated after two thirds of it
    #[arg(long, value_name = "DURATION", default_value = "2160h", value_parser = lifetime)]
    #[arg(hide_short_help = true)]
    certificate_lifetime: Duration,
}

/// Parses the certificate lifetime. A lifetime of minutes would cause constant rotation.
fn lifetime(text: &str) -> Result<Duration, String> {
    let wanted = || "give a duration of an hour or more, such as 24h or 2160h".to_owned();
    go_values::duration(text)?.checked_sub(Duration::from_hours(1)).ok_or_else(wanted)?;
    go_values::duration(text)
}

impl CertificateArgs {
    /// The source of certificates. `upstream` is whether upstream's behaviour is selected.
    pub fn source(
        &self,
        typed: &ParsedFlags,
        upstream: bool,
        namespace: &str,
    ) -> CertificateConfig {
        let files = ["client_ca_file", "tls_cert_file", "tls_private_key"];
        let implied = (upstream || files.iter().any(|file| typed.is_set(file)))
            .then_some(CertificateSource::Mounted);
        CertificateConfig {
            source: self.certificates.or(implied),
            files: CertificateFiles {
                authority: self.client_ca_file.clone(),
                certificate: self.tls_cert_file.clone(),
                key: self.tls_private_key.clone(),
                reload: self.reload_cert.unwrap_or(!upstream),
            },
            secret: SecretConfig {
                namespace: namespace.to_owned(),
                name: self.certificate_secret.clone(),
                lifetime: self.certificate_lifetime,
            },
            interval: INTERVAL,
            ca_propagation_delay: CA_PROPAGATION_DELAY,
        }
    }

    pub fn tls(&self) -> TlsConfig {
        let ciphers = CipherSuites::parse(&self.tls_ciphers);
        TlsConfig { min_version: self.min_tls_version, ciphers }
    }
}

/// Warnings about cipher suites that do not prevent the start.
pub fn warnings(ciphers: &CipherSuites) -> Vec<String> {
    let ignored = [("unknown", &ciphers.unknown), ("insecure", &ciphers.weak)];
    let ignored = ignored.into_iter().filter(|(_, names)| !names.is_empty());
    let warning = |(why, names): (&str, &Vec<String>)| {
        format!("--tls-ciphers: ignoring {why} cipher suites: {}", names.join(", "))
    };
    ignored.map(warning).collect()
}
