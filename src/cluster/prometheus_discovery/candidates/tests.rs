//! Services as charts and operators create them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// The candidate that a Service is, where no operator is installed.
fn candidate(service: &Service) -> Option<Candidate> {
    super::candidate(service, &OperatedServers::default())
}

fn service(namespace: &str, name: &str, labels: &[&str], ports: &[&str]) -> Service {
    let labels: Value = labels
        .iter()
        .map(|label| {
            let (name, value) = label.split_once('=').expect("NAME=VALUE");
            (name.replace("k8s/", "app.kubernetes.io/"), json!(value))
        })
        .collect::<serde_json::Map<_, _>>()
        .into();
    let ports: Vec<_> = ports
        .iter()
        .map(|port| {
            let (name, number) = port.split_once(':').expect("NAME:NUMBER");
            let number: u16 = number.parse().expect("a number");
            json!({"name": name, "port": number, "protocol": "TCP"})
        })
        .collect();
    serde_json::from_value(json!({
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"ports": ports},
    }))
    .expect("a Service")
}

/// `NAME labels` of a Service, its ports, and its address and kind if it is a candidate.
type Row = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    Option<(&'static str, ServerKind)>,
);

fn check(rows: &[Row]) {
    for (name, labels, ports, expected) in rows {
        let found = candidate(&service("m", name, labels, ports));
        let found = found.map(|found| (found.address.to_string(), found.kind));
        let expected = expected.map(|(address, kind)| (format!("m/{address}"), kind));
        assert_eq!(found, expected, "{name} {labels:?} {ports:?}");
    }
}

#[test]
fn kube_prometheus_stack_has_one_server_with_two_services() {
    use ServerKind::Prometheus;
    let web: &[_] = &["http-web:9090", "reloader-web:8080"];
    check(&[
        (
            "kps-kube-prometheus-stack-prometheus",
            &[
                "app=kube-prometheus-stack-prometheus",
                "self-monitor=true",
                "k8s/instance=kps",
                "k8s/part-of=kube-prometheus-stack",
                "release=kps",
            ],
            web,
            Some(("kps-kube-prometheus-stack-prometheus:9090", Prometheus)),
        ),
        (
            "prometheus-operated",
            &["operated-prometheus=true", "managed-by=prometheus-operator"],
            &["http-web:9090", "grpc:10901"],
            Some(("prometheus-operated:9090", Prometheus)),
        ),
        (
            "kps-kube-prometheus-stack-alertmanager",
            &["app=kube-prometheus-stack-alertmanager", "k8s/part-of=kube-prometheus-stack"],
            &["http-web:9093", "reloader-web:8080"],
            None,
        ),
        ("alertmanager-operated", &["operated-alertmanager=true"], &["http-web:9093"], None),
        (
            "kps-kube-prometheus-stack-operator",
            &["app=kube-prometheus-stack-operator"],
            &["https:443"],
            None,
        ),
        (
            "kps-kube-prometheus-stack-thanos-discovery",
            &["app=kube-prometheus-stack-thanos-discovery"],
            &["grpc:10901", "http:10902"],
            None,
        ),
        (
            "kps-kube-prometheus-stack-coredns",
            &["app=kube-prometheus-stack-coredns", "jobLabel=coredns"],
            &["http-metrics:9153"],
            None,
        ),
        (
            "kps-kube-prometheus-stack-kubelet",
            &["k8s/name=kubelet", "k8s=kubelet"],
            &["https-metrics:10250", "http-metrics:10255", "cadvisor:4194"],
            None,
        ),
        ("kps-grafana", &["k8s/name=grafana", "k8s/instance=kps"], &["http-web:80"], None),
        ("kps-kube-state-metrics", &["k8s/name=kube-state-metrics"], &["http:8080"], None),
        (
            "kps-prometheus-node-exporter",
            &["k8s/name=prometheus-node-exporter", "k8s/component=metrics"],
            &["http-metrics:9100"],
            None,
        ),
    ]);
}

#[test]
fn a_release_named_prometheus_has_many_services_with_that_name() {
    check(&[
        (
            "prometheus-server",
            &["k8s/name=prometheus", "k8s/component=server", "k8s/part-of=prometheus"],
            &["http:80"],
            Some(("prometheus-server:80", ServerKind::Prometheus)),
        ),
        (
            "prometheus-server-headless",
            &["k8s/name=prometheus", "k8s/component=server"],
            &["http:80"],
            Some(("prometheus-server-headless:80", ServerKind::Prometheus)),
        ),
        (
            "prometheus-server",
            &["app=prometheus", "component=server", "release=prometheus"],
            &["http:80"],
            Some(("prometheus-server:80", ServerKind::Prometheus)),
        ),
        ("prometheus-alertmanager", &["k8s/name=alertmanager"], &["http:9093"], None),
        (
            "prometheus-alertmanager",
            &["app=prometheus", "component=alertmanager"],
            &["http:80"],
            None,
        ),
        ("prometheus-kube-state-metrics", &["k8s/name=kube-state-metrics"], &["http:8080"], None),
        (
            "prometheus-prometheus-pushgateway",
            &["k8s/name=prometheus-pushgateway"],
            &["http:9091"],
            None,
        ),
        (
            "prometheus-prometheus-node-exporter",
            &["k8s/name=prometheus-node-exporter"],
            &["metrics:9100"],
            None,
        ),
        ("prometheus-adapter", &["k8s/name=prometheus-adapter"], &["https:443"], None),
        ("prometheus-grafana", &["k8s/name=grafana"], &["http-web:80"], None),
    ]);
}

