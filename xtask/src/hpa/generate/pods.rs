//! Pods and metric values of generated scenarios.

use serde_json::{Value, json};

use super::random::Random;
use crate::hpa::simulated_cluster::rfc3339;

/// Pods, and the responses of the metrics APIs.
pub(super) struct GeneratedPods {
    pods: Vec<Value>,
    /// CPU in milli, memory in MiB, and requests per second of an average pod.
    load: (i64, i64, i64),
    /// Values of the object and the external metric.
    values: (i64, i64),
    is_silent: bool,
}

const SECOND: i64 = 1_000_000_000;

impl GeneratedPods {
    pub(super) fn new(draw: &mut Random, count: i64) -> Self {
        let is_plain = draw.chance(50);
        let pods = (0..count)
            .map(|index| if is_plain { plain(draw, index) } else { pod(draw, index) })
            .collect();
        let mut world = Self { pods, load: (0, 0, 0), values: (0, 0), is_silent: false };
        world.change(draw);
        world
    }

    /// Changes the load at random.
    pub(super) fn change(&mut self, draw: &mut Random) {
        self.load = (draw.between(0, 1200), draw.between(0, 200), draw.between(0, 40));
        self.values = (draw.between(0, 120), draw.between(0, 120));
        self.is_silent = false;
    }

    /// Removes all load.
    pub(super) fn silence(&mut self) {
        self.load = (0, 0, 0);
        self.values = (0, 0);
        self.is_silent = true;
    }

    /// The step that applies this state, so that a pass at `at` observes it.
    pub(super) fn step(&self, draw: &mut Random, at: i64) -> Value {
        let mut metrics = Vec::new();
        let mut custom = Vec::new();
        for pod in &self.pods {
            if !draw.chance(93) {
                continue;
            }
            metrics.push(self.sample(draw, pod, at));
            if draw.chance(93) {
                let mut value = json!({"metric": "rps", "kind": "Pod", "namespace": "shop",
                    "name": pod["metadata"]["name"], "value": self.amount(draw, self.load.2),
                    "labels": pod["metadata"]["labels"]});
                if draw.chance(30) {
                    value["windowSeconds"] = json!(30);
                }
                if draw.chance(20) {
                    value["metricLabels"] = json!({"kind": "a"});
                }
                custom.push(value);
            }
        }
        if draw.chance(8) {
            let ghost = plain(draw, 99);
            metrics.push(self.sample(draw, &ghost, at));
        }
        if draw.chance(2) {
            metrics.clear();
        }
        for (group, kind, name) in [
            ("networking.k8s.io", "Ingress", "front"),
            ("", "Service", "front"),
            ("", "Namespace", "shop"),
        ] {
            if draw.chance(92) {
                custom.push(json!({"metric": "hits", "group": group, "kind": kind, "namespace": "shop", "name": name,
                    "value": self.amount(draw, self.values.0), "metricLabels": {"kind": "a"}}));
            }
        }
        let series = draw.pick(&[0, 1, 1, 1, 2, 3]);
        let mut external: Vec<Value> = (0..series)
            .map(|index| {
                let kind = draw.pick(&["a", "b", "c"]);
                json!({"metric": "queue", "namespace": "shop", "labels": {"kind": kind, "n": format!("{index}")},
                    "value": self.amount(draw, self.values.1)})
            })
            .collect();
        if draw.chance(3) {
            let value = draw.pick(&["9223372036854775807m", "-5", "10P", "1n", "5P", "-1500u"]);
            external.push(json!({"metric": "queue", "namespace": "shop", "value": value}));
        }
        json!({"at": 0, "pods": self.pods, "podMetrics": metrics, "custom": custom, "external": external})
    }

    fn amount(&self, draw: &mut Random, near: i64) -> String {
        if self.is_silent {
            return "0".to_owned();
        }
        match draw.below(4) {
            0 => format!("{}m", near * 1000 + draw.between(-700, 700)),
            1 => format!("{}", near.max(0)),
            2 => "0".to_owned(),
            _ => format!("{}", (near + draw.between(-3, 3)).max(0)),
        }
    }

