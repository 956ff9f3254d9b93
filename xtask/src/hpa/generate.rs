//! Generates scenarios: all sources, windows, policies, pods on both sides of every cutoff, pairs of objects, faults,
//! and zero.

mod objects;
mod pods;
mod random;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use self::objects::{behavior, metrics};
use self::pods::GeneratedPods;
use self::random::Random;
use super::scenario::Scenario;

/// The key of the scale in most scenarios.
const SCALE: &str = "deployments.apps/shop/web";

/// One scenario of a seed.
pub fn scenario(seed: u64, index: usize) -> Result<Scenario> {
    let mut draw = Random::new(seed.wrapping_mul(0x9E37_79B9).wrapping_add(index as u64));
    let (kind, mut value) = match draw.below(20) {
        0..=5 => ("once", once(&mut draw)),
        6..=10 => ("sequence", sequence(&mut draw)),
        11..=13 => ("fleet", fleet(&mut draw)),
        14..=15 => ("pair", pair(&mut draw)),
        16..=17 => ("fault", fault(&mut draw)),
        _ => ("zero", zero(&mut draw)),
    };
    value["id"] = format!("{kind}-{seed}-{index}").into();
    let text = value.to_string();
    serde_json::from_value(value).with_context(|| format!("invalid generated scenario {text}"))
}

fn config(draw: &mut Random) -> Value {
    let mut config = json!({});
    if draw.chance(10) {
        config["tolerance"] = draw.pick(&[json!(0.0), json!(0.05), json!(0.25)]);
    }
    if draw.chance(15) {
        config["downscaleStabilizationSeconds"] =
            draw.pick(&[json!(0), json!(30), json!(60.5), json!(120)]);
    }
    if draw.chance(10) {
        config["cpuInitializationSeconds"] = draw.pick(&[json!(0), json!(60)]);
    }
    if draw.chance(10) {
        config["initialReadinessSeconds"] = draw.pick(&[json!(0), json!(90)]);
    }
    if draw.chance(5) {
        config["syncPeriodSeconds"] = draw.pick(&[json!(10), json!(30)]);
    }
    for (gate, percent) in [("HPAConfigurableTolerance", 8), ("PodLevelResources", 8)] {
        if draw.chance(percent) {
            config["featureGates"][gate] = json!(draw.chance(50));
        }
    }
    config
}

fn hpa(draw: &mut Random, name: &str) -> Value {
    let min = draw.between(1, 4);
    let mut spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": min, "maxReplicas": min + draw.between(0, 20),
    });
    if draw.chance(10) {
        spec.as_object_mut().map(|spec| spec.remove("minReplicas"));
    }
    if !draw.chance(3) {
        spec["metrics"] = metrics(draw);
    }
    if draw.chance(55) {
        spec["behavior"] = behavior(draw);
    }
    json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec})
}

fn scale(draw: &mut Random, replicas: i64, selector: &str) -> Value {
    let status = if draw.chance(80) { replicas } else { (replicas + draw.between(-2, 4)).max(0) };
    json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": replicas},
        "status": {"replicas": status, "selector": selector}})
}

fn selector(draw: &mut Random) -> &'static str {
    match draw.below(40) {
        0 => "",
        1 => "app in",
        2 => "app=web,tier!=x",
        3 => "app in (web, old)",
        4 => "-app=web",
        5 => "app",
        _ => "app=web",
    }
}

fn remembered(draw: &mut Random) -> Value {
    let mut list = |count: i64, most: i64, is_event: bool| -> Value {
        let one = |_| {
            let age =
                draw.pick(&[0, 1, 14, 15, 16, 30, 45, 59, 60, 61, 120, 299, 300, 301, 400, 1000]);
            // A recommendation recorded at 7 s is 8 s older in the first pass.
            let age = if draw.chance(50) { age - 8 } else { age };
            let mut one =
                json!({"replicas": draw.between(i64::from(is_event), most), "age": age.max(0)});
            if is_event && draw.chance(15) {
                one["outdated"] = json!(true);
            }
            one
        };
        (1..=count).map(one).collect()
    };
    json!({"recommendations": list(4, 15, false), "scaleUpEvents": list(3, 5, true),
        "scaleDownEvents": list(2, 5, true)})
}

