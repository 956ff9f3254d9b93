//! Proof that the control plane of the beds is real, and that it goes away.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};

use crate::support::Bed;

#[tokio::test]
async fn a_bed_starts_and_answers() {
    let Some(bed) = Bed::shared().await else { return };
    let version = bed.client().apiserver_version().await.expect("the server answers");
    assert_eq!(version.git_version, "v1.36.3");
}

#[tokio::test]
async fn tests_on_the_shared_bed_have_namespaces_of_their_own() {
    let Some(bed) = Bed::shared().await else { return };
    let (one, two) = (bed.namespace("twin").await, bed.namespace("twin").await);
    assert_ne!(one, two);
}

#[tokio::test]
async fn a_service_account_may_do_only_what_rbac_gives_it() {
    let Some(bed) = Bed::shared().await else { return };
    let namespace = bed.namespace("rbac").await;
    let account = bed.account(&namespace, "nobody").await;
    let maps = Api::<ConfigMap>::namespaced(account.client, &namespace);
    let refusal = maps.create(&PostParams::default(), &ConfigMap::default()).await;
    let Err(kube::Error::Api(status)) = refusal else { panic!("not refused: {refusal:?}") };
    assert_eq!(status.code, 403, "{}", status.message);
}
