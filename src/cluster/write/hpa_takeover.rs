//! Patches a HorizontalPodAutoscaler on behalf of a user.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::{
    Client,
    api::{Api, Patch, PatchParams},
};
use serde_json::Value;

const FIELD_MANAGER: &str = "plimsoll-hpa";

/// Applies a merge patch, which names the version of the object that it was made for. Needs no lease: it is a user's own
/// change of the spec, as with `kubectl patch`.
pub async fn patch_hpa(
    client: &Client,
    (namespace, name): (&str, &str),
    patch: &Value,
) -> kube::Result<()> {
    let api = Api::<HorizontalPodAutoscaler>::namespaced(client.clone(), namespace);
    let parameters =
        PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    api.patch_metadata(name, &parameters, &Patch::Merge(patch)).await.map(drop)
}
