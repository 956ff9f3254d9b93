//! AWS credentials: static keys, web identity (IRSA), a container agent (EKS Pod Identity, ECS), or instance metadata.

use reqwest::{Method, StatusCode, Url};
use serde_json::Value;

use super::STS_VERSION;
use crate::prometheus::transport::{
    Secret, TransportError, WallClock,
    config::{AuthTiming, Aws},
    redacted,
    reloading_client::is_loopback,
    reloading_file::{Reload, ReloadingFile},
    token_cache::FetchedToken,
    token_endpoint::{TokenEndpoint, TokenRequest, element, url},
};

/// Lifetime of an IMDSv2 session in seconds. Any value works, because each fetch starts a new session.
const METADATA_SESSION: &str = "300";
const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
/// Addresses of the ECS and EKS agents: the only hosts that get the token without TLS.
const AGENTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];

/// An access key ID, its secret, and the session token of temporary credentials.
#[derive(Clone, Debug)]
pub(super) struct Credentials {
    pub(super) id: Secret,
    pub(super) secret: Secret,
    pub(super) session: Option<Secret>,
}

impl Credentials {
    /// Values that must not appear in logs or errors.
    pub(super) fn secrets(&self) -> Vec<&Secret> {
        [&self.secret].into_iter().chain(&self.session).collect()
    }
}

/// A source of credentials.
#[derive(Debug)]
pub(super) enum CredentialProvider {
    Keys {
        id: ReloadingFile,
        secret: ReloadingFile,
        session: Option<ReloadingFile>,
    },
    WebIdentity {
        token: ReloadingFile,
        role: String,
        session: String,
        sts: Url,
        exchange: Box<TokenEndpoint>,
    },
    ContainerAgent {
        url: Url,
        token: Option<ReloadingFile>,
        exchange: Box<TokenEndpoint>,
    },
    Metadata {
        url: Url,
        exchange: Box<TokenEndpoint>,
    },
}

impl CredentialProvider {
    /// Selects the first configured source.
    pub(super) fn new(aws: Aws, timing: AuthTiming) -> Result<Self, TransportError> {
        let file = |what, source| ReloadingFile::new(what, source, timing.reload_interval);
        if let Some(keys) = aws.keys {
            return Ok(Self::Keys {
                id: file("the AWS access key id", keys.access_key_id),
                secret: file("the AWS secret access key", keys.secret_access_key),
                session: keys.session_token.map(|source| file("the AWS session token", source)),
            });
        }
        if let Some(identity) = aws.web_identity {
            let sts = url("the AWS STS endpoint", &aws.sts_endpoint)?;
            let advice = "check the role, and that its trust policy names this service account";
            let exchange = Box::new(TokenEndpoint::new(&sts, timing, advice));
            let token = file("the web identity token", identity.token_file.into());
            let (role, session) = (identity.role_arn, aws.session_name);
            return Ok(Self::WebIdentity { token, role, session, sts, exchange });
        }
        if let Some(agent) = aws.container_agent {
            let url = url("the address of the AWS container agent", &agent.url)?;
            if !is_agent(&url) {
                let why = "it must be on this machine or use TLS";
                return Err(TransportError::setting("the address of the AWS container agent", why));
            }
            let advice = "check the pod identity association of this service account";
            let exchange = Box::new(TokenEndpoint::local(&url, timing, advice));
            let token =
                agent.token.map(|source| file("the token of the AWS container agent", source));
            return Ok(Self::ContainerAgent { url, token, exchange });
        }
        let metadata = aws.metadata_endpoint.ok_or_else(|| {
            TransportError::setting(
                "AWS authentication",
                "there are no keys, no web identity, no container agent and no instance metadata",
            )
        })?;
        let url = url("the AWS metadata server", &metadata)?;
        let advice = "give the instance or the service account (IRSA, Pod Identity) a role";
        let exchange = Box::new(TokenEndpoint::local(&url, timing, advice));
        Ok(Self::Metadata { url, exchange })
    }

    /// Reads the secrets of this source, and returns how often they have changed so far.
    pub(super) async fn read(&self, reload: Reload) -> Result<(Vec<Secret>, u64), TransportError> {
        let files: Vec<_> = match self {
            Self::Keys { id, secret, session } => [id, secret].into_iter().chain(session).collect(),
            Self::WebIdentity { token, .. } => vec![token],
            Self::ContainerAgent { token, .. } => token.iter().collect(),
            Self::Metadata { .. } => Vec::new(),
        };
        let mut secrets = Vec::new();
        let mut changes = 0;
        for file in files {
            let (secret, file_changes) = file.read(reload).await?;
            secrets.push(secret);
            changes += file_changes;
        }
        Ok((secrets, changes))
    }

