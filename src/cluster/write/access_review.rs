//! Access reviews: what this process is allowed to do, from the API server, without trying it.

use std::{fmt, time::Duration};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{
    Client,
    api::{Api, PostParams},
    core::Status,
};

const MAX_CONCURRENT_REVIEWS: usize = 8;
/// Timeout of one review. After it the result is unknown.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// One permission that RBAC may grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AccessRule {
    /// `get`, `update`, ...
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// `leases`, or `pods/resize` with its subresource.
    pub resource: &'static str,
    /// The object; `None` for all.
    pub name: Option<String>,
    /// The namespace; `None` for all.
    pub namespace: Option<String>,
}

impl AccessRule {
    /// A rule for all objects in all namespaces.
    pub fn new(verb: &'static str, group: &'static str, resource: &'static str) -> Self {
        Self { verb, group, resource, ..Self::default() }
    }

    /// The rules for a watch of one namespace, or of all.
    pub fn for_watch(
        group: &'static str,
        resource: &'static str,
        namespace: Option<&str>,
    ) -> [Self; 2] {
        ["list", "watch"].map(|verb| Self {
            namespace: namespace.map(ToOwned::to_owned),
            ..Self::new(verb, group, resource)
        })
    }

    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    #[must_use]
    pub fn for_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    fn review(&self) -> SelfSubjectAccessReview {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (self.resource, None),
        };
        let attributes = ResourceAttributes {
            verb: Some(self.verb.to_owned()),
            group: Some(self.group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..Default::default()
        };
        SelfSubjectAccessReview { spec, ..Default::default() }
    }
}

/// Formats the rule as in a Role, so that it can be added there.
impl fmt::Display for AccessRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, group, resource, name, namespace } = self;
        write!(f, "{{apiGroups: [{group:?}], resources: [{resource:?}], ")?;
        if let Some(name) = name {
            write!(f, "resourceNames: [{name:?}], ")?;
        }
        write!(f, "verbs: [{verb:?}]}}")?;
        match namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => f.write_str(" in all namespaces"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessReview {
    Allowed,
    Denied,
    /// The review failed for this reason: assume neither of the two.
    Unknown(String),
}

impl AccessReview {
    pub fn is_allowed(&self) -> bool {
        *self == Self::Allowed
    }
}

/// Reviews which of these rules apply to this process. The results are in the same order.
pub async fn check_access(client: &Client, rules: &[AccessRule]) -> Vec<AccessReview> {
    let reviews = &Api::<SelfSubjectAccessReview>::all(client.clone());
    let requests = rules.iter().map(|rule| async move {
        let (parameters, review) = (PostParams::default(), rule.review());
        match tokio::time::timeout(ANSWER_LIMIT, reviews.create(&parameters, &review)).await {
            Err(_) => AccessReview::Unknown(format!("request timed out after {ANSWER_LIMIT:?}")),
            Ok(response) => AccessReview::from(response),
        }
    });
    stream::iter(requests.collect::<Vec<_>>()).buffered(MAX_CONCURRENT_REVIEWS).collect().await
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceAccount {
    pub namespace: String,
    pub name: String,
}

impl ServiceAccount {
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// Reviews which of these rules apply to a service account, by impersonating it, as `kubectl auth can-i --as` does. If
/// that is not allowed, all results are unknown after a single request.
pub(crate) async fn check_access_as(
    client: &Client,
    account: &ServiceAccount,
    rules: &[AccessRule],
) -> Vec<AccessReview> {
    let Some((first, others)) = rules.split_first() else { return Vec::new() };
    let first = review_access_as(client, account, first).await;
    if let Err(kube::Error::Api(status)) = &first
        && status.code == 403
    {
        let why = format!("cannot impersonate {}: {}", account.user(), status.message);
        return vec![AccessReview::Unknown(why); rules.len()];
    }
    let requests = others.iter().map(|rule| review_access_as(client, account, rule));
    let requests = stream::iter(requests.collect::<Vec<_>>()).buffered(MAX_CONCURRENT_REVIEWS);
    let others: Vec<_> = requests.collect().await;
    std::iter::once(first).chain(others).map(AccessReview::from).collect()
}

async fn review_access_as(
    client: &Client,
    account: &ServiceAccount,
    rule: &AccessRule,
) -> kube::Result<SelfSubjectAccessReview> {
    let body = serde_json::to_vec(&rule.review()).map_err(kube::Error::SerdeError)?;
    let request = http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .header("Impersonate-User", account.user())
        .header("Impersonate-Group", "system:serviceaccounts")
        .header("Impersonate-Group", format!("system:serviceaccounts:{}", account.namespace))
        .header("Impersonate-Group", "system:authenticated")
        .body(body)
        .map_err(kube::Error::HttpError)?;
    let response = tokio::time::timeout(ANSWER_LIMIT, client.request(request)).await;
    response.unwrap_or_else(|_| {
        let why = format!("request timed out after {ANSWER_LIMIT:?}");
        Err(kube::Error::Service(why.into()))
    })
}

/// Returns a 403 error if this process is not allowed to create the object. The manifests create the objects that they do
/// not allow to create; while one is missing, no request should be wasted.
pub(crate) async fn ensure_can_create<K>(api: &Api<K>, rule: AccessRule) -> kube::Result<()>
where
    K: Clone + kube::Resource,
{
    let reviews = check_access(&api.clone().into_client(), &[rule]).await;
    if reviews.first() == Some(&AccessReview::Denied) {
        let why = "object does not exist, and this process is not allowed to create it";
        return Err(kube::Error::Api(Status::failure(why, "Forbidden").with_code(403).boxed()));
    }
    Ok(())
}

impl From<kube::Result<SelfSubjectAccessReview>> for AccessReview {
    fn from(response: kube::Result<SelfSubjectAccessReview>) -> Self {
        match response {
            Err(why) => Self::Unknown(why.to_string()),
            Ok(SelfSubjectAccessReview { status: Some(status), .. }) => {
                match (status.allowed, status.evaluation_error) {
                    (true, _) => Self::Allowed,
                    (false, None) => Self::Denied,
                    (false, Some(why)) => Self::Unknown(why),
                }
            }
            Ok(_) => Self::Unknown("response has no status".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_rule_prints_like_an_rbac_rule() {
        let lease = AccessRule::new("update", "coordination.k8s.io", "leases")
            .in_namespace("kube-system")
            .for_name("vpa-recommender-lease");
        assert_eq!(
            lease.to_string(),
            r#"{apiGroups: ["coordination.k8s.io"], resources: ["leases"], resourceNames: ["vpa-recommender-lease"], verbs: ["update"]} in namespace kube-system"#
        );
        let pods = AccessRule::new("patch", "", "pods/resize");
        assert_eq!(
            pods.to_string(),
            r#"{apiGroups: [""], resources: ["pods/resize"], verbs: ["patch"]} in all namespaces"#
        );
        let reviewed = pods.review().spec.resource_attributes.expect("attributes");
        assert_eq!(reviewed.subresource.as_deref(), Some("resize"));
        assert_eq!(reviewed.resource.as_deref(), Some("pods"));
    }
}