    fn sample(&self, draw: &mut Random, pod: &Value, at: i64) -> Value {
        let init = pod["spec"]["initContainers"].as_array().into_iter().flatten();
        let restartable = init.filter(|one| one["restartPolicy"] == "Always");
        let containers =
            pod["spec"]["containers"].as_array().into_iter().flatten().chain(restartable);
        let containers: Vec<Value> = containers
            .map(|container| {
                let cpu = (self.load.0 + draw.between(-60, 60)).max(0);
                let memory = (self.load.1 + draw.between(-6, 6)).max(0);
                let mut usage = json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")});
                if draw.chance(10) {
                    usage["cpu"] =
                        json!(format!("{}n", cpu * 1_000_000 + draw.between(0, 999_999)));
                }
                if draw.chance(10) {
                    usage["memory"] =
                        json!(format!("{}", memory * 1_048_576 + draw.between(0, 999)));
                }
                if draw.chance(2) {
                    usage.as_object_mut().map(|usage| usage.remove("cpu"));
                }
                json!({"name": container["name"], "usage": usage})
            })
            .collect();
        let age = draw.pick(&[0, 1, 5, 14, 15, 16, 29, 30, 31, 60]);
        let mut metadata = json!({"name": pod["metadata"]["name"], "namespace": "shop"});
        if draw.chance(90) {
            metadata["labels"] = pod["metadata"]["labels"].clone();
        }
        let containers = if draw.chance(1) { Vec::new() } else { containers };
        json!({"metadata": metadata, "timestamp": rfc3339((at - age) * SECOND),
            "window": draw.pick(&["30s", "15s", "1m0s"]), "containers": containers})
    }
}

/// A pod that has been ready for an hour.
fn plain(draw: &mut Random, index: i64) -> Value {
    let started = rfc3339(-3600 * SECOND);
    let cpu = draw.pick(&["1", "1", "500m"]);
    json!({"metadata": {"name": format!("web-{index}"), "namespace": "shop", "labels": {"app": "web", "tier": "a"}},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": cpu, "memory": "100Mi"}}}]},
        "status": {"phase": "Running", "startTime": started,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": started}]}})
}

/// A pod in any state, with times on both sides of every cutoff of a pass at 15 s.
fn pod(draw: &mut Random, index: i64) -> Value {
    let mut pod = plain(draw, index);
    if draw.chance(6) {
        pod["metadata"]["labels"] =
            draw.pick(&[json!({"app": "old"}), json!({"app": "web", "tier": "x"}), json!({})]);
    }
    if draw.chance(2) {
        pod["metadata"]["namespace"] = json!("elsewhere");
    }
    if draw.chance(5) {
        pod["metadata"]["deletionTimestamp"] = json!(rfc3339(0));
    }
    if draw.chance(35) {
        let start = draw.pick(&[-284, -285, -286, -3600, -45, -15, 0, 10, 15, -585]);
        let moved = start + draw.pick(&[0, 1, 10, 29, 30, 31, 60, 89, 90, 91, 300]);
        let status = draw.pick(&["True", "True", "False", "False", "Unknown"]);
        pod["status"]["startTime"] = json!(rfc3339(start * SECOND));
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": status, "lastTransitionTime": rfc3339(moved * SECOND)}]);
    }
    match draw.below(60) {
        0..=3 => {
            let phase = draw.pick(&["Pending", "Failed", "Succeeded", "Unknown"]);
            pod["status"]["phase"] = json!(phase);
        }
        4 => pod["status"] = json!({"phase": "Running"}),
        5 => pod["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "True"}]),
        6 => pod["status"]["startTime"] = Value::Null,
        7 => pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]),
        8 => pod["status"]["phase"] = json!("Pending"),
        _ => {}
    }
    let requests = |draw: &mut Random| {
        let mut requests = json!({"cpu": draw.pick(&["100m", "250m", "1", "1500m"]), "memory": draw.pick(&["64Mi", "1Gi", "100M"])});
        if draw.chance(4) {
            requests.as_object_mut().map(|requests| requests.remove("cpu"));
        }
        requests
    };
    if draw.chance(30) {
        pod["spec"]["containers"][0]["resources"]["requests"] = requests(draw);
    }
    if draw.chance(25) {
        let side = json!({"name": "side", "resources": {"requests": requests(draw)}});
        if let Some(all) = pod["spec"]["containers"].as_array_mut() {
            all.push(side);
        }
    }
    if draw.chance(12) {
        let mut init = json!({"name": draw.pick(&["init", "proxy"]), "resources": {"requests": requests(draw)}});
        if draw.chance(60) {
            init["restartPolicy"] = json!("Always");
        }
        pod["spec"]["initContainers"] = json!([init]);
        if draw.chance(30) {
            let second = json!({"name": "late", "resources": {"requests": requests(draw)}});
            if let Some(all) = pod["spec"]["initContainers"].as_array_mut() {
                all.push(second);
            }
        }
    }
    if draw.chance(8) {
        pod["spec"]["resources"] = json!({"requests": draw.pick(&[
            json!({"cpu": "2"}), json!({"memory": "1Gi"}), json!({"cpu": "800m", "memory": "1Gi"}), json!({"hugepages-2Mi": "4Mi"}),
        ])});
    }
    if draw.chance(6) {
        pod["spec"]["overhead"] = json!({"cpu": "250m", "memory": "16Mi"});
    }
    pod
}
