//! An updater logs lasting conditions, and problems common to several connections, once.

use std::{fs, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams};
use plimsoll::{cluster::clock::Clock, controllers::updater::AdmissionCheck};
use serde_json::{Value, json};

use super::fixture::{
    start_process, start_with, testbed_and_namespace, wait_for_passes, wait_for_passes_of,
};
use crate::support::{captured_log, clock::wall_now, manifests, wait};

const NOT_READY: &[&str] = &["admission controller is not ready"];

#[tokio::test]
async fn an_admission_controller_that_disappears_and_returns_is_logged_once_each() {
    let Some((bed, namespace)) = testbed_and_namespace("away").await else { return };
    let (log, _guard) = captured_log::capture();
    let check = AdmissionCheck {
        name: "vpa-admission-controller".to_owned(),
        namespace: namespace.clone(),
        timeout: Duration::from_hours(1),
    };
    let running = start_with(bed.client(), &namespace, &[], Clock::wall(), |config| {
        config.admission_check = Some(check);
    })
    .await;
    wait::until("its absence is logged", || async {
        (!log.lines(NOT_READY).is_empty()).then_some(())
    })
    .await;
    wait_for_passes(&running, 3).await;
    assert_eq!(log.lines(NOT_READY).len(), 1, "{}", log.tail());

    let spec = json!({"holderIdentity": "a", "renewTime": format!("{:.6}", wall_now())});
    let lease = json!({"metadata": {"name": "vpa-admission-controller"}, "spec": spec});
    manifests::create::<Lease>(bed.client(), &namespace, &lease.to_string()).await;
    wait::until("its return is logged", || async {
        (!log.lines(&["admission controller is ready again"]).is_empty()).then_some(())
    })
    .await;
    let leases = Api::<Lease>::namespaced(bed.client(), &namespace);
    let parameters = DeleteParams::default();
    leases.delete("vpa-admission-controller", &parameters).await.expect("exists");
    wait::until("its absence is logged again", || async {
        (log.lines(NOT_READY).len() == 2).then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn an_unverified_api_server_certificate_is_logged_once() {
    let Some((bed, namespace)) = testbed_and_namespace("unverified").await else { return };
    let text = fs::read_to_string(bed.kubeconfig_path()).expect("readable kubeconfig");
    let mut config: Value = serde_saphyr::from_str(&text).expect("YAML");
    let cluster = config["clusters"][0]["cluster"].as_object_mut().expect("a cluster");
    cluster.retain(|key, _| !key.starts_with("certificate-authority"));
    cluster.insert("insecure-skip-tls-verify".to_owned(), true.into());
    let folder = tempfile::tempdir().expect("temporary directory");
    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&kubeconfig, config.to_string()).expect("writable");
    let process = start_process(&bed, "unverified", &namespace, &kubeconfig, &[]);
    wait_for_passes_of(&process, 1).await;
    let text = process.log();
    let count = |part: &str| text.lines().filter(|line| line.contains(part)).count();
    assert_eq!(count("certificate of the API server is not verified"), 1, "{text}");
    assert_eq!(count("bypassed"), 0, "{text}");
    assert_eq!(count("became leader"), 1, "{text}");
    assert_eq!(count("new leader elected"), 0, "it is this process: {text}");
}
