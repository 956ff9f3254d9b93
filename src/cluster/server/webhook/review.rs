//! AdmissionReview, `admission.k8s.io/v1`: what the API server asks, and what it is answered.

use std::borrow::Cow;

use async_trait::async_trait;
use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::Status};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::split_review::SplitReview;

/// What the API server asks, as it lies in the body of its question. Objects are left as they came: whoever knows the kind
/// reads what it needs.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionRequest<'a> {
    /// Which request it is; the answer repeats it.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    /// The kind of the object.
    #[serde(borrow)]
    pub kind: GroupVersionKind<'a>,
    /// What is written to.
    #[serde(borrow)]
    pub resource: GroupVersionResource<'a>,
    /// The kind in the words of whoever wrote it.
    #[serde(borrow)]
    pub request_kind: Option<GroupVersionKind<'a>>,
    /// `status`, `scale`, ...
    pub sub_resource: Option<String>,
    /// Name of the object; empty where the server will make one up.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// Its namespace.
    #[serde(borrow)]
    pub namespace: Cow<'a, str>,
    /// `CREATE`, `UPDATE`, ...
    #[serde(borrow)]
    pub operation: Cow<'a, str>,
    /// Whether nothing will be kept of it.
    pub dry_run: Option<bool>,
    /// The object as it would be.
    #[serde(borrow, deserialize_with = "text")]
    pub object: Option<&'a str>,
    /// The object as it was.
    #[serde(borrow, deserialize_with = "text")]
    pub old_object: Option<&'a str>,
}

/// A kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GroupVersionKind<'a> {
    /// Empty for the core group.
    #[serde(borrow)]
    pub group: Cow<'a, str>,
    /// Of the API.
    #[serde(borrow)]
    pub version: Cow<'a, str>,
    /// Such as `Pod`.
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
}

/// A kind as it stands in paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GroupVersionResource<'a> {
    /// Empty for the core group.
    #[serde(borrow)]
    pub group: Cow<'a, str>,
    /// Of the API.
    #[serde(borrow)]
    pub version: Cow<'a, str>,
    /// Such as `pods`.
    #[serde(borrow)]
    pub resource: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct Review<'a> {
    #[serde(borrow, default)]
    request: Option<AdmissionRequest<'a>>,
}

/// Why there is nothing to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewError {
    /// It is no AdmissionReview.
    Unreadable,
    /// It asks nothing.
    NoRequest,
}

impl ReviewError {
    /// One word, for a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable_review",
            Self::NoRequest => "no_request",
        }
    }
}

fn text<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a str>, D::Error> {
    Ok(Option::<&RawValue>::deserialize(from)?.map(RawValue::get))
}

/// Reads what is asked. `parts` are those of the body, where it has them.
pub(super) fn parse_review<'a>(
    body: &'a [u8],
    parts: Option<&'a SplitReview<'a>>,
) -> Result<AdmissionRequest<'a>, ReviewError> {
    // A list would be taken for the fields in their order.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(ReviewError::Unreadable);
    }
    let rest = parts.map_or(body, |parts| &parts.envelope);
    let review: Review<'a> = serde_json::from_slice(rest).map_err(|_| ReviewError::Unreadable)?;
    let mut request = review.request.ok_or(ReviewError::NoRequest)?;
    if let Some(parts) = parts {
        request.object = parts.object.or(request.object);
        request.old_object = parts.old_object.or(request.old_object);
    }
    Ok(request)
}

/// Somebody who decides about one kind.
#[async_trait]
pub trait Reviewer: Send + Sync {
    /// What the kind is called in upstream's metrics, such as `Pod`.
    fn resource(&self) -> &'static str;

    /// Decides. Nobody waits for it longer than the API server does.
    async fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionDecision;
}

/// A decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmissionDecision {
    /// A JSON patch, if anything changes.
    pub patch: Option<Vec<u8>>,
    /// What whoever wrote the object is told.
    pub warnings: Vec<String>,
    /// Why it is not let through; otherwise it is.
    pub denial: Option<Box<Status>>,
    /// Why it came to that, in one word: the value of a label.
    pub outcome: &'static str,
}

impl AdmissionDecision {
    /// Lets it through as it is.
    pub fn allow(outcome: &'static str) -> Self {
        Self { outcome, ..Self::default() }
    }

