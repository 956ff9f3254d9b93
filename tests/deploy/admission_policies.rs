//! The ValidatingAdmissionPolicies, which restrict what RBAC cannot: which fields an account may patch. Tested on a
//! real server.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration,
    core::v1::{Namespace, Pod},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use plimsoll::cluster::{
    leader::Fence,
    server::certificate::{self, CaBundle},
    write::{
        Permit, PodRef, RateLimiter, WebhookConfigWriter, WriteContext, WriteStats, annotate_pod,
        webhook_config::{
            DesiredWebhook, NAME, WebhookClientConfig, WebhookNamespaces, WebhookScope,
        },
        workload_state::UPDATER_FIELD_MANAGER,
    },
};
use serde_json::{Value, json};

use super::{
    fixture::api,
    rbac::of_accounts,
    rendered_manifests::{all, chart_template, kustomize, of_kind},
};
use crate::support::{Testbed, clock::wall_now, manifests, wait};

/// Kinds that grant or restrict permissions.
const KINDS: [&str; 8] = [
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
];

fn open() -> Permit {
    Permit::new(Fence::open(), RateLimiter::new(-1.0, 1))
}

/// Whether a policy applies to the account `namespace/name`.
fn is_for(policy: &Value, account: &str) -> bool {
    let (namespace, name) = account.split_once('/').expect("two parts");
    let condition = &policy["spec"]["matchConditions"][0]["expression"];
    let condition = condition.as_str().expect("an expression");
    let exact = format!("request.userInfo.username == 'system:serviceaccount:{namespace}:{name}'");
    condition == exact || condition.ends_with(&format!(".endsWith(':{name}')"))
}

#[test]
fn every_account_that_may_patch_pods_or_webhooks_has_an_admission_policy() {
    let Some(all) = all() else { return };
    for (set, objects) in all {
        let policies = of_kind(&objects, "ValidatingAdmissionPolicy");
        let mut held = 0;
        for (account, rights) in of_accounts(&objects) {
            for resource in ["pods", "mutatingwebhookconfigurations"] {
                let may =
                    rights.iter().any(|right| right.resource == resource && right.verb == "patch");
                let own = policies.iter().filter(|policy| {
                    let rule = &policy["spec"]["matchConstraints"]["resourceRules"][0];
                    rule["resources"] == json!([resource]) && is_for(policy, &account)
                });
                let own: Vec<_> = own.collect();
                assert_eq!(own.len(), usize::from(may), "{set}: {account} and {resource}");
                for policy in own {
                    assert_eq!(policy["spec"]["failurePolicy"], "Fail", "{set}");
                    let bindings = of_kind(&objects, "ValidatingAdmissionPolicyBinding");
                    let bound = bindings.iter().filter(|binding| {
                        binding["spec"]["policyName"] == policy["metadata"]["name"]
                            && binding["spec"]["validationActions"] == json!(["Deny"])
                            && binding["spec"].as_object().is_some_and(|spec| spec.len() == 2)
                    });
                    assert_eq!(bound.count(), 1, "{set}: {account} and {resource}");
                    held += 1;
                }
            }
        }
        assert_eq!(held, policies.len(), "{set}: a policy applies to no account");
    }
}

#[tokio::test]
async fn admission_policies_restrict_accounts_to_the_fields_that_they_change() {
    let sets = tokio::task::spawn_blocking(|| {
        let named = |name: &str| kustomize(&format!("overlays/{name}"));
        Some([
            (
                "kube-system",
                "plimsoll-updater",
                "plimsoll-admission-controller",
                named("full-vpa")?,
            ),
            ("kube-system", "plimsoll", "plimsoll", named("all-in-one")?),
            (
                "autoscaling",
                "plimsoll-updater",
                "plimsoll-admission-controller",
                chart_template(&[])?,
            ),
            (
                "autoscaling",
                "plimsoll-all-in-one",
                "plimsoll-all-in-one",
                chart_template(&["allInOne.enabled=true"])?,
            ),
        ])
    });
    let Some(sets) = sets.await.expect("no panic") else { return };
    let Some(bed) = Testbed::exclusive_for_rbac().await.filter(Testbed::has_controllers) else {
        return;
    };
    let home =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "autoscaling"}});
    let namespaces = Api::<Namespace>::all(bed.client());
    let ours = PatchParams::apply("test").force();
    namespaces.patch("autoscaling", &ours, &Patch::Apply(&home)).await.expect("a namespace");
    let namespace = bed.namespace("pods").await;
    for (home, updater, admission, objects) in sets {
        let wanted = |one: &&Value| KINDS.iter().any(|kind| one["kind"] == *kind);
        for object in objects.iter().filter(wanted) {
            if object["metadata"]["namespace"].as_str().is_none_or(|name| name == home) {
                let (api, name) = api(&bed.client(), object);
                api.patch(&name, &ours, &Patch::Apply(object)).await.expect(&name);
            }
        }
        let updater = bed.service_account(home, updater).await.client;
        pods(&bed, &updater, &namespace).await;
        let admission = bed.service_account(home, admission).await.client;
        registration(&bed, &admission, home).await;
        for object in objects.iter().filter(wanted) {
            let (api, name) = api(&bed.client(), object);
            let _ = api.delete(&name, &DeleteParams::background()).await;
        }
        let pods = Api::<Pod>::namespaced(bed.client(), &namespace);
        pods.delete("one", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    }
}

