//! `plimsoll admission-controller`: its flags, with upstream's names where they exist.

use std::time::Duration;

use clap::Args;

use super::{
    Exit,
    certificates::{self, CertificateArgs},
    cluster::ClusterArgs,
    daemon::run_controller,
    feature_gates::FeatureGate,
    go_values,
    klog::LogArgs,
    output::CliError,
    parsed_flags::ParsedFlags,
    prometheus_auth::non_empty,
    registration::RegistrationArgs,
    sizing::SizingArgs,
};
use crate::{
    cluster::server::webhook::CipherSuites,
    controllers::{
        AdmissionConfig, admission::config::certificate_names, runtime::config::Address,
    },
};
use plimsoll_core::{
    admission::validation::FeatureGates,
    types::{compat::Compat, quantity::Quantity},
};

/// The name of the role, and of upstream's binary.
pub const NAME: &str = "admission-controller";

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll admission-controller                  with self-signed certificates
  plimsoll admission-controller --compat=upstream --reload-cert
  plimsoll admission-controller --register-webhook=false \\
    --tls-cert-file /tls/tls.crt --tls-private-key /tls/tls.key \\
    --client-ca-file /tls/ca.crt

-h shows common flags only. Flags are parsed like upstream's: --a_b is --a-b,
--register-webhook=false, -v4, 1h30m. See docs/configuration.md for all.";

/// The namespace if the NAMESPACE variable is not set.
const DEFAULT_NAMESPACE: &str = "kube-system";
/// Applies recommendations to new pods at admission
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AdmissionArgs {
    /// Port of the webhook
    #[arg(long, value_name = "PORT", default_value = "8000", value_parser = go_values::integer_between(0_u16, u16::MAX))]
    port: u16,
    /// Address on which to serve metrics and health
    #[arg(long, value_name = "[HOST]:PORT", default_value = ":8944")]
    address: Address,
    #[command(flatten)]
    sizing: SizingArgs,
    /// Maximum CPU request of a container during startup boost; 0 means no limit
    #[arg(long, value_name = "QUANTITY", value_parser = go_values::maximum, hide_short_help = true)]
    max_allowed_cpu_boost: Option<Quantity>,
    /// How long the webhook keeps serving after a termination signal
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    shutdown_delay: Duration,
    #[command(flatten)]
    certificates: CertificateArgs,
    #[command(flatten)]
    registration: RegistrationArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    log: LogArgs,
}

impl AdmissionArgs {
    pub(super) fn config(&self, typed: &ParsedFlags) -> Result<AdmissionConfig, CliError> {
        let scope = self.cluster.scope()?;
        let (registration, certificates) = (&self.registration, &self.certificates);
        let namespace = non_empty(&typed.environment.variable("NAMESPACE"));
        let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        let client_config = registration.client_config(&namespace);
        let names = certificate_names(&client_config);
        let lease = registration.lease(&namespace);
        if lease.interval.is_zero() {
            return Err("--status-lease-update-interval must be above 0".into());
        }
        if registration.register_by_url && names.iter().any(String::is_empty) {
            return Err(
                "--register-by-url requires --webhook-address=https://HOST and --webhook-port"
                    .into(),
            );
        }
        let (sizing, compat) = (&self.sizing, self.sizing.compat);
        let upstream = compat == Compat::Upstream;
        let tls = certificates.tls();
        let mut warnings = self.warnings(typed, &tls.ciphers);
        let (registration, bad_labels) =
            registration.desired_webhook(client_config, &scope, compat);
        warnings.extend(bad_labels);
        Ok(AdmissionConfig {
            process: self.cluster.server.process(&self.address, &self.log, warnings),
            compat,
            fixes: sizing.fixes(),
            listen: Address { host: String::new(), port: self.port },
            tls,
            certificates: certificates.source(typed, upstream, &namespace),
            server_names: names,
            registration,
            lease,
            scope,
            feature_gates: FeatureGates {
                startup_boost: sizing.is_enabled(FeatureGate::CpuStartupBoost),
                in_place: sizing.is_enabled(FeatureGate::InPlace),
                per_vpa_config: sizing.is_enabled(FeatureGate::PerVpaConfig),
            },
            native_sidecars: sizing.is_enabled(FeatureGate::NativeSidecar),
            limit_policy: sizing.limit_policy,
            retarget_hpas: sizing.retarget_hpas()?,
            horizontal_lease_namespace: sizing.horizontal_lease_namespace.clone(),
            max_boost: self.max_allowed_cpu_boost.filter(|max| !max.is_zero()),
            shutdown_delay: self.shutdown_delay,
        })
    }

