//! Reviews of users: who a token belongs to, and what that user may do. The API server decides; nothing is stored.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{
    Client, Resource,
    api::{Api, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use crate::cluster::list_stream::error_message;

const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A user, as the API server knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReviewedUser {
    pub name: String,
    pub groups: Vec<String>,
    /// The UID; empty if there is none.
    pub uid: String,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Finds the user of a bearer token; `None` if the token is not valid.
pub async fn review_token(client: &Client, token: &str) -> Result<Option<ReviewedUser>, String> {
    let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: None };
    let review = TokenReview { spec, ..TokenReview::default() };
    let status = create(client, "a token", &review).await?.status.unwrap_or_default();
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
    let status = create(client, "access", &review).await?.status.unwrap_or_default();
    Ok(status.allowed && status.denied != Some(true))
}

async fn create<K>(client: &Client, what: &str, review: &K) -> Result<K, String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let (reviews, parameters) = (Api::<K>::all(client.clone()), PostParams::default());
    let response = timeout(ANSWER_LIMIT, reviews.create(&parameters, review)).await;
    let response =
        response.map_err(|_| format!("review of {what} timed out after {ANSWER_LIMIT:?}"))?;
    response.map_err(|error| format!("failed to review {what}: {}", error_message(&error)))
}
