//! Every field of a manifest exists in its kind: a server would silently ignore an unknown one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingAdmissionPolicy,
            ValidatingAdmissionPolicyBinding,
        },
        apps::v1::Deployment,
        batch::v1::{CronJob, Job},
        coordination::v1::Lease,
        core::v1::{PersistentVolumeClaim, Secret, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
        scheduling::v1::PriorityClass,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use plimsoll_core::api::{VerticalPodAutoscaler, wpa::WatermarkPodAutoscaler};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    ROOT, documents,
    monitoring::{PodMonitor, PrometheusRule, RuleGroups, ServiceMonitor},
};

/// Deserializes an object as its kind and serializes it again, which loses unknown fields.
fn survives<K: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let read: K =
        serde_json::from_value(object.clone()).unwrap_or_else(|why| panic!("{why}: {object}"));
    serde_json::to_value(read).expect("an object")
}

/// Panics if the object has fields that its kind does not define.
pub fn check(object: &Value, place: &str) {
    let read = match object["kind"].as_str().unwrap_or_default() {
        "ClusterRole" => survives::<ClusterRole>(object),
        "ClusterRoleBinding" => survives::<ClusterRoleBinding>(object),
        // CRDs are compared with upstream's elsewhere.
        "CustomResourceDefinition" => {
            survives::<CustomResourceDefinition>(object);
            object.clone()
        }
        "Deployment" => survives::<Deployment>(object),
        "Job" => survives::<Job>(object),
        "Lease" => survives::<Lease>(object),
        "MutatingWebhookConfiguration" => survives::<MutatingWebhookConfiguration>(object),
        "NetworkPolicy" => survives::<NetworkPolicy>(object),
        "PersistentVolumeClaim" => survives::<PersistentVolumeClaim>(object),
        "PodDisruptionBudget" => survives::<PodDisruptionBudget>(object),
        "PriorityClass" => survives::<PriorityClass>(object),
        "Role" => survives::<Role>(object),
        "RoleBinding" => survives::<RoleBinding>(object),
        "CronJob" => survives::<CronJob>(object),
        "Secret" => survives::<Secret>(object),
        "Service" => survives::<Service>(object),
        "ServiceAccount" => survives::<ServiceAccount>(object),
        "ValidatingAdmissionPolicy" => survives::<ValidatingAdmissionPolicy>(object),
        "ValidatingAdmissionPolicyBinding" => survives::<ValidatingAdmissionPolicyBinding>(object),
        "PodMonitor" => survives::<PodMonitor>(object),
        "ServiceMonitor" => survives::<ServiceMonitor>(object),
        "PrometheusRule" => survives::<PrometheusRule>(object),
        // A server validates these fully when `helm test` creates them.
        "VerticalPodAutoscaler" => {
            survives::<VerticalPodAutoscaler>(object);
            object.clone()
        }
        "WatermarkPodAutoscaler" => {
            survives::<WatermarkPodAutoscaler>(object);
            object.clone()
        }
        "" if object["groups"].is_array() => survives::<RuleGroups>(object),
        other => panic!("{place}: a {other:?}"),
    };
    assert_eq!(&read, object, "{place}");
}

/// Every file below a folder, without Helm templates and krew's, which is not for a cluster.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() && !["helm", "krew"].iter().any(|folder| path.ends_with(folder)) {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_manifest_has_only_known_fields() {
    let all = files(&Path::new(ROOT).join("deploy"));
    assert!(all.len() >= 30, "only {} files were read", all.len());
    for path in all {
        for object in documents(&path) {
            let place = path.display().to_string();
            if ["Kustomization", "Component"].iter().any(|kind| object["kind"] == *kind) {
                let resources = object["resources"].as_array().expect("resources");
                for name in resources.iter().filter_map(Value::as_str) {
                    let there = path.with_file_name(name);
                    assert!(there.exists(), "{place}: {name} is not there");
                }
            } else if !path.ends_with("high-availability/spread.yaml") {
                // This one is a patch of a Deployment.
                check(&object, &place);
            }
        }
    }
}
