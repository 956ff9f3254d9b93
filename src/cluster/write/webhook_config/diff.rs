//! The desired webhook configuration, and the JSON patch that leads to it.

use k8s_openapi::{ByteString, api::admissionregistration::v1::MutatingWebhookConfiguration};
use serde_json::{Value, json};

use super::{DesiredWebhook, WEBHOOK_NAME, WebhookClientConfig, WebhookNamespaces, WebhookScope};
use crate::cluster::server::certificate::CaBundle;
use plimsoll_core::sizing::json_patch::escape_segment;

pub(super) fn current_ca_bundle(current: &MutatingWebhookConfiguration) -> CaBundle {
    let webhook = current.webhooks.iter().flatten().find(|webhook| webhook.name == WEBHOOK_NAME);
    let bundle = webhook.and_then(|webhook| webhook.client_config.ca_bundle.as_ref());
    bundle.map(|bundle| CaBundle::parse(&bundle.0)).unwrap_or_default()
}

/// The webhook as upstream writes it, with server defaults where the comparison needs them.
pub(super) fn desired_webhook(desired: &DesiredWebhook, ca_bundle: &CaBundle) -> Value {
    let bundle = ByteString(ca_bundle.to_pem());
    let mut client = match &desired.client_config {
        WebhookClientConfig::Service { namespace, name } => {
            json!({"service": {"namespace": namespace, "name": name, "port": 443}})
        }
        WebhookClientConfig::Url(url) => json!({"url": url}),
    };
    client["caBundle"] = json!(bundle);
    let selector = match &desired.namespaces {
        WebhookNamespaces::All => json!({}),
        WebhookNamespaces::Only(namespace) => {
            namespace_selector("In", std::slice::from_ref(namespace))
        }
        WebhookNamespaces::Except(namespaces) => namespace_selector("NotIn", namespaces),
    };
    let mut webhook = json!({
        "name": WEBHOOK_NAME,
        "admissionReviewVersions": ["v1"],
        "rules": [
            {
                "operations": ["CREATE"],
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods"],
            },
            {
                "operations": ["CREATE", "UPDATE"],
                "apiGroups": ["autoscaling.k8s.io"],
                "apiVersions": ["*"],
                "resources": ["verticalpodautoscalers"],
            },
        ],
        "failurePolicy": if desired.fail_closed { "Fail" } else { "Ignore" },
        "sideEffects": "None",
        "timeoutSeconds": desired.timeout_seconds,
        "clientConfig": client,
        "namespaceSelector": selector,
    });
    let others = [
        (desired.include_wpas, "datadoghq.com", "*", "watermarkpodautoscalers"),
        // One version, to which the API server converts the others.
        (
            desired.include_hpas && !desired.fail_closed,
            "autoscaling",
            "v2",
            "horizontalpodautoscalers",
        ),
    ];
    for (_, group, version, resource) in others.into_iter().filter(|(is_included, ..)| *is_included)
    {
        if let Some(rules) = webhook["rules"].as_array_mut() {
            rules.push(json!({
                "operations": ["CREATE", "UPDATE"],
                "apiGroups": [group],
                "apiVersions": [version],
                "resources": [resource],
            }));
        }
    }
    if desired.reinvoke_if_needed {
        webhook["reinvocationPolicy"] = json!("IfNeeded");
    }
    webhook
}

fn namespace_selector(operator: &str, namespaces: &[String]) -> Value {
    json!({"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": operator, "values": namespaces},
    ]})
}

