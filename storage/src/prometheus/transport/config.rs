//! What a door is made of: an address, how it is encrypted, who asks. Plain data, without secrets that show.

use std::{fmt, path::PathBuf, time::Duration};

use reqwest::Url;

use super::{Secret, redacted};

/// What a token for Azure Monitor's Prometheus is for.
pub const AZURE_MONITOR_SCOPE: &str = "https://prometheus.monitor.azure.com/.default";
/// What a token for Google's Prometheus is for.
pub const GOOGLE_MONITORING_SCOPE: &str = "https://www.googleapis.com/auth/monitoring.read";
/// The name by which AWS signs for its Prometheus.
pub const AWS_PROMETHEUS_SERVICE: &str = "aps";

/// A server, and how to be let in.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TransportConfig {
    /// Its base URL, with the path before `/api/v1`. A name and password in it are signed in with, and never shown.
    pub address: String,
    /// How it is encrypted.
    pub tls: Tls,
    /// Who asks.
    pub auth: AuthConfig,
    /// What every request says besides.
    pub headers: Vec<Header>,
    /// Whose series are asked for: `X-Scope-OrgID`, for Mimir, Cortex and Loki's family.
    pub tenant: Option<String>,
    /// How often files are looked at.
    pub timing: AuthTiming,
}

impl fmt::Debug for TransportConfig {
    /// The address without what may be secret in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address =
            Url::parse(&self.address).map_or_else(|_| String::new(), |url| redacted(&url));
        f.debug_struct("DoorConfig")
            .field("address", &address)
            .field("tls", &self.tls)
            .field("sign_in", &self.auth)
            .field("headers", &self.headers)
            .field("tenant", &self.tenant)
            .field("pace", &self.timing)
            .finish()
    }
}

/// How often, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthTiming {
    /// The least time between two looks at the same file. A refusal looks at once.
    pub reload_interval: Duration,
    /// How long the exchange for a token may take.
    pub token_timeout: Duration,
}

impl Default for AuthTiming {
    /// Looking is reading a few small files: it may be often. A token comes in well below a second.
    fn default() -> Self {
        Self { reload_interval: Duration::from_secs(5), token_timeout: Duration::from_secs(30) }
    }
}

/// How a connection is encrypted. Files are read again when they changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Whether any certificate of the server will do.
    pub insecure_skip_verify: bool,
    /// The authorities to trust instead of the system's, PEM.
    pub ca_file: Option<PathBuf>,
    /// Who we are.
    pub client_certificate: Option<ClientCertificateFiles>,
}

/// A client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificateFiles {
    /// The certificate, and those between it and its authority, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

/// A word from where it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// As it was given.
    Literal(Secret),
    /// In a file, without the blanks around it; read again when it changed.
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

/// A header that every request has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: SecretSource,
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuthConfig {
    /// Nobody in particular.
    #[default]
    None,
    /// A name and its password.
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: SecretSource,
    },
    /// Whoever has this token; a file may be rotated.
    Bearer(SecretSource),
    /// A client of an authorization server, by its own credentials.
    OAuth2(OAuth2),
    /// A principal of AWS: every request is signed (Signature Version 4).
    Aws(Box<Aws>),
    /// A service account of Google.
    Google(Google),
    /// An identity of Azure.
    Azure(Azure),
}

/// OAuth 2 client credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuth2 {
    /// Where tokens are had.
    pub token_url: String,
    /// How that server's connection is encrypted.
    pub tls: Tls,
    /// The client's name.
    pub client_id: String,
    /// The client's secret.
    pub client_secret: SecretSource,
    /// What the token is for.
    pub scopes: Vec<String>,
    /// Whatever else the server wants to know: `audience`, `resource`, ...
    pub parameters: Vec<(String, String)>,
}

