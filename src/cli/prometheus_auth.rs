//! The flags for a server with the Prometheus API: address, TLS, authentication, headers and label matchers. Upstream's
//! flags keep their names.

mod sign_in;

use std::path::PathBuf;

use clap::{ArgAction, Args};
use plimsoll_core::api::scale_target::TlsConfig;
use plimsoll_storage::prometheus::{
    selector::{LabelMatcher, LabelMatchers},
    transport::{
        Secret, TransportConfig,
        config::{Header, SecretSource},
    },
};

use self::sign_in::SignInArgs;
use super::{
    cloud_identity::{IDENTITY_HEADING, IdentityArgs},
    go_values,
    output::CliError,
    parsed_flags::{ParsedFlags, Setting},
};
use crate::report::doctor::diagnose::shell_flag;

pub const SECRET_FLAGS: [&str; 3] = ["password", "prometheus_bearer_token", "prometheus_header"];

/// A warning for each secret on the command line.
pub fn exposed_secret_warnings(typed: &ParsedFlags) -> Vec<String> {
    let shown = SECRET_FLAGS.into_iter().filter(|flag| typed.is_set_on_command_line(flag));
    let line = |flag: &str| {
        let flag = flag.replace('_', "-");
        format!(
            "--{flag} on the command line is visible to all users of the machine: use a file or the environment"
        )
    };
    shown.map(line).collect()
}

/// The connection to a Prometheus.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Prometheus")]
pub struct PrometheusConnectionArgs {
    /// URL of the Prometheus, with the path before /api/v1
    #[arg(long, value_name = "URL", default_value = "http://prometheus.monitoring.svc")]
    prometheus_address: String,
    /// Skips verification of the Prometheus certificate
    #[arg(long)]
    prometheus_insecure: bool,
    /// Label matcher to add to every query, such as 'cluster="qa"' (repeatable)
    #[arg(long, value_name = "MATCHER", action = ArgAction::Append, value_delimiter = '\n')]
    prometheus_matcher: Vec<LabelMatcher>,
    /// File with the CA certificates to trust instead of the system's (PEM)
    #[arg(long, value_name = "FILE", default_value = "", value_parser = go_values::path())]
    prometheus_ca_file: PathBuf,
    /// File with the client certificate (PEM)
    #[arg(long, value_name = "FILE", default_value = "", value_parser = go_values::path())]
    prometheus_client_cert_file: PathBuf,
    /// File with the key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", default_value = "", value_parser = go_values::path())]
    prometheus_client_key_file: PathBuf,
    #[command(flatten)]
    sign_in: SignInArgs,
    /// Header to add to every request, such as 'X-Team: a' (repeatable); keys belong in files
    #[arg(long, value_name = "HEADER", action = ArgAction::Append, value_delimiter = '\n')]
    prometheus_header: Vec<Secret>,
    /// Header to add to every request, with the value from a file, such as X-Key=/keys/prometheus (repeatable)
    #[arg(long, value_name = "NAME=FILE", action = ArgAction::Append, value_delimiter = '\n')]
    prometheus_header_file: Vec<String>,
    /// Tenant, sent as X-Scope-OrgID to Mimir and Cortex
    #[arg(long, value_name = "NAME", default_value = "")]
    prometheus_tenant: String,
    #[command(flatten)]
    identity: IdentityArgs,
}

impl PrometheusConnectionArgs {
    /// The label matchers to add to every query.
    pub fn matchers(&self) -> LabelMatchers {
        self.prometheus_matcher.iter().cloned().collect()
    }

    pub fn transport_config(&self, typed: &ParsedFlags) -> Result<TransportConfig, CliError> {
        let auth = self.sign_in.auth(&self.identity, typed)?;
        Ok(TransportConfig {
            address: self.prometheus_address.clone(),
            tls: self.tls()?,
            auth,
            headers: self.headers()?,
            tenant: non_empty(&self.prometheus_tenant),
            ..TransportConfig::default()
        })
    }

