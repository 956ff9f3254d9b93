//! `plimsoll hpa` beside kube-controller-manager, which has to leave adopted and paused objects alone.

use std::process::Command;

use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler};
use kube::Api;
use plimsoll::report::doctor::hpa_lint::HpaLintReport;
use serde_json::Value;

use super::{MEBIBYTE, MEMORY};
use crate::{
    schema::{faults, schema},
    support::{
        MetricsServer, Testbed, hollow_nodes::is_ready, manifests, metrics_server::UsageValue,
        skipped::report_skipped, wait,
    },
};

const NAME: &str = "taken";

/// A workload with two pods and its object, which kube-controller-manager scales.
struct Scaled {
    bed: Testbed,
    namespace: String,
    usage: MetricsServer,
}

impl Scaled {
    async fn new() -> Option<Self> {
        let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else {
            report_skipped("a whole control plane");
            return None;
        };
        let namespace = bed.namespace("takeover").await;
        let usage = MetricsServer::shared(&bed, &namespace).await;
        let scaled = Self { bed, namespace, usage };
        scaled.load(200);
        let workload = manifests::deployment(NAME, 2, "100m", "256Mi");
        manifests::create::<Deployment>(scaled.bed.client(), &scaled.namespace, &workload).await;
        let prefix = format!("{NAME}-");
        scaled.bed.nodes().pods(&scaled.namespace, &prefix, 2, "are ready", is_ready).await;
        scaled.create_hpa(NAME, 2).await;
        Some(scaled)
    }

    async fn create_hpa(&self, name: &str, min: i32) {
        let hpa = format!(
            "{{metadata: {{name: {name}}}, spec: {{minReplicas: {min}, maxReplicas: 6, metrics: [{MEMORY}], \
             behavior: {{scaleDown: {{stabilizationWindowSeconds: 60}}}}, \
             scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {NAME}}}}}}}"
        );
        manifests::create::<HorizontalPodAutoscaler>(self.bed.client(), &self.namespace, &hpa)
            .await;
    }

    fn load(&self, mebibytes: u64) {
        let usage = UsageValue { cpu: 0.1, memory: mebibytes * MEBIBYTE };
        self.usage.set_all(&self.namespace, &format!("{NAME}-"), "main", usage);
    }

    async fn object(&self) -> HorizontalPodAutoscaler {
        let api = Api::namespaced(self.bed.client(), &self.namespace);
        api.get(NAME).await.expect("it exists")
    }

    async fn replicas(&self) -> Option<i32> {
        let api = Api::<Deployment>::namespaced(self.bed.client(), &self.namespace);
        api.get(NAME).await.expect("it exists").spec.and_then(|spec| spec.replicas)
    }

    /// Sets the usage, and waits for a pass of kube-controller-manager that has read it. The same pass changes the replicas.
    async fn pass_with(&self, mebibytes: u64) {
        self.load(mebibytes);
        let percent = i32::try_from(mebibytes * 100 / 256).expect("a small number");
        wait::until_ok("kube-controller-manager has read the usage", || async {
            let status = self.object().await.status.unwrap_or_default();
            let metrics = status.current_metrics.unwrap_or_default();
            let resource = metrics.first().and_then(|metric| metric.resource.as_ref());
            let found = resource.and_then(|resource| resource.current.average_utilization);
            if found == Some(percent) { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }

    /// Runs `plimsoll hpa` about the object.
    async fn hpa(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let object = format!("{}/{NAME}", self.namespace);
        self.run(&[&["hpa"], words, &[&object]].concat()).await
    }

    /// The codes of the findings of `plimsoll doctor hpa`, with the object that each is about.
    async fn findings(&self) -> Vec<(String, String)> {
        let (code, out, err) =
            self.run(&["doctor", "hpa", "-n", &self.namespace, "--output=json"]).await;
        let report: Value = serde_json::from_str(&out).unwrap_or_else(|why| panic!("{why}: {err}"));
        assert_eq!(faults(&schema("doctor-hpa.v1.json"), &report), Vec::<String>::new());
        let report: HpaLintReport = serde_json::from_value(report).expect("a report");
        assert_eq!(report.notes, [""; 0]);
        assert_eq!(code, Some(i32::from(!report.findings.is_empty())));
        report.findings.into_iter().map(|finding| (finding.name, finding.code)).collect()
    }

    /// Runs the program: exit code, standard output, standard error.
    async fn run(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(words);
        command.env_clear().env("KUBECONFIG", self.bed.kubeconfig_path());
        let output = tokio::task::spawn_blocking(move || command.output().expect("it starts"));
        let output = output.await.expect("no panic");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    /// Waits for two passes of kube-controller-manager that change nothing: one may have begun with the former object.
    async fn pass_twice(&self) {
        for mebibytes in [203, 206] {
            self.pass_with(mebibytes).await;
        }
    }

    /// Changes the object, and expects this result.
    async fn change(&self, words: &[&str], result: &str) {
        let (code, out, err) = self.hpa(words).await;
        let expected = format!("HorizontalPodAutoscaler {}/{NAME} is {result}\n", self.namespace);
        assert_eq!((code, &out), (Some(0), &expected), "{err}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hpa_controller_leaves_paused_and_adopted_objects_alone_until_they_are_released() {
    let Some(scaled) = Scaled::new().await else { return };
    scaled.pass_with(200).await;
    let original = scaled.object().await;

    // Printing writes nothing.
    let (code, out, _) = scaled.hpa(&["adopt", "--output=kustomize"]).await;
    assert!(code == Some(0) && out.contains("plimsoll.dev/hpa: drive"), "{out}");
    let (code, out, _) = scaled.hpa(&["pause", "--dry-run"]).await;
    let expected = "  spec.behavior.scaleUp.selectPolicy: Max -> Disabled\n";
    assert!(code == Some(0) && out.contains(expected), "{out}");
    assert_eq!(scaled.object().await.metadata.annotations, original.metadata.annotations);

    scaled.change(&["pause"], "paused").await;
    scaled.pass_twice().await;
    scaled.pass_with(400).await;
    assert_eq!(scaled.replicas().await, Some(2), "it is paused");

    scaled.change(&["adopt"], "adopted (drive)").await;
    scaled.change(&["resume"], "resumed").await;
    let (code, out, err) = scaled.hpa(&["adopt"]).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.ends_with("is not changed: it is adopted already (drive)\n"), "{err}");
    scaled.pass_twice().await;
    scaled.pass_with(410).await;
    assert_eq!(scaled.replicas().await, Some(2), "it is adopted");

    scaled.change(&["release"], "released").await;
    let released = scaled.object().await;
    assert_eq!(released.spec, original.spec);
    assert_eq!(released.metadata.annotations, original.metadata.annotations);
    wait::until_ok("kube-controller-manager adds replicas again", || async {
        let replicas = scaled.replicas().await;
        if replicas > Some(2) { Ok(()) } else { Err(format!("{replicas:?}")) }
    })
    .await;
    assert_eq!(scaled.findings().await, []);
    scaled.create_hpa("second", 6).await;
    let codes = scaled.findings().await;
    let codes: Vec<_> = codes.iter().map(|(name, code)| (&**name, &**code)).collect();
    let expected = [
        ("second", "min_equals_max"),
        ("second", "overlapping_selectors"),
        (NAME, "overlapping_selectors"),
    ];
    assert_eq!(codes, expected);
}
