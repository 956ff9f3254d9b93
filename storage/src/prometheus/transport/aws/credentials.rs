//! AWS credentials: static keys, web identity (IRSA), a container agent (EKS Pod Identity, ECS), or instance metadata.

use reqwest::{Method, Url};

use super::STS_VERSION;
use crate::prometheus::transport::{
    Secret, TransportError, WallClock,
    cached_token::{FetchedToken, TokenSource},
    config::{AuthTiming, Aws},
    reloading_client::is_loopback,
    reloading_file::{Reload, ReloadingFile},
    token_endpoint::{TokenEndpoint, TokenRequest, element, url},
};

/// Lifetime of an IMDSv2 session in seconds. Any value works, because each fetch starts a new session.
const METADATA_SESSION: &str = "300";
const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
/// Addresses of the ECS and EKS agents: the only hosts that get the token without TLS.
const AGENTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];

/// An access key ID, its secret, and the session token of temporary credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::prometheus::transport) struct Credentials {
    pub(super) id: Secret,
    pub(super) secret: Secret,
    pub(super) session: Option<Secret>,
}

impl Credentials {
    /// The credentials of these secrets: the ID, the secret, and the session token if there is one.
    pub(super) fn new(secrets: &[Secret]) -> Self {
        let nth = |index| secrets.get(index).cloned();
        let (id, secret) = (nth(0).unwrap_or_default(), nth(1).unwrap_or_default());
        Self { id, secret, session: nth(2) }
    }
}

#[derive(Debug)]
pub(super) struct CredentialProvider {
    source: CredentialSource,
    /// The secrets of the source: keys or a token.
    files: Vec<ReloadingFile>,
    clock: WallClock,
}

#[derive(Debug)]
enum CredentialSource {
    Keys,
    WebIdentity { role: String, session: String, sts: TokenEndpoint },
    ContainerAgent(TokenEndpoint),
    Metadata(TokenEndpoint),
}

impl CredentialProvider {
    pub(super) fn new(
        aws: Aws,
        timing: AuthTiming,
        clock: WallClock,
    ) -> Result<Self, TransportError> {
        let file = |what, source| ReloadingFile::new(what, source, timing.reload_interval);
        let (source, files) = if let Some(keys) = aws.keys {
            let mut files = vec![
                file("the AWS access key id", keys.access_key_id),
                file("the AWS secret access key", keys.secret_access_key),
            ];
            files.extend(keys.session_token.map(|token| file("the AWS session token", token)));
            (CredentialSource::Keys, files)
        } else if let Some((token_file, role)) = aws.web_identity {
            let sts = url("the AWS STS endpoint", &aws.sts_endpoint)?;
            let advice = "check the role, and that its trust policy names this service account";
            let sts = TokenEndpoint::new(sts, timing, advice);
            let files = vec![file("the web identity token", token_file.into())];
            (CredentialSource::WebIdentity { role, session: aws.session_name, sts }, files)
        } else if let Some((address, token)) = aws.container_agent {
            let url = url("the address of the AWS container agent", &address)?;
            if !is_agent(&url) {
                let why = "it must be on this machine or use TLS";
                return Err(TransportError::setting("the address of the AWS container agent", why));
            }
            let advice = "check the pod identity association of this service account";
            let token = token.map(|token| file("the token of the AWS container agent", token));
            let endpoint = TokenEndpoint::local(url, timing, advice);
            (CredentialSource::ContainerAgent(endpoint), token.into_iter().collect())
        } else if let Some(metadata) = aws.metadata_endpoint {
            let url = url("the AWS metadata server", &metadata)?;
            let advice = "give the instance or the service account (IRSA, Pod Identity) a role";
            let endpoint = TokenEndpoint::local(url, timing, advice);
            (CredentialSource::Metadata(endpoint), Vec::new())
        } else {
            let why =
                "there are no keys, no web identity, no container agent and no instance metadata";
            return Err(TransportError::setting("AWS authentication", why));
        };
        Ok(Self { source, files, clock })
    }