#[test]
fn other_distributions_label_the_server_or_only_name_it() {
    use ServerKind::Prometheus;
    check(&[
        (
            "prometheus-k8s",
            &["k8s/name=prometheus", "k8s/component=prometheus", "k8s/part-of=kube-prometheus"],
            &["web:9090", "reloader-web:8080"],
            Some(("prometheus-k8s:9090", Prometheus)),
        ),
        (
            "rancher-monitoring-prometheus",
            &["app=rancher-monitoring-prometheus"],
            &["http-web:9090"],
            Some(("rancher-monitoring-prometheus:9090", Prometheus)),
        ),
        (
            "metrics-kube-prometheus-prometheus",
            &["k8s/name=kube-prometheus", "k8s/component=prometheus"],
            &["http:9090"],
            Some(("metrics-kube-prometheus-prometheus:9090", Prometheus)),
        ),
        ("prometheus", &[], &["web:9090"], Some(("prometheus:9090", Prometheus))),
        ("team-prometheus", &[], &["anything:9090"], Some(("team-prometheus:9090", Prometheus))),
        ("prometheus", &["app=shop"], &["metrics:9113"], None),
        (
            "prometheus",
            &["k8s/name=prometheus"],
            &["any:3000"],
            Some(("prometheus:3000", Prometheus)),
        ),
        ("prometheus", &["k8s/name=prometheus"], &["a:3000", "b:3001"], None),
        ("checkout", &["k8s/name=checkout"], &["http:9090"], None),
    ]);
}

#[test]
fn query_layers_have_their_own_ports_and_paths() {
    use ServerKind::{MimirQueryFrontend, ThanosQuery, ThanosQueryFrontend, VmSelect, VmSingle};
    check(&[
        (
            "thanos-query",
            &["k8s/name=thanos", "k8s/component=query"],
            &["http:9090"],
            Some(("thanos-query:9090", ThanosQuery)),
        ),
        ("thanos-query-grpc", &["k8s/name=thanos", "k8s/component=query"], &["grpc:10901"], None),
        (
            "thanos-query",
            &["k8s/name=thanos-query", "k8s/component=query-layer"],
            &["grpc:10901", "http:9090"],
            Some(("thanos-query:9090", ThanosQuery)),
        ),
        ("thanos-query", &[], &["any:10902"], Some(("thanos-query:10902", ThanosQuery))),
        (
            "thanos-query-frontend",
            &["k8s/name=thanos", "k8s/component=query-frontend"],
            &["http:9090"],
            Some(("thanos-query-frontend:9090", ThanosQueryFrontend)),
        ),
        (
            "thanos-storegateway",
            &["k8s/name=thanos", "k8s/component=storegateway"],
            &["http:9090"],
            None,
        ),
        (
            "vmsingle-main",
            &["k8s/name=vmsingle", "k8s/instance=main", "managed-by=vm-operator"],
            &["http:8429"],
            Some(("vmsingle-main:8429", VmSingle)),
        ),
        (
            "vm-victoria-metrics-single-server",
            &["k8s/name=victoria-metrics-single", "app=server"],
            &["http:8428"],
            Some(("vm-victoria-metrics-single-server:8428", VmSingle)),
        ),
        (
            "vmselect-main",
            &["k8s/name=vmselect", "managed-by=vm-operator"],
            &["http:8481", "clusternative:8401"],
            Some(("vmselect-main:8481/select/0/prometheus", VmSelect)),
        ),
        (
            "vm-victoria-metrics-cluster-vmselect",
            &["k8s/name=victoria-metrics-cluster", "app=vmselect"],
            &["http:8481"],
            Some(("vm-victoria-metrics-cluster-vmselect:8481/select/0/prometheus", VmSelect)),
        ),
        ("vminsert-main", &["k8s/name=vminsert"], &["http:8480"], None),
        ("vmstorage-main", &["k8s/name=vmstorage"], &["http:8482"], None),
        ("vmagent-main", &["k8s/name=vmagent"], &["http:8429"], None),
        ("vmalert-main", &["k8s/name=vmalert"], &["http:8080"], None),
        (
            "mimir-query-frontend",
            &["k8s/name=mimir", "k8s/component=query-frontend"],
            &["http-metrics:8080", "grpc:9095"],
            Some(("mimir-query-frontend:8080/prometheus", MimirQueryFrontend)),
        ),
        (
            "mimir-querier",
            &["k8s/name=mimir", "k8s/component=querier"],
            &["http-metrics:8080", "grpc:9095"],
            None,
        ),
    ]);
}

