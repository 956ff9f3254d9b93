//! Who asks: what a sign-in adds to a request.

use reqwest::{
    Method, Url,
    header::{AUTHORIZATION, HeaderMap},
};

#[cfg(feature = "aws")]
use super::aws;
use super::{
    DoorError, Secret, Wall, azure,
    config::{Pace, SignIn},
    exchange::hidden,
    file::{Fresh, Held},
    google, oauth,
};

/// Whoever signs in.
#[derive(Debug)]
pub(super) enum Signer {
    None,
    Basic {
        user: String,
        password: Held,
    },
    Bearer(Held),
    OAuth2(Box<oauth::Client>),
    #[cfg(feature = "aws")]
    Aws(Box<aws::Signer>),
    Google(Box<google::Account>),
    Azure(Box<azure::Identity>),
}

/// What lets a request in.
#[derive(Debug)]
pub(super) enum Pass {
    None,
    Authorization(Secret),
    #[cfg(feature = "aws")]
    Pen(Box<aws::Pen>),
}

impl Signer {
    pub(super) fn new(sign_in: SignIn, pace: Pace, now: Wall) -> Result<Self, DoorError> {
        Ok(match sign_in {
            SignIn::None => Self::None,
            SignIn::Basic { user, password } => {
                if user.contains(':') {
                    let why = "it has a colon, which separates it from the password";
                    return Err(DoorError::setting("the name to sign in with", why));
                }
                Self::Basic { user, password: Held::new("the password", password, pace.look) }
            }
            SignIn::Bearer(word) => Self::Bearer(Held::new("the bearer token", word, pace.look)),
            SignIn::OAuth2(oauth) => Self::OAuth2(Box::new(oauth::Client::new(oauth, pace)?)),
            #[cfg(feature = "aws")]
            SignIn::Aws(aws) => Self::Aws(Box::new(aws::Signer::new(*aws, pace, now)?)),
            #[cfg(not(feature = "aws"))]
            SignIn::Aws(_) => {
                let why = "this build has none: take one with the feature aws";
                return Err(DoorError::setting("AWS's sign-in", why));
            }
            SignIn::Google(google) => {
                Self::Google(Box::new(google::Account::new(google, pace, now)))
            }
            SignIn::Azure(azure) => Self::Azure(Box::new(azure::Identity::new(azure, pace)?)),
        })
    }

    /// What it signs in with, and what to do when that is refused.
    pub(super) fn words(&self) -> (&'static str, &'static str) {
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
    pub(super) async fn pass(&self, fresh: Fresh) -> Result<(Pass, u64), DoorError> {
        let bearer = |(token, changes): (Secret, u64)| {
            (Pass::Authorization(format!("Bearer {}", token.reveal()).into()), changes)
        };
        Ok(match self {
            Self::None => (Pass::None, 0),
            Self::Basic { user, password } => {
                let (password, changes) = password.read(fresh).await?;
                (Pass::Authorization(oauth::basic(user, password.reveal())), changes)
            }
            Self::Bearer(token) => bearer(token.read(fresh).await?),
            Self::OAuth2(client) => bearer(client.token(fresh).await?),
            #[cfg(feature = "aws")]
            Self::Aws(signer) => {
                let (pen, changes) = signer.pen(fresh).await?;
                (Pass::Pen(Box::new(pen)), changes)
            }
            Self::Google(account) => bearer(account.token(fresh).await?),
            Self::Azure(identity) => bearer(identity.token(fresh).await?),
        })
    }
}

impl Pass {
    /// Lets a request in. Last of all: a signature covers what is there.
    #[cfg_attr(not(feature = "aws"), expect(unused_variables, reason = "signatures need them"))]
    pub(super) fn stamp(
        &self,
        method: &Method,
        url: &Url,
        headers: &mut HeaderMap,
        body: &[u8],
    ) -> Result<(), DoorError> {
        match self {
            Self::None => {}
            Self::Authorization(word) => {
                headers.insert(AUTHORIZATION, hidden("what signs in", word.reveal())?);
            }
            #[cfg(feature = "aws")]
            Self::Pen(pen) => {
                let signed = pen.sign(method, url, headers, body)?;
                headers.extend(signed);
            }
        }
        Ok(())
    }
}