/// The JSON patch operations that lead from the object to the desired configuration; empty if it is up to date.
pub(super) fn patch_operations(
    current: &MutatingWebhookConfiguration,
    desired: &DesiredWebhook,
    current_bundle: &CaBundle,
    ca_bundle: &CaBundle,
    scope: WebhookScope,
) -> Result<Vec<Value>, serde_json::Error> {
    let mut operations = Vec::new();
    let mut add = |path: String, value: &Value| {
        operations.push(json!({"op": "add", "path": path, "value": value}));
    };
    let labels = current.metadata.labels.clone().unwrap_or_default();
    if scope == WebhookScope::Full {
        if labels.is_empty() && !desired.labels.is_empty() {
            add("/metadata/labels".to_owned(), &json!(desired.labels));
        } else {
            for (key, value) in &desired.labels {
                if labels.get(key) != Some(value) {
                    add(format!("/metadata/labels/{}", escape_segment(key)), &json!(value));
                }
            }
        }
    }
    let webhook = desired_webhook(desired, ca_bundle);
    let webhooks = current.webhooks.as_deref().unwrap_or_default();
    let Some(index) = webhooks.iter().position(|candidate| candidate.name == WEBHOOK_NAME) else {
        let path = if webhooks.is_empty() { "/webhooks" } else { "/webhooks/-" };
        let value = if webhooks.is_empty() { json!([webhook]) } else { webhook };
        add(path.to_owned(), &value);
        return Ok(operations);
    };
    let existing = serde_json::to_value(&webhooks[index])?;
    if scope == WebhookScope::CaBundle {
        if current_bundle != ca_bundle {
            add(
                format!("/webhooks/{index}/clientConfig/caBundle"),
                &webhook["clientConfig"]["caBundle"],
            );
        }
        return Ok(operations);
    }
    for (field, value) in webhook.as_object().into_iter().flatten() {
        let is_same = match field.as_str() {
            "namespaceSelector" => existing.get(field).unwrap_or(&Value::Null) == value,
            "clientConfig" => {
                is_same_client_config(&existing[field], value) && current_bundle == ca_bundle
            }
            _ => contains_all(&existing[field], value),
        };
        if !is_same {
            add(format!("/webhooks/{index}/{field}"), value);
        }
    }
    Ok(operations)
}

/// Whether both have the same URL or Service, whatever their CA bundles.
fn is_same_client_config(existing: &Value, desired: &Value) -> bool {
    let address = |client: &Value| (client["url"].clone(), client["service"].clone());
    let ((url, service), (desired_url, desired_service)) = (address(existing), address(desired));
    url == desired_url
        && service.is_null() == desired_service.is_null()
        && contains_all(&service, &desired_service)
        && service.get("path").is_none()
}