    /// Warnings about flags that do not prevent the start.
    fn warnings(&self, typed: &ParsedFlags, ciphers: &CipherSuites) -> Vec<String> {
        let mut warnings = typed.warnings();
        warnings.extend(certificates::warnings(ciphers));
        warnings.extend(self.registration.ineffective_flags_warning(typed));
        warnings
    }
}

/// Runs the admission controller until a termination signal.
pub fn run(arguments: &AdmissionArgs, typed: &ParsedFlags) -> Result<Exit, CliError> {
    let config = arguments.config(typed)?;
    // One worker: connections are served by a runtime of their own.
    run_controller("admission controller", None, 1, config.compat, config)
}

#[cfg(test)]
mod tests {
    use crate::{
        cli::admission_config,
        cluster::write::webhook_config::{WebhookClientConfig, WebhookNamespaces},
        controllers::admission::config::CertificateSource,
    };

    #[test]
    fn webhook_namespaces_follow_the_flags_and_in_upstreams_mode_its_defect() {
        let of = |flags: &[&str]| {
            let config = admission_config(flags, |_| String::new()).expect("flags that make sense");
            config.registration.expect("it is registered").namespaces
        };
        let upstream = "--compat=upstream";
        let nothing = WebhookNamespaces::Except(vec![String::new()]);
        assert_eq!(of(&[upstream]), nothing);
        assert_eq!(of(&[upstream, "--vpa-object-namespace=shop"]), nothing);
        assert_eq!(of(&[]), WebhookNamespaces::All);
        assert_eq!(of(&["--vpa-object-namespace=shop"]), WebhookNamespaces::Only("shop".into()));
        for mode in ["--compat=plimsoll", upstream] {
            assert_eq!(
                of(&[mode, "--ignored-vpa-object-namespaces=a,b"]),
                WebhookNamespaces::Except(vec!["a".into(), "b".into()])
            );
        }
    }

    #[test]
    fn certificate_files_are_used_if_set_and_always_in_upstreams_mode() {
        let of = |flags: &[&str]| {
            let config = admission_config(flags, |_| String::new()).expect("flags that make sense");
            (config.certificates.source, config.certificates.files.reload)
        };
        let mounted = Some(CertificateSource::Mounted);
        assert_eq!(of(&[]), (None, true));
        assert_eq!(of(&["--compat=upstream"]), (mounted, false));
        assert_eq!(of(&["--compat=upstream", "--reload-cert"]), (mounted, true));
        assert_eq!(of(&["--tls-cert-file=/tls.crt"]), (mounted, true));
        assert_eq!(
            of(&["--tls-cert-file=/tls.crt", "--certificates=self-signed", "--reload-cert=false"]),
            (Some(CertificateSource::SelfSigned), false)
        );
    }

    #[test]
    fn the_service_secret_and_lease_are_in_the_namespace_of_the_process() {
        let set = |name: &str| if name == "NAMESPACE" { "vpa".to_owned() } else { String::new() };
        let config = admission_config(&[], set).expect("flags that make sense");
        assert_eq!(config.server_name(), "vpa-webhook.vpa.svc");
        assert_eq!(config.lease.namespace, "vpa");
        assert_eq!(config.certificates.secret.namespace, "vpa");
        let config = admission_config(&["--status-lease-namespace=ops"], |_| String::new());
        let config = config.expect("flags that make sense");
        assert_eq!(config.lease.namespace, "ops");
        assert_eq!(config.server_name(), "vpa-webhook.kube-system.svc");
    }

    #[test]
    fn contradictory_flags_are_rejected() {
        for flags in [
            &["--status-lease-update-interval=0"][..],
            &["--register-by-url"],
            &["--min-tls-version=tls1_1"],
            &["--certificate-lifetime=10m"],
            &["--retarget-hpas", "--compat=upstream"],
        ] {
            assert!(admission_config(flags, |_| String::new()).is_err(), "{flags:?}");
        }
        let url =
            ["--register-by-url", "--webhook-address=https://10.0.0.1", "--webhook-port=8000"];
        let config = admission_config(&url, |_| String::new()).expect("flags that make sense");
        let caller = config.registration.expect("it is registered").client_config;
        assert_eq!(caller, WebhookClientConfig::Url("https://10.0.0.1:8000".into()));
        assert_eq!(config.server_names, ["10.0.0.1"]);
    }
}
