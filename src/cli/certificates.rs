//! The flags of the webhook's certificates and of how it speaks TLS, by upstream's names where upstream has them.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, ValueEnum};

use super::{go_values, parsed_flags::ParsedFlags};
use crate::{
    cluster::server::webhook::{CipherSuites, MinVersion},
    controllers::admission::config::{
        CertificateConfig, CertificateFiles, CertificateSource, SecretConfig, TlsConfig,
    },
};

/// How often certificates and the registration are looked at.
const INTERVAL: Duration = Duration::from_secs(10);
/// An API server that is told of a new authority needs a moment; one that was cut off for a minute does not get to
/// admit pods either.
const CA_PROPAGATION_DELAY: Duration = Duration::from_mins(1);

/// What the webhook shows, and how it speaks.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "TLS")]
pub struct CertificateArgs {
    /// Where certificates come from [default: the files, where there are any]
    #[arg(long, value_name = "SOURCE")]
    #[arg(env = "PLIMSOLL_FLAG_CERTIFICATES", hide_env = true)]
    certificates: Option<CertificateSourceArg>,
    /// Certificates that the API server shall trust
    #[arg(long, value_name = "FILE", default_value = "/etc/tls-certs/caCert.pem")]
    #[arg(env = "PLIMSOLL_FLAG_CLIENT_CA_FILE", hide_short_help = true, hide_env = true)]
    client_ca_file: PathBuf,
    /// Certificate of the webhook
    #[arg(long, value_name = "FILE", default_value = "/etc/tls-certs/serverCert.pem")]
    #[arg(env = "PLIMSOLL_FLAG_TLS_CERT_FILE", hide_env = true)]
    tls_cert_file: PathBuf,
    /// Its private key
    #[arg(long, value_name = "FILE", default_value = "/etc/tls-certs/serverKey.pem")]
    #[arg(env = "PLIMSOLL_FLAG_TLS_PRIVATE_KEY", hide_env = true)]
    tls_private_key: PathBuf,
    /// Reads certificates again when they change [default: true, false with --compat=upstream]
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL", value_parser = go_values::boolean)]
    #[arg(env = "PLIMSOLL_FLAG_RELOAD_CERT", hide_short_help = true, hide_env = true)]
    reload_cert: Option<bool>,
    /// Oldest version of TLS: `tls1_2` or `tls1_3`
    #[arg(long, value_name = "VERSION", default_value = "tls1_2")]
    #[arg(env = "PLIMSOLL_FLAG_MIN_TLS_VERSION", hide_short_help = true, hide_env = true)]
    min_tls_version: MinVersion,
    /// Ciphers of TLS 1.2 by Go's names, parted by commas or colons
    #[arg(long, value_name = "NAMES", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_TLS_CIPHERS", hide_short_help = true, hide_env = true)]
    tls_ciphers: String,
    /// Secret in which certificates are kept that are made here
    #[arg(long, value_name = "NAME", default_value = "plimsoll-webhook-tls")]
    #[arg(env = "PLIMSOLL_FLAG_CERTIFICATE_SECRET", hide_short_help = true, hide_env = true)]
    certificate_secret: String,
    /// How long each of those holds; the next is made when two thirds are over
    #[arg(long, value_name = "DURATION", default_value = "2160h", value_parser = lifetime)]
    #[arg(env = "PLIMSOLL_FLAG_CERTIFICATE_LIFETIME", hide_short_help = true, hide_env = true)]
    certificate_lifetime: Duration,
}

/// Where certificates come from, as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CertificateSourceArg {
    /// From the files
    Mounted,
    /// They are made here, and kept in a Secret
    SelfSigned,
}

/// A certificate that ends within minutes would be made anew all the time.
fn lifetime(text: &str) -> Result<Duration, String> {
    let wanted = || "give a duration of an hour or more, such as 24h or 2160h".to_owned();
    go_values::duration(text)?.checked_sub(Duration::from_hours(1)).ok_or_else(wanted)?;
    go_values::duration(text)
}

impl CertificateArgs {
    /// Where certificates come from. `upstream` is whose ways are wanted.
    pub fn source(
        &self,
        typed: &ParsedFlags,
        upstream: bool,
        namespace: &str,
    ) -> CertificateConfig {
        let files = ["client_ca_file", "tls_cert_file", "tls_private_key"];
        let said = self.certificates.map(|source| match source {
            CertificateSourceArg::Mounted => CertificateSource::Mounted,
            CertificateSourceArg::SelfSigned => CertificateSource::SelfSigned,
        });
        let meant = (upstream || files.iter().any(|file| typed.is_set(file)))
            .then_some(CertificateSource::Mounted);
        CertificateConfig {
            source: said.or(meant),
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

    /// How TLS is spoken.
    pub fn tls(&self) -> TlsConfig {
        let ciphers = CipherSuites::parse(&self.tls_ciphers);
        TlsConfig { min_version: self.min_tls_version, ciphers }
    }
}

/// What should be looked at about these ciphers, though it keeps nothing from starting.
pub fn warnings(ciphers: &CipherSuites) -> Vec<String> {
    let mut warnings = Vec::new();
    if !ciphers.unknown.is_empty() {
        let names = ciphers.unknown.join(", ");
        warnings.push(format!("--tls-ciphers: nobody knows {names}; passed over"));
    }
    if !ciphers.weak.is_empty() {
        let names = ciphers.weak.join(", ");
        warnings.push(format!("--tls-ciphers: too weak to be spoken here: {names}; passed over"));
    }
    warnings
}
