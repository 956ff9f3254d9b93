//! Sets `spec.dryRun` of a WatermarkPodAutoscaler on behalf of a user.

use kube::{
    Client,
    api::{Api, Patch, PatchParams},
};
use serde_json::json;

use plimsoll_core::api::wpa::WatermarkPodAutoscaler;

const FIELD_MANAGER: &str = "plimsoll-dry-run";

/// Sets `spec.dryRun` and no other field. Needs no lease: it is a user's own change of the spec, as with `kubectl patch`.
pub async fn set_dry_run(
    client: &Client,
    (namespace, name): (&str, &str),
    on: bool,
) -> kube::Result<()> {
    let api = Api::<WatermarkPodAutoscaler>::namespaced(client.clone(), namespace);
    let parameters =
        PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"spec": {"dryRun": on}}));
    // Only the metadata of the response is parsed: the switch works for objects that this program cannot decode.
    api.patch_metadata(name, &parameters, &patch).await.map(drop)
}
