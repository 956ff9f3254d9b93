//! Settings of an HTTP transport: address, TLS, authentication. Plain data whose `Debug` redacts secrets.

use std::{fmt, path::PathBuf, time::Duration};

use plimsoll_core::api::scale_target::TlsConfig;
use reqwest::Url;

use super::{Secret, redacted};

#[derive(Clone, Default, PartialEq, Eq)]
pub struct TransportConfig {
    /// Base URL with the path before `/api/v1`. A user name and password in it are used for basic authentication, and
    /// redacted.
    pub address: String,
    /// TLS settings. Files are reread when they change.
    pub tls: TlsConfig,
    pub auth: AuthConfig,
    pub headers: Vec<Header>,
    /// The tenant in the header `X-Scope-OrgID` (Mimir, Cortex, Loki).
    pub tenant: Option<String>,
    pub timing: AuthTiming,
    /// Whether responses over plain HTTP are compressed, too, for large histories over a network of unknown speed. Plain
    /// HTTP servers are usually nearby: compressing a response takes them longer than sending it, and as much CPU as
    /// evaluating the query.
    pub compresses_plain_http: bool,
}

impl fmt::Debug for TransportConfig {
    /// Omits the parts of the address that may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address =
            Url::parse(&self.address).map_or_else(|_| String::new(), |url| redacted(&url));
        f.debug_struct("TransportConfig")
            .field("address", &address)
            .field("tls", &self.tls)
            .field("auth", &self.auth)
            .field("headers", &self.headers)
            .field("tenant", &self.tenant)
            .field("timing", &self.timing)
            .field("compresses_plain_http", &self.compresses_plain_http)
            .finish()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthTiming {
    /// The minimum time between two checks of a file. A rejected request checks it at once.
    pub reload_interval: Duration,
    pub token_timeout: Duration,
}

impl Default for AuthTiming {
    /// Reading a few small files is cheap, so check them often. A token request takes well below a second.
    fn default() -> Self {
        Self { reload_interval: Duration::from_secs(5), token_timeout: Duration::from_secs(30) }
    }
}

/// Where a secret value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    Literal(Secret),
    /// A file, which is reread when it changes. Surrounding whitespace is trimmed.
    File(PathBuf),
}

impl From<Secret> for SecretSource {
    fn from(secret: Secret) -> Self {
        Self::Literal(secret)
    }
}

