//! Patches of autoscalers on behalf of a user. They need no lease: they are a user's own change of the spec, as with
//! `kubectl patch`.

use std::fmt::Debug;

use k8s_openapi::{NamespaceResourceScope, api::autoscaling::v2::HorizontalPodAutoscaler};
use kube::{
    Client, Resource,
    api::{Api, Patch, PatchParams},
};
use plimsoll_core::api::wpa::WatermarkPodAutoscaler;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Applies a merge patch, which names the version of the object that it was made for.
pub async fn patch_hpa(client: &Client, place: (&str, &str), patch: &Value) -> kube::Result<()> {
    merge::<HorizontalPodAutoscaler>(client, "plimsoll-hpa", place, patch).await
}

/// Sets `spec.dryRun` and no other field.
pub async fn set_dry_run(client: &Client, place: (&str, &str), on: bool) -> kube::Result<()> {
    let patch = json!({"spec": {"dryRun": on}});
    merge::<WatermarkPodAutoscaler>(client, "plimsoll-dry-run", place, &patch).await
}

async fn merge<K>(
    client: &Client,
    field_manager: &str,
    (namespace, name): (&str, &str),
    patch: &Value,
) -> kube::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let parameters =
        PatchParams { field_manager: Some(field_manager.into()), ..PatchParams::default() };
    // Only the metadata of the response is parsed: this works for objects that this program cannot decode.
    api.patch_metadata(name, &parameters, &Patch::Merge(patch)).await.map(drop)
}
