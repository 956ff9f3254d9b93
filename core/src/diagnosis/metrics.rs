//! Checks of the metrics API, of kube-state-metrics, and of the series of nodes.

use super::{
    facts::{ClusterFacts, SeriesFacts},
    finding::{CheckId, Finding, count},
};

/// The metrics server has a resolution of 15 s to 1 min, and the recommender reads once a minute.
const MAX_SAMPLE_AGE_SECONDS: i64 = 300;

pub(super) fn metrics_api(facts: &ClusterFacts) -> Finding {
    let id = CheckId::MetricsApi;
    let next = "kubectl get --raw /apis/metrics.k8s.io/v1beta1/pods";
    let metrics = match &facts.metrics_api {
        Ok(metrics) => metrics,
        Err(why) => return Finding::unknown(id, why),
    };
    if let Some(why) = &metrics.unavailable {
        return Finding::problem(id, format!("The metrics API is not available: {why}."))
            .measured("not available", "available")
            .next("kubectl describe apiservice v1beta1.metrics.k8s.io");
    }
    let samples = match &metrics.samples {
        Ok(samples) => samples,
        Err(why) => return Finding::unknown(id, why),
    };
    let wanted = format!("at most {MAX_SAMPLE_AGE_SECONDS} s");
    let age = samples.newest.map(|newest| (facts.now.as_secs() - newest.as_secs()).max(0));
    if let Some(age) = age.filter(|age| *age > MAX_SAMPLE_AGE_SECONDS) {
        return Finding::problem(
            id,
            format!("The newest sample of the metrics API is {age} s old."),
        )
        .measured(format!("{age} s"), wanted)
        .next(next);
    }
    let without = match &samples.pods_without {
        Ok(without) => without,
        Err(why) => return Finding::unknown(id, why),
    };
    if without.is_empty() {
        let pods = count(samples.pods, "pod");
        let age = age.map_or_else(String::new, |age| format!(", the newest {age} s old"));
        return Finding::ok(id, format!("The metrics API has samples of {pods}{age}."));
    }
    let pods = count(without.len(), "running pod");
    let message = format!("The metrics API has no sample of {pods}.");
    let finding = if samples.pods == 0 {
        Finding::problem(id, message)
    } else {
        Finding::warning(id, message)
    };
    finding
        .measured(format!("{} without", without.len()), "all running pods")
        .objects(without.iter().map(String::as_str))
        .next(next)
}

/// The check that says why there are no series of a Prometheus: the first of the report.
const EXPLAINS_NO_SERIES: CheckId = CheckId::NodesCgroup2;

/// The facts of a Prometheus, or the finding that they are unknown. The reason is given once.
fn series(facts: &ClusterFacts, id: CheckId) -> Result<&SeriesFacts, Box<Finding>> {
    facts.series.as_ref().map_err(|why| {
        Box::new(if id == EXPLAINS_NO_SERIES {
            Finding::unknown(id, why)
        } else {
            Finding::unknown(id, format!("no series of a Prometheus: see {EXPLAINS_NO_SERIES}"))
        })
    })
}

pub(super) fn ksm_families(facts: &ClusterFacts) -> Finding {
    let id = CheckId::KsmFamilies;
    let series = match series(facts, id) {
        Ok(series) => series,
        Err(unknown) => return *unknown,
    };
    let next = "plimsoll doctor --prometheus-address URL";
    match &series.missing_families {
        Err(why) => Finding::unknown(id, why),
        Ok(None) => {
            let message = format!("{} has no series of kube-state-metrics.", series.server);
            Finding::warning(id, message).measured("none", "kube-state-metrics").next(next)
        }
        Ok(Some(missing)) if missing.is_empty() => {
            Finding::ok(id, format!("{} has all series of kube-state-metrics.", series.server))
        }
        Ok(Some(missing)) => {
            let families = count(missing.len(), "metric");
            let message = format!("{} lacks {families} of kube-state-metrics.", series.server);
            Finding::warning(id, message)
                .measured(format!("{} missing", missing.len()), "none missing")
                .objects(missing.iter().map(String::as_str))
                .next(next)
        }
    }
}

/// By the series `kubelet_cgroup_version`, or else by pressure stall information, which only version 2 has.
pub(super) fn nodes_cgroup2(facts: &ClusterFacts) -> Finding {
    let id = CheckId::NodesCgroup2;
    let series = match series(facts, id) {
        Ok(series) => series,
        Err(unknown) => return *unknown,
    };
    let cgroup = match &series.cgroup {
        Ok(cgroup) => *cgroup,
        Err(why) => return Finding::unknown(id, why),
    };
    let next = "kubectl get --raw /api/v1/nodes/NODE/proxy/metrics | grep kubelet_cgroup_version";
    if cgroup.v1 > 0 {
        let message = format!("{} cgroup v1: memory is limited less precisely.", uses(cgroup.v1));
        return Finding::warning(id, message)
            .measured(format!("{} with v1", cgroup.v1), "v2")
            .next(next);
    }
    let known = cgroup.v2.max(series.psi_nodes.clone().unwrap_or(0));
    match linux_nodes(facts) {
        Ok(0) => Finding::unknown(id, "No node has the label kubernetes.io/os=linux."),
        Ok(nodes) if known >= nodes => Finding::ok(id, format!("{} cgroup v2.", uses(known))),
        Ok(nodes) => Finding::unknown(
            id,
            format!(
                "{known} of {nodes} nodes report cgroup v2; of the others {} has neither \
                 kubelet_cgroup_version nor pressure stall information",
                series.server
            ),
        ),
        Err(why) => Finding::unknown(id, why),
    }
}

/// By the series of pressure stall information.
pub(super) fn nodes_psi(facts: &ClusterFacts) -> Finding {
    let id = CheckId::NodesPsi;
    let series = match series(facts, id) {
        Ok(series) => series,
        Err(unknown) => return *unknown,
    };
    let (nodes, with) = match (&series.nodes, &series.psi_nodes) {
        (Ok(nodes), Ok(with)) => (*nodes, *with),
        (Err(why), _) | (_, Err(why)) => return Finding::unknown(id, why),
    };
    if nodes == 0 {
        return Finding::unknown(id, format!("{} has no series of containers", series.server));
    }
    if with >= nodes {
        return Finding::ok(id, format!("All {nodes} nodes report pressure stall information."));
    }
    let message = format!(
        "{} of {nodes} nodes report no pressure stall information: stalls cannot be distinguished from a \
         high usage.",
        nodes - with
    );
    Finding::warning(id, message)
        .measured(format!("{with} of {nodes} nodes"), "all nodes")
        .next("kubectl get nodes -o wide")
}

fn uses(nodes: u64) -> String {
    if nodes == 1 { "1 node uses".to_owned() } else { format!("{nodes} nodes use") }
}

fn linux_nodes(facts: &ClusterFacts) -> Result<u64, &String> {
    let nodes = facts.nodes.as_ref()?;
    Ok(nodes.iter().filter(|node| node.is_linux).count() as u64)
}
