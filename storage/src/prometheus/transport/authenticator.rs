//! Who asks: what a sign-in adds to a request.

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

/// Whoever signs in.
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

/// What lets a request in.
#[derive(Debug)]
pub(super) enum RequestAuth {
    None,
    Authorization(Secret),
    #[cfg(feature = "aws")]
    SigV4(Box<aws::SigV4Signer>),
}

impl Authenticator {
    pub(super) fn new(
        sign_in: AuthConfig,
        pace: AuthTiming,
        now: WallClock,
    ) -> Result<Self, TransportError> {
        Ok(match sign_in {
            AuthConfig::None => Self::None,
            AuthConfig::Basic { user, password } => {
                if user.contains(':') {
                    let why = "it has a colon, which separates it from the password";
                    return Err(TransportError::setting("the name to sign in with", why));
                }
                Self::Basic {
                    user,
                    password: ReloadingFile::new("the password", password, pace.reload_interval),
                }
            }
            AuthConfig::Bearer(word) => {
                Self::Bearer(ReloadingFile::new("the bearer token", word, pace.reload_interval))
            }
            AuthConfig::OAuth2(oauth) => {
                Self::OAuth2(Box::new(oauth::OAuth2Authenticator::new(oauth, pace)?))
            }
            #[cfg(feature = "aws")]
            AuthConfig::Aws(aws) => {
                Self::Aws(Box::new(aws::AwsAuthenticator::new(*aws, pace, now)?))
            }
            #[cfg(not(feature = "aws"))]
            AuthConfig::Aws(_) => {
                let why = "this build has none: take one with the feature aws";
                return Err(TransportError::setting("AWS's sign-in", why));
            }
            AuthConfig::Google(google) => {
                Self::Google(Box::new(google::GoogleAuthenticator::new(google, pace, now)))
            }
            AuthConfig::Azure(azure) => {
                Self::Azure(Box::new(azure::AzureAuthenticator::new(azure, pace)?))
            }
        })
    }

    /// What it signs in with, and what to do when that is refused.
    pub(super) fn refusal_hints(&self) -> (&'static str, &'static str) {
        match self {
            Self::None => ("requests without a sign-in", "set how to sign in"),
            Self::Basic { .. } => ("this name and password", "check both"),
            Self::Bearer(_) => ("this bearer token", "check the token, and whether it expired"),
            Self::OAuth2(_) => {
                ("this client's OAuth 2 token", "check its scopes and parameters (audience)")
            }
            #[cfg(feature = "aws")]
            Self::Aws(_) => ("this AWS signature", "check the region, the keys and the clock"),
            Self::Google(_) => {
                ("this Google service account's token", "check its right monitoring.viewer")
            }
            Self::Azure(_) => (
                "this Azure identity's token",
                "check its role Monitoring Data Reader and the scope",
            ),
        }
    }

    /// What lets the next request in, and how often it changed until now.
    pub(super) async fn request_auth(
        &self,
        fresh: Reload,
    ) -> Result<(RequestAuth, u64), TransportError> {
        let bearer = |(token, changes): (Secret, u64)| {
            (RequestAuth::Authorization(format!("Bearer {}", token.reveal()).into()), changes)
        };
        Ok(match self {
            Self::None => (RequestAuth::None, 0),
            Self::Basic { user, password } => {
                let (password, changes) = password.read(fresh).await?;
                (RequestAuth::Authorization(oauth::basic(user, password.reveal())), changes)
            }
            Self::Bearer(token) => bearer(token.read(fresh).await?),
            Self::OAuth2(client) => bearer(client.token(fresh).await?),
            #[cfg(feature = "aws")]
            Self::Aws(signer) => {
                let (pen, changes) = signer.request_signer(fresh).await?;
                (RequestAuth::SigV4(Box::new(pen)), changes)
            }
            Self::Google(account) => bearer(account.token(fresh).await?),
            Self::Azure(identity) => bearer(identity.token(fresh).await?),
        })
    }
}

impl RequestAuth {
    /// Lets a request in. Last of all: a signature covers what is there.
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
            Self::Authorization(word) => {
                headers.insert(AUTHORIZATION, hidden("what signs in", word.reveal())?);
            }
            #[cfg(feature = "aws")]
            Self::SigV4(pen) => {
                let signed = pen.sign(method, url, headers, body)?;
                headers.extend(signed);
            }
        }
        Ok(())
    }
}
