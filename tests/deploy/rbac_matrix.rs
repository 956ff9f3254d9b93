//! The permissions of every role, as answered by a real server for every verb, kind and name: exactly those listed
//! here.

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};

use super::{audit_log::AuditedRequest, rbac::of_accounts, rendered_manifests::chart_template};
use crate::support::{tier, wait};

const VERBS: [&str; 12] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "bind",
    "escalate",
    "impersonate",
    "approve",
];

/// Resources that roles use, and resources that allow privilege escalation.
const RESOURCES: [(&str, &str); 65] = [
    ("", "bindings"),
    ("", "configmaps"),
    ("", "endpoints"),
    ("", "events"),
    ("", "limitranges"),
    ("", "namespaces"),
    ("", "nodes"),
    ("", "nodes/proxy"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "pods/attach"),
    ("", "pods/binding"),
    ("", "pods/ephemeralcontainers"),
    ("", "pods/eviction"),
    ("", "pods/exec"),
    ("", "pods/log"),
    ("", "pods/portforward"),
    ("", "pods/proxy"),
    ("", "pods/resize"),
    ("", "pods/status"),
    ("", "replicationcontrollers"),
    ("", "replicationcontrollers/scale"),
    ("", "resourcequotas"),
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("", "serviceaccounts/token"),
    ("", "services"),
    ("", "users"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
    ("apps", "daemonsets"),
    ("apps", "daemonsets/scale"),
    ("apps", "deployments"),
    ("apps", "deployments/scale"),
    ("apps", "replicasets"),
    ("apps", "replicasets/scale"),
    ("apps", "statefulsets"),
    ("apps", "statefulsets/scale"),
    ("argoproj.io", "rollouts"),
    ("argoproj.io", "rollouts/scale"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("autoscaling", "horizontalpodautoscalers/status"),
    ("autoscaling.k8s.io", "verticalpodautoscalercheckpoints"),
    ("autoscaling.k8s.io", "verticalpodautoscalers"),
    ("autoscaling.k8s.io", "verticalpodautoscalers/status"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
    ("certificates.k8s.io", "certificatesigningrequests/approval"),
    ("coordination.k8s.io", "leases"),
    ("datadoghq.com", "datadogmonitors"),
    ("datadoghq.com", "watermarkpodautoscalers"),
    ("datadoghq.com", "watermarkpodautoscalers/status"),
    ("external.metrics.k8s.io", "requests"),
    ("metrics.k8s.io", "nodes"),
    ("metrics.k8s.io", "pods"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy", "poddisruptionbudgets"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
];

/// Permissions for any object in all namespaces: resource and verbs.
type Anywhere = &'static [(&'static str, &'static str)];
/// Permissions for a single object: namespace (empty for cluster scope), resource, name and verbs.
type Named = &'static [(&'static str, &'static str, &'static str, &'static str)];

const WATCHED: &str = "list watch";

/// Read permissions of all VPA controllers.
const CONTROLLERS: Anywhere = &[
    ("replicationcontrollers", WATCHED),
    ("apps/daemonsets", WATCHED),
    ("apps/deployments", WATCHED),
    ("apps/replicasets", WATCHED),
    ("apps/statefulsets", WATCHED),
    ("batch/jobs", WATCHED),
    ("batch/cronjobs", WATCHED),
    ("replicationcontrollers/scale", "get"),
    ("apps/deployments/scale", "get"),
    ("apps/replicasets/scale", "get"),
    ("apps/statefulsets/scale", "get"),
    ("argoproj.io/rollouts/scale", "get"),
    // The rule covers the scale of any kind, including kinds without one.
    ("apps/daemonsets/scale", "get"),
];

/// The permissions of a role.
struct AllowedRule {
    role: &'static str,
    anywhere: &'static [Anywhere],
    named: Named,
}

const ALLOWED: [AllowedRule; 5] = [
    AllowedRule {
        role: "recommender",
        anywhere: &[
            CONTROLLERS,
            &[
                ("pods", WATCHED),
                ("events", WATCHED),
                ("metrics.k8s.io/pods", "list"),
                ("autoscaling.k8s.io/verticalpodautoscalers", "get list watch"),
                ("autoscaling.k8s.io/verticalpodautoscalers/status", "patch"),
                (
                    "autoscaling.k8s.io/verticalpodautoscalercheckpoints",
                    "get list create patch delete",
                ),
            ],
        ],
        named: &[
            ("kube-system", "coordination.k8s.io/leases", "vpa-recommender-lease", "get update"),
            ("kube-system", "coordination.k8s.io/leases", "plimsoll-default", "get update"),
        ],
    },
    AllowedRule {
        role: "updater",
        anywhere: &[
            CONTROLLERS,
            &[
                ("pods", "get list watch patch"),
                ("pods/eviction", "create"),
                ("pods/resize", "patch"),
                ("events", "create"),
                ("limitranges", WATCHED),
                ("resourcequotas", WATCHED),
                ("autoscaling/horizontalpodautoscalers", WATCHED),
                ("autoscaling.k8s.io/verticalpodautoscalers", "get list watch patch"),
                ("autoscaling.k8s.io/verticalpodautoscalers/status", "patch"),
            ],
        ],
        named: &[
            ("kube-system", "coordination.k8s.io/leases", "*", "list"),
            ("kube-system", "coordination.k8s.io/leases", "vpa-updater", "get update"),
            ("HOME", "coordination.k8s.io/leases", "vpa-admission-controller", "get"),
        ],
    },
    AllowedRule {
        role: "admission-controller",
        anywhere: &[
            CONTROLLERS,
            &[
                ("limitranges", WATCHED),
                ("resourcequotas", WATCHED),
                ("autoscaling/horizontalpodautoscalers", WATCHED),
                ("autoscaling.k8s.io/verticalpodautoscalers", WATCHED),
            ],
        ],
        named: &[
            (
                "",
                "admissionregistration.k8s.io/mutatingwebhookconfigurations",
                "vpa-webhook-config",
                "get patch",
            ),
            ("kube-system", "coordination.k8s.io/leases", "plimsoll-horizontal", "list"),
            ("HOME", "coordination.k8s.io/leases", "vpa-admission-controller", "get update"),
            ("HOME", "secrets", "plimsoll-webhook-tls", "get patch"),
        ],
    },
    AllowedRule {
        role: "watermark",
        anywhere: &[&[
            ("pods", WATCHED),
            ("events", "create"),
            ("replicationcontrollers", WATCHED),
            ("apps/deployments", WATCHED),
            ("apps/replicasets", "get list watch"),
            ("apps/statefulsets", WATCHED),
            ("replicationcontrollers/scale", "get update"),
            ("apps/deployments/scale", "get update"),
            ("apps/replicasets/scale", "get update"),
            ("apps/statefulsets/scale", "get update"),
            ("datadoghq.com/watermarkpodautoscalers", "get list watch patch"),
            ("datadoghq.com/watermarkpodautoscalers/status", "patch"),
            ("datadoghq.com/datadogmonitors", "get"),
            ("autoscaling.k8s.io/verticalpodautoscalers", WATCHED),
            ("external.metrics.k8s.io/requests", "list"),
            ("metrics.k8s.io/pods", "list"),
        ]],
        named: &[(
            "HOME",
            "coordination.k8s.io/leases",
            "watermarkpodautoscaler-lock",
            "get update",
        )],
    },
    AllowedRule {
        role: "horizontal",
        anywhere: &[&[
            ("autoscaling/horizontalpodautoscalers", WATCHED),
            ("pods", WATCHED),
            ("replicationcontrollers", WATCHED),
            ("apps/deployments", WATCHED),
            ("apps/replicasets", "get list watch"),
            ("apps/statefulsets", WATCHED),
            ("replicationcontrollers/scale", "get"),
            ("apps/deployments/scale", "get"),
            ("apps/replicasets/scale", "get"),
            ("apps/statefulsets/scale", "get"),
            ("metrics.k8s.io/pods", "list"),
        ]],
        named: &[(
            "kube-system",
            "coordination.k8s.io/leases",
            "plimsoll-horizontal",
            "get update",
        )],
    },
];

/// An access review.
#[derive(Clone, Debug)]
struct AccessQuestion {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    namespace: String,
    name: String,
}

impl AccessQuestion {
    fn kind(&self) -> String {
        let slash = if self.group.is_empty() { "" } else { "/" };
        format!("{}{slash}{}", self.group, self.resource)
    }

    /// The expected result.
    fn expected(&self, allowed: &AllowedRule, home: &str) -> bool {
        let kind = self.kind();
        let has = |verbs: &str| verbs.split(' ').any(|verb| verb == self.verb);
        let anywhere = allowed.anywhere.iter().copied().flatten();
        anywhere.clone().any(|(of, verbs)| *of == kind && has(verbs))
            || allowed.named.iter().any(|(namespace, of, name, verbs)| {
                let namespace = if *namespace == "HOME" { home } else { namespace };
                let is_it = *name == "*" || *name == self.name;
                // Cluster-scoped resources are the same in all namespaces.
                let is_there = namespace.is_empty() || namespace == self.namespace;
                is_there && *of == kind && is_it && has(verbs)
            })
    }

    /// The corresponding request.
    fn request(&self, account: &str) -> AuditedRequest {
        AuditedRequest {
            account: account.to_owned(),
            verb: self.verb.to_owned(),
            group: self.group.to_owned(),
            resource: self.resource.to_owned(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            code: 0,
        }
    }

    async fn is_allowed(&self, client: &Client, account: &str) -> bool {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, sub)) => (resource, Some(sub.to_owned())),
            None => (self.resource, None),
        };
        let attributes = ResourceAttributes {
            verb: Some(self.verb.to_owned()),
            group: Some(self.group.to_owned()),
            version: Some("*".to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            namespace: Some(self.namespace.clone()).filter(|name| !name.is_empty()),
            name: Some(self.name.clone()).filter(|name| !name.is_empty()),
            ..ResourceAttributes::default()
        };
        let (namespace, name) = account.split_once('/').expect("namespace and name");
        let groups = ["system:serviceaccounts", "system:authenticated"].map(str::to_owned).into();
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(format!("system:serviceaccount:{namespace}:{name}")),
                groups: Some(groups),
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api = Api::<SubjectAccessReview>::all(client.clone());
        // A server may close a connection just when it is reused.
        let answer = wait::until_ok("an access review is answered", || async {
            api.create(&PostParams::default(), &review).await.map_err(|why| why.to_string())
        });
        answer.await.status.expect("an answer").allowed
    }
}

/// All access reviews: each verb on each resource, in the role's own namespace, in that of the Leases, in another one
/// and in all of them; for any object, for each named object, and for an unknown one.
fn questions(home: &str) -> Vec<AccessQuestion> {
    let names = ALLOWED.iter().flat_map(|allowed| allowed.named).map(|(_, _, name, _)| *name);
    let mut names: Vec<&str> = names.filter(|name| *name != "*").collect();
    names.extend(["", "of-somebody-else"]);
    names.sort_unstable();
    names.dedup();
    let mut all = Vec::new();
    for verb in VERBS {
        for (group, resource) in RESOURCES {
            let is_named = ["leases", "secrets", "mutatingwebhookconfigurations"];
            for namespace in [home, "kube-system", "foreign", ""] {
                for name in &names {
                    // Two names suffice for resources that no rule names.
                    let is_one =
                        is_named.contains(&resource) || ["", "of-somebody-else"].contains(name);
                    if is_one {
                        all.push(AccessQuestion {
                            verb,
                            group,
                            resource,
                            namespace: namespace.to_owned(),
                            name: (*name).to_owned(),
                        });
                    }
                }
            }
        }
    }
    all
}

/// Reviews the accounts of a release in the namespace `home`, and panics with all differences.
pub async fn check(client: &Client, home: &str) {
    let mut surprises = Vec::new();
    let mut count = 0;
    for allowed in &ALLOWED {
        let account = format!("{home}/plimsoll-{}", allowed.role);
        // The gate asks all questions that must be allowed, and few of the others: the test below evaluates all of
        // them from the rules.
        let every = tier::cases(61, 1);
        let asked_now = questions(home)
            .into_iter()
            .enumerate()
            .filter(|(number, question)| number % every == 0 || question.expected(allowed, home));
        let answers = stream::iter(asked_now).map(|(_, question)| {
            let account = &account;
            async move {
                let answer = question.is_allowed(client, account).await;
                (question, answer)
            }
        });
        let mut answers = answers.buffer_unordered(32);
        while let Some((question, answer)) = answers.next().await {
            count += 1;
            if answer != question.expected(allowed, home) {
                let word = if answer { "may" } else { "may not" };
                surprises.push(format!("{} {word} {question:?}", allowed.role));
            }
        }
    }
    surprises.sort();
    assert!(surprises.is_empty(), "{} of {count}:\n{}", surprises.len(), surprises.join("\n"));
    assert!(count > tier::cases(700, 20_000), "only {count} access reviews");
}

#[test]
fn the_rbac_of_the_chart_grants_exactly_the_documented_permissions() {
    const NAMESPACE: &str = "autoscaling";
    let Some(objects) = chart_template(&["watermark.enabled=true", "horizontal.enabled=true"])
    else {
        return;
    };
    let accounts = of_accounts(&objects);
    let mut count = 0;
    for allowed in &ALLOWED {
        let account = format!("{NAMESPACE}/plimsoll-{}", allowed.role);
        let (_, rights) = accounts.iter().find(|(name, _)| *name == account).expect("an account");
        for question in questions(NAMESPACE) {
            let request = question.request(&account);
            let answer = rights.iter().any(|right| right.allows(&request));
            count += 1;
            assert_eq!(answer, question.expected(allowed, NAMESPACE), "{account}: {question:?}");
        }
    }
    assert!(count > 20_000, "only {count} access reviews");
}
