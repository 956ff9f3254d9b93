//! Signs requests for AWS with the credentials of the pod.

mod credentials;

use std::time::SystemTime;

use aws_credential_types::Credentials as Keys;
use aws_sigv4::{
    http_request::{self, SignableBody, SignableRequest, SigningSettings},
    sign::v4::SigningParams,
};
use reqwest::{
    Method, Url,
    header::{HeaderMap, HeaderName},
};
use tracing::subscriber::{NoSubscriber, with_default};

use self::credentials::CredentialProvider;
pub(super) use self::credentials::Credentials;
use super::{
    Secret, TransportError, WallClock,
    cached_token::{CachedToken, FetchedToken, TokenSource},
    config::{AuthTiming, Aws},
    reloading_file::Reload,
    token_endpoint::{TokenEndpoint, hidden, url},
};

/// The API version of STS. There is only one.
const STS_VERSION: &str = "2011-06-15";

/// Gets AWS credentials, assumes a role if configured, and signs requests.
#[derive(Debug)]
pub(super) struct AwsAuthenticator {
    pub(super) signer: SigV4Signer,
    credentials: AwsCredentials,
}

#[derive(Debug)]
enum AwsCredentials {
    Own(Box<CachedToken<CredentialProvider>>),
    Assumed(Box<CachedToken<AssumedRole>>),
}

/// A role that is assumed with the pod's own credentials.
#[derive(Debug)]
struct AssumedRole {
    own: CachedToken<CredentialProvider>,
    arn: String,
    session: String,
    sts: TokenEndpoint,
    signer: SigV4Signer,
}

/// Signs requests to a service with Signature Version 4.
#[derive(Clone, Debug)]
pub(super) struct SigV4Signer {
    region: String,
    service: String,
    clock: WallClock,
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
        let (region, service) = (aws.region.clone(), aws.service.clone());
        let signer = SigV4Signer { region, service, clock: clock.clone() };
        let (role, session) = (aws.role_arn.clone(), aws.session_name.clone());
        let sts = role.as_ref().map(|_| url("the AWS STS endpoint", &aws.sts_endpoint));
        let interval = timing.reload_interval;
        let own = CachedToken::new(CredentialProvider::new(aws, timing, clock)?, interval);
        let credentials = match role.zip(sts) {
            Some((arn, sts)) => {
                let advice = "check the role, its trust policy and the permission sts:AssumeRole";
                let sts = TokenEndpoint::new(sts?, timing, advice);
                let signer = SigV4Signer { service: "sts".to_owned(), ..signer.clone() };
                let role = AssumedRole { own, arn, session, sts, signer };
                AwsCredentials::Assumed(CachedToken::new(role, interval).into())
            }
            None => AwsCredentials::Own(own.into()),
        };
        Ok(Self { signer, credentials })
    }

    pub(super) async fn credentials(&self, reload: Reload) -> Result<Credentials, TransportError> {
        match &self.credentials {
            AwsCredentials::Own(own) => own.get(reload).await,
            AwsCredentials::Assumed(role) => role.get(reload).await,
        }
    }
}

impl TokenSource for AssumedRole {
    type Token = Credentials;

    async fn secrets(&self, reload: Reload) -> Result<Vec<Secret>, TransportError> {
        let Credentials { id, secret, session } = self.own.get(reload).await?;
        Ok([id, secret].into_iter().chain(session).collect())
    }

    async fn fetch(&self, secrets: &[Secret]) -> Result<FetchedToken<Credentials>, TransportError> {
        let fields = [
            ("Action", "AssumeRole"),
            ("Version", STS_VERSION),
            ("RoleArn", self.arn.as_str()),
            ("RoleSessionName", self.session.as_str()),
        ];
        let own = Credentials::new(secrets);
        let mut request = self.sts.form(&fields, secrets.get(1..).unwrap_or_default());
        let body = request.body.as_bytes();
        self.signer.sign(&own, &request.method, &request.url, &mut request.headers, body)?;
        credentials::from_sts(&self.sts.text(request).await?, &self.sts, &self.signer.clock)
    }
}

impl SigV4Signer {
    /// Adds the signature to the headers. It covers all of them, so they must not change afterwards.
    pub(super) fn sign(
        &self,
        credentials: &Credentials,
        method: &Method,
        url: &Url,
        headers: &mut HeaderMap,
        body: &[u8],
    ) -> Result<(), TransportError> {
        // None of this fails for requests that can be sent, so the details of the crate's errors are dropped.
        let unsignable = || TransportError::setting("the request", "it cannot be signed for AWS");
        let Credentials { id, secret, session } = credentials;
        let session = session.as_ref().map(|session| session.reveal().to_owned());
        let identity = Keys::new(id.reveal(), secret.reveal(), session, None, "plimsoll").into();
        let parameters = SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(&self.service)
            .time(SystemTime::from(jiff::Timestamp::from(self.clock.now())))
            .settings(SigningSettings::default())
            .build()
            .map_err(|_| unsignable())?
            .into();
        let texts: Vec<_> = headers
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
            .collect();
        let body = SignableBody::Bytes(body);
        let request = SignableRequest::new(method.as_str(), url.as_str(), texts.into_iter(), body)
            .map_err(|_| unsignable())?;
        // The crate traces what it signs, including secret headers and session tokens.
        let output = with_default(NoSubscriber::new(), || http_request::sign(request, &parameters));
        let (instructions, _) = output.map_err(|_| unsignable())?.into_parts();
        for (name, value) in instructions.headers() {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unsignable())?;
            headers.insert(name, hidden("the signature", value)?);
        }
        Ok(())
    }
}
