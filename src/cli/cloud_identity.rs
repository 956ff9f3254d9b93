//! The flags for OAuth 2 and for cloud identities: AWS, Google, Azure.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum, builder::PossibleValue};
use plimsoll_core::api::scale_target::TlsConfig;
use plimsoll_storage::prometheus::transport::{
    Secret,
    config::{AuthConfig, Aws, Azure, Google, OAuth2, SecretSource},
};

use super::{
    go_values,
    output::CliError,
    parsed_flags::{ParsedFlags, Setting},
    prometheus_auth::{non_empty, non_empty_path},
};

pub const IDENTITY_HEADING: &str = "Prometheus: OAuth 2 and cloud identities";

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
#[command(next_help_heading = IDENTITY_HEADING)]
pub struct IdentityArgs {
    /// Authenticates with the pod's identity in that cloud
    #[arg(long, value_name = "CLOUD")]
    prometheus_auth: Option<CloudProvider>,
    /// URL of the OAuth 2 token endpoint, for the client credentials grant
    #[arg(long, value_name = "URL", default_value = "")]
    prometheus_oauth2_token_url: String,
    /// OAuth 2 client ID
    #[arg(long, value_name = "NAME", default_value = "")]
    prometheus_oauth2_client_id: String,
    /// File with the OAuth 2 client secret; PROMETHEUS_OAUTH2_CLIENT_SECRET sets the secret itself
    #[arg(long, value_name = "FILE", default_value = "", value_parser = go_values::path())]
    prometheus_oauth2_client_secret_file: PathBuf,
    /// OAuth 2 scope (repeatable)
    #[arg(long, value_name = "SCOPE", action = ArgAction::Append, value_delimiter = '\n')]
    prometheus_oauth2_scope: Vec<String>,
    /// Additional parameter of the token request, such as audience=prometheus (repeatable)
    #[arg(long, value_name = "NAME=VALUE", action = ArgAction::Append, value_delimiter = '\n')]
    prometheus_oauth2_param: Vec<String>,
    /// File with the CA certificates to trust for the token endpoint (PEM)
    #[arg(long, value_name = "FILE", default_value = "", value_parser = go_values::path())]
    prometheus_oauth2_ca_file: PathBuf,
    /// AWS region for request signing; AWS_REGION does the same
    #[arg(long, value_name = "REGION", default_value = "")]
    prometheus_aws_region: String,
    /// AWS service for request signing [default: aps]
    #[arg(long, value_name = "NAME", default_value = "")]
    prometheus_aws_service: String,
    /// AWS role to assume
    #[arg(long, value_name = "ARN", default_value = "")]
    prometheus_aws_role_arn: String,
    /// Google credentials file: a service account key or workload identity federation; GOOGLE_APPLICATION_CREDENTIALS does
    /// the same
    #[arg(long, value_name = "FILE", default_value = "", value_parser = go_values::path())]
    prometheus_google_credentials_file: PathBuf,
    /// Scope of the Google token [default: read Cloud Monitoring]
    #[arg(long, value_name = "SCOPE", default_value = "")]
    prometheus_google_scope: String,
    /// Client ID of the Azure application or managed identity; AZURE_CLIENT_ID does the same
    #[arg(long, value_name = "ID", default_value = "")]
    prometheus_azure_client_id: String,
    /// Scope of the Azure token [default: query Azure Monitor]
    #[arg(long, value_name = "SCOPE", default_value = "")]
    prometheus_azure_scope: String,
}

