//! The RBAC rules that the admission controller ships with are sufficient and minimal.

use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration, coordination::v1::Lease,
    core::v1::Secret,
};
use kube::Api;
use plimsoll::cluster::write::{AccessReview, AccessRule, check_access, webhook_config::NAME};

use super::cluster::{
    PACED_LOAD, start, under_load, wait_until_called, wait_until_ready, workload,
};
use crate::{
    deploy::shipped,
    recommender::upstream_rbac::grant,
    storage::checkpoint_objects::create_definitions,
    support::{Testbed, wait},
};

#[tokio::test]
async fn the_rbac_of_the_admission_controller_is_sufficient_and_minimal() {
    let Some(bed) = Testbed::exclusive_for_webhooks().await.filter(Testbed::has_controllers) else {
        return;
    };
    create_definitions(&bed).await;
    grant(&bed.client(), &shipped("admission-controller")).await;
    let account = bed.service_account("kube-system", "plimsoll-admission-controller").await;
    let within = |verb, group, resource, name: &str| {
        AccessRule::new(verb, group, resource).in_namespace("kube-system").for_name(name)
    };
    let (leases, hooks) = ("coordination.k8s.io", "admissionregistration.k8s.io");
    let configurations = "mutatingwebhookconfigurations";
    let rules = [
        (AccessRule::new("patch", hooks, configurations).for_name(NAME), true),
        (AccessRule::new("patch", hooks, configurations).for_name("of-somebody-else"), false),
        (AccessRule::new("delete", hooks, configurations).for_name(NAME), false),
        (AccessRule::new("list", hooks, configurations), false),
        (AccessRule::new("create", hooks, configurations), false),
        (within("update", leases, "leases", "vpa-admission-controller"), true),
        (within("update", leases, "leases", "vpa-updater"), false),
        (within("get", "", "secrets", "plimsoll-webhook-tls"), true),
        (within("get", "", "secrets", "of-somebody-else"), false),
        (AccessRule::new("list", "", "secrets").in_namespace("kube-system"), false),
        (AccessRule::new("create", "", "secrets").in_namespace("kube-system"), false),
        (AccessRule::new("watch", "", "resourcequotas"), true),
        (AccessRule::new("get", "", "pods"), false),
        (AccessRule::new("patch", "autoscaling.k8s.io", "verticalpodautoscalers"), false),
    ];
    let expected: Vec<AccessReview> = rules
        .iter()
        .map(|(_, may)| if *may { AccessReview::Allowed } else { AccessReview::Denied })
        .collect();
    let rules: Vec<AccessRule> = rules.into_iter().map(|(rule, _)| rule).collect();
    // RBAC rules reach the server's authorizer with a delay.
    wait::until_ok("the RBAC rules are in effect", || async {
        let found = check_access(&account.client, &rules).await;
        if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;

    let namespace = bed.namespace("web").await;
    let web = workload(&bed, &namespace).await;
    let flags = ["--webhook-failure-policy-fail"];
    let served = start(account.client.clone(), &flags, |_| {}).await;
    wait_until_ready(&served).await;
    wait_until_called(&bed, &namespace).await;
    under_load(&bed, &namespace, &web, PACED_LOAD, async {}).await;
    let leases = Api::<Lease>::namespaced(bed.client(), "kube-system");
    wait::until("the Lease is renewed", || async {
        leases.get_opt("vpa-admission-controller").await.ok()??.spec?.renew_time
    })
    .await;

    // A second replica serves what the first one issued, and has nothing to write.
    let secrets = Api::<Secret>::namespaced(bed.client(), "kube-system");
    let registrations = Api::<MutatingWebhookConfiguration>::all(bed.client());
    let versions = || async {
        let secret = secrets.get("plimsoll-webhook-tls").await.expect("exists");
        let registration = registrations.get(NAME).await.expect("exists");
        (secret.metadata.resource_version, registration.metadata.resource_version)
    };
    let before = versions().await;
    let port = served.running.webhook().port().to_string();
    let second = start(account.client, &flags, |config| {
        // Both have the same address.
        if let Some(wanted) = &mut config.registration {
            let url = format!("https://127.0.0.1:{port}");
            wanted.client_config =
                plimsoll::cluster::write::webhook_config::WebhookClientConfig::Url(url);
        }
    })
    .await;
    wait_until_ready(&second).await;
    assert_eq!(versions().await, before);
    second.running.stop().await;
    served.running.stop().await;
}
