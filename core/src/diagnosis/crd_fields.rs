//! Compares the schema of a served CustomResourceDefinition with the one that Plimsoll needs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use super::facts::ServedCrd;

/// The maximum depth of a schema that is compared.
const MAX_DEPTH: usize = 32;

/// Compares a served definition with the wanted one, in the version that the wanted one stores.
pub fn missing_fields(
    wanted: &CustomResourceDefinition,
    served: &CustomResourceDefinition,
) -> ServedCrd {
    let Some(version) = wanted.spec.versions.iter().find(|version| version.storage) else {
        return ServedCrd { has_version: true, missing_fields: Vec::new() };
    };
    let found = served.spec.versions.iter().find(|one| one.name == version.name && one.served);
    let Some(found) = found else { return ServedCrd::default() };
    let mut missing = Vec::new();
    match (schema(version), schema(found)) {
        (Some(wanted), Some(found)) => compare(wanted, found, "", 0, &mut missing),
        (Some(_), None) => missing.push("all fields".to_owned()),
        (None, _) => {}
    }
    missing.sort();
    ServedCrd { has_version: true, missing_fields: missing }
}

fn schema(version: &CustomResourceDefinitionVersion) -> Option<&JSONSchemaProps> {
    version.schema.as_ref()?.open_api_v3_schema.as_ref()
}

/// Adds the paths of properties that only `wanted` has. Below a missing property nothing is added.
fn compare(
    wanted: &JSONSchemaProps,
    found: &JSONSchemaProps,
    path: &str,
    depth: usize,
    missing: &mut Vec<String>,
) {
    if depth > MAX_DEPTH || found.x_kubernetes_preserve_unknown_fields == Some(true) {
        return;
    }
    for (name, property) in wanted.properties.iter().flatten() {
        // The API server adds the metadata itself.
        if path.is_empty() && matches!(&**name, "apiVersion" | "kind" | "metadata") {
            continue;
        }
        let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match found.properties.as_ref().and_then(|properties| properties.get(name)) {
            Some(other) => compare(property, other, &below, depth + 1, missing),
            None if accepts_any_key(found) => {}
            None => missing.push(below),
        }
    }
    if let (
        Some(JSONSchemaPropsOrArray::Schema(wanted)),
        Some(JSONSchemaPropsOrArray::Schema(found)),
    ) = (&wanted.items, &found.items)
    {
        compare(wanted, found, &format!("{path}[]"), depth + 1, missing);
    }
}

fn accepts_any_key(schema: &JSONSchemaProps) -> bool {
    matches!(
        schema.additional_properties,
        Some(JSONSchemaPropsOrBool::Schema(_) | JSONSchemaPropsOrBool::Bool(true))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::crds;

    fn properties(
        schema: &mut JSONSchemaProps,
    ) -> &mut std::collections::BTreeMap<String, JSONSchemaProps> {
        schema.properties.as_mut().expect("an object")
    }

    fn schema_of(crd: &mut CustomResourceDefinition) -> &mut JSONSchemaProps {
        let validation = crd.spec.versions[0].schema.as_mut().expect("it has a schema");
        validation.open_api_v3_schema.as_mut().expect("it has a schema")
    }

    #[test]
    fn removed_fields_are_named_and_a_definition_lacks_nothing_of_itself() {
        let wanted = crds().expect("valid").remove(1);
        assert_eq!(missing_fields(&wanted, &wanted).missing_fields, Vec::<String>::new());
        let mut served = wanted.clone();
        let spec = properties(schema_of(&mut served)).get_mut("spec").expect("spec");
        properties(spec).remove("startupBoost");
        let policy = properties(spec).get_mut("resourcePolicy").expect("a policy");
        let policies = properties(policy).get_mut("containerPolicies").expect("policies");
        let Some(JSONSchemaPropsOrArray::Schema(policy)) = &mut policies.items else {
            panic!("a list")
        };
        properties(policy).remove("controlledValues");
        let found = missing_fields(&wanted, &served);
        assert_eq!(
            found.missing_fields,
            ["spec.resourcePolicy.containerPolicies[].controlledValues", "spec.startupBoost"]
        );
        schema_of(&mut served).x_kubernetes_preserve_unknown_fields = Some(true);
        assert!(missing_fields(&wanted, &served).missing_fields.is_empty());
        served.spec.versions[0].served = false;
        assert!(!missing_fields(&wanted, &served).has_version);
    }
}
