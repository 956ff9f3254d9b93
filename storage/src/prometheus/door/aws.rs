//! Requests that are signed for AWS, with credentials from wherever a pod has them.

mod credentials;
mod sign;

use reqwest::{
    Method, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use self::credentials::{Credentials, Source};
use super::{
    DoorError, Wall,
    config::{Aws, Pace, Tls},
    exchange::{Asked, Exchange, url},
    file::Fresh,
    tls::Reach,
    token::{Cache, Fetched},
};

/// The token service's version: it has one.
pub(super) const STS_VERSION: &str = "2011-06-15";

/// Whoever signs.
#[derive(Debug)]
pub(super) struct Signer {
    region: String,
    service: String,
    source: Source,
    role: Option<Role>,
    now: Wall,
    cache: Cache<Credentials>,
}

/// A role that is taken on.
#[derive(Debug)]
struct Role {
    arn: String,
    session: String,
    sts: Url,
    exchange: Exchange,
    cache: Cache<Credentials>,
}

/// Credentials that fit a request.
#[derive(Debug)]
pub(super) struct Pen {
    region: String,
    service: String,
    credentials: Credentials,
    now: Wall,
}

impl Signer {
    pub(super) fn new(aws: Aws, pace: Pace, now: Wall) -> Result<Self, DoorError> {
        if aws.region.is_empty() {
            let why = "it is not set, and a signature names it";
            return Err(DoorError::setting("the AWS region", why));
        }
        let role = match aws.role.clone() {
            Some(arn) => {
                let sts = url("AWS's token service", &aws.sts)?;
                let advice = "check the role, its trust policy and the right to sts:AssumeRole";
                let exchange = Exchange::new(Tls::default(), &sts, Reach::Far, pace, advice);
                let session = aws.session.clone();
                Some(Role { arn, session, sts, exchange, cache: Cache::new(pace.look) })
            }
            None => None,
        };
        let (region, service) = (aws.region.clone(), aws.service.clone());
        let source = Source::new(aws, pace)?;
        Ok(Self { region, service, source, role, now, cache: Cache::new(pace.look) })
    }

    /// What to sign with, and how often it changed until now.
    pub(super) async fn pen(&self, fresh: Fresh) -> Result<(Pen, u64), DoorError> {
        let (secrets, mut changes) = self.source.read(fresh).await?;
        let fetch = self.source.fetch(&secrets, &self.now);
        let (mut credentials, fetches) = self.cache.get(fresh, changes, fetch).await?;
        changes += fetches;
        if let Some(role) = &self.role {
            let fetch = self.assume(role, &credentials);
            let (assumed, fetches) = role.cache.get(fresh, changes, fetch).await?;
            credentials = assumed;
            changes += fetches;
        }
        let (region, service) = (self.region.clone(), self.service.clone());
        Ok((Pen { region, service, credentials, now: self.now.clone() }, changes))
    }

    async fn assume(
        &self,
        role: &Role,
        own: &Credentials,
    ) -> Result<Fetched<Credentials>, DoorError> {
        let fields = [
            ("Action", "AssumeRole"),
            ("Version", STS_VERSION),
            ("RoleArn", role.arn.as_str()),
            ("RoleSessionName", role.session.as_str()),
        ];
        let secrets = own.secrets();
        let mut asked = Asked::form(role.sts.clone(), &fields, &secrets);
        let pen = Pen {
            region: self.region.clone(),
            service: "sts".to_owned(),
            credentials: own.clone(),
            now: self.now.clone(),
        };
        let mut headers: HeaderMap = asked.headers.drain(..).collect();
        let body = asked.body.as_deref().unwrap_or_default();
        let signed = pen.sign(&Method::POST, &role.sts, &headers, body.as_bytes())?;
        headers.extend(signed);
        asked.headers =
            headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect();
        let answer = role.exchange.text(asked).await?;
        credentials::from_sts(&answer, &role.exchange, &role.sts, &self.now)
    }
}

impl Pen {
    /// The headers that make a request a signed one. All that is in `headers` is signed, so it must not change after.
    pub(super) fn sign(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Vec<(HeaderName, HeaderValue)>, DoorError> {
        let at = std::time::SystemTime::from(jiff::Timestamp::from((self.now.0)()));
        sign::sign(self, method, url, headers, body, at)
    }
}
