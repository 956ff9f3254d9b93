//! Access reviews with real RBAC.

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use plimsoll::cluster::write::{AccessReview, AccessRule, check_access};
use serde_json::{Value, json};

use crate::support::ports::Port;
use crate::support::{Testbed, manifests};

/// Grants rules to a service account in its namespace.
pub async fn grant(bed: &Testbed, namespace: &str, account: &str, rules: &[Value]) {
    let name = json!({"name": account});
    let role = json!({"metadata": name, "rules": rules});
    manifests::create::<Role>(bed.client(), namespace, &role.to_string()).await;
    let binding = json!({
        "metadata": name,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    });
    manifests::create::<RoleBinding>(bed.client(), namespace, &binding.to_string()).await;
}

#[tokio::test]
async fn each_rule_is_reviewed_by_itself_and_in_order() {
    let Some(bed) = Testbed::shared().await else { return };
    let namespace = bed.namespace("access").await;
    let account = bed.service_account(&namespace, "reviewer").await;
    let rule = json!({"apiGroups": [""], "resources": ["pods/resize"], "resourceNames": ["web"], "verbs": ["patch"]});
    grant(&bed, &namespace, "reviewer", &[rule]).await;
    let resize = || AccessRule::new("patch", "", "pods/resize").in_namespace(&namespace);
    let rules = [
        resize(),
        resize().for_name("web"),
        resize().for_name("other"),
        AccessRule::new("patch", "", "pods/resize").for_name("web").in_namespace("default"),
        AccessRule::new("patch", "", "pods").for_name("web").in_namespace(&namespace),
    ];
    let expected = [false, true, false, false, false];
    let expected =
        expected.map(|may| if may { AccessReview::Allowed } else { AccessReview::Denied });
    // The authorizer sees a new rule a moment later.
    crate::support::wait::until("the role holds", || async {
        (check_access(&account.client, &rules).await == expected).then_some(())
    })
    .await;
    let of_the_administrator = check_access(&bed.client(), &rules).await;
    assert!(of_the_administrator.iter().all(AccessReview::is_allowed), "{of_the_administrator:?}");
}

#[tokio::test]
async fn a_failed_access_review_is_unknown() {
    let port = Port::claim();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let address = format!("http://127.0.0.1:{}", port.number()).parse().expect("an address");
    let mut config = kube::Config::new(address);
    config.default_retry = false;
    let client = Client::try_from(config).expect("a client");
    let verdicts = check_access(&client, &[AccessRule::new("get", "", "pods")]).await;
    assert!(matches!(verdicts[..], [AccessReview::Unknown(_)]), "{verdicts:?}");
}
