//! Signs requests for AWS with the credentials of the pod.

mod credentials;
mod sign;

use reqwest::{
    Method, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use self::credentials::{CredentialProvider, Credentials};
use super::{
    TransportError, WallClock,
    config::{AuthTiming, Aws},
    reloading_file::Reload,
    token_cache::{FetchedToken, TokenCache},
    token_endpoint::{TokenEndpoint, TokenRequest, url},
};

/// The API version of STS. There is only one.
pub(super) const STS_VERSION: &str = "2011-06-15";

/// Gets AWS credentials, assumes a role if configured, and signs requests.
#[derive(Debug)]
pub(super) struct AwsAuthenticator {
    region: String,
    service: String,
    source: CredentialProvider,
    role: Option<AssumedRole>,
    clock: WallClock,
    cache: TokenCache<Credentials>,
}

/// A role to assume.
#[derive(Debug)]
struct AssumedRole {
    arn: String,
    session: String,
    sts: Url,
    exchange: TokenEndpoint,
    cache: TokenCache<Credentials>,
}

/// Signs one request.
#[derive(Debug)]
pub(super) struct SigV4Signer {
    region: String,
    service: String,
    credentials: Credentials,
    now: WallClock,
}

impl AwsAuthenticator {
    pub(super) fn new(
        aws: Aws,
        timing: AuthTiming,
        clock: WallClock,
    ) -> Result<Self, TransportError> {
        if aws.region.is_empty() {
            let why = "it is not set, and signatures need it";
            return Err(TransportError::setting("the AWS region", why));
        }
        let role = match aws.role_arn.clone() {
            Some(arn) => {
                let sts = url("the AWS STS endpoint", &aws.sts_endpoint)?;
                let advice = "check the role, its trust policy and the permission sts:AssumeRole";
                let exchange = TokenEndpoint::new(&sts, timing, advice);
                let session = aws.session_name.clone();
                Some(AssumedRole {
                    arn,
                    session,
                    sts,
                    exchange,
                    cache: TokenCache::new(timing.reload_interval),
                })
            }
            None => None,
        };
        let (region, service) = (aws.region.clone(), aws.service.clone());
        let source = CredentialProvider::new(aws, timing)?;
        Ok(Self {
            region,
            service,
            source,
            role,
            clock,
            cache: TokenCache::new(timing.reload_interval),
        })
    }

    /// Returns the signer of the next request, and how often the credentials have changed so far.
    pub(super) async fn request_signer(
        &self,
        reload: Reload,
    ) -> Result<(SigV4Signer, u64), TransportError> {
        let (secrets, mut changes) = self.source.read(reload).await?;
        let fetch = self.source.fetch(&secrets, &self.clock);
        let (mut credentials, fetches) = self.cache.get(reload, changes, fetch).await?;
        changes += fetches;
        if let Some(role) = &self.role {
            let fetch = self.assume(role, &credentials);
            let (assumed, fetches) = role.cache.get(reload, changes, fetch).await?;
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
        let mut request = TokenRequest::form(role.sts.clone(), &fields, &secrets);
        let signer = SigV4Signer {
            region: self.region.clone(),
            service: "sts".to_owned(),
            credentials: own.clone(),
            now: self.clock.clone(),
        };
        let mut headers: HeaderMap = request.headers.drain(..).collect();
        let body = request.body.as_deref().unwrap_or_default();
        let signature = signer.sign(&Method::POST, &role.sts, &headers, body.as_bytes())?;
        headers.extend(signature);
        request.headers =
            headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect();
        let response = role.exchange.text(request).await?;
        credentials::from_sts(&response, &role.exchange, &role.sts, &self.clock)
    }
}

impl SigV4Signer {
    /// Returns the headers with the signature. All of `headers` is signed, so it must not change afterwards.
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
