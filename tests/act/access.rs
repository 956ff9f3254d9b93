//! Questions about access, answered by the real RBAC.

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use plimsoll::act::{Rule, Verdict, may};
use serde_json::{Value, json};

use crate::support::ports::Port;
use crate::support::{Bed, objects};

/// Gives rules to a service account, in its namespace.
pub async fn grant(bed: &Bed, namespace: &str, account: &str, rules: &[Value]) {
    let name = json!({"name": account});
    let role = json!({"metadata": name, "rules": rules});
    objects::create::<Role>(bed.client(), namespace, &role.to_string()).await;
    let binding = json!({
        "metadata": name,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    });
    objects::create::<RoleBinding>(bed.client(), namespace, &binding.to_string()).await;
}

#[tokio::test]
async fn each_rule_is_answered_by_itself_and_in_order() {
    let Some(bed) = Bed::shared().await else { return };
    let namespace = bed.namespace("access").await;
    let account = bed.account(&namespace, "asks").await;
    let rule = json!({"apiGroups": [""], "resources": ["pods/resize"], "resourceNames": ["web"], "verbs": ["patch"]});
    grant(&bed, &namespace, "asks", &[rule]).await;
    let resize = || Rule::new("patch", "", "pods/resize").within(&namespace);
    let rules = [
        resize(),
        resize().named("web"),
        resize().named("other"),
        Rule::new("patch", "", "pods/resize").named("web").within("default"),
        Rule::new("patch", "", "pods").named("web").within(&namespace),
    ];
    let expected = [false, true, false, false, false];
    let expected = expected.map(|may| if may { Verdict::Allowed } else { Verdict::Denied });
    // What RBAC knows arrives at the server's authorizer a moment later.
    crate::support::wait::until("the role holds", || async {
        (may(&account.client, &rules).await == expected).then_some(())
    })
    .await;
    let of_the_administrator = may(&bed.client(), &rules).await;
    assert!(of_the_administrator.iter().all(Verdict::is_allowed), "{of_the_administrator:?}");
}

#[tokio::test]
async fn no_answer_is_neither_yes_nor_no() {
    let port = Port::claim();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let address = format!("http://127.0.0.1:{}", port.number()).parse().expect("an address");
    let mut config = kube::Config::new(address);
    config.default_retry = false;
    let client = Client::try_from(config).expect("a client");
    let verdicts = may(&client, &[Rule::new("get", "", "pods")]).await;
    assert!(matches!(verdicts[..], [Verdict::Unknown(_)]), "{verdicts:?}");
}
