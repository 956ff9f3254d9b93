//! Upstream's manifests with only the images replaced: our roles take over from upstream's programs, and upstream's
//! continue when the images are restored.

use std::{fs, path::PathBuf};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Secret},
};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use plimsoll_core::api::checkpoint::VerticalPodAutoscalerCheckpoint as Checkpoint;
use plimsoll_core::{api::VerticalPodAutoscaler, types::quantity::Quantity};
use serde_json::{Value, json};
use xtask::test_programs::{self, Autoscaler};

use super::{
    audit_log::AuditedRequest,
    fixture::{Fixture, port_variable},
    rendered_manifests::{objects, of_kind},
};
use crate::{
    support::{
        hollow_nodes::VariableValue, manifests as small, metrics_server::UsageValue,
        skipped::report_skipped, upstream_process::write_certificates, wait,
    },
    updater::fixture::{wait_for_age, wait_for_ready_pods},
};

const HOME: &str = "kube-system";
const ROLES: [&str; 3] = ["recommender", "updater", "admission-controller"];

/// Paths of certificates: hollow nodes mount no volumes, so both programs receive them by flags or variables that an
/// image could set too.
struct Certificates {
    authority: String,
    certificate: String,
    key: String,
}

/// Runs pods of upstream's Deployments as our roles, like their images.
fn run_plimsoll(fixture: &Fixture, certificates: &Certificates) {
    let Certificates { authority, certificate, key } = certificates;
    for role in ROLES {
        let more = [
            ("PLIMSOLL_FLAG_RECOMMENDER_INTERVAL", "1s"),
            ("PLIMSOLL_FLAG_CHECKPOINT_INTERVAL", "1s"),
            ("PLIMSOLL_FLAG_UPDATER_INTERVAL", "1s"),
            ("PLIMSOLL_FLAG_CANARY_WATCH", "2s"),
            ("PLIMSOLL_FLAG_COOL_DOWN", "1s"),
            ("PLIMSOLL_FLAG_COOL_DOWN_URGENT", "1s"),
            ("PLIMSOLL_FLAG_SHUTDOWN_DELAY", "0s"),
            ("PLIMSOLL_FLAG_CLIENT_CA_FILE", authority),
            ("PLIMSOLL_FLAG_TLS_CERT_FILE", certificate),
            ("PLIMSOLL_FLAG_TLS_PRIVATE_KEY", key),
        ];
        fixture.run(HOME, &format!("vpa-{role}-"), role, &more);
    }
}

/// Runs them as upstream's programs. Those read no variables, and take a kubeconfig only by flag.
fn run_upstream(fixture: &Fixture, programs: &Autoscaler, certificates: &Certificates) {
    let Certificates { authority, certificate, key } = certificates;
    for role in ROLES {
        let (program, more): (&PathBuf, String) = match role {
            "recommender" => (&programs.recommender, "--recommender-interval=1s".to_owned()),
            "updater" => (&programs.updater, "--updater-interval=1s".to_owned()),
            _ => {
                let files = format!(
                    "--client-ca-file={authority} --tls-cert-file={certificate} --tls-private-key={key}"
                );
                (&programs.admission_controller, format!("--port=$PLIMSOLL_FLAG_PORT {files}"))
            }
        };
        let script = format!(
            "exec {} --kubeconfig=$KUBECONFIG --address=$PLIMSOLL_FLAG_ADDRESS {more} \"$@\"",
            program.display()
        );
        let words = ["sh", "-c", &script, role].map(str::to_owned).into();
        let address = port_variable(8942).expect("known").to_owned();
        let port = port_variable(8000).expect("known").to_owned();
        let environment = vec![(address, VariableValue::Address), (port, VariableValue::Port)];
        fixture.behave(HOME, &format!("vpa-{role}-"), words, environment);
    }
}

