//! `plimsoll admission-controller`: its flags, by upstream's names where upstream has them, and the run behind them.

use std::time::Duration;

use clap::Args;

use super::{
    Exit,
    certificates::{self, CertificateArgs},
    cluster::ClusterArgs,
    daemon::Daemon,
    feature_gates::FeatureGate,
    go_values,
    klog::{self, LogArgs},
    output::CliError,
    parsed_flags::ParsedFlags,
    registration::RegistrationArgs,
    sizing::SizingArgs,
};
use crate::{
    cluster::server::webhook::{CipherSuites, WebhookLimits},
    controllers,
    controllers::{
        AdmissionConfig,
        admission::config::{AdmissionGates, certificate_names},
        runtime::config::Address,
    },
};
use plimsoll_core::{
    recommender::NamespaceScope,
    types::{compat::Compat, quantity::Quantity},
};

/// The name of the role, and of upstream's program.
pub const NAME: &str = "admission-controller";

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll admission-controller                  with certificates of its own
  plimsoll admission-controller --compat=upstream --reload-cert
  plimsoll admission-controller --register-webhook=false \\
    --tls-cert-file /tls/tls.crt --tls-private-key /tls/tls.key \\
    --client-ca-file /tls/ca.crt

-h keeps to the essentials. Flags are read as upstream's are: --a_b is --a-b,
--register-webhook=false, -v4, 1h30m. All are in docs/configuration.md.";

/// Where it is when nothing else says so.
const DEFAULT_NAMESPACE: &str = "kube-system";
/// Gives new pods what is recommended for them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AdmissionArgs {
    /// Port of the webhook
    #[arg(long, value_name = "PORT", default_value = "8000", value_parser = go_values::integer_between(0_u16, u16::MAX))]
    #[arg(env = "PLIMSOLL_FLAG_PORT", hide_env = true)]
    port: u16,
    /// Where metrics and health are served
    #[arg(long, value_name = "[HOST]:PORT", default_value = ":8944")]
    #[arg(env = "PLIMSOLL_FLAG_ADDRESS", hide_env = true)]
    address: Address,
    #[command(flatten)]
    sizing: SizingArgs,
    /// Most CPU that a container requests while it is boosted; 0 is no limit
    #[arg(long, value_name = "QUANTITY", value_parser = go_values::maximum)]
    #[arg(env = "PLIMSOLL_FLAG_MAX_ALLOWED_CPU_BOOST", hide_short_help = true, hide_env = true)]
    max_allowed_cpu_boost: Option<Quantity>,
    /// How long the webhook goes on answering once it was told to end
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = go_values::duration)]
    #[arg(env = "PLIMSOLL_FLAG_SHUTDOWN_DELAY", hide_short_help = true, hide_env = true)]
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
    /// What was asked for, checked as a whole. `variable` looks into the environment.
    pub(super) fn config(
        &self,
        typed: &ParsedFlags,
        variable: impl Fn(&str) -> String,
    ) -> Result<AdmissionConfig, CliError> {
        let refuse = |why: &str| CliError::new(Exit::Findings, why);
        let scope = NamespaceScope {
            only: self.cluster.only_namespace(),
            ignored: self.cluster.ignored_namespaces(),
            ..NamespaceScope::default()
        };
        if scope.only.is_some() && !scope.ignored.is_empty() {
            return Err(refuse(
                "--vpa-object-namespace and --ignored-vpa-object-namespaces exclude each other: give one of them",
            ));
        }
        let (registration, certificates) = (&self.registration, &self.certificates);
        let namespace = Some(variable("NAMESPACE")).filter(|name| !name.is_empty());
        let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        let caller = registration.client_config(&namespace);
        let names = certificate_names(&caller);
        let lease = registration.lease(&namespace);
        if lease.interval.is_zero() {
            return Err(refuse("--status-lease-update-interval must be above 0"));
        }
        if registration.registers_url() && names.iter().any(String::is_empty) {
            return Err(refuse(
                "--register-by-url needs --webhook-address=https://HOST and --webhook-port",
            ));
        }
        let (rules, compat) = (&self.sizing, self.sizing.compat());
        let upstream = compat == Compat::Upstream;
        let tls = certificates.tls();
        let mut warnings = self.warnings(typed, &tls.ciphers);
        let (registration, bad_labels) = registration.desired_webhook(caller, &scope, compat);
        warnings.extend(bad_labels);
        Ok(AdmissionConfig {
            compat,
            fixes: rules.fixes(),
            listen: Address { host: String::new(), port: self.port },
            address: self.address.clone(),
            tls,
            certificates: certificates.source(typed, upstream, &namespace),
            server_names: names,
            registration,
            lease,
            scope,
            kubeconfig: self.cluster.kubeconfig(),
            qps: self.cluster.qps(),
            burst: self.cluster.burst(),
            feature_gates: AdmissionGates {
                startup_boost: rules.is_enabled(FeatureGate::CpuStartupBoost),
                in_place: rules.is_enabled(FeatureGate::InPlace),
                per_vpa_config: rules.is_enabled(FeatureGate::PerVpaConfig),
                native_sidecars: rules.is_enabled(FeatureGate::NativeSidecar),
            },
            limit_policy: rules.limit_policy(),
            max_boost: self.max_allowed_cpu_boost.filter(|most| !most.is_zero()),
            shutdown_delay: self.shutdown_delay,
            limits: WebhookLimits::default(),
            log: self.log.log(),
            warnings,
        })
    }

    /// What should be looked at, though it keeps nothing from starting.
    fn warnings(&self, typed: &ParsedFlags, ciphers: &CipherSuites) -> Vec<String> {
        let mut warnings: Vec<String> = typed.stray_arguments_warning().into_iter().collect();
        let mut idle = typed.set_among(&klog::WITHOUT_EFFECT);
        idle.extend(typed.set_among(&["profiling"]));
        if !idle.is_empty() {
            warnings.push(format!("accepted, without effect here: {}", idle.join(", ")));
        }
        warnings.extend(certificates::warnings(ciphers));
        warnings.extend(self.registration.ineffective_flags_warning(typed));
        warnings
    }
}

/// Runs the admission controller until it is told to end.
pub fn run(arguments: &AdmissionArgs, typed: &ParsedFlags) -> Result<Exit, CliError> {
    let config = arguments.config(typed, |name| std::env::var(name).unwrap_or_default())?;
    let start = Daemon {
        role: "admission controller",
        name: None,
        // Connections have loops of their own.
        workers: 1,
        compat: config.compat,
        log: config.log.clone(),
        warnings: config.warnings.clone(),
    };
    start.run(|signals| controllers::run(config, signals))
}

#[cfg(test)]
mod tests {
    use crate::{
        cli::admission_config,
        cluster::write::webhook_config::{WebhookClientConfig, WebhookNamespaces},
        controllers::admission::config::CertificateSource,
    };

    #[test]
    fn where_the_webhook_is_called_is_upstreams_mistake_or_what_was_meant() {
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
    fn files_that_are_named_are_meant_and_upstream_has_nothing_else() {
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
    fn the_namespace_of_the_process_is_where_its_service_secret_and_lease_are() {
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
    fn what_makes_no_sense_together_is_refused() {
        for flags in [
            &["--status-lease-update-interval=0"][..],
            &["--vpa-object-namespace=a", "--ignored-vpa-object-namespaces=b"],
            &["--register-by-url"],
            &["--min-tls-version=tls1_1"],
            &["--certificate-lifetime=10m"],
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
