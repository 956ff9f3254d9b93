//! The rules that the admission controller is shipped with are enough, and no more.

use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration, coordination::v1::Lease,
    core::v1::Secret,
};
use kube::Api;
use plimsoll::act::{Rule, Verdict, may, registration::NAME};

use super::cluster::{PACED, called, ready, start, under_load, workload};
use crate::{
    deploy::shipped,
    recommender::upstream_rights::grant,
    storage::objects::defined,
    support::{Bed, wait},
};

#[tokio::test]
async fn the_rules_of_the_admission_controller_are_enough_and_reach_nothing_else() {
    let Some(bed) = Bed::webhooks().await.filter(Bed::is_complete) else { return };
    defined(&bed).await;
    grant(&bed.client(), &shipped("admission-controller")).await;
    let account = bed.account("kube-system", "plimsoll-admission-controller").await;
    let within = |verb, group, resource, name: &str| {
        Rule::new(verb, group, resource).within("kube-system").named(name)
    };
    let (leases, hooks) = ("coordination.k8s.io", "admissionregistration.k8s.io");
    let configurations = "mutatingwebhookconfigurations";
    let rules = [
        (Rule::new("patch", hooks, configurations).named(NAME), true),
        (Rule::new("patch", hooks, configurations).named("of-somebody-else"), false),
        (Rule::new("delete", hooks, configurations).named(NAME), false),
        (Rule::new("list", hooks, configurations), false),
        (Rule::new("create", hooks, configurations), false),
        (within("update", leases, "leases", "vpa-admission-controller"), true),
        (within("update", leases, "leases", "vpa-updater"), false),
        (within("get", "", "secrets", "plimsoll-webhook-tls"), true),
        (within("get", "", "secrets", "of-somebody-else"), false),
        (Rule::new("list", "", "secrets").within("kube-system"), false),
        (Rule::new("create", "", "secrets").within("kube-system"), false),
        (Rule::new("watch", "", "resourcequotas"), true),
        (Rule::new("get", "", "pods"), false),
        (Rule::new("patch", "autoscaling.k8s.io", "verticalpodautoscalers"), false),
    ];
    let expected: Vec<Verdict> = rules
        .iter()
        .map(|(_, may)| if *may { Verdict::Allowed } else { Verdict::Denied })
        .collect();
    let rules: Vec<Rule> = rules.into_iter().map(|(rule, _)| rule).collect();
    // What RBAC knows arrives at the server's authorizer a moment later.
    wait::until_ok("the rules hold", || async {
        let found = may(&account.client, &rules).await;
        if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;

    let namespace = bed.namespace("web").await;
    let web = workload(&bed, &namespace).await;
    let flags = ["--webhook-failure-policy-fail"];
    let served = start(account.client.clone(), &flags, |_| {}).await;
    ready(&served).await;
    called(&bed, &namespace).await;
    under_load(&bed, &namespace, &web, PACED, async {}).await;
    let leases = Api::<Lease>::namespaced(bed.client(), "kube-system");
    wait::until("the Lease is renewed", || async {
        leases.get_opt("vpa-admission-controller").await.ok()??.spec?.renew_time
    })
    .await;

    // A second replica shows what the first one made, and finds nothing to write.
    let secrets = Api::<Secret>::namespaced(bed.client(), "kube-system");
    let registrations = Api::<MutatingWebhookConfiguration>::all(bed.client());
    let versions = || async {
        let secret = secrets.get("plimsoll-webhook-tls").await.expect("it is there");
        let registration = registrations.get(NAME).await.expect("it is there");
        (secret.metadata.resource_version, registration.metadata.resource_version)
    };
    let before = versions().await;
    let port = served.running.webhook().port().to_string();
    let second = start(account.client, &flags, |config| {
        // Both are behind one address.
        if let Some(wanted) = &mut config.registration {
            let url = format!("https://127.0.0.1:{port}");
            wanted.caller = plimsoll::act::registration::Caller::Url(url);
        }
    })
    .await;
    ready(&second).await;
    assert_eq!(versions().await, before);
    second.running.stop().await;
    served.running.stop().await;
}
