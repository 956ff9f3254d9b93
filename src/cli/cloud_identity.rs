//! The flags of identities that are exchanged for tokens or signatures: OAuth 2, AWS, Google, Azure.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use plimsoll_storage::prometheus::transport::{
    Secret,
    config::{AuthConfig, Aws, Azure, Google, OAuth2, SecretSource, Tls},
};

use super::{
    go_values,
    output::CliError,
    prometheus_auth::{non_empty, non_empty_path, usage_error},
};
use crate::report::doctor::suggested_flags::shell_flag;

/// Whose identity asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CloudProvider {
    /// A principal of AWS
    Aws,
    /// A service account of Google
    Google,
    /// An identity of Azure
    Azure,
}

/// Who asks, if it is neither a name nor a token.
#[derive(Clone, Debug, Args)]
#[allow(clippy::struct_field_names, reason = "fields are called as the flags are")]
#[command(next_help_heading = "Prometheus, with an identity that is exchanged")]
pub struct IdentityArgs {
    /// Signs in as what the pod runs as in that cloud
    #[arg(long, value_name = "CLOUD")]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_AUTH", hide_short_help = true, hide_env = true)]
    prometheus_auth: Option<CloudProvider>,
    /// Where OAuth 2 tokens are had for client credentials
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_OAUTH2_TOKEN_URL")]
    prometheus_oauth2_token_url: String,
    /// Name of the client there
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_OAUTH2_CLIENT_ID")]
    prometheus_oauth2_client_id: String,
    /// File with its secret; PROMETHEUS_OAUTH2_CLIENT_SECRET is the secret itself
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(value_parser = go_values::path(), hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_OAUTH2_CLIENT_SECRET_FILE")]
    prometheus_oauth2_client_secret_file: PathBuf,
    /// What the token is for (repeatable)
    #[arg(long, value_name = "SCOPE", action = ArgAction::Append, value_delimiter = '\n')]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_OAUTH2_SCOPE")]
    prometheus_oauth2_scope: Vec<String>,
    /// What the token's server wants to know besides, as in audience=prometheus (repeatable)
    #[arg(long, value_name = "NAME=VALUE", action = ArgAction::Append, value_delimiter = '\n')]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_OAUTH2_PARAM")]
    prometheus_oauth2_param: Vec<String>,
    /// File with the authorities that the token's server is trusted by (PEM)
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(value_parser = go_values::path(), hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_OAUTH2_CA_FILE")]
    prometheus_oauth2_ca_file: PathBuf,
    /// Region of AWS that is signed for; AWS_REGION does the same
    #[arg(long, value_name = "REGION", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_AWS_REGION", hide_short_help = true, hide_env = true)]
    prometheus_aws_region: String,
    /// Service of AWS that is signed for [default: aps]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_AWS_SERVICE", hide_short_help = true, hide_env = true)]
    prometheus_aws_service: String,
    /// Role of AWS to take on
    #[arg(long, value_name = "ARN", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_AWS_ROLE_ARN", hide_short_help = true, hide_env = true)]
    prometheus_aws_role_arn: String,
    /// Key or federation of a service account of Google; GOOGLE_APPLICATION_CREDENTIALS does the same
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(value_parser = go_values::path(), hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_GOOGLE_CREDENTIALS_FILE")]
    prometheus_google_credentials_file: PathBuf,
    /// What Google's token is for [default: to read Cloud Monitoring]
    #[arg(long, value_name = "SCOPE", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_GOOGLE_SCOPE", hide_short_help = true, hide_env = true)]
    prometheus_google_scope: String,
    /// Application or managed identity of Azure; AZURE_CLIENT_ID does the same
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_AZURE_CLIENT_ID")]
    prometheus_azure_client_id: String,
    /// What Azure's token is for [default: to query Azure Monitor]
    #[arg(long, value_name = "SCOPE", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_AZURE_SCOPE", hide_short_help = true, hide_env = true)]
    prometheus_azure_scope: String,
}

impl IdentityArgs {
    /// The identity that was described, with the flag that did it.
    pub fn sign_in(
        &self,
        variable: &impl Fn(&str) -> String,
    ) -> Result<Option<(&'static str, AuthConfig)>, CliError> {
        if let Some((flag, _)) = self.oauth2_flags().first()
            && self.prometheus_oauth2_token_url.is_empty()
        {
            return Err(usage_error(format!(
                "--{flag} has no use without --prometheus-oauth2-token-url"
            )));
        }
        for (cloud, name, flags) in [
            (CloudProvider::Aws, "aws", self.aws_flags()),
            (CloudProvider::Google, "google", self.google_flags()),
            (CloudProvider::Azure, "azure", self.azure_flags()),
        ] {
            if let Some((flag, _)) = flags.first()
                && self.prometheus_auth != Some(cloud)
            {
                return Err(usage_error(format!(
                    "--{flag} has no use without --prometheus-auth={name}"
                )));
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
                "--prometheus-auth and --prometheus-oauth2-token-url exclude each other: give one of them",
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
            usage_error(
                "--prometheus-oauth2-token-url has no use without --prometheus-oauth2-client-id",
            )
        })?;
        let word = || non_empty(&variable("PROMETHEUS_OAUTH2_CLIENT_SECRET"));
        let secret = non_empty_path(&self.prometheus_oauth2_client_secret_file)
            .map(SecretSource::File)
            .or_else(|| Some(Secret::from(word()?).into()))
            .ok_or_else(|| {
                usage_error(
                    "the client of --prometheus-oauth2-token-url has no secret: give \
                     --prometheus-oauth2-client-secret-file or PROMETHEUS_OAUTH2_CLIENT_SECRET",
                )
            })?;
        let pair = |text: &String| {
            let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
            let (name, value) = pair
                .ok_or_else(|| usage_error("--prometheus-oauth2-param: give it as NAME=VALUE"))?;
            Ok((name.to_owned(), value.to_owned()))
        };
        let parameters = self.prometheus_oauth2_param.iter().map(pair);
        Ok(OAuth2 {
            token_url: self.prometheus_oauth2_token_url.clone(),
            tls: Tls { ca_file: non_empty_path(&self.prometheus_oauth2_ca_file), ..Tls::default() },
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
                "--prometheus-auth=aws needs a region: give --prometheus-aws-region or AWS_REGION",
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

    /// The flags as they were given. None of them is a secret.
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

/// Those flags that have a value.
fn set<const N: usize>(flags: [(&'static str, Option<String>); N]) -> Vec<(&'static str, String)> {
    flags.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
