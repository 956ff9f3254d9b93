//! AdmissionReview, `admission.k8s.io/v1`: requests and responses.

use std::borrow::Cow;

use async_trait::async_trait;
use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::Status};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// An admission request that borrows from its body. Objects stay raw JSON: the reviewer of the kind parses what it
/// needs.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionRequest<'a> {
    /// Identifies the request; the response repeats it.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    #[serde(borrow)]
    pub kind: GroupVersionKind<'a>,
    #[serde(borrow)]
    pub resource: GroupVersionResource<'a>,
    /// The kind that the client used.
    #[serde(borrow)]
    pub request_kind: Option<GroupVersionKind<'a>>,
    /// Name of the object; empty if the server generates one.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    #[serde(borrow)]
    pub namespace: Cow<'a, str>,
    #[serde(borrow)]
    pub operation: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "text")]
    pub object: Option<&'a str>,
    #[serde(borrow, deserialize_with = "text")]
    pub old_object: Option<&'a str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GroupVersionKind<'a> {
    /// API group; empty for the core group.
    #[serde(borrow)]
    pub group: Cow<'a, str>,
    #[serde(borrow)]
    pub version: Cow<'a, str>,
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GroupVersionResource<'a> {
    /// API group; empty for the core group.
    #[serde(borrow)]
    pub group: Cow<'a, str>,
    #[serde(borrow)]
    pub version: Cow<'a, str>,
    /// Plural resource name, such as `pods`.
    #[serde(borrow)]
    pub resource: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct Review<'a> {
    #[serde(borrow, default)]
    request: Option<AdmissionRequest<'a>>,
}

fn text<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a str>, D::Error> {
    Ok(Option::<&RawValue>::deserialize(from)?.map(RawValue::get))
}

/// Parses a review. The error is a label value for metrics.
pub(super) fn parse_review(body: &[u8]) -> Result<AdmissionRequest<'_>, &'static str> {
    const UNREADABLE: &str = "unreadable_review";
    // Serde would accept a JSON array as the fields in order.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(UNREADABLE);
    }
    let review: Review<'_> = serde_json::from_slice(body).map_err(|_| UNREADABLE)?;
    review.request.ok_or("no_request")
}

#[async_trait]
pub trait Reviewer: Send + Sync {
    /// The `resource` label in upstream's metrics, such as `Pod`.
    fn resource(&self) -> &'static str;

    /// Decides a review. The caller stops waiting when the API server's timeout is near.
    async fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionDecision;
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmissionDecision {
    /// A JSON patch, if anything changes.
    pub patch: Option<Vec<u8>>,
    pub warnings: Vec<String>,
    /// Why the request is denied; `None` allows it.
    pub denial: Option<Box<Status>>,
    /// The reason for the decision, as a label value.
    pub outcome: &'static str,
}

impl AdmissionDecision {
    pub fn allow(outcome: &'static str) -> Self {
        Self { outcome, ..Self::default() }
    }

    /// Allows the request with these JSON patch operations, if there are any.
    pub fn patch<T: Serialize>(operations: &[T]) -> Result<Self, serde_json::Error> {
        if operations.is_empty() {
            return Ok(Self::allow("unchanged"));
        }
        let mut patch = Vec::with_capacity(2 << 10);
        serde_json::to_writer(&mut patch, operations)?;
        Ok(Self { patch: Some(patch), outcome: "patched", ..Self::default() })
    }

    pub fn deny(status: Status) -> Self {
        Self { denial: Some(Box::new(status)), outcome: "refused", ..Self::default() }
    }

    #[must_use]
    pub fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewReply<'a> {
    kind: &'static str,
    api_version: &'static str,
    response: ReplyResponse<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplyResponse<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

/// Encodes the response to the request with this uid.
pub(super) fn encode_response(uid: &str, decision: AdmissionDecision) -> Vec<u8> {
    let AdmissionDecision { patch, warnings, denial, .. } = decision;
    let patch_type = patch.is_some().then_some("JSONPatch");
    let response = ReplyResponse {
        uid,
        allowed: denial.is_none(),
        status: denial.as_deref(),
        patch: patch.map(ByteString),
        patch_type,
        warnings: &warnings,
    };
    let reply =
        ReviewReply { kind: "AdmissionReview", api_version: "admission.k8s.io/v1", response };
    let mut text = Vec::with_capacity(4 << 10);
    // Strings and bytes only: serialization cannot fail.
    let _ = serde_json::to_writer(&mut text, &reply);
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn encoded(uid: &str, decision: AdmissionDecision) -> Value {
        serde_json::from_slice(&encode_response(uid, decision)).expect("JSON")
    }

    #[test]
    fn a_response_has_only_what_the_api_server_needs() {
        let patched = AdmissionDecision::patch(&[json!({"op": "add"})]).expect("JSON");
        let patched = patched.with_warnings(vec!["old".to_owned()]);
        let expected = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": {
                "uid": "1", "allowed": true, "patchType": "JSONPatch",
                "patch": "W3sib3AiOiJhZGQifV0=", "warnings": ["old"],
            },
        });
        assert_eq!(encoded("1", patched), expected);
        let none = AdmissionDecision::patch::<Value>(&[]).expect("JSON");
        assert_eq!(encoded("", none)["response"], json!({"uid": "", "allowed": true}));
        let status = Status { code: Some(422), message: Some("no".into()), ..Status::default() };
        let refused = encoded("2", AdmissionDecision::deny(status));
        let expected =
            json!({"uid": "2", "allowed": false, "status": {"code": 422, "message": "no"}});
        assert_eq!(refused["response"]["allowed"], expected["allowed"]);
        assert_eq!(refused["response"]["status"]["code"], expected["status"]["code"]);
        assert_eq!(refused["response"].get("patchType"), None);
    }

    #[test]
    fn a_request_is_parsed_with_its_objects_unchanged() {
        let body = br#"{"request": {"uid": "u", "resource": {"group": "", "version": "v1", "resource": "pods"},
                "namespace": "shop", "object": {"a": 1}, "oldObject": null, "options": {"x": []}}}"#;
        let request = parse_review(body).expect("a request");
        assert_eq!((&*request.uid, &*request.resource.resource), ("u", "pods"));
        assert_eq!(request.object, Some(r#"{"a": 1}"#));
        assert!(request.old_object.is_none() && request.request_kind.is_none());
    }

    #[test]
    fn a_review_without_a_request_is_distinguished_from_an_unreadable_one() {
        for (body, expected) in [
            ("", "unreadable_review"),
            ("{", "unreadable_review"),
            ("[]", "unreadable_review"),
            (r#"{"request": 1}"#, "unreadable_review"),
            (r#"{"request": {"object": {"a": 1}"#, "unreadable_review"),
            (r#"{"request": {"object": {}, "object": {}}}"#, "unreadable_review"),
            ("{}", "no_request"),
            (r#"{"request": null}"#, "no_request"),
        ] {
            let body = body.as_bytes();
            assert_eq!(parse_review(body).err(), Some(expected), "{expected:?}");
        }
    }

    proptest! {
        #[test]
        fn parse_review_never_panics(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_review(&body);
        }

        #[test]
        fn every_uid_is_returned(uid in ".*") {
            let body = json!({"request": {"uid": uid}}).to_string();
            let read = parse_review(body.as_bytes()).expect("a request");
            let answer = encoded(&read.uid, AdmissionDecision::allow("x"));
            prop_assert_eq!(answer["response"]["uid"].as_str(), Some(&*uid));
        }
    }
}
