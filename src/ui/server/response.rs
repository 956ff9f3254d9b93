//! Responses, with the headers that protect pages.

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Response,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use http_body_util::Full;

use crate::ui::assets::Asset;

/// Everything comes from this server, and nothing is in the page itself.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'self'; frame-ancestors 'none'",
);
/// Reports are files with scripts and styles of their own. In a sandbox they belong to no origin, so that their scripts
/// can read nothing of this server.
const REPORT_POLICY: HeaderValue = HeaderValue::from_static(
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

pub(super) type Body = Full<Bytes>;

/// A response with the headers that all have.
pub(super) fn response(media_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::from(body.into()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub(super) fn asset_response(asset: &'static Asset) -> Response<Body> {
    let mut response = response(asset.media_type, asset.text.as_bytes());
    let year = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(CACHE_CONTROL, year);
    response
}

/// The response of a report: a file with scripts and styles of its own.
pub(super) fn report_response(text: Vec<u8>) -> Response<Body> {
    let mut response = response("text/html; charset=utf-8", text);
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, REPORT_POLICY);
    response
}