    /// Parses the JSON response of a container agent or of instance metadata.
    async fn json_credentials(
        &self,
        endpoint: &TokenEndpoint,
        request: TokenRequest<'_>,
    ) -> Result<FetchedToken<Credentials>, TransportError> {
        let response = endpoint.json(request).await?;
        parse(|name| response[name].as_str(), "Token", endpoint, &self.clock)
    }

    /// Queries IMDSv2: starts a session, gets the name of the role, then its credentials.
    async fn metadata_credentials(
        &self,
        endpoint: &TokenEndpoint,
    ) -> Result<FetchedToken<Credentials>, TransportError> {
        let request = endpoint.get_path("/latest/api/token");
        let request = request.with("x-aws-ec2-metadata-token-ttl-seconds", METADATA_SESSION)?;
        let request = TokenRequest { method: Method::PUT, ..request };
        let session = Secret::from(endpoint.text(request).await?);
        let get =
            |path: &str| endpoint.get_path(path).with("x-aws-ec2-metadata-token", session.reveal());
        let roles = endpoint.text(get(ROLES)?).await?;
        let role = roles.lines().next().map(str::trim).filter(|role| !role.is_empty());
        let role = role.ok_or_else(|| endpoint.refused("the instance has no role"))?;
        self.json_credentials(endpoint, get(&format!("{ROLES}{role}"))?).await
    }
}

impl TokenSource for CredentialProvider {
    type Token = Credentials;

    async fn secrets(&self, reload: Reload) -> Result<Vec<Secret>, TransportError> {
        let mut secrets = Vec::new();
        for file in &self.files {
            secrets.push(file.read(reload).await?);
        }
        Ok(secrets)
    }

    async fn fetch(&self, secrets: &[Secret]) -> Result<FetchedToken<Credentials>, TransportError> {
        match &self.source {
            CredentialSource::Keys => {
                Ok(FetchedToken { value: Credentials::new(secrets), expires_in: None })
            }
            CredentialSource::WebIdentity { role, session, sts } => {
                let fields = [
                    ("Action", "AssumeRoleWithWebIdentity"),
                    ("Version", STS_VERSION),
                    ("RoleArn", role.as_str()),
                    ("RoleSessionName", session.as_str()),
                    ("WebIdentityToken", secrets.first().map_or("", Secret::reveal)),
                ];
                let response = sts.text(sts.form(&fields, secrets)).await?;
                from_sts(&response, sts, &self.clock)
            }
            CredentialSource::ContainerAgent(endpoint) => {
                let mut request = endpoint.get(secrets);
                if let Some(token) = secrets.first() {
                    request = request.with("authorization", token.reveal())?;
                }
                self.json_credentials(endpoint, request).await
            }
            CredentialSource::Metadata(endpoint) => self.metadata_credentials(endpoint).await,
        }
    }
}

pub(super) fn from_sts(
    response: &str,
    sts: &TokenEndpoint,
    clock: &WallClock,
) -> Result<FetchedToken<Credentials>, TransportError> {
    parse(|name| element(response, name), "SessionToken", sts, clock)
}

fn parse<'a>(
    field: impl Fn(&str) -> Option<&'a str>,
    session: &str,
    endpoint: &TokenEndpoint,
    clock: &WallClock,
) -> Result<FetchedToken<Credentials>, TransportError> {
    let secret_field = |name: &str| field(name).filter(|text| !text.is_empty()).map(Secret::from);
    let keys = secret_field("AccessKeyId").zip(secret_field("SecretAccessKey"));
    let (id, secret) = keys.ok_or_else(|| endpoint.refused("the response has no credentials"))?;
    let end = field("Expiration").and_then(|end| end.parse().ok());
    let value = Credentials { id, secret, session: secret_field(session) };
    Ok(FetchedToken { value, expires_in: end.map(|end| clock.until(end)) })
}

/// Whether the agent's token may be sent to this address.
fn is_agent(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    url.scheme() == "https" || is_loopback(url) || AGENTS.contains(&host)
}