    fn tls(&self) -> Result<TlsConfig, CliError> {
        let tls = TlsConfig {
            insecure_skip_verify: self.prometheus_insecure,
            ca_file: self.prometheus_ca_file.display().to_string(),
            cert_file: self.prometheus_client_cert_file.display().to_string(),
            key_file: self.prometheus_client_key_file.display().to_string(),
            ..TlsConfig::default()
        };
        if tls.cert_file.is_empty() != tls.key_file.is_empty() {
            return Err(CliError::usage(
                "--prometheus-client-cert-file and --prometheus-client-key-file must be set together",
            ));
        }
        if !tls.ca_file.is_empty() && tls.insecure_skip_verify {
            return Err(CliError::usage(
                "--prometheus-insecure and --prometheus-ca-file are mutually exclusive: set one of them",
            ));
        }
        Ok(tls)
    }

    fn headers(&self) -> Result<Vec<Header>, CliError> {
        // Errors do not include the values, which may be secrets.
        let wrong = |flag: &str, form: &str| CliError::usage(format!("{flag}: expected {form}"));
        let header = |name: &str, value| Header { name: name.trim().to_owned(), value };
        let mut headers = Vec::new();
        for text in self.prometheus_header.iter().filter(|text| !text.is_empty()) {
            let (name, value) = text
                .reveal()
                .split_once(':')
                .filter(|(name, _)| !name.trim().is_empty())
                .ok_or_else(|| wrong("--prometheus-header", "'NAME: VALUE'"))?;
            headers.push(header(name, SecretSource::Literal(value.trim().into())));
        }
        for text in self.prometheus_header_file.iter().filter(|text| !text.is_empty()) {
            let (name, path) = text
                .split_once('=')
                .filter(|(name, path)| !name.trim().is_empty() && !path.is_empty())
                .ok_or_else(|| wrong("--prometheus-header-file", "NAME=FILE"))?;
            headers.push(header(name, SecretSource::File(path.into())));
        }
        Ok(headers)
    }

    /// The given flags without secrets, to repeat them, and the names of the flags that contain secrets.
    pub fn given_flags(&self, typed: &ParsedFlags) -> (Vec<String>, Vec<&'static str>) {
        let address = redact_address(&self.prometheus_address);
        let mut flags = vec![shell_flag("prometheus-address", &address)];
        flags.extend(self.prometheus_insecure.then(|| "--prometheus-insecure".to_owned()));
        let others = typed.settings_under(["Prometheus", IDENTITY_HEADING]);
        for Setting { name, values, .. } in others.filter(|flag| flag.name != "prometheus-insecure")
        {
            let values = values.iter().filter(|value| !value.is_empty());
            flags.extend(values.map(|value| shell_flag(name, value)));
        }
        let secrets = [
            ("--prometheus-address", address != self.prometheus_address),
            ("--password", !self.sign_in.password.is_empty()),
            ("--prometheus-bearer-token", !self.sign_in.prometheus_bearer_token.is_empty()),
            ("--prometheus-header", !self.prometheus_header.is_empty()),
        ];
        let secrets = secrets.into_iter().filter_map(|(name, is_given)| is_given.then_some(name));
        (flags, secrets.collect())
    }
}

/// Removes user name, password and query from an address, because they may contain secrets.
fn redact_address(address: &str) -> String {
    let bare = address.split(['?', '#']).next().unwrap_or_default();
    match bare.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let host = rest[..end].rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{}", &rest[end..])
        }
        None => bare.to_owned(),
    }
}

pub fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

