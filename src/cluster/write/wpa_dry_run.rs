//! The switch of a WatermarkPodAutoscaler that keeps it from acting, set because a person asked for it.

use kube::{
    Client,
    api::{Api, Patch, PatchParams},
};
use serde_json::json;

use plimsoll_core::api::wpa::WatermarkPodAutoscaler;

/// Who wrote, in `managedFields`.
const FIELD_MANAGER: &str = "plimsoll-dry-run";

/// Sets `spec.dryRun` of an object and nothing else of it. There is no lease to this: it is a user's own change of what
/// is wanted, as with `kubectl patch`.
pub async fn set_dry_run(
    client: &Client,
    (namespace, name): (&str, &str),
    on: bool,
) -> kube::Result<()> {
    let api = Api::<WatermarkPodAutoscaler>::namespaced(client.clone(), namespace);
    let parameters =
        PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"spec": {"dryRun": on}}));
    // Only that it was done matters: an object that this program cannot read is switched all the same.
    api.patch_metadata(name, &parameters, &patch).await.map(drop)
}
