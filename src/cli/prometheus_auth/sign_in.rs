//! Selects the authentication, from flags or the environment.

use std::{fs::File, path::PathBuf};

use clap::Args;
use plimsoll_storage::prometheus::transport::{
    Secret,
    config::{AuthConfig, SecretSource},
};

use super::{non_empty, non_empty_path};
use crate::cli::{
    cloud_identity::IdentityArgs, go_values, output::CliError, parsed_flags::ParsedFlags,
};

/// A username and password, or a token.
#[derive(Clone, Debug, Args)]
pub(super) struct SignInArgs {
    /// Username for basic authentication; PROMETHEUS_USERNAME does the same
    #[arg(long, value_name = "NAME", default_value = "")]
    pub username: String,
    /// Password for basic authentication: prefer PROMETHEUS_PASSWORD or a file
    #[arg(long, value_name = "WORD", default_value = "")]
    pub password: Secret,
    /// File with the password; reloaded when it changes
    #[arg(long, value_name = "FILE", default_value = "", value_parser = go_values::path())]
    pub prometheus_password_file: PathBuf,
    /// Bearer token: prefer a file
    #[arg(long, value_name = "TOKEN", default_value = "")]
    pub prometheus_bearer_token: Secret,
    /// File with the bearer token; reloaded when it changes
    #[arg(long, value_name = "FILE", default_value = "", value_parser = go_values::path())]
    pub prometheus_bearer_token_file: PathBuf,
}

impl SignInArgs {
    /// Selects the authentication. As in upstream, a token takes precedence over a username and password, and flags over the
    /// environment.
    pub fn auth(
        &self,
        identity: &IdentityArgs,
        typed: &ParsedFlags,
    ) -> Result<AuthConfig, CliError> {
        let token_file = non_empty_path(&self.prometheus_bearer_token_file);
        let token = &self.prometheus_bearer_token;
        if token_file.is_some() && !token.is_empty() && !self.username.is_empty() {
            return Err(
                "--prometheus-bearer-token, --prometheus-bearer-token-file and --username are mutually exclusive: \
                 set one of them"
                    .into(),
            );
        }
        let selected = [
            ("--prometheus-bearer-token-file", token_file.is_some()),
            ("--prometheus-bearer-token", !token.is_empty()),
            ("--username", !self.username.is_empty()),
        ];
        if let Some((flag, sign_in)) = identity.sign_in(typed)? {
            if let Some((other, _)) = selected.iter().find(|(_, given)| *given) {
                return Err(CliError::usage(format!(
                    "{flag} and {other} are mutually exclusive: set one of them"
                )));
            }
            return Ok(sign_in);
        }
        if let Some(path) = token_file {
            // The file is reloaded when it changes, but a missing file at the start is a configuration error.
            File::open(&path).map_err(|error| {
                format!("--prometheus-bearer-token-file: {}: {error}", path.display())
            })?;
            return Ok(AuthConfig::Bearer(path.into()));
        }
        if !token.is_empty() {
            return Ok(AuthConfig::Bearer(token.clone().into()));
        }
        let password = match (non_empty_path(&self.prometheus_password_file), &self.password) {
            (Some(_), password) if !password.is_empty() => {
                return Err(CliError::usage(
                    "--password and --prometheus-password-file are mutually exclusive: set one of them",
                ));
            }
            (Some(_), _) if self.user(typed).is_empty() => {
                return Err(CliError::usage("--prometheus-password-file requires --username"));
            }
            (Some(path), _) => Some(SecretSource::File(path)),
            (None, password) => (!password.is_empty()).then(|| password.clone().into()),
        };
        let user = self.user(typed);
        if let Some(password) = password
            && !user.is_empty()
            && (!self.username.is_empty() || matches!(password, SecretSource::File(_)))
        {
            return Ok(AuthConfig::Basic { user, password });
        }
        let user = non_empty(&typed.environment.variable("PROMETHEUS_USERNAME"));
        let found = user.zip(non_empty(&typed.environment.variable("PROMETHEUS_PASSWORD")));
        Ok(found.map_or(AuthConfig::None, |(user, password)| AuthConfig::Basic {
            user,
            password: Secret::from(password).into(),
        }))
    }

