//! Credentials of AWS: given, for a token of the cluster, from an agent beside the pod, or from the instance.

use std::net::IpAddr;

use reqwest::{Method, StatusCode, Url};
use serde_json::Value;

use super::STS_VERSION;
use crate::prometheus::transport::{
    Secret, TransportError, WallClock,
    config::{AuthTiming, Aws, Tls},
    http_clients::ProxyPolicy,
    redacted,
    reloading_file::{Reload, ReloadingFile},
    token_cache::FetchedToken,
    token_endpoint::{TokenEndpoint, TokenRequest, element, url},
};

/// How long a session with the metadata lasts; any length will do, as it is asked for each time.
const METADATA_SESSION: &str = "300";
const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
/// Where the agents of ECS and EKS listen: the only hosts that are told the token without encryption.
const AGENTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];

/// A key, what it is called, and what makes it a temporary one.
#[derive(Clone, Debug)]
pub(super) struct Credentials {
    pub(super) id: Secret,
    pub(super) secret: Secret,
    pub(super) session: Option<Secret>,
}

impl Credentials {
    /// What must not be shown.
    pub(super) fn secrets(&self) -> Vec<&Secret> {
        [&self.secret].into_iter().chain(&self.session).collect()
    }
}

/// Where they come from.
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
    /// The first that there is.
    pub(super) fn new(aws: Aws, pace: AuthTiming) -> Result<Self, TransportError> {
        let held = |what, word| ReloadingFile::new(what, word, pace.reload_interval);
        let exchange = |url: &Url, reach, advice| {
            Box::new(TokenEndpoint::new(Tls::default(), url, reach, pace, advice))
        };
        if let Some(keys) = aws.keys {
            return Ok(Self::Keys {
                id: held("the AWS access key id", keys.access_key_id),
                secret: held("the AWS secret access key", keys.secret_access_key),
                session: keys.session_token.map(|word| held("the AWS session token", word)),
            });
        }
        if let Some(identity) = aws.web_identity {
            let sts = url("AWS's token service", &aws.sts_endpoint)?;
            let advice = "check the role, and that its trust policy names this service account";
            let exchange = exchange(&sts, ProxyPolicy::FromEnvironment, advice);
            let token = held("the web identity token", identity.token_file.into());
            let (role, session) = (identity.role_arn, aws.session_name);
            return Ok(Self::WebIdentity { token, role, session, sts, exchange });
        }
        if let Some(agent) = aws.container_agent {
            let url = url("the address of AWS's credentials agent", &agent.url)?;
            if !is_agent(&url) {
                let why = "without TLS it may only be on this machine";
                return Err(TransportError::setting("the address of AWS's credentials agent", why));
            }
            let advice = "check the pod identity association of this service account";
            let exchange = exchange(&url, ProxyPolicy::Never, advice);
            let token = agent.token.map(|word| held("the token of AWS's credentials agent", word));
            return Ok(Self::ContainerAgent { url, token, exchange });
        }
        let metadata = aws.metadata_endpoint.ok_or_else(|| {
            TransportError::setting(
                "AWS's sign-in",
                "there are no keys, no web identity, no agent and no metadata",
            )
        })?;
        let url = url("AWS's metadata server", &metadata)?;
        let advice = "give the instance a role, or the service account one (IRSA, Pod Identity)";
        let exchange = exchange(&url, ProxyPolicy::Never, advice);
        Ok(Self::Metadata { url, exchange })
    }

    /// What they are had for, and how often it changed until now.
    pub(super) async fn read(&self, fresh: Reload) -> Result<(Vec<Secret>, u64), TransportError> {
        let held: Vec<_> = match self {
            Self::Keys { id, secret, session } => [id, secret].into_iter().chain(session).collect(),
            Self::WebIdentity { token, .. } => vec![token],
            Self::ContainerAgent { token, .. } => token.iter().collect(),
            Self::Metadata { .. } => Vec::new(),
        };
        let mut secrets = Vec::new();
        let mut changes = 0;
        for held in held {
            let (secret, times) = held.read(fresh).await?;
            secrets.push(secret);
            changes += times;
        }
        Ok((secrets, changes))
    }

    /// Credentials for those.
    pub(super) async fn fetch(
        &self,
        read: &[Secret],
        now: &WallClock,
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
                let answer =
                    exchange.text(TokenRequest::form(sts.clone(), &fields, &secrets)).await?;
                from_sts(&answer, exchange, sts, now)
            }
            Self::ContainerAgent { url, exchange, .. } => {
                let mut asked = TokenRequest::get(url.clone());
                if !first.is_empty() {
                    asked = asked.with("authorization", first.reveal())?;
                }
                asked.secrets = &secrets;
                from_json(&exchange.json(asked).await?, exchange, url, now)
            }
            Self::Metadata { url, exchange } => from_metadata(url, exchange, now).await,
        }
    }
}

/// What the token service answers, which is XML.
pub(super) fn from_sts(
    answer: &str,
    exchange: &TokenEndpoint,
    sts: &Url,
    now: &WallClock,
) -> Result<FetchedToken<Credentials>, TransportError> {
    read(|name| element(answer, name), "SessionToken", exchange, sts, now)
}

/// What agents and metadata answer.
fn from_json(
    answer: &Value,
    exchange: &TokenEndpoint,
    url: &Url,
    now: &WallClock,
) -> Result<FetchedToken<Credentials>, TransportError> {
    read(|name| answer[name].as_str(), "Token", exchange, url, now)
}

fn read<'a>(
    field: impl Fn(&str) -> Option<&'a str>,
    session: &str,
    exchange: &TokenEndpoint,
    url: &Url,
    now: &WallClock,
) -> Result<FetchedToken<Credentials>, TransportError> {
    let word = |name: &str| field(name).filter(|word| !word.is_empty()).map(Secret::from);
    let (id, secret) = word("AccessKeyId").zip(word("SecretAccessKey")).ok_or_else(|| {
        exchange.refused(&redacted(url), StatusCode::OK, "there are no credentials in its answer")
    })?;
    let end = field("Expiration").and_then(|end| end.parse().ok());
    let value = Credentials { id, secret, session: word(session) };
    Ok(FetchedToken { value, expires_in: end.map(|end| now.until(end)) })
}

/// IMDSv2: a session, the role's name, its credentials.
async fn from_metadata(
    base: &Url,
    exchange: &TokenEndpoint,
    now: &WallClock,
) -> Result<FetchedToken<Credentials>, TransportError> {
    let at = |path: &str| {
        let mut url = base.clone();
        url.set_path(path);
        url
    };
    let asked = TokenRequest { method: Method::PUT, ..TokenRequest::get(at("/latest/api/token")) };
    let asked = asked.with("x-aws-ec2-metadata-token-ttl-seconds", METADATA_SESSION)?;
    let session = Secret::from(exchange.text(asked).await?);
    let get =
        |path: &str| TokenRequest::get(at(path)).with("x-aws-ec2-metadata-token", session.reveal());
    let roles = exchange.text(get(ROLES)?).await?;
    let role = roles.lines().next().map(str::trim).filter(|role| !role.is_empty());
    let role = role.ok_or_else(|| {
        exchange.refused(&redacted(base), StatusCode::OK, "the instance has no role")
    })?;
    let url = at(&format!("{ROLES}{role}"));
    let answer = exchange.json(get(url.path())?).await?;
    from_json(&answer, exchange, &url, now)
}

/// Whether a token may be sent there.
fn is_agent(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let local = host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    url.scheme() == "https" || local || AGENTS.contains(&host)
}