    /// Fetches credentials with these secrets.
    pub(super) async fn fetch(
        &self,
        read: &[Secret],
        clock: &WallClock,
    ) -> Result<FetchedToken<Credentials>, TransportError> {
        let first = read.first().cloned().unwrap_or_default();
        let secrets: Vec<_> = read.iter().collect();
        match self {
            Self::Keys { .. } => {
                let secret = read.get(1).cloned().unwrap_or_default();
                let value = Credentials { id: first, secret, session: read.get(2).cloned() };
                Ok(FetchedToken { value, expires_in: None })
            }
            Self::WebIdentity { role, session, sts, exchange, .. } => {
                let fields = [
                    ("Action", "AssumeRoleWithWebIdentity"),
                    ("Version", STS_VERSION),
                    ("RoleArn", role.as_str()),
                    ("RoleSessionName", session.as_str()),
                    ("WebIdentityToken", first.reveal()),
                ];
                let response =
                    exchange.text(TokenRequest::form(sts.clone(), &fields, &secrets)).await?;
                from_sts(&response, exchange, sts, clock)
            }
            Self::ContainerAgent { url, exchange, .. } => {
                let mut request = TokenRequest::get(url.clone());
                if !first.is_empty() {
                    request = request.with("authorization", first.reveal())?;
                }
                request.secrets = &secrets;
                from_json(&exchange.json(request).await?, exchange, url, clock)
            }
            Self::Metadata { url, exchange } => from_metadata(url, exchange, clock).await,
        }
    }
}

/// Parses the XML response of STS.
pub(super) fn from_sts(
    response: &str,
    exchange: &TokenEndpoint,
    sts: &Url,
    clock: &WallClock,
) -> Result<FetchedToken<Credentials>, TransportError> {
    read(|name| element(response, name), "SessionToken", exchange, sts, clock)
}

/// Parses the JSON response of a container agent or of instance metadata.
fn from_json(
    response: &Value,
    exchange: &TokenEndpoint,
    url: &Url,
    clock: &WallClock,
) -> Result<FetchedToken<Credentials>, TransportError> {
    read(|name| response[name].as_str(), "Token", exchange, url, clock)
}

fn read<'a>(
    field: impl Fn(&str) -> Option<&'a str>,
    session: &str,
    exchange: &TokenEndpoint,
    url: &Url,
    now: &WallClock,
) -> Result<FetchedToken<Credentials>, TransportError> {
    let secret_field = |name: &str| field(name).filter(|text| !text.is_empty()).map(Secret::from);
    let (id, secret) =
        secret_field("AccessKeyId").zip(secret_field("SecretAccessKey")).ok_or_else(|| {
            exchange.refused(&redacted(url), StatusCode::OK, "the response has no credentials")
        })?;
    let end = field("Expiration").and_then(|end| end.parse().ok());
    let value = Credentials { id, secret, session: secret_field(session) };
    Ok(FetchedToken { value, expires_in: end.map(|end| now.until(end)) })
}

/// Queries IMDSv2: starts a session, gets the name of the role, then its credentials.
async fn from_metadata(
    base: &Url,
    exchange: &TokenEndpoint,
    clock: &WallClock,
) -> Result<FetchedToken<Credentials>, TransportError> {
    let at = |path: &str| {
        let mut url = base.clone();
        url.set_path(path);
        url
    };
    let request =
        TokenRequest { method: Method::PUT, ..TokenRequest::get(at("/latest/api/token")) };
    let request = request.with("x-aws-ec2-metadata-token-ttl-seconds", METADATA_SESSION)?;
    let session = Secret::from(exchange.text(request).await?);
    let get =
        |path: &str| TokenRequest::get(at(path)).with("x-aws-ec2-metadata-token", session.reveal());
    let roles = exchange.text(get(ROLES)?).await?;
    let role = roles.lines().next().map(str::trim).filter(|role| !role.is_empty());
    let role = role.ok_or_else(|| {
        exchange.refused(&redacted(base), StatusCode::OK, "the instance has no role")
    })?;
    let url = at(&format!("{ROLES}{role}"));
    let response = exchange.json(get(url.path())?).await?;
    from_json(&response, exchange, &url, clock)
}

/// Whether the agent's token may be sent to this address.
fn is_agent(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    url.scheme() == "https" || is_loopback(url) || AGENTS.contains(&host)
}
