//! Compares upstream's own configuration with Plimsoll's, on one control plane.

use kube::api::DeleteParams;
use plimsoll::cluster::write::webhook_config::NAME;

use super::{REGISTRATION, assert_registered_and_repaired, bare};
use crate::support::{
    Testbed,
    upstream_process::{Role, UpstreamProcesses},
    wait,
};
use crate::webhook::cluster::configurations;

#[tokio::test]
async fn upstream_registers_its_webhook_as_recorded_and_plimsoll_does_the_same() {
    let Some(bed) = Testbed::private().await else { return };
    let Some(upstream) = UpstreamProcesses::new(&bed).await else { return };
    upstream.start(Role::AdmissionController, &["--register-webhook=true"]);
    let configurations = configurations(&bed);
    let theirs = wait::until("upstream has registered itself", || async {
        upstream.assert_running("admission-controller");
        configurations.get_opt(NAME).await.ok()?
    })
    .await;
    configurations.delete(NAME, &DeleteParams::default()).await.expect("deleted");
    wait::until("it is gone", || async {
        configurations.get_opt(NAME).await.ok()?.is_none().then_some(())
    })
    .await;
    let theirs = bare(&theirs);
    assert_registered_and_repaired(&bed, &theirs).await;
    REGISTRATION.write_or_compare(&format!("{theirs:#}\n"));
}