/// Dry run, so that a change can be tried repeatedly.
fn rehearsal() -> PatchParams {
    PatchParams { dry_run: true, ..PatchParams::default() }
}

/// The error if a policy of ours rejected a write; otherwise the outcome does not matter.
fn refusal<K: std::fmt::Debug>(answer: kube::Result<K>) -> Result<(), String> {
    match answer {
        Err(kube::Error::Api(status))
            if status.code == 403 && status.message.contains("ValidatingAdmissionPolicy") =>
        {
            Ok(())
        }
        other => Err(format!("{other:?}")),
    }
}

/// The updater's account may record a resize and the end of a startup boost on a pod, and change nothing else.
async fn pods(bed: &Testbed, account: &Client, namespace: &str) {
    let boosted = "vpaCpuStartupBoost/main";
    let pod = json!({
        "metadata": {"name": "one", "labels": {"app": "web"},
            "annotations": {boosted: "{}", "vpaObservedContainers": "main"}},
        "spec": {"containers": [{
            "name": "main", "image": "example/main", "resources": {"requests": {"cpu": "100m"}},
        }]},
    });
    manifests::create::<Pod>(bed.client(), namespace, &pod.to_string()).await;
    let pods = Api::<Pod>::namespaced(account.clone(), namespace);
    let rehearsal = rehearsal();
    let try_it = |patch: Value| {
        let (pods, rehearsal) = (&pods, &rehearsal);
        async move { pods.patch("one", rehearsal, &Patch::Strategic(patch)).await }
    };
    let of_spec = |spec: Value| json!({"spec": spec});
    let image = of_spec(json!({"containers": [{"name": "main", "image": "example/other"}]}));
    // New RBAC rules and policies become effective a moment later.
    wait::until_ok("changing the image is rejected", || async {
        refusal(try_it(image.clone()).await)
    })
    .await;
    for patch in [
        of_spec(json!({"activeDeadlineSeconds": 60})),
        of_spec(json!({"tolerations": [{"key": "any", "operator": "Exists"}]})),
        json!({"metadata": {"labels": {"app": "other"}}}),
        json!({"metadata": {"labels": {"app": null}}}),
        json!({"metadata": {"finalizers": ["example.com/never"]}}),
        json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "1"},
        ]}}),
        json!({"metadata": {"annotations": {"example.com/other": "1"}}}),
        json!({"metadata": {"annotations": {"vpaObservedContainers": null}}}),
        json!({"metadata": {"annotations": {"vpaObservedContainers": "other"}}}),
        json!({"metadata": {"annotations": {boosted: "{\"requests\":{\"cpu\":\"9\"}}"}}}),
        json!({"metadata": {"annotations": {"vpaCpuStartupBoost/other": "{}"}}}),
    ] {
        let refused = refusal(try_it(patch.clone()).await);
        assert_eq!(refused, Ok(()), "{patch}");
    }
    // The policy does not cover resizes, because the API server itself only accepts changes of amounts.
    let both = json!({
        "metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{
            "name": "main", "image": "example/other", "resources": {"requests": {"cpu": "1"}},
        }]},
    });
    let resize = Patch::Strategic(both);
    let resized = pods.patch_subresource("resize", "one", &rehearsal, &resize).await;
    let resized = resized.expect("other fields are ignored");
    let spec = resized.spec.as_ref().expect("a spec");
    assert_eq!(spec.containers[0].image.as_deref(), Some("example/main"));
    assert_eq!(resized.labels().get("app").map(String::as_str), Some("web"));
    // Other accounts are not restricted.
    let admin = Api::<Pod>::namespaced(bed.client(), namespace);
    let plain = PatchParams::default();
    admin
        .patch("one", &plain, &Patch::Strategic(&image))
        .await
        .expect("an administrator is allowed");

    let annotations: BTreeMap<String, Option<String>> =
        [("vpaInPlaceUpdated".to_owned(), Some("true".to_owned())), (boosted.to_owned(), None)]
            .into();
    wait::until_ok("its own annotations are written", || async {
        let pod = admin.get("one").await.expect("it exists");
        let place = PodRef {
            namespace: namespace.into(),
            name: "one".into(),
            uid: pod.uid().expect("set by the server").into(),
            resource_version: pod.resource_version().expect("set by the server").into(),
        };
        let (permit, stats) = (open(), WriteStats::default());
        let field_manager = UPDATER_FIELD_MANAGER;
        let writer =
            WriteContext { client: account, permit: &permit, stats: &stats, field_manager };
        match annotate_pod(writer, &place, &annotations).await {
            Ok(_) => Ok(()),
            // The scheduler has updated the pod.
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
    let pod = admin.get("one").await.expect("it exists");
    let annotations: Vec<_> = pod.annotations().keys().map(String::as_str).collect();
    assert_eq!(annotations, ["vpaInPlaceUpdated", "vpaObservedContainers"]);
}

/// The admission controller's account registers its own webhook for its own kinds and Service, and nothing else.
async fn registration(bed: &Testbed, account: &Client, home: &str) {
    let names = certificate::CertificateSpec {
        names: vec![format!("plimsoll-webhook.{home}.svc")],
        lifetime: std::time::Duration::from_hours(1),
    };
    let authority = || {
        let pair = certificate::issue(&names, wall_now().into()).expect("made");
        CaBundle::parse(&pair.authority)
    };
    let caller = |namespace: &str| WebhookClientConfig::Service {
        namespace: namespace.to_owned(),
        name: "plimsoll-webhook".to_owned(),
    };
    let wanted = DesiredWebhook {
        labels: [("a".to_owned(), "b".to_owned())].into(),
        client_config: caller(home),
        namespaces: WebhookNamespaces::All,
        fail_closed: false,
        timeout_seconds: 5,
        reinvoke_if_needed: true,
        include_wpas: true,
        include_hpas: true,
    };
    let registered = |wanted: &DesiredWebhook, extent: WebhookScope| {
        let registration =
            WebhookConfigWriter::new(account.clone(), wanted.clone(), std::sync::Arc::default());
        let trusts = authority();
        async move {
            let trust = move |_: &CaBundle| trusts.clone();
            let written = registration.ensure(&open(), extent, &trust).await;
            written.map(|registered| registered.change).map_err(|why| why.to_string())
        }
    };
    wait::until_ok("it is registered", || registered(&wanted, WebhookScope::Full)).await;

    let configurations = Api::<MutatingWebhookConfiguration>::all(account.clone());
    let rehearsal = rehearsal();
    let try_it = |operation: Value| {
        let (configurations, rehearsal) = (&configurations, &rehearsal);
        let patch: Patch<()> =
            Patch::Json(serde_json::from_value(json!([operation])).expect("a patch"));
        async move { configurations.patch(NAME, rehearsal, &patch).await }
    };
    let rule = |group: &str, resource: &str| json!([{"operations": ["*"], "apiGroups": [group], "apiVersions": ["*"], "resources": [resource]}]);
    let replace = |path: &str, value: Value| json!({"op": "replace", "path": path, "value": value});
    let everything = replace("/webhooks/0/rules", rule("*", "*/*"));
    wait::until_ok("changing the rules is rejected", || async {
        refusal(try_it(everything.clone()).await)
    })
    .await;
    let found = configurations.get(NAME).await.expect("it exists");
    let mut other = serde_json::to_value(&found.webhooks.expect("one")[0]).expect("JSON");
    other["name"] = json!("other.k8s.io");
    let add = json!({"op": "add", "path": "/webhooks/-", "value": other});
    for operation in [
        replace("/webhooks/0/rules", rule("", "secrets")),
        replace("/webhooks/0/rules", rule("", "pods")),
        replace("/webhooks/0/rules", rule("", "pods/exec")),
        json!({"op": "add", "path": "/webhooks/0/rules/-", "value": rule("apps", "deployments")[0]}),
        replace("/webhooks/0/clientConfig", json!({"url": "https://example.com/"})),
        replace("/webhooks/0/clientConfig/service/namespace", json!("elsewhere")),
        replace("/webhooks/0/clientConfig/service/name", json!("other")),
        replace("/webhooks/0/name", json!("other.k8s.io")),
        add.clone(),
    ] {
        let refused = refusal(try_it(operation.clone()).await);
        assert_eq!(refused, Ok(()), "{operation}");
    }

    // Fields set by others stay when it updates its own.
    let admin = Api::<MutatingWebhookConfiguration>::all(bed.client());
    let patch: Patch<()> = Patch::Json(serde_json::from_value(json!([add])).expect("a patch"));
    admin.patch(NAME, &PatchParams::default(), &patch).await.expect("an administrator is allowed");
    for operation in [
        json!({"op": "remove", "path": "/webhooks/1"}),
        replace("/webhooks/1/failurePolicy", json!("Fail")),
        replace("/webhooks/1/clientConfig/caBundle", json!("")),
    ] {
        let refused = refusal(try_it(operation.clone()).await);
        assert_eq!(refused, Ok(()), "{operation}");
    }
    registered(&wanted, WebhookScope::CaBundle).await.expect("another CA");
    let changed = DesiredWebhook {
        fail_closed: true,
        include_wpas: false,
        include_hpas: false,
        namespaces: WebhookNamespaces::Only("a".into()),
        ..wanted
    };
    registered(&changed, WebhookScope::Full).await.expect("other flags");
    let elsewhere = DesiredWebhook { client_config: caller("elsewhere"), ..changed };
    let why = registered(&elsewhere, WebhookScope::Full).await.expect_err("another Service");
    assert!(why.contains("may only be called at the Service of the admission controller"), "{why}");
    let found = admin.get(NAME).await.expect("it exists");
    assert_eq!(found.webhooks.expect("both").len(), 2);
}
