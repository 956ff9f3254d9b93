//! Adds credentials to requests.

use reqwest::{
    Method, Url,
    header::{AUTHORIZATION, HeaderMap},
};

#[cfg(feature = "aws")]
use super::aws;
use super::{
    Secret, TransportError, WallClock, azure,
    config::{AuthConfig, AuthTiming},
    google, oauth,
    reloading_file::{Reload, ReloadingFile},
    token_endpoint::hidden,
};

/// Provides credentials for requests.
#[derive(Debug)]
pub(super) enum Authenticator {
    None,
    Basic {
        user: String,
        password: ReloadingFile,
    },
    Bearer(ReloadingFile),
    OAuth2(Box<oauth::OAuth2Authenticator>),
    #[cfg(feature = "aws")]
    Aws(Box<aws::AwsAuthenticator>),
    Google(Box<google::GoogleAuthenticator>),
    Azure(Box<azure::AzureAuthenticator>),
}

/// The credentials of one request.
#[derive(Debug)]
pub(super) enum RequestAuth {
    None,
    Authorization(Secret),
    #[cfg(feature = "aws")]
    SigV4(Box<aws::SigV4Signer>),
}

impl Authenticator {
    pub(super) fn new(
        auth: AuthConfig,
        timing: AuthTiming,
        clock: WallClock,
    ) -> Result<Self, TransportError> {
        Ok(match auth {
            AuthConfig::None => Self::None,
            AuthConfig::Basic { user, password } => {
                if user.contains(':') {
                    let why = "it contains a colon, which separates it from the password";
                    return Err(TransportError::setting("the user name", why));
                }
                Self::Basic {
                    user,
                    password: ReloadingFile::new("the password", password, timing.reload_interval),
                }
            }
            AuthConfig::Bearer(token) => {
                Self::Bearer(ReloadingFile::new("the bearer token", token, timing.reload_interval))
            }
            AuthConfig::OAuth2(oauth) => {
                Self::OAuth2(Box::new(oauth::OAuth2Authenticator::new(oauth, timing)?))
            }
            #[cfg(feature = "aws")]
            AuthConfig::Aws(aws) => {
                Self::Aws(Box::new(aws::AwsAuthenticator::new(*aws, timing, clock)?))
            }
            #[cfg(not(feature = "aws"))]
            AuthConfig::Aws(_) => {
                let why = "this build does not support it: use a build with the feature aws";
                return Err(TransportError::setting("AWS authentication", why));
            }
            AuthConfig::Google(google) => {
                Self::Google(Box::new(google::GoogleAuthenticator::new(google, timing, clock)))
            }
            AuthConfig::Azure(azure) => {
                Self::Azure(Box::new(azure::AzureAuthenticator::new(azure, timing)?))
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

    /// Returns the credentials of the next request, and how often they have changed so far.
    pub(super) async fn request_auth(
        &self,
        reload: Reload,
    ) -> Result<(RequestAuth, u64), TransportError> {
        let bearer = |(token, changes): (Secret, u64)| {
            (RequestAuth::Authorization(format!("Bearer {}", token.reveal()).into()), changes)
        };
        Ok(match self {
            Self::None => (RequestAuth::None, 0),
            Self::Basic { user, password } => {
                let (password, changes) = password.read(reload).await?;
                (RequestAuth::Authorization(oauth::basic(user, password.reveal())), changes)
            }
            Self::Bearer(token) => bearer(token.read(reload).await?),
            Self::OAuth2(client) => bearer(client.token(reload).await?),
            #[cfg(feature = "aws")]
            Self::Aws(signer) => {
                let (request_signer, changes) = signer.request_signer(reload).await?;
                (RequestAuth::SigV4(Box::new(request_signer)), changes)
            }
            Self::Google(account) => bearer(account.token(reload).await?),
            Self::Azure(identity) => bearer(identity.token(reload).await?),
        })
    }
}

impl RequestAuth {
    /// Adds the credentials to a request. Call this last: a signature covers the whole request.
    #[cfg_attr(not(feature = "aws"), expect(unused_variables, reason = "signatures need them"))]
    pub(super) fn apply(
        &self,
        method: &Method,
        url: &Url,
        headers: &mut HeaderMap,
        body: &[u8],
    ) -> Result<(), TransportError> {
        match self {
            Self::None => {}
            Self::Authorization(value) => {
                headers.insert(AUTHORIZATION, hidden("the authorization header", value.reveal())?);
            }
            #[cfg(feature = "aws")]
            Self::SigV4(signer) => {
                let signature = signer.sign(method, url, headers, body)?;
                headers.extend(signature);
            }
        }
        Ok(())
    }
}
