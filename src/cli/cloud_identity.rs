//! The flags for OAuth 2 and for cloud identities: AWS, Google, Azure.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use plimsoll_core::api::scale_target::TlsConfig;
use plimsoll_storage::prometheus::transport::{
    Secret,
    config::{AuthConfig, Aws, Azure, Google, OAuth2, SecretSource},
};

use super::{
    go_values,
    output::CliError,
    prometheus_auth::{non_empty, non_empty_path, usage_error},
};
use crate::report::doctor::suggested_flags::shell_flag;

/// The cloud provider of the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CloudProvider {
    /// An AWS principal
    Aws,
    /// A Google service account
    Google,
    /// An Azure identity
    Azure,
}

/// Authentication with OAuth 2 or a cloud identity.
#[derive(Clone, Debug, Args)]
#[allow(clippy::struct_field_names, reason = "fields are called as the flags are")]
#[command(next_help_heading = "Prometheus: OAuth 2 and cloud identities")]
pub struct IdentityArgs {
    /// Authenticates with the pod's identity in that cloud
    #[arg(long, value_name = "CLOUD")]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_AUTH", hide_short_help = true, hide_env = true)]
    prometheus_auth: Option<CloudProvider>,
    /// URL of the OAuth 2 token endpoint, for the client credentials grant
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_OAUTH2_TOKEN_URL")]
    prometheus_oauth2_token_url: String,
    /// OAuth 2 client ID
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_OAUTH2_CLIENT_ID")]
    prometheus_oauth2_client_id: String,
    /// File with the OAuth 2 client secret; PROMETHEUS_OAUTH2_CLIENT_SECRET sets the secret itself
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(value_parser = go_values::path(), hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_OAUTH2_CLIENT_SECRET_FILE")]
    prometheus_oauth2_client_secret_file: PathBuf,
    /// OAuth 2 scope (repeatable)
    #[arg(long, value_name = "SCOPE", action = ArgAction::Append, value_delimiter = '\n')]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_OAUTH2_SCOPE")]
    prometheus_oauth2_scope: Vec<String>,
    /// Additional parameter of the token request, such as audience=prometheus (repeatable)
    #[arg(long, value_name = "NAME=VALUE", action = ArgAction::Append, value_delimiter = '\n')]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_OAUTH2_PARAM")]
    prometheus_oauth2_param: Vec<String>,
    /// File with the CA certificates to trust for the token endpoint (PEM)
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(value_parser = go_values::path(), hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_OAUTH2_CA_FILE")]
    prometheus_oauth2_ca_file: PathBuf,
    /// AWS region for request signing; AWS_REGION does the same
    #[arg(long, value_name = "REGION", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_AWS_REGION", hide_short_help = true, hide_env = true)]
    prometheus_aws_region: String,
    /// AWS service for request signing [default: aps]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_AWS_SERVICE", hide_short_help = true, hide_env = true)]
    prometheus_aws_service: String,
    /// AWS role to assume
    #[arg(long, value_name = "ARN", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_AWS_ROLE_ARN", hide_short_help = true, hide_env = true)]
    prometheus_aws_role_arn: String,
    /// Google credentials file: a service account key or workload identity federation; GOOGLE_APPLICATION_CREDENTIALS does
    /// the same
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(value_parser = go_values::path(), hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_GOOGLE_CREDENTIALS_FILE")]
    prometheus_google_credentials_file: PathBuf,
    /// Scope of the Google token [default: read Cloud Monitoring]
    #[arg(long, value_name = "SCOPE", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_GOOGLE_SCOPE", hide_short_help = true, hide_env = true)]
    prometheus_google_scope: String,
    /// Client ID of the Azure application or managed identity; AZURE_CLIENT_ID does the same
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_AZURE_CLIENT_ID")]
    prometheus_azure_client_id: String,
    /// Scope of the Azure token [default: query Azure Monitor]
    #[arg(long, value_name = "SCOPE", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_AZURE_SCOPE", hide_short_help = true, hide_env = true)]
    prometheus_azure_scope: String,
}

impl IdentityArgs {
    /// Returns the configured authentication and the flag that selects it, if any.
    pub fn sign_in(
        &self,
        variable: &impl Fn(&str) -> String,
    ) -> Result<Option<(&'static str, AuthConfig)>, CliError> {
        if let Some((flag, _)) = self.oauth2_flags().first()
            && self.prometheus_oauth2_token_url.is_empty()
        {
            return Err(usage_error(format!("--{flag} requires --prometheus-oauth2-token-url")));
        }
        for (cloud, name, flags) in [
            (CloudProvider::Aws, "aws", self.aws_flags()),
            (CloudProvider::Google, "google", self.google_flags()),
            (CloudProvider::Azure, "azure", self.azure_flags()),
        ] {
            if let Some((flag, _)) = flags.first()
                && self.prometheus_auth != Some(cloud)
            {
                return Err(usage_error(format!("--{flag} requires --prometheus-auth={name}")));
            }
        }
        let Some(cloud) = self.prometheus_auth else {
            if self.prometheus_oauth2_token_url.is_empty() {
                return Ok(None);
            }
            let sign_in = AuthConfig::OAuth2(self.oauth2(variable)?);
            return Ok(Some(("--prometheus-oauth2-token-url", sign_in)));
        };
        if !self.prometheus_oauth2_token_url.is_empty() {
            return Err(usage_error(
                "--prometheus-auth and --prometheus-oauth2-token-url are mutually exclusive: set one of them",
            ));
        }
        let set = |name: &str| non_empty(&variable(name));
        let sign_in = match cloud {
            CloudProvider::Aws => AuthConfig::Aws(Box::new(self.aws(set)?)),
            CloudProvider::Google => AuthConfig::Google(self.google(set)),
            CloudProvider::Azure => AuthConfig::Azure(self.azure(set)),
        };
        Ok(Some(("--prometheus-auth", sign_in)))
    }

    fn oauth2(&self, variable: &impl Fn(&str) -> String) -> Result<OAuth2, CliError> {
        let id = non_empty(&self.prometheus_oauth2_client_id).ok_or_else(|| {
            usage_error("--prometheus-oauth2-token-url requires --prometheus-oauth2-client-id")
        })?;
        let secret_variable = || non_empty(&variable("PROMETHEUS_OAUTH2_CLIENT_SECRET"));
        let secret = non_empty_path(&self.prometheus_oauth2_client_secret_file)
            .map(SecretSource::File)
            .or_else(|| Some(Secret::from(secret_variable()?).into()))
            .ok_or_else(|| {
                usage_error(
                    "--prometheus-oauth2-token-url requires a client secret: set \
                     --prometheus-oauth2-client-secret-file or PROMETHEUS_OAUTH2_CLIENT_SECRET",
                )
            })?;
        let pair = |text: &String| {
            let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
            let (name, value) =
                pair.ok_or_else(|| usage_error("--prometheus-oauth2-param: expected NAME=VALUE"))?;
            Ok((name.to_owned(), value.to_owned()))
        };
        let parameters = self.prometheus_oauth2_param.iter().map(pair);
        Ok(OAuth2 {
            token_url: self.prometheus_oauth2_token_url.clone(),
            tls: TlsConfig {
                ca_file: self.prometheus_oauth2_ca_file.display().to_string(),
                ..TlsConfig::default()
            },
            client_id: id,
            client_secret: secret,
            scopes: self.prometheus_oauth2_scope.clone(),
            parameters: parameters.collect::<Result<_, CliError>>()?,
        })
    }

    fn aws(&self, set: impl Fn(&str) -> Option<String>) -> Result<Aws, CliError> {
        let mut aws = Aws::from_environment(non_empty(&self.prometheus_aws_region), set);
        if aws.region.is_empty() {
            return Err(usage_error(
                "--prometheus-auth=aws requires a region: set --prometheus-aws-region or AWS_REGION",
            ));
        }
        if let Some(service) = non_empty(&self.prometheus_aws_service) {
            aws.service = service;
        }
        aws.role_arn = non_empty(&self.prometheus_aws_role_arn);
        Ok(aws)
    }

    fn google(&self, set: impl Fn(&str) -> Option<String>) -> Google {
        let mut google = Google::from_environment(set);
        if let Some(path) = non_empty_path(&self.prometheus_google_credentials_file) {
            google.credentials_file = Some(path);
        }
        if let Some(scope) = non_empty(&self.prometheus_google_scope) {
            google.scope = scope;
        }
        google
    }

    fn azure(&self, set: impl Fn(&str) -> Option<String>) -> Azure {
        let mut azure = Azure::from_environment(set);
        if let Some(client) = non_empty(&self.prometheus_azure_client_id) {
            azure.client_id = Some(client);
        }
        if let Some(scope) = non_empty(&self.prometheus_azure_scope) {
            azure.scope = scope;
        }
        azure
    }

    /// The given flags. None of them contains a secret.
    pub fn given_flags(&self) -> Vec<String> {
        let cloud = self.prometheus_auth.and_then(|cloud| cloud.to_possible_value());
        let cloud = cloud.map(|cloud| shell_flag("prometheus-auth", cloud.get_name()));
        let url = non_empty(&self.prometheus_oauth2_token_url);
        let url = url.map(|url| shell_flag("prometheus-oauth2-token-url", &url));
        let others =
            [self.oauth2_flags(), self.aws_flags(), self.google_flags(), self.azure_flags()];
        let others = others.into_iter().flatten().map(|(name, value)| shell_flag(name, &value));
        cloud.into_iter().chain(url).chain(others).collect()
    }

    fn oauth2_flags(&self) -> Vec<(&'static str, String)> {
        let mut flags = Vec::new();
        let mut add = |name, value: Option<String>| flags.extend(value.map(|value| (name, value)));
        let path =
            |path: &PathBuf| non_empty_path(path).map(|path| path.to_string_lossy().into_owned());
        add("prometheus-oauth2-client-id", non_empty(&self.prometheus_oauth2_client_id));
        add(
            "prometheus-oauth2-client-secret-file",
            path(&self.prometheus_oauth2_client_secret_file),
        );
        for scope in &self.prometheus_oauth2_scope {
            add("prometheus-oauth2-scope", non_empty(scope));
        }
        for parameter in &self.prometheus_oauth2_param {
            add("prometheus-oauth2-param", non_empty(parameter));
        }
        add("prometheus-oauth2-ca-file", path(&self.prometheus_oauth2_ca_file));
        flags
    }

    fn aws_flags(&self) -> Vec<(&'static str, String)> {
        set([
            ("prometheus-aws-region", non_empty(&self.prometheus_aws_region)),
            ("prometheus-aws-service", non_empty(&self.prometheus_aws_service)),
            ("prometheus-aws-role-arn", non_empty(&self.prometheus_aws_role_arn)),
        ])
    }

    fn google_flags(&self) -> Vec<(&'static str, String)> {
        let path = non_empty_path(&self.prometheus_google_credentials_file);
        let path = path.map(|path| path.to_string_lossy().into_owned());
        set([
            ("prometheus-google-credentials-file", path),
            ("prometheus-google-scope", non_empty(&self.prometheus_google_scope)),
        ])
    }

    fn azure_flags(&self) -> Vec<(&'static str, String)> {
        set([
            ("prometheus-azure-client-id", non_empty(&self.prometheus_azure_client_id)),
            ("prometheus-azure-scope", non_empty(&self.prometheus_azure_scope)),
        ])
    }
}

/// Returns the flags that have a value.
fn set<const N: usize>(flags: [(&'static str, Option<String>); N]) -> Vec<(&'static str, String)> {
    flags.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