#[test]
fn https_is_recognized_by_protocol_name_number_and_certificate() {
    for (port, annotation, expected) in [
        (json!({"name": "web", "port": 9090}), "", "m/prometheus:9090"),
        (
            json!({"name": "web", "port": 9090, "appProtocol": "https"}),
            "",
            "m/https:prometheus:9090",
        ),
        (json!({"name": "https", "port": 9090}), "", "m/https:prometheus:9090"),
        (json!({"name": "https", "port": 443, "appProtocol": "http"}), "", "m/prometheus:443"),
        (json!({"name": "web", "port": 443}), "", "m/https:prometheus:443"),
        (json!({"name": "http", "port": 443}), "", "m/prometheus:443"),
        (
            json!({"name": "web", "port": 9091}),
            "service.beta.openshift.io/serving-cert-secret-name",
            "m/https:prometheus:9091",
        ),
    ] {
        let mut service = service("m", "prometheus", &["k8s/name=prometheus"], &[]);
        service.spec.as_mut().expect("a spec").ports =
            Some(vec![serde_json::from_value(port.clone()).expect("a port")]);
        if !annotation.is_empty() {
            let annotation = (annotation.to_owned(), "secret".to_owned());
            service.metadata.annotations = Some([annotation].into());
        }
        let found = candidate(&service).map(|found| found.address.to_string());
        assert_eq!(found.as_deref(), Some(expected), "{port}");
    }
}

#[test]
fn services_without_endpoints_or_with_odd_objects_are_no_candidates() {
    let mut external = service("m", "prometheus", &[], &["web:9090"]);
    external.spec.as_mut().expect("a spec").type_ = Some("ExternalName".to_owned());
    assert_eq!(candidate(&external), None);
    let mut udp = service("m", "prometheus", &[], &["web:9090"]);
    let ports = udp.spec.as_mut().and_then(|spec| spec.ports.as_mut()).expect("ports");
    ports[0].protocol = Some("UDP".to_owned());
    assert_eq!(candidate(&udp), None);
    assert_eq!(candidate(&Service::default()), None);
}

#[test]
fn labels_come_before_names_and_query_layers_before_servers() {
    let mut selection = CandidateSelection::default();
    let labelled: &[_] = &["k8s/name=prometheus"];
    for service in [
        service("a", "prometheus", &[], &["web:9090"]),
        service("b", "prometheus-operated", &["operated-prometheus=true"], &["web:9090"]),
        service("d", "prometheus", labelled, &["web:9090"]),
        service("c", "prometheus", labelled, &["web:9090"]),
        service("e", "thanos-query", &["k8s/name=thanos-query"], &["http:9090"]),
        service("f", "checkout", &[], &["http:80"]),
    ] {
        selection.add(&service);
    }
    let order: Vec<_> =
        selection.selected.iter().map(|one| one.address.namespace().to_owned()).collect();
    assert_eq!(order, ["e", "c", "d", "b", "a"]);
    assert_eq!((selection.services, selection.omitted()), (6, 0));
}

/// A Service of any of these shapes, in one of many namespaces.
fn any_service() -> impl Strategy<Value = Service> {
    let labels = prop::sample::select(vec![
        "x=y",
        "k8s/name=prometheus",
        "operated-prometheus=true",
        "k8s/name=thanos-query",
        "app=vmselect",
    ]);
    let names = prop::sample::select(vec!["prometheus", "prometheus-server", "web", "vmsingle-a"]);
    (0..200_u32, names, labels).prop_map(|(namespace, name, label)| {
        service(&format!("n{namespace}"), name, &[label], &["http:9090"])
    })
}

proptest! {
    #[test]
    fn at_most_twelve_are_selected_in_any_order_of_the_list(
        services in prop::collection::vec(any_service(), 0..60),
        turn in 0..60_usize,
    ) {
        let select = |services: &[Service]| {
            let mut selection = CandidateSelection::default();
            for service in services {
                selection.add(service);
            }
            selection
        };
        let selection = select(&services);
        let candidates = services.iter().filter_map(candidate).count();
        prop_assert_eq!(selection.selected.len(), candidates.min(MAX_PROBES));
        prop_assert_eq!(selection.omitted(), candidates.saturating_sub(MAX_PROBES));
        let mut turned = services.clone();
        turned.rotate_left(turn.min(services.len()));
        let addresses = |selection: &CandidateSelection| -> Vec<_> {
            selection.selected.iter().map(|one| (one.recognition, one.address.clone())).collect()
        };
        prop_assert_eq!(addresses(&select(&turned)), addresses(&selection));
    }
}
