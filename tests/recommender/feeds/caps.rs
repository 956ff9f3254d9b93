//! Pods that shall have more than there is room for.

use serde_json::Value;

use super::stage::{Stage, after_use};

pub async fn a_pod_is_kept_within_the_largest_node_and_within_a_limit(stage: &Stage) {
    for (flag, resource, reason, amount) in [
        ("--cap-to-largest-node", "cpu", "node_cap", "8"),
        ("--pod-recommendation-max-allowed-cpu=3", "cpu", "pod_cap", "3"),
        ("--pod-recommendation-max-allowed-memory=1Gi", "memory", "pod_cap", "1Gi"),
    ] {
        let namespace = stage.bed.namespace("caps").await;
        stage.deploy(&namespace, "web").await;
        stage.autoscale(&namespace, "web", "web").await;
        stage.uses(&namespace, "web-", 20.0, 3000);
        let play = stage.play(&namespace, &[flag]).await;
        play.on(stage).await;
        stage.says(&namespace, "web", "main", resource, amount).await;
        if resource == "cpu" {
            stage.says(&namespace, "web", "main", "memory", &after_use(3000)).await;
        }
        let vpa = stage.vpa(&namespace, "web").await;
        let said = &vpa["status"]["recommendation"]["containerRecommendations"][0];
        assert_ne!(said["uncappedTarget"][resource], amount, "what was wanted stays to be seen");
        let conditions = vpa["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        let capped = conditions.iter().find(|it| it["type"] == "RecommendationCapped");
        let capped = capped.unwrap_or(&Value::Null);
        assert_eq!(capped["status"], "True", "{conditions:?}");
        assert_eq!(capped["reason"], reason, "{capped}");
        let message = capped["message"].as_str().unwrap_or_default();
        assert!(message.contains(amount), "{message}");
        play.tells(&format!(
            "plimsoll_restricted_scaling{{container=\"main\",kind=\"vpa\",name=\"web\",namespace=\"{namespace}\",reason=\"{reason}\",resource=\"{resource}\"}} 1"
        ))
        .await;
        play.stop().await;
    }
}
