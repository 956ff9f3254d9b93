//! Recommendations that exceed the capacity of a pod or node.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::fixture::{Fixture, target_for_usage};

pub async fn a_pod_is_capped_to_the_largest_node_and_to_a_limit(fixture: &Fixture) {
    // A larger node that these pods cannot use.
    fixture.bed.nodes().add("large", "64", "256Gi").await;
    let taint = json!({ "spec": { "taints": [{ "key": "gpu", "effect": "NoSchedule" }] } });
    let nodes = Api::<Node>::all(fixture.client());
    let patched = nodes.patch("large", &PatchParams::default(), &Patch::Merge(taint)).await;
    patched.expect("exists");
    let (node, cpu, memory) = (
        "--cap-to-largest-node",
        "--pod-recommendation-max-allowed-cpu=3",
        "--pod-recommendation-max-allowed-memory=1Gi",
    );
    for (flags, resource, limit, reason, amount) in [
        (&[node][..], "cpu", "node_cap", "node_cap", "8"),
        (&[cpu], "cpu", "pod_cap", "pod_cap", "3"),
        (&[memory], "memory", "pod_cap", "pod_cap", "1Gi"),
        (&[node, memory], "memory", "pod_cap", "node_cap,pod_cap", "1Gi"),
    ] {
        let namespace = fixture.bed.namespace("caps").await;
        fixture.deploy(&namespace, "web").await;
        fixture.create_vpa(&namespace, "web", "web").await;
        fixture.set_usage(&namespace, "web-", 20.0, 3000);
        let recommender = fixture.start_recommender(&namespace, flags).await;
        recommender.step(fixture).await;
        fixture.wait_for_target(&namespace, "web", "main", resource, amount).await;
        if resource == "cpu" {
            fixture
                .wait_for_target(&namespace, "web", "main", "memory", &target_for_usage(3000))
                .await;
        }
        let vpa = fixture.vpa(&namespace, "web").await;
        let recommendation = &vpa["status"]["recommendation"]["containerRecommendations"][0];
        assert_ne!(
            recommendation["uncappedTarget"][resource], amount,
            "the uncapped target is unchanged"
        );
        let conditions = vpa["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        let capped = conditions.iter().find(|it| it["type"] == "RecommendationCapped");
        let capped = capped.unwrap_or(&Value::Null);
        assert_eq!(capped["status"], "True", "{conditions:?}");
        assert_eq!(capped["reason"], reason, "{capped}");
        let message = capped["message"].as_str().unwrap_or_default();
        assert!(message.contains(amount), "{message}");
        recommender.wait_for_metric_line(&format!(
            "plimsoll_restricted_scaling{{container=\"main\",kind=\"vpa\",name=\"web\",namespace=\"{namespace}\",reason=\"{limit}\",resource=\"{resource}\"}} 1"
        ))
        .await;
        recommender.stop().await;
    }
}

/// The policy, flags, cores in use, the reason, and the resulting CPU and memory.
type Held = (Value, &'static [&'static str], f64, &'static str, [&'static str; 2]);

pub async fn each_cap_of_a_recommendation_has_its_own_reason(fixture: &Fixture) {
    const GLOBAL: &[&str] = &[
        "--container-recommendation-max-allowed-cpu=900m",
        "--container-recommendation-max-allowed-memory=900Mi",
    ];
    // Usage is above each maximum and below each minimum; a policy takes precedence over flags.
    let (max, min) =
        (json!({"cpu": "500m", "memory": "600Mi"}), json!({"cpu": "7", "memory": "4Gi"}));
    let cases: [Held; 4] = [
        (json!({ "maxAllowed": max }), GLOBAL, 3.0, "max_allowed", ["500m", "600Mi"]),
        (json!({ "minAllowed": min }), &[], 3.0, "min_allowed", ["7", "4Gi"]),
        (json!({}), GLOBAL, 3.0, "global_max_allowed", ["900m", "900Mi"]),
        (json!({}), &[], 0.001, "floor", ["25m", "250Mi"]),
    ];
    for (mut policy, flags, cpu, reason, amounts) in cases {
        let namespace = fixture.bed.namespace("held").await;
        fixture.deploy(&namespace, "web").await;
        policy["containerName"] = "*".into();
        let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
        let policies = json!({ "containerPolicies": [policy] });
        let spec = json!({ "targetRef": target, "resourcePolicy": policies });
        fixture.create_vpa_with(&namespace, "web", &spec).await;
        fixture.set_usage(&namespace, "web-", cpu, (cpu * 1000.0) as u64);
        // Reasons that do not apply are exported as 0 only with all series.
        let flags = [flags, &["--object-metrics=all"]].concat();
        let recommender = fixture.start_recommender(&namespace, &flags).await;
        recommender.step(fixture).await;
        for (resource, amount) in ["cpu", "memory"].into_iter().zip(amounts) {
            if reason != "floor" || resource == "cpu" {
                fixture.wait_for_target(&namespace, "web", "main", resource, amount).await;
            }
            for other in ["floor", "min_allowed", "max_allowed", "global_max_allowed"] {
                let holds = u8::from(other == reason);
                recommender.wait_for_metric_line(&format!(
                    "plimsoll_restricted_scaling{{container=\"main\",kind=\"vpa\",name=\"web\",namespace=\"{namespace}\",reason=\"{other}\",resource=\"{resource}\"}} {holds}"
                ))
                .await;
            }
        }
        recommender.stop().await;
    }
}