/// Whether `found` has all fields of `wanted`; additional fields, such as server defaults, are ignored.
fn contains_all(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| found.get(key).is_some_and(|found| contains_all(found, value))),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| contains_all(found, wanted))
        }
        (found, wanted) => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use plimsoll_core::types::Time;

    use super::{super::NAME, *};
    use crate::cluster::server::certificate::{self, issue};

    fn wanted() -> DesiredWebhook {
        DesiredWebhook {
            labels: BTreeMap::new(),
            client_config: WebhookClientConfig::Service {
                namespace: "kube-system".into(),
                name: "vpa-webhook".into(),
            },
            namespaces: WebhookNamespaces::Except(vec![String::new()]),
            fail_closed: false,
            timeout_seconds: 30,
            reinvoke_if_needed: false,
            include_wpas: false,
            include_hpas: false,
        }
    }

    fn authority() -> CaBundle {
        let wanted = certificate::CertificateSpec {
            names: vec!["a.svc".to_owned()],
            lifetime: Duration::from_hours(1),
        };
        let pair = issue(&wanted, Time::from_secs(1_800_000_000)).expect("made");
        CaBundle::parse(&pair.authority)
    }

    /// The object as a server stores it, with defaults of its own.
    fn stored(wanted: &DesiredWebhook, trusts: &CaBundle) -> MutatingWebhookConfiguration {
        let mut webhook = desired_webhook(wanted, trusts);
        webhook["matchPolicy"] = json!("Equivalent");
        webhook["reinvocationPolicy"] = json!("Never");
        webhook["objectSelector"] = json!({});
        webhook["rules"][0]["scope"] = json!("*");
        let object =
            json!({"metadata": {"name": NAME, "labels": wanted.labels}, "webhooks": [webhook]});
        serde_json::from_value(object).expect("an object")
    }

    fn paths(
        current: &MutatingWebhookConfiguration,
        wanted: &DesiredWebhook,
        trusts: &CaBundle,
        extent: WebhookScope,
    ) -> Vec<String> {
        let trusted = current_ca_bundle(current);
        let operations = patch_operations(current, wanted, &trusted, trusts, extent).expect("JSON");
        operations
            .iter()
            .map(|operation| operation["path"].as_str().expect("a path").to_owned())
            .collect()
    }

    #[test]
    fn an_up_to_date_webhook_configuration_with_server_defaults_is_not_changed() {
        let trusts = authority();
        for namespaces in [
            WebhookNamespaces::All,
            WebhookNamespaces::Only("shop".into()),
            WebhookNamespaces::Except(vec![String::new()]),
        ] {
            for caller in
                [wanted().client_config, WebhookClientConfig::Url("https://127.0.0.1:8000".into())]
            {
                let wanted = DesiredWebhook {
                    namespaces: namespaces.clone(),
                    client_config: caller,
                    ..wanted()
                };
                let current = stored(&wanted, &trusts);
                assert_eq!(paths(&current, &wanted, &trusts, WebhookScope::Full), [""; 0]);
            }
        }
    }

    #[test]
    fn only_changed_fields_are_written() {
        let trusts = authority();
        let current = stored(&wanted(), &trusts);
        let other = |change: &dyn Fn(&mut DesiredWebhook)| {
            let mut wanted = wanted();
            change(&mut wanted);
            paths(&current, &wanted, &trusts, WebhookScope::Full)
        };
        let url = WebhookClientConfig::Url("https://127.0.0.1:8000".into());
        assert_eq!(other(&|it| it.fail_closed = true), ["/webhooks/0/failurePolicy"]);
        assert_eq!(other(&|it| it.timeout_seconds = 5), ["/webhooks/0/timeoutSeconds"]);
        assert_eq!(
            other(&|it| it.namespaces = WebhookNamespaces::All),
            ["/webhooks/0/namespaceSelector"]
        );
        assert_eq!(other(&|it| it.client_config = url.clone()), ["/webhooks/0/clientConfig"]);
        assert_eq!(other(&|it| it.include_wpas = true), ["/webhooks/0/rules"]);
        assert_eq!(other(&|it| it.include_hpas = true), ["/webhooks/0/rules"]);
        // Warnings are not worth a webhook that can block writes.
        let fail_closed = |it: &mut DesiredWebhook| {
            it.include_hpas = true;
            it.fail_closed = true;
        };
        assert_eq!(other(&fail_closed), ["/webhooks/0/failurePolicy"]);
        let label = |it: &mut DesiredWebhook| {
            it.labels.insert("a/b".into(), "c".into());
        };
        assert_eq!(other(&label), ["/metadata/labels"]);
        let mut labelled = current.clone();
        labelled.metadata.labels = Some([("of".to_owned(), "others".to_owned())].into());
        let mut more = wanted();
        label(&mut more);
        assert_eq!(paths(&labelled, &more, &trusts, WebhookScope::Full), ["/metadata/labels/a~1b"]);
        let changed = authority();
        assert_eq!(
            paths(&current, &wanted(), &changed, WebhookScope::Full),
            ["/webhooks/0/clientConfig"]
        );
        assert_eq!(
            paths(&current, &wanted(), &changed, WebhookScope::CaBundle),
            ["/webhooks/0/clientConfig/caBundle"]
        );
        // With other flags than those that it was written with, only the CA bundle is reconciled.
        let strict = DesiredWebhook { fail_closed: true, ..wanted() };
        assert_eq!(paths(&current, &strict, &trusts, WebhookScope::CaBundle), [""; 0]);
    }

    #[test]
    fn webhooks_of_others_in_the_object_stay() {
        let trusts = authority();
        let mut current = stored(&wanted(), &trusts);
        if let Some(webhooks) = &mut current.webhooks {
            webhooks[0].name = "other.k8s.io".into();
        }
        assert_eq!(paths(&current, &wanted(), &trusts, WebhookScope::CaBundle), ["/webhooks/-"]);
        current.webhooks = None;
        assert_eq!(paths(&current, &wanted(), &trusts, WebhookScope::CaBundle), ["/webhooks"]);
    }
}
