//! Who sees what on a real API server with RBAC: users x namespaces x paths, with the page in the process of another role
//! and in one of its own.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use k8s_openapi::api::{
    apps::v1::Deployment,
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{ResourceQuota, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{Api, api::DeleteParams};
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::{Value, json};

use crate::{
    cluster_writes::access_review::grant,
    storage::checkpoint_objects::create_definitions,
    support::{Testbed, manifests, plimsoll_process::PlimsollProcesses, ports::Port, wait},
};

/// The forms of every page, and paths that belong to one namespace.
const FORMS: [&str; 3] = ["", ".json", ".csv"];
const LISTS: [&str; 5] = ["overview", "workloads", "a", "held", "preview"];
const OF_EVERYTHING: [&str; 2] = ["status", "backtest"];

/// The pages of a namespace.
fn pages_of(namespace: &str) -> [String; 3] {
    [
        format!("n/{namespace}"),
        format!("w/{namespace}/Deployment/web"),
        format!("a/{namespace}/web"),
    ]
}

/// The status and the body of a page.
async fn get(port: u16, path: &str, token: Option<&str>) -> Option<(u16, String)> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let mut request = Request::get(format!("http://127.0.0.1:{port}/{path}"));
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let response = client.request(request.body(Empty::new()).expect("a request")).await.ok()?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}

/// A page that is there.
async fn page(port: u16, path: &str, token: &str) -> (u16, String) {
    get(port, path, Some(token)).await.unwrap_or_else(|| panic!("no answer: {path}"))
}

/// A workload with a VPA, an HPA and a quota.
async fn fill(bed: &Testbed, namespace: &str) {
    let client = || bed.client();
    let deployment = manifests::deployment("web", 1, "100m", "64Mi");
    manifests::create::<Deployment>(client(), namespace, &deployment).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let named = |kind: &str, version: &str, spec: Value| {
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": "web"}, "spec": spec})
            .to_string()
    };
    let vpa = named(
        "VerticalPodAutoscaler",
        "autoscaling.k8s.io/v1",
        json!({"targetRef": target, "updatePolicy": {"updateMode": "Off"}}),
    );
    manifests::create::<VerticalPodAutoscaler>(client(), namespace, &vpa).await;
    let hpa = named(
        "HorizontalPodAutoscaler",
        "autoscaling/v2",
        json!({"scaleTargetRef": target, "maxReplicas": 3}),
    );
    manifests::create::<HorizontalPodAutoscaler>(client(), namespace, &hpa).await;
    let quota = named("ResourceQuota", "v1", json!({"hard": {"requests.cpu": "4"}}));
    manifests::create::<ResourceQuota>(client(), namespace, &quota).await;
}

/// Lets an account list VPAs in all namespaces.
async fn grant_everywhere(bed: &Testbed, namespace: &str, account: &str) {
    let name = json!({"name": format!("{namespace}-{account}")});
    let rule = json!({
        "apiGroups": ["autoscaling.k8s.io"], "resources": ["verticalpodautoscalers"],
        "verbs": ["list"],
    });
    let cluster_role = json!({"metadata": name, "rules": [rule]});
    let reference = json!({
        "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name["name"],
    });
    let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": namespace});
    let binding = json!({"metadata": name, "roleRef": reference, "subjects": [subject]});
    let roles = Api::<ClusterRole>::all(bed.client());
    let cluster_role: ClusterRole = serde_json::from_value(cluster_role).expect("a role");
    manifests::create_with_retry(&roles, &cluster_role).await;
    let bindings = Api::<ClusterRoleBinding>::all(bed.client());
    let binding: ClusterRoleBinding = serde_json::from_value(binding).expect("a binding");
    manifests::create_with_retry(&bindings, &binding).await;
}

/// Starts the page in the process of a controller, and alone.
fn start(bed: &Testbed, ports: [&Port; 2]) -> PlimsollProcesses {
    let processes = PlimsollProcesses::new(bed);
    let [together, alone] = ports;
    let flags = [
        &*format!("--ui.address=127.0.0.1:{together}"),
        "--ui.auth=token",
        "--leader-elect=false",
        // Nothing listens here: pages are there without a Prometheus.
        "--ui.prometheus-address=http://127.0.0.1:9",
    ];
    // Other tests share the cluster: a recommender would write to their VPAs.
    processes.all_in_one("page-together", "horizontal,ui", &flags);
    processes.ui("page-alone", &[&format!("--address=127.0.0.1:{alone}"), "--auth=token"]);
    processes
}

