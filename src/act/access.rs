//! What this process may do: asked of the API server beforehand, so that nothing has to fail to find out.

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

/// How many questions are asked at the same time.
const AT_ONCE: usize = 8;
/// A question that is not answered by then is an unknown.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// One thing that RBAC may allow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// `get`, `update`, ...
    pub verb: &'static str,
    /// Group of the API, empty for the core.
    pub group: &'static str,
    /// `leases`, or `pods/resize` with its subresource.
    pub resource: &'static str,
    /// One object, or all.
    pub name: Option<String>,
    /// One namespace, or all.
    pub namespace: Option<String>,
}

impl Rule {
    /// A rule for every object of all namespaces.
    pub fn new(verb: &'static str, group: &'static str, resource: &'static str) -> Self {
        Self { verb, group, resource, ..Self::default() }
    }

    /// The same for one namespace.
    #[must_use]
    pub fn within(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The same for one object.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    fn attributes(&self) -> ResourceAttributes {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (self.resource, None),
        };
        ResourceAttributes {
            verb: Some(self.verb.to_owned()),
            group: Some(self.group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            ..ResourceAttributes::default()
        }
    }
}

/// As it stands in a Role: what to add when it is missing.
impl fmt::Display for Rule {
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

/// What the server says of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is allowed.
    Allowed,
    /// It is not.
    Denied,
    /// There was no answer, for this reason: neither of the two may be assumed.
    Unknown(String),
}

impl Verdict {
    /// Whether it is known to be allowed.
    pub fn is_allowed(&self) -> bool {
        *self == Self::Allowed
    }
}

/// Asks which of these rules hold for this process; the answers come in the same order.
pub async fn may(client: &Client, rules: &[Rule]) -> Vec<Verdict> {
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    let asked = rules.iter().map(|rule| ask(&reviews, rule.attributes()));
    stream::iter(asked.collect::<Vec<_>>()).buffered(AT_ONCE).collect().await
}

/// Refuses what the server would refuse: to make an object that is not there. Manifests make the objects that they give no
/// right to make; until one is there, nothing has to be tried in vain.
pub(super) async fn may_make<K>(api: &Api<K>, rule: Rule) -> kube::Result<()>
where
    K: Clone + kube::Resource,
{
    let verdicts = may(&api.clone().into_client(), &[rule]).await;
    if verdicts.first() == Some(&Verdict::Denied) {
        let why = "it is not there, and this process may not make it";
        return Err(kube::Error::Api(Status::failure(why, "Forbidden").with_code(403).boxed()));
    }
    Ok(())
}

async fn ask(reviews: &Api<SelfSubjectAccessReview>, attributes: ResourceAttributes) -> Verdict {
    let spec =
        SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let parameters = PostParams::default();
    match tokio::time::timeout(ANSWER_LIMIT, reviews.create(&parameters, &review)).await {
        Err(_) => Verdict::Unknown(format!("no answer within {ANSWER_LIMIT:?}")),
        Ok(Err(why)) => Verdict::Unknown(why.to_string()),
        Ok(Ok(SelfSubjectAccessReview { status: Some(status), .. })) => {
            match (status.allowed, status.evaluation_error) {
                (true, _) => Verdict::Allowed,
                (false, None) => Verdict::Denied,
                (false, Some(why)) => Verdict::Unknown(why),
            }
        }
        Ok(Ok(_)) => Verdict::Unknown("the server's answer has no status".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_reads_as_it_stands_in_a_role() {
        let lease = Rule::new("update", "coordination.k8s.io", "leases")
            .within("kube-system")
            .named("vpa-recommender-lease");
        assert_eq!(
            lease.to_string(),
            r#"{apiGroups: ["coordination.k8s.io"], resources: ["leases"], resourceNames: ["vpa-recommender-lease"], verbs: ["update"]} in namespace kube-system"#
        );
        let pods = Rule::new("patch", "", "pods/resize");
        assert_eq!(
            pods.to_string(),
            r#"{apiGroups: [""], resources: ["pods/resize"], verbs: ["patch"]} in all namespaces"#
        );
        assert_eq!(pods.attributes().subresource.as_deref(), Some("resize"));
        assert_eq!(pods.attributes().resource.as_deref(), Some("pods"));
    }
}
