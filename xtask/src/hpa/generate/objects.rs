//! Metrics and behaviors of generated objects.

use serde_json::{Value, json};

use super::random::Random;

pub(super) fn behavior(draw: &mut Random) -> Value {
    let mut behavior = json!({});
    for direction in ["scaleUp", "scaleDown"] {
        if !draw.chance(75) {
            continue;
        }
        let mut rules = json!({});
        if draw.chance(60) {
            rules["stabilizationWindowSeconds"] =
                draw.pick(&[json!(0), json!(15), json!(30), json!(60), json!(300)]);
        }
        if draw.chance(40) {
            rules["selectPolicy"] = draw.pick(&[json!("Max"), json!("Min"), json!("Disabled")]);
        }
        if draw.chance(60) {
            rules["policies"] = (0..draw.between(1, 3)).map(|_| policy(draw)).collect();
        }
        if draw.chance(35) {
            rules["tolerance"] = draw.pick(&[
                json!("0"),
                json!("10m"),
                json!("50m"),
                json!("100m"),
                json!("300m"),
                json!("1"),
            ]);
        }
        behavior[direction] = rules;
    }
    behavior
}

fn policy(draw: &mut Random) -> Value {
    let period = draw.pick(&[1, 15, 16, 30, 45, 60, 61, 120, 300]);
    if draw.chance(50) {
        json!({"type": "Pods", "value": draw.pick(&[1, 1, 2, 3, 5, 100]), "periodSeconds": period})
    } else {
        json!({"type": "Percent", "value": draw.pick(&[1, 10, 33, 50, 70, 100, 200, 900]), "periodSeconds": period})
    }
}

pub(super) fn metrics(draw: &mut Random) -> Value {
    let count = draw.pick(&[1, 1, 1, 1, 2, 2, 3]);
    (0..count).map(|_| metric(draw)).collect()
}

/// Metrics that do not depend on pods, at least one.
pub(super) fn podless_metrics(draw: &mut Random) -> Value {
    let mut all: Vec<Value> = (0..draw.between(1, 2))
        .map(|_| if draw.chance(60) { external(draw) } else { object(draw) })
        .collect();
    if draw.chance(25) {
        all.push(metric(draw));
    }
    all.into()
}

fn metric(draw: &mut Random) -> Value {
    match draw.below(100) {
        0..=34 => {
            let name = resource(draw);
            json!({"type": "Resource", "resource": {"name": name, "target": per_pod(draw, name)}})
        }
        35..=49 => {
            let name = resource(draw);
            let container = draw.pick(&["app", "app", "app", "side", "proxy", "nobody"]);
            let target = per_pod(draw, name);
            json!({"type": "ContainerResource",
                "containerResource": {"name": name, "container": container, "target": target}})
        }
        50..=64 => {
            let target = json!({"type": "AverageValue", "averageValue": amount(draw)});
            json!({"type": "Pods", "pods": {"metric": id(draw, "rps"), "target": target}})
        }
        65..=79 => object(draw),
        80..=96 => external(draw),
        97 => json!({"type": "Magic"}),
        98 => {
            json!({"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value"}}})
        }
        _ => {
            json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}})
        }
    }
}

fn resource(draw: &mut Random) -> &'static str {
    draw.pick(&["cpu", "cpu", "cpu", "memory", "memory", "ephemeral-storage"])
}

fn per_pod(draw: &mut Random, resource: &str) -> Value {
    if draw.chance(65) {
        let percent = draw.pick(&[1, 5, 20, 30, 45, 50, 55, 60, 70, 80, 90, 100, 150, 300]);
        return json!({"type": "Utilization", "averageUtilization": percent});
    }
    let value = match resource {
        "cpu" => draw.pick(&["100m", "250m", "400m", "500m", "550m", "1", "333333u"]),
        _ => draw.pick(&["64Mi", "100Mi", "110Mi", "1Gi", "100M", "1"]),
    };
    json!({"type": "AverageValue", "averageValue": value})
}

fn amount(draw: &mut Random) -> &'static str {
    draw.pick(&["1", "3", "5", "7500m", "10", "11", "20", "100", "1k", "1m"])
}

fn id(draw: &mut Random, name: &str) -> Value {
    let mut id = json!({"name": name});
    match draw.below(30) {
        0..=2 => id["selector"] = json!({"matchLabels": {"kind": "a"}}),
        3 => id["selector"] = json!({}),
        4 => {
            let expressions = json!([{"key": "kind", "operator": "In", "values": ["b", "a"]}]);
            id["selector"] = json!({"matchExpressions": expressions});
        }
        5 => {
            let expressions = json!([{"key": "kind", "operator": "DoesNotExist"}]);
            id["selector"] = json!({"matchLabels": {"z": "1"}, "matchExpressions": expressions});
        }
        6 => id["selector"] = json!({"matchExpressions": [{"key": "kind", "operator": "Near"}]}),
        _ => {}
    }
    id
}

fn value_or_average(draw: &mut Random) -> Value {
    if draw.chance(50) {
        json!({"type": "Value", "value": amount(draw)})
    } else {
        json!({"type": "AverageValue", "averageValue": amount(draw)})
    }
}

fn object(draw: &mut Random) -> Value {
    let described = draw.pick(&[
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "front"}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "front"}),
        json!({"apiVersion": "v1", "kind": "Service", "name": "front"}),
        json!({"apiVersion": "v1", "kind": "Namespace", "name": "elsewhere"}),
        json!({"kind": "Service", "name": "front"}),
    ]);
    let target = value_or_average(draw);
    json!({"type": "Object", "object": {"describedObject": described, "metric": id(draw, "hits"), "target": target}})
}

fn external(draw: &mut Random) -> Value {
    let target = value_or_average(draw);
    json!({"type": "External", "external": {"metric": id(draw, "queue"), "target": target}})
}