/// One object, reconciled once or twice.
fn once(draw: &mut Random) -> Value {
    let replicas = draw.between(1, 12);
    let world = GeneratedPods::new(draw, replicas);
    let selector = selector(draw);
    let mut step = world.step(draw, 15);
    step["apply"] = json!([hpa(draw, "web")]);
    step["scales"] = json!({SCALE: scale(draw, replicas, selector)});
    let mut steps = vec![step];
    if draw.chance(60) {
        steps.push(json!({"at": 7, "remember": {"shop/web": remembered(draw)}}));
    }
    json!({"seconds": draw.pick(&[16, 31]), "config": config(draw), "steps": steps})
}

/// One object while its cluster changes.
fn sequence(draw: &mut Random) -> Value {
    let replicas = draw.between(1, 12);
    let mut world = GeneratedPods::new(draw, replicas);
    let mut step = world.step(draw, 15);
    step["apply"] = json!([hpa(draw, "web")]);
    step["scales"] = json!({SCALE: scale(draw, replicas, "app=web")});
    let mut steps = vec![step];
    let passes = draw.between(4, 40);
    for pass in 1..passes {
        if !draw.chance(45) {
            continue;
        }
        let mut step = match draw.below(10) {
            0 => {
                let replicas = draw.between(1, 14);
                json!({"scales": {SCALE: scale(draw, replicas, "app=web")}})
            }
            1 => json!({"apply": [hpa(draw, "web")]}),
            2 => json!({"delete": ["shop/web"]}),
            3 => json!({"apply": [hpa(draw, "web")], "delete": []}),
            _ => {
                let count = draw.between(1, 14);
                if draw.chance(30) {
                    world = GeneratedPods::new(draw, count);
                }
                world.change(draw);
                world.step(draw, 15 * (pass + 1))
            }
        };
        step["at"] = json!(15 * pass + 7);
        steps.push(step);
        if draw.chance(3) {
            steps.push(json!({"at": 15 * pass + 8, "apply": [hpa(draw, "web")]}));
        }
    }
    json!({"seconds": 15 * passes + 1, "config": config(draw), "steps": steps})
}

/// A workload in a closed loop.
fn fleet(draw: &mut Random) -> Value {
    let mut settings = json!({
        "labels": {"app": "web"}, "request": draw.pick(&["1", "500m", "250m"]), "runsAfter": draw.between(0, 5),
        "readyAfter": draw.between(5, 60), "startupMilli": draw.between(0, 1500), "loadMilli": draw.between(0, 8000),
        "sampleAge": draw.between(0, 30), "sampleWindow": draw.pick(&[10, 15, 30, 60]),
    });
    if draw.chance(30) {
        settings["limit"] = json!("1200m");
    }
    let replicas = draw.between(1, 8);
    let mut object = hpa(draw, "web");
    let target = json!({"type": "Utilization", "averageUtilization": draw.pick(&[30, 50, 80])});
    object["spec"]["metrics"] =
        json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
    let mut steps = vec![
        json!({"at": 0, "apply": [object], "scales": {SCALE: scale(draw, replicas, "app=web")},
        "fleets": {SCALE: settings}}),
    ];
    let passes = draw.between(10, 60);
    for pass in 1..passes {
        if draw.chance(12) {
            settings["loadMilli"] = json!(draw.between(0, 8000));
            steps.push(json!({"at": 15 * pass + 7, "fleets": {SCALE: settings}}));
        }
    }
    json!({"seconds": 15 * passes + 1, "config": config(draw), "steps": steps})
}

/// Several objects in one namespace: with the same target, with overlapping pods, or unrelated.
fn pair(draw: &mut Random) -> Value {
    let replicas = draw.between(1, 8);
    let world = GeneratedPods::new(draw, replicas);
    let mut step = world.step(draw, 15);
    let count = draw.between(2, 4);
    let objects: Vec<Value> = (0..count)
        .map(|index| {
            let mut object = hpa(draw, &format!("web-{index}"));
            if draw.chance(50) {
                object["spec"]["scaleTargetRef"] =
                    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"});
            }
            object
        })
        .collect();
    let other = draw.pick(&["app=web", "tier=a", "app=old", "app in (web,old)", "nobody=here"]);
    step["apply"] = json!(objects);
    let of_other = draw.between(1, 6);
    let mut second = scale(draw, of_other, other);
    second["metadata"]["name"] = json!("db");
    step["scales"] =
        json!({SCALE: scale(draw, replicas, "app=web"), "statefulsets.apps/shop/db": second});
    let mut steps = vec![step];
    if draw.chance(40) {
        steps.push(json!({"at": 37, "delete": ["shop/web-0"]}));
    }
    if draw.chance(30) {
        steps.push(json!({"at": 52, "apply": [hpa(draw, "web-9")]}));
    }
    json!({"seconds": draw.pick(&[46, 106]), "config": config(draw), "steps": steps})
}

