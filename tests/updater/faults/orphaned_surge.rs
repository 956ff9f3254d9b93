//! A second replica whose VPA was deleted while no updater ran: the next updater removes it, also if a VPA of the same name exists
//! again.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::json;

use crate::support::{
    Testbed,
    holding_proxy::{HoldPoint, HoldingProxy, RoleWrite},
    role_process::RoleProcess,
    wait,
};
use crate::updater::{
    fixture::{self, FAST_FLAGS, deployment, vpa, wait_for_passes_of},
    sizing_webhook::SizingWebhook,
};

struct Fixture {
    bed: Testbed,
    namespace: String,
    proxy: HoldingProxy,
}

impl Fixture {
    async fn replicas(&self) -> Option<i32> {
        let deployments = Api::<Deployment>::namespaced(self.bed.client(), &self.namespace);
        deployments.get("web").await.expect("exists").spec?.replicas
    }

    fn start(&self) -> RoleProcess {
        let flags = [FAST_FLAGS, &["--leader-elect=false", "--surge"]].concat();
        fixture::start_process(
            &self.bed,
            "updater",
            &self.namespace,
            self.proxy.kubeconfig(),
            &flags,
        )
    }

    /// Starts an updater, and kills it when the second replica is ready and the first is about to be evicted.
    async fn kill_after_scale_up(&self) {
        self.proxy.hold((RoleWrite::Eviction, HoldPoint::Request));
        let updater = self.start();
        self.proxy.wait_until_held().await;
        assert_eq!(self.replicas().await, Some(2));
        assert_eq!(updater.end("KILL").await, 137);
        self.proxy.open();
    }

    async fn delete_vpa(&self) {
        let vpas = Api::<VerticalPodAutoscaler>::namespaced(self.bed.client(), &self.namespace);
        vpas.delete("web", &DeleteParams::default()).await.expect("deleted");
    }

    async fn wait_for_one_replica(&self, updater: &RoleProcess) {
        wait::until_ok("one replica", || async {
            if self.replicas().await == Some(1) { Ok(()) } else { Err(updater.log()) }
        })
        .await;
    }
}

#[tokio::test]
async fn the_second_replica_of_a_vpa_deleted_without_an_updater_is_removed() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("orphaned-surge").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 1).await;
    vpa(&bed, &namespace, "web", "Recreate", "250m").await;
    let _webhook = SizingWebhook::start(&bed, &namespace, "web", "250m").await;
    fixture::wait_for_age(&bed, &namespace, "web", 6).await;
    let proxy = HoldingProxy::start(&bed, &namespace).await;
    let fixture = Fixture { bed, namespace, proxy };
    fixture.kill_after_scale_up().await;
    fixture.delete_vpa().await;
    let updater = fixture.start();
    fixture.wait_for_one_replica(&updater).await;
    updater.wait_for_log(&["scaled Deployment back to one replica"]).await;
    updater.end("TERM").await;

    vpa(&fixture.bed, &fixture.namespace, "web", "Recreate", "300m").await;
    fixture.kill_after_scale_up().await;
    fixture.delete_vpa().await;
    vpa(&fixture.bed, &fixture.namespace, "web", "Off", "300m").await;
    let updater = fixture.start();
    fixture.wait_for_one_replica(&updater).await;
    // The ledger does not record it any more: a replica that the owner adds now stays.
    let two = json!({"spec": {"replicas": 2}});
    let deployments = Api::<Deployment>::namespaced(fixture.bed.client(), &fixture.namespace);
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(&two)).await.expect("patched");
    wait_for_passes_of(&updater, 3).await;
    assert_eq!(fixture.replicas().await, Some(2));
}
