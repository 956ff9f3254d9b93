//! Registration of the metrics APIs with a testbed's API server.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::support::wait;

const APIS: [(&str, &str); 4] = [
    ("metrics.k8s.io", "v1beta1"),
    ("custom.metrics.k8s.io", "v1beta1"),
    ("custom.metrics.k8s.io", "v1beta2"),
    ("external.metrics.k8s.io", "v1beta1"),
];

/// Registers the server on this port, which must already respond: the API server only checks an unavailable one again
/// after a minute. Waits until all APIs are available.
pub async fn register(client: &Client, port: u16) {
    let service = json!({
        "metadata": { "name": "usage" },
        // The API server resolves the name itself, so the service can be a process on this machine.
        "spec": { "type": "ExternalName", "externalName": "localhost", "ports": [{ "port": port }] },
    });
    let service: Service = serde_json::from_value(service).expect("a service");
    Api::<Service>::namespaced(client.clone(), "kube-system")
        .create(&PostParams::default(), &service)
        .await
        .expect("a testbed serves usage once");
    let registrations = Api::<APIService>::all(client.clone());
    for (group, version) in APIS {
        let registration = json!({
            "metadata": { "name": format!("{version}.{group}") },
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true,
                "service": { "namespace": "kube-system", "name": "usage", "port": port },
            },
        });
        let registration: APIService =
            serde_json::from_value(registration).expect("an API service");
        registrations.create(&PostParams::default(), &registration).await.expect("a new API");
    }
    for (group, version) in APIS {
        wait::until(&format!("{group} is available"), || async {
            let status =
                registrations.get_status(&format!("{version}.{group}")).await.ok()?.status?;
            let conditions = status.conditions.unwrap_or_default();
            let available =
                conditions.iter().any(|found| found.type_ == "Available" && found.status == "True");
            available.then_some(())
        })
        .await;
        // The condition becomes true shortly before the API server proxies requests.
        wait::until(&format!("requests for {group} are passed on"), || async {
            let request = http::Request::get(format!("/apis/{group}/{version}"));
            let request = request.body(Vec::new()).expect("a request");
            client.request_text(request).await.ok()
        })
        .await;
    }
}