impl IdentityArgs {
    /// Returns the configured authentication and the flag that selects it, if any.
    pub fn sign_in(
        &self,
        typed: &ParsedFlags,
    ) -> Result<Option<(&'static str, AuthConfig)>, CliError> {
        let cloud = self.prometheus_auth.and_then(|cloud| cloud.to_possible_value());
        let cloud = cloud.as_ref().map(PossibleValue::get_name);
        let given = typed.settings_under([IDENTITY_HEADING; 2]);
        for Setting { name, .. } in
            given.filter(|flag| flag.values.iter().any(|one| !one.is_empty()))
        {
            let kind = name.strip_prefix("prometheus-").and_then(|rest| rest.split_once('-'));
            let required = match kind.map(|(kind, _)| kind) {
                Some("oauth2") if self.prometheus_oauth2_token_url.is_empty() => {
                    "--prometheus-oauth2-token-url"
                }
                Some(kind @ ("aws" | "google" | "azure")) if cloud != Some(kind) => {
                    &format!("--prometheus-auth={kind}")
                }
                _ => continue,
            };
            return Err(CliError::usage(format!("--{name} requires {required}")));
        }
        let Some(cloud) = self.prometheus_auth else {
            if self.prometheus_oauth2_token_url.is_empty() {
                return Ok(None);
            }
            let sign_in = AuthConfig::OAuth2(self.oauth2(typed)?);
            return Ok(Some(("--prometheus-oauth2-token-url", sign_in)));
        };
        if !self.prometheus_oauth2_token_url.is_empty() {
            return Err(CliError::usage(
                "--prometheus-auth and --prometheus-oauth2-token-url are mutually exclusive: set one of them",
            ));
        }
        let set = |name: &str| non_empty(&typed.environment.variable(name));
        let sign_in = match cloud {
            CloudProvider::Aws => AuthConfig::Aws(Box::new(self.aws(set)?)),
            CloudProvider::Google => AuthConfig::Google(self.google(set)),
            CloudProvider::Azure => AuthConfig::Azure(self.azure(set)),
        };
        Ok(Some(("--prometheus-auth", sign_in)))
    }

    fn oauth2(&self, typed: &ParsedFlags) -> Result<OAuth2, CliError> {
        let id = non_empty(&self.prometheus_oauth2_client_id).ok_or_else(|| {
            CliError::usage("--prometheus-oauth2-token-url requires --prometheus-oauth2-client-id")
        })?;
        let secret_variable =
            || non_empty(&typed.environment.variable("PROMETHEUS_OAUTH2_CLIENT_SECRET"));
        let secret = non_empty_path(&self.prometheus_oauth2_client_secret_file)
            .map(SecretSource::File)
            .or_else(|| Some(Secret::from(secret_variable()?).into()))
            .ok_or_else(|| {
                CliError::usage(
                    "--prometheus-oauth2-token-url requires a client secret: set \
                     --prometheus-oauth2-client-secret-file or PROMETHEUS_OAUTH2_CLIENT_SECRET",
                )
            })?;
        let pair = |text: &String| {
            let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
            let (name, value) = pair
                .ok_or_else(|| CliError::usage("--prometheus-oauth2-param: expected NAME=VALUE"))?;
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
        let aws = Aws::from_environment(non_empty(&self.prometheus_aws_region), set);
        if aws.region.is_empty() {
            return Err(CliError::usage(
                "--prometheus-auth=aws requires a region: set --prometheus-aws-region or AWS_REGION",
            ));
        }
        Ok(Aws {
            service: non_empty(&self.prometheus_aws_service).unwrap_or(aws.service),
            role_arn: non_empty(&self.prometheus_aws_role_arn),
            ..aws
        })
    }

    fn google(&self, set: impl Fn(&str) -> Option<String>) -> Google {
        let google = Google::from_environment(set);
        let file = non_empty_path(&self.prometheus_google_credentials_file);
        Google {
            credentials_file: file.or(google.credentials_file),
            scope: non_empty(&self.prometheus_google_scope).unwrap_or(google.scope),
            ..google
        }
    }

    fn azure(&self, set: impl Fn(&str) -> Option<String>) -> Azure {
        let azure = Azure::from_environment(set);
        Azure {
            client_id: non_empty(&self.prometheus_azure_client_id).or(azure.client_id),
            scope: non_empty(&self.prometheus_azure_scope).unwrap_or(azure.scope),
            ..azure
        }
    }
}
