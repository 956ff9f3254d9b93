//! Overlays on a real API server with RBAC and Pod Security.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration,
    coordination::v1::Lease,
    core::v1::{Pod, Secret},
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use plimsoll_core::hpa::sentinel::SENTINEL_NAME;
use serde_json::{Value, json};

use super::{
    cluster_objects::all_objects,
    fixture::Fixture,
    rendered_manifests::{OVERLAYS, all, kustomize, of_kind, title},
};
use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{Testbed, wait},
};

#[tokio::test]
async fn every_shipped_pod_passes_pod_security_restricted() {
    let Some(all) = tokio::task::spawn_blocking(all).await.expect("no panic") else { return };
    let Some(bed) = Testbed::shared().await else { return };
    let namespace = bed.namespace("restricted").await;
    let labels =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(bed.client());
    let plain = kube::api::PatchParams::default();
    namespaces
        .patch(&namespace, &plain, &kube::api::Patch::Merge(&labels))
        .await
        .expect("labelled");
    let pods = Api::<Pod>::namespaced(bed.client(), &namespace);
    let rehearsal = PostParams { dry_run: true, ..PostParams::default() };
    let mut tried = 0;
    for (name, found) in all {
        for owner in [of_kind(&found, "Deployment"), of_kind(&found, "Job")].concat() {
            let mut spec = owner["spec"]["template"]["spec"].clone();
            // Neither exists in this namespace.
            let spec_of = spec.as_object_mut().expect("a spec");
            for field in ["serviceAccountName", "priorityClassName"] {
                spec_of.remove(field);
            }
            let pod = |spec: &Value| -> Pod {
                serde_json::from_value(json!({"metadata": {"name": "one"}, "spec": spec}))
                    .expect("a pod")
            };
            let made = pods.create(&rehearsal, &pod(&spec)).await;
            assert!(made.is_ok(), "{name}: {}: {made:?}", title(owner));
            spec["containers"][0]["securityContext"]["runAsNonRoot"] = json!(false);
            spec["securityContext"]["runAsNonRoot"] = json!(false);
            let made = pods.create(&rehearsal, &pod(&spec)).await;
            assert!(made.is_err(), "the namespace accepts any pod");
            tried += 1;
        }
    }
    assert!(tried > 15, "only {tried} pods were tried");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_roles_run_from_kustomize_and_are_removed_completely() {
    comes_and_goes(&["high-availability"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_roles_run_in_one_process_from_kustomize_and_are_removed_completely() {
    comes_and_goes(&["all-in-one"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subsets_of_roles_run_from_kustomize_and_are_removed_completely() {
    comes_and_goes(&[
        "recommender-only",
        "full-vpa",
        "watermark-only",
        "horizontal-only",
        "horizontal-adopted",
        "horizontal-replace",
    ])
    .await;
}

/// Applies one overlay after the other to a cluster, and deletes it again.
async fn comes_and_goes(names: &'static [&'static str]) {
    assert!(names.iter().all(|name| OVERLAYS.contains(name)));
    let built = tokio::task::spawn_blocking(|| {
        names.iter().map(|name| kustomize(&format!("overlays/{name}"))).collect()
    });
    let Some(built): Option<Vec<Vec<Value>>> = built.await.expect("no panic") else { return };
    let Some(fixture) = set().await else { return };
    // It is proven within four seconds that the HPA controller is off.
    let proof = ["PLIMSOLL_FLAG_BUILTIN_SYNC_PERIOD", "PLIMSOLL_FLAG_SENTINEL_PROOF"];
    fixture.run("kube-system", "plimsoll-", "plimsoll", &proof.map(|flag| (flag, "1s")));
    for installed in &built {
        let pods: u64 = of_kind(installed, "Deployment")
            .iter()
            .map(|one| one["spec"]["replicas"].as_u64().expect("how many"))
            .sum();
        let is_replacing = of_kind(installed, "Role")
            .iter()
            .any(|role| role["metadata"]["name"] == "plimsoll-horizontal-sentinel");
        if is_replacing {
            fixture.bed.control_plane().stop_hpa_controller().await;
        }
        let before = all_objects(&fixture.bed.client()).await;
        // A pod that is shutting down may have been denied requests after its permissions were deleted.
        let mark = fixture.audit.position();
        fixture.apply(installed).await;
        let pods = usize::try_from(pods).expect("few");
        fixture.ready("kube-system", "app.kubernetes.io/name=plimsoll", pods).await;
        live(&fixture, installed, mark).await;
        if is_replacing {
            fixture.delete(installed).await;
            delete_sentinel(&fixture).await;
        }
        go(&fixture, installed, &before).await;
    }
}

async fn set() -> Option<Fixture> {
    let fixture = Fixture::new(&[]).await?;
    fixture.restrict_if("kube-system", true).await;
    create_definitions(&fixture.bed).await;
    Some(fixture)
}

/// Waits until the installation works, and checks that no request was forbidden.
async fn live(fixture: &Fixture, installed: &[Value], mark: u64) {
    let client = fixture.bed.client();
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-system");
    wait::until_ok("each Lease is held", || async {
        for lease in of_kind(installed, "Lease") {
            let name = lease["metadata"]["name"].as_str().expect("a name");
            let found = leases.get(name).await.map_err(|why| why.to_string())?;
            let holder = found.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            if holder.is_empty() {
                return Err(format!("{name} has no holder"));
            }
        }
        Ok(())
    })
    .await;
    if !of_kind(installed, "MutatingWebhookConfiguration").is_empty() {
        answer(fixture).await;
    }
    let requests = fixture.audit.requests_since(mark).into_iter();
    let refused: Vec<_> = requests.filter(|request| request.code == 403).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// Waits until the webhook is called.
async fn answer(fixture: &Fixture) {
    let client = fixture.bed.client();
    let secrets = Api::<Secret>::namespaced(client.clone(), "kube-system");
    let registrations = Api::<MutatingWebhookConfiguration>::all(client.clone());
    wait::until_ok("the webhook is registered", || async {
        let secret = secrets.get("plimsoll-webhook-tls").await.map_err(|why| why.to_string())?;
        let registration = registrations.get("vpa-webhook-config").await;
        let registration = registration.map_err(|why| why.to_string())?;
        let webhooks = registration.webhooks.unwrap_or_default();
        let service = webhooks.first().and_then(|one| one.client_config.service.as_ref());
        let is_told = secret.data.is_some_and(|data| data.contains_key("tls.crt"));
        match service {
            Some(service) if is_told && service.name == "plimsoll-webhook" => Ok(()),
            other => Err(format!("certificates: {is_told}, registered: {other:?}")),
        }
    })
    .await;
    // It is called through its Service, and rejects invalid objects.
    let namespace = fixture.bed.namespace("called").await;
    wait::until_ok("an invalid VPA is rejected", || async {
        let wrong = json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "wrong", "namespace": namespace},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "resourcePolicy": {"containerPolicies": [
                    {"containerName": "*", "minAllowed": {"cpu": "2"}, "maxAllowed": {"cpu": "1"}},
                ]},
            },
        });
        let wrong = serde_json::from_value(wrong).expect("an object");
        let rehearsal = PostParams { dry_run: true, ..PostParams::default() };
        let vpas = Api::<plimsoll_core::api::VerticalPodAutoscaler>::namespaced(
            client.clone(),
            &namespace,
        );
        match vpas.create(&rehearsal, &wrong).await {
            Err(kube::Error::Api(status)) if status.message.contains("admission webhook") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    fixture.delete_namespace(&namespace).await;
}

/// Deletes what docs/horizontal.md says is left after the controller was stopped.
async fn delete_sentinel(fixture: &Fixture) {
    let client = fixture.bed.client();
    let pods = Api::<Pod>::namespaced(client.clone(), "kube-system");
    let ours = ListParams::default().labels("app.kubernetes.io/name=plimsoll");
    wait::until("the pods are gone", || async {
        pods.list(&ours).await.ok()?.items.is_empty().then_some(())
    })
    .await;
    let sentinel = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": SENTINEL_NAME, "namespace": "kube-system"},
    });
    fixture.delete(&[sentinel]).await;
}

/// Deletes the installation, with everything that it created.
async fn go(fixture: &Fixture, installed: &[Value], before: &BTreeSet<String>) {
    fixture.delete(installed).await;
    let client = fixture.bed.client();
    let more = || async {
        let now = all_objects(&client).await;
        now.difference(before).cloned().collect::<BTreeSet<String>>()
    };
    // A poll makes dozens of requests.
    wait::often(Duration::from_secs(1), wait::PATIENCE, "nothing is left", || async {
        let more = more().await;
        if more.is_empty() { Ok(()) } else { Err(format!("{more:#?}")) }
    })
    .await;
    // All pods have ended, so nothing can be recreated after the check.
    assert_eq!(more().await, BTreeSet::new());
}
