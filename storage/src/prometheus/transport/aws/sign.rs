//! Signature Version 4, by AWS's own crate.

use std::time::SystemTime;

use aws_credential_types::Credentials as Keys;
use aws_sigv4::{
    http_request::{self, SignableBody, SignableRequest, SigningSettings},
    sign::v4::SigningParams,
};
use reqwest::{
    Method, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use tracing::subscriber::{NoSubscriber, with_default};

use super::{super::TransportError, SigV4Signer};
use crate::prometheus::transport::token_endpoint::hidden;

pub(super) fn sign(
    pen: &SigV4Signer,
    method: &Method,
    url: &Url,
    headers: &HeaderMap,
    body: &[u8],
    at: SystemTime,
) -> Result<Vec<(HeaderName, HeaderValue)>, TransportError> {
    // None of this fails for requests that can be sent; the crate's words name no secret, but are not needed either.
    let odd = || TransportError::setting("the request", "AWS's signature cannot be made for it");
    let own = &pen.credentials;
    let session = own.session.as_ref().map(|session| session.reveal().to_owned());
    let identity =
        Keys::new(own.id.reveal(), own.secret.reveal(), session, None, "plimsoll").into();
    let parameters = SigningParams::builder()
        .identity(&identity)
        .region(&pen.region)
        .name(&pen.service)
        .time(at)
        .settings(SigningSettings::default())
        .build()
        .map_err(|_| odd())?
        .into();
    let signed: Vec<_> = headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect();
    let request = SignableRequest::new(
        method.as_str(),
        url.as_str(),
        signed.into_iter(),
        SignableBody::Bytes(body),
    )
    .map_err(|_| odd())?;
    // The crate traces what it signs, secret headers and session tokens included.
    let signed = with_default(NoSubscriber::new(), || http_request::sign(request, &parameters));
    let (instructions, _) = signed.map_err(|_| odd())?.into_parts();
    instructions
        .headers()
        .map(|(name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| odd())?;
            Ok((name, hidden("the signature", value)?))
        })
        .collect()
}
