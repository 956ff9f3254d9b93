//! Prints the patch of a transition for manifests that are kept in a repository.

use serde_json::{Value, json};

use super::transition::TransitionPatch;

const API_VERSION: &str = "autoscaling/v2";
const KIND: &str = "HorizontalPodAutoscaler";

/// The fields of one object that change, as a manifest. Fields to remove are null.
pub fn to_manifest(
    namespace: &str,
    name: &str,
    patch: &TransitionPatch,
) -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(&manifest(Some(namespace), name, patch))
}

/// The entries of `patches` in a `kustomization.yaml`. A namespace is left out, because kustomize may set it later.
pub fn to_kustomization<'a>(
    objects: impl IntoIterator<Item = (&'a str, &'a TransitionPatch)>,
) -> Result<String, serde_saphyr::ser::Error> {
    let mut text = "patches:\n".to_owned();
    for (name, patch) in objects {
        text.push_str("- target:\n    group: autoscaling\n    version: v2\n");
        text.extend([
            "    kind: ",
            KIND,
            "\n    name: ",
            &json!(name).to_string(),
            "\n  patch: |-\n",
        ]);
        for line in serde_saphyr::to_string(&manifest(None, name, patch))?.lines() {
            text.extend(["    ", line, "\n"]);
        }
    }
    Ok(text)
}

fn manifest(namespace: Option<&str>, name: &str, patch: &TransitionPatch) -> Value {
    let mut manifest = patch.body();
    manifest["apiVersion"] = API_VERSION.into();
    manifest["kind"] = KIND.into();
    manifest["metadata"]["name"] = name.into();
    if let Some(namespace) = namespace {
        manifest["metadata"]["namespace"] = namespace.into();
    }
    manifest
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;
    use crate::hpa::takeover::{
        ObjectMode,
        transition::{CurrentObject, Transition, plan},
    };

    #[test]
    fn a_patch_is_printed_for_manifests_and_for_kustomize() {
        let object = CurrentObject { metadata: &ObjectMeta::default(), behavior: &Value::Null };
        let patch = plan(Transition::Adopt(ObjectMode::Assist), &object).expect("a patch");
        let manifest = to_manifest("shop", "web", &patch).expect("YAML");
        let parsed: Value = serde_saphyr::from_str(&manifest).expect("YAML");
        assert_eq!(
            parsed,
            json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": "web", "namespace": "shop", "annotations":
                    {"plimsoll.dev/hpa": "assist", "plimsoll.dev/behavior": "null"}},
                "spec": {"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}})
        );
        let text = to_kustomization([("web", &patch), ("api", &patch)]).expect("YAML");
        let parsed: Value = serde_saphyr::from_str(&text).expect("YAML");
        assert_eq!(parsed["patches"][1]["target"]["name"], "api");
        let inner = parsed["patches"][0]["patch"].as_str().expect("text");
        let inner: Value = serde_saphyr::from_str(inner).expect("YAML");
        assert_eq!(inner["metadata"]["annotations"]["plimsoll.dev/behavior"], "null");
        assert_eq!(inner["metadata"].get("namespace"), None);
    }
}
