//! Adds credentials to requests.

use reqwest::{
    Method, Url,
    header::{AUTHORIZATION, HeaderMap},
};

#[cfg(feature = "aws")]
use super::aws;
use super::{
    Secret, TransportError, WallClock,
    azure::AzureIdentity,
    cached_token::CachedToken,
    config::{AuthConfig, AuthTiming},
    google::GoogleAccount,
    oauth::{self, OAuth2Client},
    reloading_file::{Reload, ReloadingFile},
    token_endpoint::hidden,
};

#[derive(Debug)]
pub(super) enum Authenticator {
    None,
    Basic {
        user: String,
        password: ReloadingFile,
    },
    Bearer(ReloadingFile),
    OAuth2(Box<CachedToken<OAuth2Client>>),
    #[cfg(feature = "aws")]
    Aws(Box<aws::AwsAuthenticator>),
    Google(Box<CachedToken<GoogleAccount>>),
    Azure(Box<CachedToken<AzureIdentity>>),
}

#[derive(Debug, PartialEq)]
pub(super) enum RequestAuth {
    None,
    Authorization(Secret),
    #[cfg(feature = "aws")]
    SigV4(Box<aws::Credentials>),
}

impl Authenticator {
    pub(super) fn new(
        auth: AuthConfig,
        timing: AuthTiming,
        clock: WallClock,
    ) -> Result<Self, TransportError> {
        let interval = timing.reload_interval;
        Ok(match auth {
            AuthConfig::None => Self::None,
            AuthConfig::Basic { user, password } => {
                if user.contains(':') {
                    let why = "it contains a colon, which separates it from the password";
                    return Err(TransportError::setting("the user name", why));
                }
                let password = ReloadingFile::new("the password", password, interval);
                Self::Basic { user, password }
            }
            AuthConfig::Bearer(token) => {
                Self::Bearer(ReloadingFile::new("the bearer token", token, interval))
            }
            AuthConfig::OAuth2(oauth) => {
                Self::OAuth2(CachedToken::new(OAuth2Client::new(oauth, timing)?, interval).into())
            }
            #[cfg(feature = "aws")]
            AuthConfig::Aws(aws) => {
                Self::Aws(aws::AwsAuthenticator::new(*aws, timing, clock)?.into())
            }
            #[cfg(not(feature = "aws"))]
            AuthConfig::Aws(_) => {
                let why = "this build does not support it: use a build with the feature aws";
                return Err(TransportError::setting("AWS authentication", why));
            }
            AuthConfig::Google(google) => {
                let account = GoogleAccount::new(google, timing, clock);
                Self::Google(CachedToken::new(account, interval).into())
            }
            AuthConfig::Azure(azure) => {
                Self::Azure(CachedToken::new(AzureIdentity::new(azure, timing)?, interval).into())
            }
        })
    }

    /// Describes the credentials, and what to do when the server rejects them.
    pub(super) fn refusal_hints(&self) -> (&'static str, &'static str) {
        match self {
            Self::None => ("requests without credentials", "configure authentication"),
            Self::Basic { .. } => ("this user name and password", "check both"),
            Self::Bearer(_) => ("this bearer token", "check the token and whether it has expired"),
            Self::OAuth2(_) => {
                ("this client's OAuth 2 token", "check its scopes and its parameters (audience)")
            }
            #[cfg(feature = "aws")]
            Self::Aws(_) => ("this AWS signature", "check the region, the keys and the clock"),
            Self::Google(_) => (
                "this Google service account's token",
                "check that it has the role monitoring.viewer",
            ),
            Self::Azure(_) => (
                "this Azure identity's token",
                "check its role Monitoring Data Reader and the scope",
            ),
        }
    }

    pub(super) async fn request_auth(&self, reload: Reload) -> Result<RequestAuth, TransportError> {
        let token = match self {
            Self::None => return Ok(RequestAuth::None),
            Self::Basic { user, password } => {
                let password = password.read(reload).await?;
                return Ok(RequestAuth::Authorization(oauth::basic(user, password.reveal())));
            }
            #[cfg(feature = "aws")]
            Self::Aws(aws) => return Ok(RequestAuth::SigV4(aws.credentials(reload).await?.into())),
            Self::Bearer(token) => token.read(reload).await?,
            Self::OAuth2(client) => client.get(reload).await?,
            Self::Google(account) => account.get(reload).await?,
            Self::Azure(identity) => identity.get(reload).await?,
        };
        Ok(RequestAuth::Authorization(format!("Bearer {}", token.reveal()).into()))
    }

    /// Adds the credentials to a request. Call this last: a signature covers the whole request.
    #[cfg_attr(not(feature = "aws"), expect(unused_variables, reason = "signatures need them"))]
    pub(super) fn apply(
        &self,
        auth: &RequestAuth,
        method: &Method,
        url: &Url,
        headers: &mut HeaderMap,
        body: &[u8],
    ) -> Result<(), TransportError> {
        match (self, auth) {
            (_, RequestAuth::Authorization(value)) => {
                headers.insert(AUTHORIZATION, hidden("the authorization header", value.reveal())?);
            }
            #[cfg(feature = "aws")]
            (Self::Aws(aws), RequestAuth::SigV4(credentials)) => {
                aws.signer.sign(credentials, method, url, headers, body)?;
            }
            _ => {}
        }
        Ok(())
    }
}
