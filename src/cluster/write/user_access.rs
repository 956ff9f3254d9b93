//! Reviews of users: who a token belongs to, and what that user may do. The API server decides; nothing is stored.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{
    Client,
    api::{Api, PostParams},
};
use tokio::time::timeout;

use crate::cluster::list_stream::error_message;

/// Timeout of one review.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A user, as the API server knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReviewedUser {
    pub name: String,
    pub groups: Vec<String>,
    /// The UID; empty if there is none.
    pub uid: String,
    /// Further attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Finds the user of a bearer token; `None` if the token is not valid.
pub async fn review_token(client: &Client, token: &str) -> Result<Option<ReviewedUser>, String> {
    let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: None };
    let review = TokenReview { spec, ..TokenReview::default() };
    let reviews = Api::<TokenReview>::all(client.clone());
    let parameters = PostParams::default();
    let response = timeout(ANSWER_LIMIT, reviews.create(&parameters, &review)).await;
    let response =
        response.map_err(|_| format!("review of a token timed out after {ANSWER_LIMIT:?}"))?;
    let response =
        response.map_err(|error| format!("failed to review a token: {}", error_message(&error)))?;
    let status = response.status.unwrap_or_default();
    if status.authenticated != Some(true) {
        return Ok(None);
    }
    let user = status.user.unwrap_or_default();
    Ok(user.username.filter(|name| !name.is_empty()).map(|name| ReviewedUser {
        name,
        groups: user.groups.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    }))
}

/// Whether a user may list a resource, in a namespace or in all of them.
pub async fn may_list(
    client: &Client,
    user: &ReviewedUser,
    (group, resource): (&str, &str),
    namespace: Option<&str>,
) -> Result<bool, String> {
    let attributes = ResourceAttributes {
        verb: Some("list".to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        namespace: namespace.map(ToOwned::to_owned),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: Some(user.name.clone()),
        groups: Some(user.groups.clone()),
        uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
        extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let reviews = Api::<SubjectAccessReview>::all(client.clone());
    let parameters = PostParams::default();
    let response = timeout(ANSWER_LIMIT, reviews.create(&parameters, &review)).await;
    let response =
        response.map_err(|_| format!("review of access timed out after {ANSWER_LIMIT:?}"))?;
    let response =
        response.map_err(|error| format!("failed to review access: {}", error_message(&error)))?;
    let status = response.status.unwrap_or_default();
    Ok(status.allowed && status.denied != Some(true))
}
