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

/// Why the definitions could not be made: a type of ours has no structural schema.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// A schema that is none.
    #[error("the schema of a type is not one that a CustomResourceDefinition can hold: {0}")]
    Schema(#[from] serde_json::Error),
    /// YAML that could not be written.
    #[error("the definitions cannot be written as YAML: {0}")]
    Yaml(#[from] serde_saphyr::ser::Error),
}

/// Every kind that Plimsoll reads, in the order in which they are printed.
pub fn crds() -> Result<Vec<CustomResourceDefinition>, CrdError> {
    let mut checkpoint = with_schema(
        VerticalPodAutoscalerCheckpoint::crd(),
        &schema::object_schema::<
            VerticalPodAutoscalerCheckpointSpec,
            VerticalPodAutoscalerCheckpointStatus,
        >(
            "What a recommender remembers of one container, so that a restart does not make it forget.",
            &[],
        )?,
    );
    // Its status is written together with its metadata, in one request.
    for version in &mut checkpoint.spec.versions {
        version.subresources = None;
    }
    let vpa = with_schema(
        VerticalPodAutoscaler::crd(),
        &schema::object_schema::<VerticalPodAutoscalerSpec, VerticalPodAutoscalerStatus>(
            "Asks for the containers of a workload to be sized by what they use.",
            &["spec"],
        )?,
    );
    Ok(vec![checkpoint, vpa, watermark_crd()?])
}

/// What users write is refused for nothing that upstream's definition lets pass, and has no defaults: what a user left
/// out stays left out for whoever compares objects with the files that they came from.
fn watermark_crd() -> Result<CustomResourceDefinition, serde_json::Error> {
    let mut schema =
        schema::object_schema::<WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus>(
            "Keeps metrics of a workload between two marks by the number of its replicas.",
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
    // Strings that older readers take for booleans or numbers ("Off") are quoted by default.
    Ok(serde_saphyr::to_string(&definition)?)
}

/// The type of a definition keeps a minimum of 1 as 1.0, and people write 1.
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