/// Sets these images in upstream's Deployments, and waits until no other runs.
async fn rolled_out(fixture: &Fixture, image: impl Fn(&str) -> String) {
    let deployments = Api::<Deployment>::namespaced(fixture.bed.client(), HOME);
    for role in ROLES {
        let change = json!({"spec": {"template": {"spec": {"containers": [
            {"name": role, "image": image(role)},
        ]}}}});
        let plain = PatchParams::default();
        let name = format!("vpa-{role}");
        deployments.patch(&name, &plain, &Patch::Strategic(&change)).await.expect("changed");
    }
    for role in ROLES {
        let wanted = image(role);
        wait::until_ok(&format!("{role} runs {wanted} alone"), || async {
            let pods = fixture.ready(HOME, &format!("app=vpa-{role}"), 1).await;
            let found = pods[0].spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
            if found.as_deref() == Some(&*wanted) { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }
}

/// The CPU and memory targets of `web`, once they exist.
async fn targets(fixture: &Fixture, namespace: &str) -> Option<Vec<f64>> {
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(fixture.bed.client(), namespace);
    let vpa = serde_json::to_value(vpas.get("web").await.ok()?).ok()?;
    let target = vpa.pointer("/status/recommendation/containerRecommendations/0/target")?.clone();
    let amount = |resource: &str| {
        let text = target[resource].as_str()?;
        Some(text.parse::<Quantity>().ok()?.as_f64())
    };
    Some(vec![amount("cpu")?, amount("memory")?])
}

/// Number of samples in the checkpoint of `web`, and the time of the first one.
async fn saved_samples(fixture: &Fixture, namespace: &str) -> Option<(u64, Value)> {
    let checkpoints = Api::<Checkpoint>::namespaced(fixture.bed.client(), namespace);
    let list = checkpoints.list(&ListParams::default()).await.ok()?;
    let status = serde_json::to_value(list.items.first()?).ok()?["status"].clone();
    Some((status["totalSamplesCount"].as_u64()?, status["firstSampleStart"].clone()))
}

/// Waits until the checkpoint has more samples.
async fn wait_for_more_samples(fixture: &Fixture, namespace: &str, than: u64) -> (u64, Value) {
    wait::until("more samples are saved", || async {
        saved_samples(fixture, namespace).await.filter(|(count, _)| *count > than)
    })
    .await
}

/// A workload with a CPU request of 100m, which is too small for its usage.
async fn workload(fixture: &Fixture, name: &str) -> String {
    let namespace = fixture.bed.namespace(name).await;
    let web = small::deployment("web", 2, "100m", "64Mi");
    small::create::<Deployment>(fixture.bed.client(), &namespace, &web).await;
    fixture.usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 0.3, memory: 300 << 20 });
    wait_for_ready_pods(&fixture.bed, &namespace, "web", 2).await;
    wait_for_age(&fixture.bed, &namespace, "web", 6).await;
    let vpa = "
metadata: {name: web}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  updatePolicy: {updateMode: Recreate}
  resourcePolicy: {containerPolicies: [{containerName: '*', minAllowed: {cpu: 250m}}]}
";
    small::create::<VerticalPodAutoscaler>(fixture.bed.client(), &namespace, vpa).await;
    namespace
}

/// Waits until all pods of a workload were replaced by larger ones.
async fn wait_until_replaced(fixture: &Fixture, namespace: &str) {
    let pods = Api::<Pod>::namespaced(fixture.bed.client(), namespace);
    wait::until_ok(&format!("all pods of {namespace} have what is recommended"), || async {
        let found = pods.list(&ListParams::default()).await.map_err(|why| why.to_string())?;
        let cpu = |pod: &Pod| {
            let requests = pod.spec.as_ref()?.containers[0].resources.clone()?.requests?;
            Some(requests.get("cpu")?.0.clone())
        };
        let amounts: Vec<_> = found.items.iter().filter_map(cpu).collect();
        let is_done = amounts.len() == 2 && !amounts.contains(&"100m".to_owned());
        if is_done { Ok(()) } else { Err(format!("{amounts:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_manifests_run_plimsoll_and_switching_back_loses_nothing() {
    let found = tokio::task::spawn_blocking(|| {
        Ok::<_, anyhow::Error>((
            test_programs::autoscaler()?,
            test_programs::autoscaler_manifests()?,
        ))
    });
    let (programs, manifests) = match found.await.expect("no panic") {
        Ok(found) => found,
        Err(why) => return report_skipped(format!("{why:#}")),
    };
    let Some(fixture) = Fixture::new(&[]).await else { return };
    let file = write_certificates(&fixture.bed, "vpa-webhook");
    let certificates = Certificates {
        authority: file("ca.crt"),
        certificate: file("tls.crt"),
        key: file("tls.key"),
    };
    run_upstream(&fixture, &programs, &certificates);
    let mut images = std::collections::BTreeMap::new();
    for name in [
        "vpa-v1-crd-gen.yaml",
        "vpa-rbac.yaml",
        "admission-controller-service.yaml",
        "recommender-deployment.yaml",
        "updater-deployment.yaml",
        "admission-controller-deployment.yaml",
    ] {
        let text = fs::read_to_string(manifests.join(name)).expect("upstream ships it");
        let all = objects(&text);
        for deployment in of_kind(&all, "Deployment") {
            let container = &deployment["spec"]["template"]["spec"]["containers"][0];
            let word = |value: &Value| value.as_str().expect("text").to_owned();
            images.insert(word(&container["name"]), word(&container["image"]));
            assert_eq!(container["command"], Value::Null, "the image defines the command");
        }
        fixture.apply(&all).await;
    }
    assert_eq!(images.len(), ROLES.len());
    // Upstream's script creates it, and the Deployment waits for it.
    let read = |file: &str| k8s_openapi::ByteString(fs::read(file).expect("it was just written"));
    let secret = Secret {
        metadata: serde_json::from_value(json!({"name": "vpa-tls-certs"})).expect("a name"),
        data: Some(
            [
                ("caCert.pem", &certificates.authority),
                ("serverCert.pem", &certificates.certificate),
                ("serverKey.pem", &certificates.key),
            ]
            .map(|(name, file)| (name.to_owned(), read(file)))
            .into(),
        ),
        ..Secret::default()
    };
    let secrets = Api::<Secret>::namespaced(fixture.bed.client(), HOME);
    secrets.create(&kube::api::PostParams::default(), &secret).await.expect("new");

    // Upstream's programs run for a while.
    let first = workload(&fixture, "first").await;
    wait_until_replaced(&fixture, &first).await;
    let (samples, began) = wait_for_more_samples(&fixture, &first, 3).await;
    let upstream_targets = targets(&fixture, &first).await.expect("a recommendation");

    // Plimsoll takes over their state and does the same work.
    run_plimsoll(&fixture, &certificates);
    let before = fixture.audit.requests();
    rolled_out(&fixture, |role| format!("example.com/plimsoll/{role}:1")).await;
    let (after, still) = wait_for_more_samples(&fixture, &first, samples).await;
    assert_eq!(still, began, "history goes on");
    assert_near(&upstream_targets, &targets(&fixture, &first).await.expect("a recommendation"));
    let second = workload(&fixture, "second").await;
    wait_until_replaced(&fixture, &second).await;
    let plimsoll_targets = targets(&fixture, &second).await.expect("a recommendation");
    let (counted, since) = wait_for_more_samples(&fixture, &second, 3).await;
    let refused = |request: &&AuditedRequest| request.code == 403;
    let after_all = fixture.audit.requests();
    let refused: Vec<_> = after_all.difference(&before).filter(refused).collect();
    assert!(refused.is_empty(), "{refused:#?}");

    // Back to upstream.
    run_upstream(&fixture, &programs, &certificates);
    rolled_out(&fixture, |role| images[role].clone()).await;
    for (namespace, count, began, expected) in
        [(&first, after, began, upstream_targets), (&second, counted, since, plimsoll_targets)]
    {
        let (_, still) = wait_for_more_samples(&fixture, namespace, count).await;
        assert_eq!(still, began, "{namespace}: history goes on");
        let targets = targets(&fixture, namespace).await.expect("a recommendation");
        assert_near(&expected, &targets);
    }
    let third = workload(&fixture, "third").await;
    wait_until_replaced(&fixture, &third).await;
}

/// Usage is constant, so recommendations stay within a bucket of the histogram.
fn assert_near(one: &[f64], other: &[f64]) {
    let near = one.iter().zip(other).all(|(one, other)| (one - other).abs() <= 0.06 * one);
    assert!(near && one.len() == other.len(), "{one:?} {other:?}");
}
