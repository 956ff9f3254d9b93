//! Upstream's own registration, and ours on the same control plane.

use kube::api::DeleteParams;
use plimsoll::act::registration::NAME;

use super::{REGISTRATION, bare, is_registered_and_mended};
use crate::support::{
    Bed,
    upstream::{Role, Upstream},
    wait,
};
use crate::webhook::cluster::configurations;

#[tokio::test]
async fn upstream_registers_itself_as_was_recorded_and_ours_does_the_same() {
    let Some(bed) = Bed::private().await else { return };
    let Some(upstream) = Upstream::on(&bed).await else { return };
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
    is_registered_and_mended(&bed, &theirs).await;
    REGISTRATION.keep(&format!("{theirs:#}\n"));
}
