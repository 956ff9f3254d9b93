//! The CustomResourceDefinitions that `plimsoll crds` prints.

use crate::api::checkpoint::{
    VerticalPodAutoscalerCheckpoint, VerticalPodAutoscalerCheckpointSpec,
    VerticalPodAutoscalerCheckpointStatus,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::CustomResourceExt;
use serde_json::Value;

use crate::api::{
    passthrough::{ObjectStatus, PodsStatus},
    schema,
    vpa::{VerticalPodAutoscaler, VerticalPodAutoscalerSpec, VerticalPodAutoscalerStatus},
    wpa::{WatermarkPodAutoscaler, WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
};

/// Why the definitions could not be generated.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// The schema of a type is not a structural schema.
    #[error("invalid CustomResourceDefinition schema: {0}")]
    Schema(#[from] serde_json::Error),
    /// YAML serialization failed.
    #[error("failed to encode CustomResourceDefinitions as YAML: {0}")]
    Yaml(#[from] serde_saphyr::ser::Error),
}

/// The definitions of all kinds that Plimsoll reads, in the order in which they are printed.
pub fn crds() -> Result<Vec<CustomResourceDefinition>, CrdError> {
    let mut checkpoint = with_schema(
        VerticalPodAutoscalerCheckpoint::crd(),
        &schema::object_schema::<
            VerticalPodAutoscalerCheckpointSpec,
            VerticalPodAutoscalerCheckpointStatus,
        >(
            "The usage history of one container, persisted so that it survives a restart of the recommender.",
            &[],
        )?,
    );
    // No status subresource: the status is written together with the metadata, in one request.
    for version in &mut checkpoint.spec.versions {
        version.subresources = None;
    }
    let vpa = with_schema(
        VerticalPodAutoscaler::crd(),
        &schema::object_schema::<VerticalPodAutoscalerSpec, VerticalPodAutoscalerStatus>(
            "Sizes the containers of a workload by their usage.",
            &["spec"],
        )?,
    );
    Ok(vec![checkpoint, vpa, watermark_crd()?])
}

/// The definition accepts whatever upstream's does, and sets no defaults, so that tools which compare objects with
/// their manifests see no difference.
fn watermark_crd() -> Result<CustomResourceDefinition, serde_json::Error> {
    let mut schema =
        schema::object_schema::<WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus>(
            "Scales a workload so that its metrics stay between two watermarks.",
            &[],
        )?;
    let metrics = schema::property_at(&mut schema, &["status", "currentMetrics"]);
    if let Some(items) = metrics.and_then(schema::items) {
        let kinds = items.properties.get_or_insert_default();
        kinds.insert("object".into(), schema::type_schema::<ObjectStatus>()?);
        kinds.insert("pods".into(), schema::type_schema::<PodsStatus>()?);
    }
    Ok(with_schema(WatermarkPodAutoscaler::crd(), &schema))
}

/// All definitions as one YAML stream.
pub fn crds_yaml() -> Result<String, CrdError> {
    let mut stream = String::new();
    for crd in crds()? {
        stream.push_str("---\n");
        stream.push_str(&to_yaml(&crd)?);
    }
    Ok(stream)
}

/// One definition as a YAML document.
pub fn to_yaml(crd: &CustomResourceDefinition) -> Result<String, CrdError> {
    let mut definition = serde_json::to_value(crd)?;
    drop_zero_fractions(&mut definition);
    // Strings that YAML 1.1 parsers read as booleans or numbers ("Off") are quoted by default.
    Ok(serde_saphyr::to_string(&definition)?)
}

/// The API type stores a minimum of 1 as 1.0; print it as 1.
fn drop_zero_fractions(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0) {
                *value = (float as i64).into();
            }
        }
        Value::Array(list) => list.iter_mut().for_each(drop_zero_fractions),
        Value::Object(map) => map.values_mut().for_each(drop_zero_fractions),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn with_schema(
    mut crd: CustomResourceDefinition,
    schema: &JSONSchemaProps,
) -> CustomResourceDefinition {
    let names = &mut crd.spec.names;
    names.list_kind = Some(format!("{}List", names.kind));
    for version in &mut crd.spec.versions {
        version.schema.get_or_insert_default().open_api_v3_schema = Some(schema.clone());
    }
    crd
}
