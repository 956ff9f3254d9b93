//! Requests that are signed for AWS, with credentials from wherever a pod has them.

mod credentials;
mod sign;

use reqwest::{
    Method, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use self::credentials::{CredentialProvider, Credentials};
use super::{
    TransportError, WallClock,
    config::{AuthTiming, Aws, Tls},
    http_clients::ProxyPolicy,
    reloading_file::Reload,
    token_cache::{FetchedToken, TokenCache},
    token_endpoint::{TokenEndpoint, TokenRequest, url},
};

/// The token service's version: it has one.
pub(super) const STS_VERSION: &str = "2011-06-15";

/// Whoever signs.
#[derive(Debug)]
pub(super) struct AwsAuthenticator {
    region: String,
    service: String,
    source: CredentialProvider,
    role: Option<AssumedRole>,
    clock: WallClock,
    cache: TokenCache<Credentials>,
}

/// A role that is taken on.
#[derive(Debug)]
struct AssumedRole {
    arn: String,
    session: String,
    sts: Url,
    exchange: TokenEndpoint,
    cache: TokenCache<Credentials>,
}

/// Credentials that fit a request.
#[derive(Debug)]
pub(super) struct SigV4Signer {
    region: String,
    service: String,
    credentials: Credentials,
    now: WallClock,
}

impl AwsAuthenticator {
    pub(super) fn new(aws: Aws, pace: AuthTiming, now: WallClock) -> Result<Self, TransportError> {
        if aws.region.is_empty() {
            let why = "it is not set, and a signature names it";
            return Err(TransportError::setting("the AWS region", why));
        }
        let role = match aws.role_arn.clone() {
            Some(arn) => {
                let sts = url("AWS's token service", &aws.sts_endpoint)?;
                let advice = "check the role, its trust policy and the right to sts:AssumeRole";
                let exchange = TokenEndpoint::new(
                    Tls::default(),
                    &sts,
                    ProxyPolicy::FromEnvironment,
                    pace,
                    advice,
                );
                let session = aws.session_name.clone();
                Some(AssumedRole {
                    arn,
                    session,
                    sts,
                    exchange,
                    cache: TokenCache::new(pace.reload_interval),
                })
            }
            None => None,
        };
        let (region, service) = (aws.region.clone(), aws.service.clone());
        let source = CredentialProvider::new(aws, pace)?;
        Ok(Self {
            region,
            service,
            source,
            role,
            clock: now,
            cache: TokenCache::new(pace.reload_interval),
        })
    }

    /// What to sign with, and how often it changed until now.
    pub(super) async fn request_signer(
        &self,
        fresh: Reload,
    ) -> Result<(SigV4Signer, u64), TransportError> {
        let (secrets, mut changes) = self.source.read(fresh).await?;
        let fetch = self.source.fetch(&secrets, &self.clock);
        let (mut credentials, fetches) = self.cache.get(fresh, changes, fetch).await?;
        changes += fetches;
        if let Some(role) = &self.role {
            let fetch = self.assume(role, &credentials);
            let (assumed, fetches) = role.cache.get(fresh, changes, fetch).await?;
            credentials = assumed;
            changes += fetches;
        }
        let (region, service) = (self.region.clone(), self.service.clone());
        Ok((SigV4Signer { region, service, credentials, now: self.clock.clone() }, changes))
    }

    async fn assume(
        &self,
        role: &AssumedRole,
        own: &Credentials,
    ) -> Result<FetchedToken<Credentials>, TransportError> {
        let fields = [
            ("Action", "AssumeRole"),
            ("Version", STS_VERSION),
            ("RoleArn", role.arn.as_str()),
            ("RoleSessionName", role.session.as_str()),
        ];
        let secrets = own.secrets();
        let mut asked = TokenRequest::form(role.sts.clone(), &fields, &secrets);
        let pen = SigV4Signer {
            region: self.region.clone(),
            service: "sts".to_owned(),
            credentials: own.clone(),
            now: self.clock.clone(),
        };
        let mut headers: HeaderMap = asked.headers.drain(..).collect();
        let body = asked.body.as_deref().unwrap_or_default();
        let signed = pen.sign(&Method::POST, &role.sts, &headers, body.as_bytes())?;
        headers.extend(signed);
        asked.headers =
            headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect();
        let answer = role.exchange.text(asked).await?;
        credentials::from_sts(&answer, &role.exchange, &role.sts, &self.clock)
    }
}

impl SigV4Signer {
    /// The headers that make a request a signed one. All that is in `headers` is signed, so it must not change after.
    pub(super) fn sign(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Vec<(HeaderName, HeaderValue)>, TransportError> {
        let at = std::time::SystemTime::from(jiff::Timestamp::from((self.now.0)()));
        sign::sign(self, method, url, headers, body, at)
    }
}