/// Where credentials of AWS come from: the first of these that is there, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aws {
    /// The region that is signed for.
    pub region: String,
    /// The service that is signed for: [`AWS_PROMETHEUS`].
    pub service: String,
    /// A role to take on with those credentials.
    pub role_arn: Option<String>,
    /// Keys that were given.
    pub keys: Option<AwsKeys>,
    /// A token of the cluster, for a role (IRSA).
    pub web_identity: Option<AwsWebIdentity>,
    /// An agent beside the pod (EKS Pod Identity, ECS).
    pub container_agent: Option<AwsContainerAgent>,
    /// The instance's metadata (IMDSv2).
    pub metadata_endpoint: Option<String>,
    /// The token service.
    pub sts_endpoint: String,
    /// What sessions are called in the trail.
    pub session_name: String,
}

/// Keys of AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsKeys {
    /// The name of the key.
    pub access_key_id: SecretSource,
    /// The key.
    pub secret_access_key: SecretSource,
    /// What temporary keys have besides.
    pub session_token: Option<SecretSource>,
}

/// A token of the cluster, for a role of AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsWebIdentity {
    /// The file with the token.
    pub token_file: PathBuf,
    /// The role.
    pub role_arn: String,
}

/// An agent that hands out credentials of AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsContainerAgent {
    /// Where it listens.
    pub url: String,
    /// What it wants to hear.
    pub token: Option<SecretSource>,
}

impl Aws {
    /// What AWS's own tools would take from the environment, into which `variable` looks. Profiles in
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
        let given = |name: &str| variable(name).map(|word| SecretSource::Literal(word.into()));
        let keys =
            given("AWS_ACCESS_KEY_ID").zip(given("AWS_SECRET_ACCESS_KEY")).map(|(id, secret)| {
                AwsKeys {
                    access_key_id: id,
                    secret_access_key: secret,
                    session_token: given("AWS_SESSION_TOKEN"),
                }
            });
        let web_identity = variable("AWS_WEB_IDENTITY_TOKEN_FILE")
            .zip(variable("AWS_ROLE_ARN"))
            .map(|(token, role)| AwsWebIdentity { token_file: token.into(), role_arn: role });
        let relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
            .map(|path| format!("http://169.254.170.2{path}"));
        let container = relative.or_else(|| variable("AWS_CONTAINER_CREDENTIALS_FULL_URI"));
        let container = container.map(|url| AwsContainerAgent {
            url,
            token: variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
                .map(|path| SecretSource::File(path.into()))
                .or_else(|| given("AWS_CONTAINER_AUTHORIZATION_TOKEN")),
        });
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
        let service = AWS_PROMETHEUS_SERVICE.to_owned();
        Self {
            region,
            service,
            role_arn: None,
            keys,
            web_identity,
            container_agent: container,
            metadata_endpoint: metadata,
            sts_endpoint: sts,
            session_name: session,
        }
    }
}

/// A service account of Google.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Google {
    /// A file with a service account's key, or with how a token of the cluster is exchanged (workload identity
    /// federation). Without one, the metadata server is asked.
    pub credentials_file: Option<PathBuf>,
    /// The metadata server, which is also how GKE's workload identity works.
    pub metadata_endpoint: String,
    /// What the token is for: [`GOOGLE_MONITORING`].
    pub scope: String,
}

impl Google {
    /// What Google's own tools would take from the environment, into which `variable` looks.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let host = variable("GCE_METADATA_HOST");
        let host = host.unwrap_or_else(|| "metadata.google.internal".to_owned());
        Self {
            credentials_file: variable("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from),
            metadata_endpoint: format!("http://{host}"),
            scope: GOOGLE_MONITORING_SCOPE.to_owned(),
        }
    }
}

/// An identity of Azure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Azure {
    /// The application's, or the managed identity's, client id.
    pub client_id: Option<String>,
    /// The directory.
    pub tenant_id: Option<String>,
    /// A file with the cluster's token for that application. Without one, the instance's metadata are asked.
    pub federated_token_file: Option<PathBuf>,
    /// Where directories are asked for tokens.
    pub authority_host: String,
    /// The instance's metadata, where managed identities get tokens.
    pub metadata_endpoint: String,
    /// What the token is for: [`AZURE_MONITOR`].
    pub scope: String,
}

impl Azure {
    /// What Azure's workload identity webhook leaves in the environment, into which `variable` looks.
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
            scope: AZURE_MONITOR_SCOPE.to_owned(),
        }
    }
}
