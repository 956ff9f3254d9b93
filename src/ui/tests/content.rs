//! What pages show besides lists: timelines, deleted workloads, quotas, and sums by label.

use http::Method;
use serde_json::Value;

use super::{ask, body, get, local, sample_snapshot, server};
use crate::ui::{access::AuthMode, server::UiServerConfig, snapshot::Snapshot};

#[tokio::test]
async fn a_deleted_workload_shows_its_timeline_and_an_autoscaler_its_own() {
    let server = local();
    let gone = get(&server, "/w/shop/Deployment/old-checkout").await;
    assert!(gone.contains("no longer exists") && gone.contains("<svg class=\"chart\""), "{gone}");
    assert!(!gone.contains("<h2>Containers"), "nothing else is known about it");
    let json = get(&server, "/w/shop/Deployment/old-checkout.json").await;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["gone"], &json["workload"]["name"]), (&true.into(), &"old-checkout".into()));
    let page = get(&server, "/a/shop/checkout").await;
    let json = get(&server, "/a/shop/checkout.json").await;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let timeline = &json["timelines"][0]["timeline"];
    assert_eq!(timeline["restrictions"][0]["reason"], "at_max_replicas");
    for text in ["Metric requests", "Replicas", "Restrictions", "proposal of", "at_max_replicas"] {
        assert!(page.contains(text), "{text}");
    }
    assert_eq!(page.matches("<svg class=\"chart\"").count(), 3);
    assert_eq!(page.matches("<details>").count(), 3, "each chart has a table");
    let effective = timeline["effective"].as_array().expect("points");
    let last = effective.last().and_then(|point| point[1].as_f64()).expect("a value");
    assert!(page.contains(&format!("decided {last}")), "the description has the last value");
}

#[tokio::test]
async fn quotas_and_sums_by_label_cover_what_may_be_seen() {
    let mut parts = sample_snapshot::all_parts();
    for workload in &mut parts.report.workloads {
        let team = if workload.namespace == "shop" { "web" } else { "hidden-team" };
        workload.labels.insert("team".to_owned(), team.to_owned());
        workload.labels.insert(format!("only-{}", workload.namespace), String::new());
    }
    let config =
        UiServerConfig { auth: AuthMode::Token, is_loopback: false, ..UiServerConfig::default() };
    let server = server(Some(Snapshot::new(parts)), config);
    let json = async |user: &str, path: &str| -> Value {
        let token = format!("Bearer {user}");
        let response = ask(&server, Method::GET, path, &[("authorization", &token)]).await;
        serde_json::from_str(&body(response).await).expect("JSON")
    };
    let all = json("admin", "/overview.json?by=team").await;
    assert_eq!(all["quotas"].as_array().map(Vec::len), Some(2));
    assert_eq!(all["byLabel"]["values"]["web"]["workloads"], 2);
    assert_eq!(all["byLabel"]["values"]["hidden-team"]["workloads"], 8);
    let own = json("ann", "/overview.json?by=team").await;
    let namespace = &own["namespaces"]["shop"];
    assert_eq!(own["quotas"][0]["amounts"][0]["needed"], namespace["memory"]["needed"]);
    let web = &own["byLabel"]["values"]["web"];
    assert_eq!(web["memory"], namespace["memory"], "all of the namespace has the label");
    let text = own.to_string();
    for word in ["hidden-team", "only-data", "kafka-secret"] {
        assert!(!text.contains(word), "{word}");
    }
    assert_eq!(own["labels"], serde_json::json!(["only-shop", "team"]));
    let page = json("ann", "/n/shop.json").await;
    assert_eq!(page["quotas"][0]["name"], "compute");
    let unknown = json("ann", "/overview.json?by=only-data").await;
    assert_eq!(unknown["byLabel"], Value::Null);
}