impl From<PathBuf> for SecretSource {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub name: String,
    pub value: SecretSource,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuthConfig {
    #[default]
    None,
    Basic {
        user: String,
        password: SecretSource,
    },
    /// A bearer token. A token in a file may be rotated.
    Bearer(SecretSource),
    OAuth2(OAuth2),
    /// AWS: every request is signed with Signature Version 4.
    Aws(Box<Aws>),
    Google(Google),
    Azure(Azure),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuth2 {
    pub token_url: String,
    /// TLS settings for the authorization server.
    pub tls: TlsConfig,
    pub client_id: String,
    pub client_secret: SecretSource,
    pub scopes: Vec<String>,
    /// Additional parameters of the token request: `audience`, `resource`, ...
    pub parameters: Vec<(String, String)>,
}

/// AWS settings. Credentials come from the first configured source, in the order of the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aws {
    pub region: String,
    /// The service in signatures: `aps` for Amazon Managed Service for Prometheus.
    pub service: String,
    /// A role to assume with the credentials.
    pub role_arn: Option<String>,
    pub keys: Option<AwsKeys>,
    /// IAM roles for service accounts (IRSA): the file with the service account token, and the ARN of the role.
    pub web_identity: Option<(PathBuf, String)>,
    /// The container credentials agent (EKS Pod Identity, ECS): its URL, and the authorization token that it expects.
    pub container_agent: Option<(String, Option<SecretSource>)>,
    /// The endpoint of the instance metadata service (IMDSv2).
    pub metadata_endpoint: Option<String>,
    /// The endpoint of the Security Token Service (STS).
    pub sts_endpoint: String,
    /// The session name, which CloudTrail records.
    pub session_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsKeys {
    pub access_key_id: SecretSource,
    pub secret_access_key: SecretSource,
    pub session_token: Option<SecretSource>,
}

impl Aws {
    /// Reads the settings from the environment variables of the AWS SDKs, with `variable` as the lookup. Profiles in
    /// `~/.aws` are not read: pods have none.
    pub fn from_environment(
        region: Option<String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let region = region
            .or_else(|| variable("AWS_REGION"))
            .or_else(|| variable("AWS_DEFAULT_REGION"))
            .unwrap_or_default();
        let literal = |name: &str| variable(name).map(|value| SecretSource::Literal(value.into()));
        let keys = literal("AWS_ACCESS_KEY_ID").zip(literal("AWS_SECRET_ACCESS_KEY")).map(
            |(id, secret)| AwsKeys {
                access_key_id: id,
                secret_access_key: secret,
                session_token: literal("AWS_SESSION_TOKEN"),
            },
        );
        let token_file = variable("AWS_WEB_IDENTITY_TOKEN_FILE").map(PathBuf::from);
        let relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
            .map(|path| format!("http://169.254.170.2{path}"));
        let agent = relative.or_else(|| variable("AWS_CONTAINER_CREDENTIALS_FULL_URI"));
        let agent_token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
            .map(|path| SecretSource::File(path.into()))
            .or_else(|| literal("AWS_CONTAINER_AUTHORIZATION_TOKEN"));
        let disabled = variable("AWS_EC2_METADATA_DISABLED")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let metadata = (!disabled).then(|| {
            variable("AWS_EC2_METADATA_SERVICE_ENDPOINT")
                .unwrap_or_else(|| "http://169.254.169.254".to_owned())
        });
        let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let sts = variable("AWS_ENDPOINT_URL_STS")
            .unwrap_or_else(|| format!("https://sts.{region}.{suffix}"));
        let session = variable("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "plimsoll".to_owned());
        let service = "aps".to_owned();
        Self {
            region,
            service,
            role_arn: None,
            keys,
            web_identity: token_file.zip(variable("AWS_ROLE_ARN")),
            container_agent: agent.map(|url| (url, agent_token)),
            metadata_endpoint: metadata,
            sts_endpoint: sts,
            session_name: session,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Google {
    /// A file with a service account key or a workload identity federation configuration. `None` uses the metadata
    /// server.
    pub credentials_file: Option<PathBuf>,
    /// The metadata server, which also provides tokens for GKE workload identity.
    pub metadata_endpoint: String,
    /// The token scope.
    pub scope: String,
}

impl Google {
    /// Reads the settings from the environment variables of the Google SDKs, with `variable` as the lookup.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let host = variable("GCE_METADATA_HOST");
        let host = host.unwrap_or_else(|| "metadata.google.internal".to_owned());
        Self {
            credentials_file: variable("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from),
            metadata_endpoint: format!("http://{host}"),
            scope: "https://www.googleapis.com/auth/monitoring.read".to_owned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Azure {
    /// The client ID of the application or the managed identity.
    pub client_id: Option<String>,
    pub tenant_id: Option<String>,
    /// The file with the federated token (workload identity). `None` uses the instance metadata service.
    pub federated_token_file: Option<PathBuf>,
    /// The authority host that issues tokens.
    pub authority_host: String,
    /// The instance metadata service, which issues tokens for managed identities.
    pub metadata_endpoint: String,
    /// The token scope.
    pub scope: String,
}

impl Azure {
    /// Reads the settings from the environment variables that the Azure workload identity webhook sets, with `variable` as
    /// the lookup.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let authority = variable("AZURE_AUTHORITY_HOST");
        Self {
            client_id: variable("AZURE_CLIENT_ID"),
            tenant_id: variable("AZURE_TENANT_ID"),
            federated_token_file: variable("AZURE_FEDERATED_TOKEN_FILE").map(PathBuf::from),
            authority_host: authority
                .unwrap_or_else(|| "https://login.microsoftonline.com".to_owned()),
            metadata_endpoint: "http://169.254.169.254".to_owned(),
            scope: "https://prometheus.monitor.azure.com/.default".to_owned(),
        }
    }
}
