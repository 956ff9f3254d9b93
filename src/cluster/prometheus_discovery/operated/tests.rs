//! Objects of operators as they are written, and the Services that lead to their servers.

use kube::api::TypeMeta;
use serde_json::{Value, json};

use super::{super::candidates::candidate, *};

fn server(kind: &str, name: &str, spec: &Value) -> Option<OperatedServer> {
    let types = TypeMeta { api_version: "g/v1".to_owned(), kind: kind.to_owned() };
    let mut object: DynamicObject = serde_json::from_value(json!({
        "metadata": {"namespace": "m", "name": name}, "spec": spec}))
    .expect("an object");
    object.types = Some(types);
    OperatedServer::of_object(kind, &object)
}

fn service(namespace: &str, name: &str, more: &Value, ports: &Value) -> Service {
    let mut service = json!({
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"ports": ports},
    });
    for (pointer, value) in more.as_object().expect("fields") {
        let (part, field) = pointer.split_once('/').expect("PART/FIELD");
        service[part][field] = value.clone();
    }
    serde_json::from_value(service).expect("a Service")
}

/// The address of each Service, if it is a candidate.
fn addresses(servers: &OperatedServers, services: &[Service]) -> Vec<Option<String>> {
    let address = |service| Some(candidate(service, servers)?.address.to_string());
    services.iter().map(address).collect()
}

#[test]
fn the_route_prefix_and_the_port_of_a_prometheus_apply_to_all_of_its_services() {
    let spec = json!({"routePrefix": "/prometheus/", "portName": "queries"});
    let servers = OperatedServers(server("Prometheus", "k8s", &spec).into_iter().collect());
    let ports = json!([{"name": "http", "port": 80}, {"name": "queries", "port": 9090}]);
    let none = json!({});
    let selector = json!({"spec/selector": {"operator.prometheus.io/name": "k8s"}});
    let owner = json!({"metadata/ownerReferences": [
        {"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus", "name": "k8s", "uid": "u"}]});
    let services = [
        service("m", "prometheus-operated", &none, &ports),
        service("m", "metrics", &selector, &ports),
        service("m", "owned", &owner, &ports),
        service("m", "prometheus-other", &none, &ports),
        service("n", "prometheus-operated", &none, &ports),
        service("m", "thanos-discovery", &selector, &json!([{"name": "queries", "port": 1}])),
        service("m", "alone", &selector, &json!([{"name": "http", "port": 10902}])),
    ];
    let address = |text: &str| Some(text.to_owned());
    assert_eq!(
        addresses(&servers, &services),
        [
            address("m/prometheus-operated:9090/prometheus"),
            address("m/metrics:9090/prometheus"),
            address("m/owned:9090/prometheus"),
            address("m/prometheus-other:80"),
            address("n/prometheus-operated:80"),
            None,
            None,
        ]
    );
}

#[test]
fn the_path_prefix_of_victoria_metrics_comes_before_that_of_its_component() {
    let prefix = json!({"extraArgs": {"http.pathPrefix": "/vm"}});
    let servers = [
        server("VMSingle", "main", &prefix),
        server("VMSingle", "plain", &json!({})),
        server("VMCluster", "big", &json!({"vmselect": prefix, "vminsert": {}})),
        server("VMCluster", "write-only", &json!({"vminsert": {}})),
    ];
    assert!(servers[3].is_none());
    let servers = OperatedServers(servers.into_iter().flatten().collect());
    let (single, select) =
        (json!([{"name": "http", "port": 8429}]), json!([{"name": "http", "port": 8481}]));
    let none = json!({});
    let owner = json!({"metadata/ownerReferences": [
        {"apiVersion": "operator.victoriametrics.com/v1beta1", "kind": "VMCluster", "name": "big", "uid": "u"}]});
    let services = [
        service("m", "vmsingle-main", &none, &single),
        service("m", "vmsingle-plain", &none, &single),
        service("m", "vmselect-big", &owner, &select),
        service("m", "vminsert-big", &owner, &json!([{"name": "http", "port": 8480}])),
    ];
    let address = |text: &str| Some(text.to_owned());
    assert_eq!(
        addresses(&servers, &services),
        [
            address("m/vmsingle-main:8429/vm"),
            address("m/vmsingle-plain:8429"),
            address("m/vmselect-big:8481/vm/select/0/prometheus"),
            None,
        ]
    );
}