/// Failing calls, and missing targets.
fn fault(draw: &mut Random) -> Value {
    let replicas = draw.between(1, 8);
    let world = GeneratedPods::new(draw, replicas);
    let mut step = world.step(draw, 15);
    let mut object = hpa(draw, "web");
    if draw.chance(20) {
        object["spec"]["scaleTargetRef"] = draw.pick(&[
            json!({"apiVersion": "a/b/c", "kind": "Deployment", "name": "web"}),
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web"}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "gone"}),
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "w"}),
            json!({"apiVersion": "v1", "kind": "ReplicationController", "name": "rc"}),
            json!({"kind": "ReplicationController", "name": "rc"}),
        ]);
    }
    step["apply"] = json!([object]);
    step["scales"] = json!({SCALE: scale(draw, replicas, "app=web")});
    if draw.chance(50) {
        let status = json!({"replicas": 3, "selector": "app=web"});
        let other = json!({"metadata": {"name": "w", "namespace": "shop"}, "spec": {"replicas": 3}, "status": status});
        step["scales"]["widgets.example.com/shop/w"] = other;
    }
    let mut steps = vec![step];
    let passes = draw.between(3, 12);
    for pass in 0..passes {
        if !draw.chance(60) {
            continue;
        }
        let mut faults = json!({});
        for call in
            ["scale.get", "scale.update", "status.update", "resource", "pods", "object", "external"]
        {
            if draw.chance(25) {
                faults[call] = json!({"message": "no", "times": draw.pick(&[0, 1, 1, 2, 3])});
                if call.ends_with("update") && draw.chance(50) {
                    faults[call]["conflict"] = json!(true);
                }
            }
        }
        steps.push(json!({"at": 15 * pass + 7, "faults": faults}));
    }
    json!({"seconds": 15 * passes + 8, "config": config(draw), "steps": steps})
}

/// Scaling to zero and back.
fn zero(draw: &mut Random) -> Value {
    let replicas = draw.pick(&[0, 0, 1, 2, 3]);
    let mut world = GeneratedPods::new(draw, replicas);
    let mut object = hpa(draw, "web");
    object["spec"]["minReplicas"] = draw.pick(&[json!(0), json!(0), json!(0), json!(1), json!(2)]);
    if draw.chance(80) {
        object["spec"]["metrics"] = objects::podless_metrics(draw);
    }
    if draw.chance(60) {
        let mut conditions = vec![
            json!({"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale",
            "message": "recommended size matches current size", "lastTransitionTime": "1999-12-31T23:00:00Z"}),
        ];
        let status = draw.pick(&["True", "True", "False"]);
        conditions.push(json!({"type": "ScaledToZero", "status": status, "reason": "ScaledToZero",
            "message": "the HPA controller scaled the workload to zero",
            "lastTransitionTime": "1999-12-31T23:00:00Z"}));
        object["status"] = json!({"currentReplicas": replicas, "desiredReplicas": replicas,
            "conditions": conditions, "observedGeneration": 3});
    }
    let mut step = world.step(draw, 15);
    step["apply"] = json!([object]);
    step["scales"] = json!({SCALE: scale(draw, replicas, "app=web")});
    let mut steps = vec![step];
    let passes = draw.between(2, 40);
    for pass in 1..passes {
        if draw.chance(30) {
            world.change(draw);
            if draw.chance(40) {
                world.silence();
            }
            let mut step = world.step(draw, 15 * (pass + 1));
            if draw.chance(15) {
                let replicas = draw.between(0, 4);
                step["scales"] = json!({SCALE: scale(draw, replicas, "app=web")});
            }
            step["at"] = json!(15 * pass + 7);
            steps.push(step);
        }
    }
    let mut config = config(draw);
    config["featureGates"]["HPAScaleToZero"] = json!(draw.chance(75));
    json!({"seconds": 15 * passes + 1, "config": config, "steps": steps})
}