pub fn non_empty_path(path: &std::path::Path) -> Option<PathBuf> {
    (!path.as_os_str().is_empty()).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _, Parser};

    use super::*;
    use crate::cli::environment::Environment;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        connection: PrometheusConnectionArgs,
    }

    fn parse(flags: &[&str]) -> Result<(PrometheusConnectionArgs, ParsedFlags), String> {
        let command = Line::command();
        let matches = command.clone().try_get_matches_from(flags).map_err(|e| e.to_string())?;
        let line = Line::from_arg_matches(&matches).map_err(|e| e.to_string())?;
        Ok((line.connection, ParsedFlags::of(&command, &matches, Vec::new())))
    }

    pub(super) fn transport_config(
        flags: &[&str],
        variables: &'static [(&str, &str)],
    ) -> Result<TransportConfig, String> {
        let (connection, mut typed) = parse(&[&["x"], flags].concat())?;
        typed.environment = Environment::of(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned()).unwrap_or_default()
        });
        connection.transport_config(&typed).map_err(CliError::into_message)
    }

    #[test]
    fn contradictory_flags_are_a_one_line_error_without_secrets() {
        for (flags, words) in [
            (&["--prometheus-client-cert-file=/c"][..], "must be set together"),
            (&["--prometheus-insecure", "--prometheus-ca-file=/c"], "are mutually exclusive"),
            (&["--password=hunter2", "--prometheus-password-file=/p"], "are mutually exclusive"),
            (&["--prometheus-password-file=/p"], "requires --username"),
            (
                &["--prometheus-auth=aws", "--username=bob", "--prometheus-aws-region=x"],
                "--prometheus-auth and --username",
            ),
            (&["--prometheus-aws-region=x"], "--prometheus-auth=aws"),
            (&["--prometheus-google-scope=x"], "--prometheus-auth=google"),
            (&["--prometheus-azure-client-id=x"], "--prometheus-auth=azure"),
            (&["--prometheus-oauth2-scope=x"], "--prometheus-oauth2-token-url"),
            (
                &["--prometheus-oauth2-token-url=x", "--prometheus-oauth2-client-id=c"],
                "PROMETHEUS_OAUTH2_CLIENT_SECRET",
            ),
            (&["--prometheus-oauth2-token-url=x"], "--prometheus-oauth2-client-id"),
            (&["--prometheus-header=hunter2"], "'NAME: VALUE'"),
            (&["--prometheus-header-file=hunter2"], "NAME=FILE"),
        ] {
            let message = transport_config(flags, &[]).expect_err("refused");
            assert!(message.contains(words), "{flags:?}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn headers_tenants_and_matchers_are_parsed_and_printed_without_secrets() {
        let flags = [
            "x",
            "--prometheus-address=https://amy:hunter2@mimir/prometheus?key=hunter2",
            "--prometheus-header=X-Team: a",
            "--prometheus-header=X-Key:hunter2",
            "--prometheus-header-file=X-File=/keys/x",
            "--prometheus-tenant=team 1",
            "--prometheus-matcher=cluster=\"qa\"",
            "--prometheus-matcher=env!=\"it's\"",
        ];
        let (line, mut typed) = parse(&flags).expect("valid flags");
        typed.environment = Environment::of(|_| String::new());
        let transport =
            line.transport_config(&typed).map_err(CliError::into_message).expect("valid flags");
        let names: Vec<_> = transport.headers.iter().map(|header| &*header.name).collect();
        assert_eq!(names, ["X-Team", "X-Key", "X-File"]);
        assert_eq!(transport.headers[1].value, SecretSource::Literal("hunter2".into()));
        assert_eq!(transport.tenant.as_deref(), Some("team 1"));
        assert_eq!(line.matchers().to_string(), r#"cluster="qa",env!="it's""#);
        let (flags, secrets) = line.given_flags(&typed);
        assert_eq!(
            flags,
            [
                "--prometheus-address=https://mimir/prometheus",
                r#"--prometheus-matcher='cluster="qa"'"#,
                r#"--prometheus-matcher='env!="it'\''s"'"#,
                "--prometheus-header-file=X-File=/keys/x",
                "--prometheus-tenant='team 1'",
            ]
        );
        assert_eq!(secrets, ["--prometheus-address", "--prometheus-header"]);
    }
}