    /// Lets it through with these operations, if there are any.
    pub fn patch<T: Serialize>(operations: &[T]) -> Result<Self, serde_json::Error> {
        if operations.is_empty() {
            return Ok(Self::allow("unchanged"));
        }
        let mut patch = Vec::with_capacity(2 << 10);
        serde_json::to_writer(&mut patch, operations)?;
        Ok(Self { patch: Some(patch), outcome: "patched", ..Self::default() })
    }

    /// Does not let it through.
    pub fn deny(status: Status) -> Self {
        Self { denial: Some(Box::new(status)), outcome: "refused", ..Self::default() }
    }

    /// With warnings.
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

/// Writes the answer to the request of that uid.
pub(super) fn encode_response(uid: &str, verdict: AdmissionDecision) -> Vec<u8> {
    let AdmissionDecision { patch, warnings, denial: refusal, .. } = verdict;
    let patch_type = patch.is_some().then_some("JSONPatch");
    let response = ReplyResponse {
        uid,
        allowed: refusal.is_none(),
        status: refusal.as_deref(),
        patch: patch.map(ByteString),
        patch_type,
        warnings: &warnings,
    };
    let answer =
        ReviewReply { kind: "AdmissionReview", api_version: "admission.k8s.io/v1", response };
    let mut text = Vec::with_capacity(4 << 10);
    // Texts and bytes alone: there is nothing in it that JSON could not hold.
    let _ = serde_json::to_writer(&mut text, &answer);
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::server::webhook::split_review::split_review;

    fn written(uid: &str, verdict: AdmissionDecision) -> Value {
        serde_json::from_slice(&encode_response(uid, verdict)).expect("JSON")
    }

    #[test]
    fn an_answer_says_what_the_api_server_needs_and_no_more() {
        let patched = AdmissionDecision::patch(&[json!({"op": "add"})]).expect("JSON");
        let patched = patched.with_warnings(vec!["old".to_owned()]);
        let expected = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": {
                "uid": "1", "allowed": true, "patchType": "JSONPatch",
                "patch": "W3sib3AiOiJhZGQifV0=", "warnings": ["old"],
            },
        });
        assert_eq!(written("1", patched), expected);
        let none = AdmissionDecision::patch::<Value>(&[]).expect("JSON");
        assert_eq!(written("", none)["response"], json!({"uid": "", "allowed": true}));
        let status = Status { code: Some(422), message: Some("no".into()), ..Status::default() };
        let refused = written("2", AdmissionDecision::deny(status));
        let expected =
            json!({"uid": "2", "allowed": false, "status": {"code": 422, "message": "no"}});
        assert_eq!(refused["response"]["allowed"], expected["allowed"]);
        assert_eq!(refused["response"]["status"]["code"], expected["status"]["code"]);
        assert_eq!(refused["response"].get("patchType"), None);
    }

    #[test]
    fn a_request_is_read_with_its_objects_left_as_they_came() {
        let body = br#"{"request": {"uid": "u", "resource": {"group": "", "version": "v1", "resource": "pods"},
                "namespace": "shop", "object": {"a": 1}, "oldObject": null, "options": {"x": []}}}"#;
        let parts = split_review(body);
        assert!(parts.is_some());
        for parts in [None, parts.as_ref()] {
            let request = parse_review(body, parts).expect("a request");
            assert_eq!((&*request.uid, &*request.resource.resource), ("u", "pods"));
            assert_eq!(request.object, Some(r#"{"a": 1}"#));
            assert!(request.old_object.is_none() && request.request_kind.is_none());
        }
    }

    #[test]
    fn what_asks_nothing_is_told_apart_from_what_is_no_review() {
        for (body, expected) in [
            ("", ReviewError::Unreadable),
            ("{", ReviewError::Unreadable),
            ("[]", ReviewError::Unreadable),
            (r#"{"request": 1}"#, ReviewError::Unreadable),
            ("{}", ReviewError::NoRequest),
            (r#"{"request": null}"#, ReviewError::NoRequest),
        ] {
            let body = body.as_bytes();
            assert_eq!(
                parse_review(body, split_review(body).as_ref()).err(),
                Some(expected),
                "{expected:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_review(&body, split_review(&body).as_ref());
        }

        #[test]
        fn every_uid_comes_back(uid in ".*") {
            let body = json!({"request": {"uid": uid}}).to_string();
            let parts = split_review(body.as_bytes());
            let read = parse_review(body.as_bytes(), parts.as_ref()).expect("a request");
            let answer = written(&read.uid, AdmissionDecision::allow("x"));
            prop_assert_eq!(answer["response"]["uid"].as_str(), Some(&*uid));
        }
    }
}