/// Checks all pages for a user who may see some of the namespaces.
async fn check_user(
    port: u16,
    (user, token): (&str, &str),
    allowed: &[&String],
    namespaces: &[String],
) {
    let hidden: Vec<&String> = namespaces.iter().filter(|name| !allowed.contains(name)).collect();
    let assert_hidden = |path: &str, body: &str| {
        for namespace in &hidden {
            assert!(!body.contains(&***namespace), "{user} sees {namespace} in {path}");
        }
    };
    for path in LISTS {
        for form in FORMS {
            let (status, body) = page(port, &format!("{path}{form}"), token).await;
            let has_form = form != ".csv" || path != "overview";
            assert_eq!(status, if has_form { 200 } else { 404 }, "{user} {path}{form}");
            assert_hidden(path, &body);
        }
    }
    for path in OF_EVERYTHING {
        let (status, _) = page(port, path, token).await;
        assert_eq!(status, if user == "everything" { 200 } else { 404 }, "{user} {path}");
    }
    let (_, missing) = page(port, "n/page-none", token).await;
    for namespace in namespaces {
        for path in pages_of(namespace) {
            let (status, body) = page(port, &path, token).await;
            let is_allowed = allowed.contains(&namespace);
            assert_eq!(status, if is_allowed { 200 } else { 404 }, "{user} {path}");
            assert_hidden(&path, &body);
            if !is_allowed {
                let (_, unknown) =
                    page(port, &path.replace(&**namespace, "page-none"), token).await;
                assert_eq!(body, unknown, "{user} {path}: the same page as for no namespace");
            }
            let forms = [format!("{path}.json"), format!("{path}.csv")];
            for path in forms {
                let (status, body) = page(port, &path, token).await;
                assert!(is_allowed || status == 404, "{user} {path}");
                assert_hidden(&path, &body);
            }
        }
    }
    assert!(missing.contains("you may not see it"), "{missing}");
    let (_, overview) = page(port, "overview.json", token).await;
    let overview: Value = serde_json::from_str(&overview).expect("JSON");
    if user != "everything" {
        let count = allowed.len();
        assert_eq!(overview["totals"]["workloads"], count, "{user}: {overview}");
        assert_eq!(overview["withVpa"], count, "{user}");
        assert_eq!(overview["autoscalers"], count, "{user}");
        assert_eq!(overview["quotas"].as_array().map(Vec::len), Some(count), "{user}");
    }
}

#[tokio::test]
async fn nothing_of_a_namespace_is_shown_to_users_who_may_not_list_its_vpas() {
    let Some(bed) = Testbed::shared().await else { return };
    create_definitions(&bed).await;
    let mut namespaces = Vec::new();
    for name in ["page-a", "page-b", "page-c"] {
        let namespace = bed.namespace(name).await;
        fill(&bed, &namespace).await;
        namespaces.push(namespace);
    }
    let [a, b, c] = &namespaces[..] else { panic!("three namespaces") };
    let rule = json!({
        "apiGroups": ["autoscaling.k8s.io"], "resources": ["verticalpodautoscalers"],
        "verbs": ["list"],
    });
    // Each account is in the first namespace: being somewhere is no right.
    let mut tokens = BTreeMap::new();
    for user in ["one", "two", "nobody", "everything"] {
        let account = bed.service_account(a, user).await;
        tokens.insert(user, account.token.clone());
    }
    grant(&bed, a, "one", std::slice::from_ref(&rule)).await;
    grant(&bed, a, "two", std::slice::from_ref(&rule)).await;
    bind(&bed, b, (a, "two"), &rule).await;
    grant_everywhere(&bed, a, "everything").await;

    let ports = [Port::claim(), Port::claim()];
    let processes = start(&bed, [&ports[0], &ports[1]]);
    let port = ports[0].number();
    // The survey has all three namespaces, and the authorizer the new rules.
    let complete = format!("w/{c}/Deployment/web.json");
    wait::until("the page has been made", || async {
        let (status, _) = get(port, &complete, Some(&tokens["everything"])).await?;
        (status == 200).then_some(())
    })
    .await;

    let table: [(&str, &[&String]); 4] =
        [("one", &[a]), ("two", &[a, b]), ("nobody", &[]), ("everything", &[a, b, c])];
    for (user, allowed) in table {
        check_user(port, (user, &tokens[user]), allowed, &namespaces).await;
    }
    for token in [None, Some("none")] {
        for path in ["overview.json", "workloads.csv", &complete, "status"] {
            let answer = get(port, path, token).await.map(|(status, _)| status);
            assert_eq!(answer, Some(401), "{path} with {token:?}");
        }
    }
    revoked(&bed, (a, "one"), &tokens["one"], ports[1].number()).await;
    processes.assert_running("page-together");
    for name in ["page-together", "page-alone"] {
        bed.process_guard().signal(name, "TERM");
    }
}

/// Gives rules in a namespace to an account of another one.
async fn bind(bed: &Testbed, namespace: &str, (of, account): (&str, &str), permission: &Value) {
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    let name = json!({"name": account});
    let role = json!({"metadata": name, "rules": [permission]});
    manifests::create::<Role>(bed.client(), namespace, &role.to_string()).await;
    let binding = json!({
        "metadata": name,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": of}],
    });
    manifests::create::<RoleBinding>(bed.client(), namespace, &binding.to_string()).await;
}

/// A server that has not asked about the token yet rejects it once its account is gone. That a server which has asked
/// does so after a minute is tested on a virtual clock.
async fn revoked(bed: &Testbed, (namespace, account): (&str, &str), token: &str, port: u16) {
    let accounts = Api::<ServiceAccount>::namespaced(bed.client(), namespace);
    accounts.delete(account, &DeleteParams::default()).await.expect("deleted");
    // The API server itself remembers tokens for ten seconds.
    let reviews = Api::<k8s_openapi::api::authentication::v1::TokenReview>::all(bed.client());
    let review = serde_json::from_value(json!({"spec": {"token": token}})).expect("a review");
    wait::until("the token is no longer valid", || async {
        let reviewed = reviews.create(&kube::api::PostParams::default(), &review).await.ok()?;
        (reviewed.status?.authenticated != Some(true)).then_some(())
    })
    .await;
    wait::until("the page alone is there", || async {
        (get(port, "livez", None).await?.0 == 200).then_some(())
    })
    .await;
    let (status, _) = page(port, "overview.json", token).await;
    assert_eq!(status, 401, "the token of a deleted account");
}