    fn user(&self, typed: &ParsedFlags) -> String {
        non_empty(&self.username)
            .unwrap_or_else(|| typed.environment.variable("PROMETHEUS_USERNAME"))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::api::scale_target::TlsConfig;
    use plimsoll_storage::prometheus::transport::config::OAuth2;

    use super::*;
    use crate::cli::prometheus_auth::tests::transport_config;

    const ENVIRONMENT: [(&str, &str); 6] = [
        ("PROMETHEUS_USERNAME", "amy"),
        ("PROMETHEUS_PASSWORD", "hunter2"),
        ("PROMETHEUS_OAUTH2_CLIENT_SECRET", "sesame"),
        ("AWS_REGION", "eu-west-1"),
        ("AZURE_CLIENT_ID", "vm"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/keys/google.json"),
    ];

    fn basic(user: &str, password: impl Into<SecretSource>) -> AuthConfig {
        AuthConfig::Basic { user: user.to_owned(), password: password.into() }
    }

    #[test]
    fn credentials_come_from_flags_and_otherwise_from_the_environment() {
        let secret = |text: &str| Secret::from(text);
        let path = |text: &str| PathBuf::from(text);
        for (flags, expected) in [
            (&[][..], basic("amy", secret("hunter2"))),
            (&["--username=bob"], basic("amy", secret("hunter2"))),
            (&["--username=bob", "--password=x"], basic("bob", secret("x"))),
            (&["--username=bob", "--prometheus-password-file=/p"], basic("bob", path("/p"))),
            (&["--prometheus-password-file=/p"], basic("amy", path("/p"))),
            (&["--prometheus-bearer-token=t"], AuthConfig::Bearer(secret("t").into())),
            (
                &["--prometheus-bearer-token-file=/dev/null"],
                AuthConfig::Bearer(path("/dev/null").into()),
            ),
            (
                &[
                    "--prometheus-oauth2-token-url=https://id/token",
                    "--prometheus-oauth2-client-id=c",
                    "--prometheus-oauth2-scope=a",
                    "--prometheus-oauth2-scope=b",
                    "--prometheus-oauth2-param=audience=p=q",
                    "--prometheus-oauth2-ca-file=/ca",
                ],
                AuthConfig::OAuth2(OAuth2 {
                    token_url: "https://id/token".to_owned(),
                    tls: TlsConfig { ca_file: "/ca".to_owned(), ..TlsConfig::default() },
                    client_id: "c".to_owned(),
                    client_secret: secret("sesame").into(),
                    scopes: vec!["a".to_owned(), "b".to_owned()],
                    parameters: vec![("audience".to_owned(), "p=q".to_owned())],
                }),
            ),
        ] {
            let transport = transport_config(flags, &ENVIRONMENT)
                .unwrap_or_else(|why| panic!("{flags:?}: {why}"));
            assert_eq!(transport.auth, expected, "{flags:?}");
        }
        assert_eq!(
            transport_config(&[], &[]).map(|transport| transport.auth),
            Ok(AuthConfig::None)
        );
        let aws = transport_config(
            &["--prometheus-auth=aws", "--prometheus-aws-role-arn=arn:r"],
            &ENVIRONMENT,
        );
        let Ok(AuthConfig::Aws(aws)) = aws.map(|transport| transport.auth) else {
            panic!("not AWS")
        };
        assert_eq!(
            (&*aws.region, &*aws.service, aws.role_arn),
            ("eu-west-1", "aps", Some("arn:r".into()))
        );
        let google = transport_config(&["--prometheus-auth=google"], &ENVIRONMENT);
        let Ok(AuthConfig::Google(google)) = google.map(|transport| transport.auth) else {
            panic!("not Google")
        };
        assert_eq!(google.credentials_file, Some("/keys/google.json".into()));
        let azure = transport_config(
            &["--prometheus-auth=azure", "--prometheus-azure-client-id=x"],
            &ENVIRONMENT,
        );
        let Ok(AuthConfig::Azure(azure)) = azure.map(|transport| transport.auth) else {
            panic!("not Azure")
        };
        assert_eq!(azure.client_id.as_deref(), Some("x"));
    }
}
