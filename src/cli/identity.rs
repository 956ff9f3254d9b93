//! The flags of identities that are exchanged for tokens or signatures: OAuth 2, AWS, Google, Azure.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use plimsoll_storage::prometheus::door::{
    Secret,
    config::{Aws, Azure, Google, OAuth2, SignIn, Tls, Word},
};

use super::{
    door::{file, given, usage},
    output::Problem,
    value,
};
use crate::doctor::flags::flag;

/// Whose identity asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cloud {
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
    prometheus_auth: Option<Cloud>,
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
    #[arg(value_parser = value::path(), hide_short_help = true, hide_env = true)]
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
    #[arg(value_parser = value::path(), hide_short_help = true, hide_env = true)]
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
    #[arg(value_parser = value::path(), hide_short_help = true, hide_env = true)]
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
    ) -> Result<Option<(&'static str, SignIn)>, Problem> {
        if let Some((flag, _)) = self.of_oauth2().first()
            && self.prometheus_oauth2_token_url.is_empty()
        {
            return Err(usage(format!(
                "--{flag} has no use without --prometheus-oauth2-token-url"
            )));
        }
        for (cloud, name, flags) in [
            (Cloud::Aws, "aws", self.of_aws()),
            (Cloud::Google, "google", self.of_google()),
            (Cloud::Azure, "azure", self.of_azure()),
        ] {
            if let Some((flag, _)) = flags.first()
                && self.prometheus_auth != Some(cloud)
            {
                return Err(usage(format!("--{flag} has no use without --prometheus-auth={name}")));
            }
        }
        let Some(cloud) = self.prometheus_auth else {
            if self.prometheus_oauth2_token_url.is_empty() {
                return Ok(None);
            }
            let sign_in = SignIn::OAuth2(self.oauth2(variable)?);
            return Ok(Some(("--prometheus-oauth2-token-url", sign_in)));
        };
        if !self.prometheus_oauth2_token_url.is_empty() {
            return Err(usage(
                "--prometheus-auth and --prometheus-oauth2-token-url exclude each other: give one of them",
            ));
        }
        let set = |name: &str| given(&variable(name));
        let sign_in = match cloud {
            Cloud::Aws => SignIn::Aws(Box::new(self.aws(set)?)),
            Cloud::Google => SignIn::Google(self.google(set)),
            Cloud::Azure => SignIn::Azure(self.azure(set)),
        };
        Ok(Some(("--prometheus-auth", sign_in)))
    }

    fn oauth2(&self, variable: &impl Fn(&str) -> String) -> Result<OAuth2, Problem> {
        let id = given(&self.prometheus_oauth2_client_id).ok_or_else(|| {
            usage("--prometheus-oauth2-token-url has no use without --prometheus-oauth2-client-id")
        })?;
        let word = || given(&variable("PROMETHEUS_OAUTH2_CLIENT_SECRET"));
        let secret = file(&self.prometheus_oauth2_client_secret_file)
            .map(Word::File)
            .or_else(|| Some(Secret::from(word()?).into()))
            .ok_or_else(|| {
                usage(
                    "the client of --prometheus-oauth2-token-url has no secret: give \
                     --prometheus-oauth2-client-secret-file or PROMETHEUS_OAUTH2_CLIENT_SECRET",
                )
            })?;
        let pair = |text: &String| {
            let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
            let (name, value) =
                pair.ok_or_else(|| usage("--prometheus-oauth2-param: give it as NAME=VALUE"))?;
            Ok((name.to_owned(), value.to_owned()))
        };
        let parameters = self.prometheus_oauth2_param.iter().map(pair);
        Ok(OAuth2 {
            token_url: self.prometheus_oauth2_token_url.clone(),
            tls: Tls { authority: file(&self.prometheus_oauth2_ca_file), ..Tls::default() },
            id,
            secret,
            scopes: self.prometheus_oauth2_scope.clone(),
            parameters: parameters.collect::<Result<_, Problem>>()?,
        })
    }

    fn aws(&self, set: impl Fn(&str) -> Option<String>) -> Result<Aws, Problem> {
        let mut aws = Aws::from_environment(given(&self.prometheus_aws_region), set);
        if aws.region.is_empty() {
            return Err(usage(
                "--prometheus-auth=aws needs a region: give --prometheus-aws-region or AWS_REGION",
            ));
        }
        if let Some(service) = given(&self.prometheus_aws_service) {
            aws.service = service;
        }
        aws.role = given(&self.prometheus_aws_role_arn);
        Ok(aws)
    }

    fn google(&self, set: impl Fn(&str) -> Option<String>) -> Google {
        let mut google = Google::from_environment(set);
        if let Some(path) = file(&self.prometheus_google_credentials_file) {
            google.credentials = Some(path);
        }
        if let Some(scope) = given(&self.prometheus_google_scope) {
            google.scope = scope;
        }
        google
    }

    fn azure(&self, set: impl Fn(&str) -> Option<String>) -> Azure {
        let mut azure = Azure::from_environment(set);
        if let Some(client) = given(&self.prometheus_azure_client_id) {
            azure.client = Some(client);
        }
        if let Some(scope) = given(&self.prometheus_azure_scope) {
            azure.scope = scope;
        }
        azure
    }

    /// The flags as they were given. None of them is a secret.
    pub fn again(&self) -> Vec<String> {
        let cloud = self.prometheus_auth.and_then(|cloud| cloud.to_possible_value());
        let cloud = cloud.map(|cloud| flag("prometheus-auth", cloud.get_name()));
        let url = given(&self.prometheus_oauth2_token_url);
        let url = url.map(|url| flag("prometheus-oauth2-token-url", &url));
        let others = [self.of_oauth2(), self.of_aws(), self.of_google(), self.of_azure()];
        let others = others.into_iter().flatten().map(|(name, value)| flag(name, &value));
        cloud.into_iter().chain(url).chain(others).collect()
    }

    fn of_oauth2(&self) -> Vec<(&'static str, String)> {
        let mut flags = Vec::new();
        let mut add = |name, value: Option<String>| flags.extend(value.map(|value| (name, value)));
        let path = |path: &PathBuf| file(path).map(|path| path.to_string_lossy().into_owned());
        add("prometheus-oauth2-client-id", given(&self.prometheus_oauth2_client_id));
        add(
            "prometheus-oauth2-client-secret-file",
            path(&self.prometheus_oauth2_client_secret_file),
        );
        for scope in &self.prometheus_oauth2_scope {
            add("prometheus-oauth2-scope", given(scope));
        }
        for parameter in &self.prometheus_oauth2_param {
            add("prometheus-oauth2-param", given(parameter));
        }
        add("prometheus-oauth2-ca-file", path(&self.prometheus_oauth2_ca_file));
        flags
    }

    fn of_aws(&self) -> Vec<(&'static str, String)> {
        set([
            ("prometheus-aws-region", given(&self.prometheus_aws_region)),
            ("prometheus-aws-service", given(&self.prometheus_aws_service)),
            ("prometheus-aws-role-arn", given(&self.prometheus_aws_role_arn)),
        ])
    }

    fn of_google(&self) -> Vec<(&'static str, String)> {
        let path = file(&self.prometheus_google_credentials_file);
        let path = path.map(|path| path.to_string_lossy().into_owned());
        set([
            ("prometheus-google-credentials-file", path),
            ("prometheus-google-scope", given(&self.prometheus_google_scope)),
        ])
    }

    fn of_azure(&self) -> Vec<(&'static str, String)> {
        set([
            ("prometheus-azure-client-id", given(&self.prometheus_azure_client_id)),
            ("prometheus-azure-scope", given(&self.prometheus_azure_scope)),
        ])
    }
}

/// Those flags that have a value.
fn set<const N: usize>(flags: [(&'static str, Option<String>); N]) -> Vec<(&'static str, String)> {
    flags.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
