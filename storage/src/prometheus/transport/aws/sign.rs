//! Signature Version 4 with the crate `aws-sigv4`.

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
    signer: &SigV4Signer,
    method: &Method,
    url: &Url,
    headers: &HeaderMap,
    body: &[u8],
    at: SystemTime,
) -> Result<Vec<(HeaderName, HeaderValue)>, TransportError> {
    // None of this fails for requests that can be sent, so the details of the crate's errors are dropped.
    let unsignable = || TransportError::setting("the request", "it cannot be signed for AWS");
    let credentials = &signer.credentials;
    let session = credentials.session.as_ref().map(|session| session.reveal().to_owned());
    let identity =
        Keys::new(credentials.id.reveal(), credentials.secret.reveal(), session, None, "plimsoll")
            .into();
    let parameters = SigningParams::builder()
        .identity(&identity)
        .region(&signer.region)
        .name(&signer.service)
        .time(at)
        .settings(SigningSettings::default())
        .build()
        .map_err(|_| unsignable())?
        .into();
    let header_texts: Vec<_> = headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect();
    let request = SignableRequest::new(
        method.as_str(),
        url.as_str(),
        header_texts.into_iter(),
        SignableBody::Bytes(body),
    )
    .map_err(|_| unsignable())?;
    // The crate traces what it signs, including secret headers and session tokens.
    let output = with_default(NoSubscriber::new(), || http_request::sign(request, &parameters));
    let (instructions, _) = output.map_err(|_| unsignable())?.into_parts();
    instructions
        .headers()
        .map(|(name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unsignable())?;
            Ok((name, hidden("the signature", value)?))
        })
        .collect()
}
