//! Checks of the metrics API, of kube-state-metrics, and of the series of nodes.

use super::{
    facts::{ClusterFacts, Reading, SeriesFacts},
    finding::{CheckId, Finding, Level, count, subject},
};

/// The metrics server has a resolution of 15 s to 1 min, and the recommender reads once a minute.
const MAX_SAMPLE_AGE_SECONDS: i64 = 300;

pub(super) fn metrics_api(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let next = "kubectl get --raw /apis/metrics.k8s.io/v1beta1/pods";
    let metrics = facts.metrics_api.as_ref()?;
    if let Some(why) = &metrics.unavailable {
        return Ok(Finding::problem(id, format!("The metrics API is not available: {why}."))
            .measured("not available", "available")
            .next("kubectl describe apiservice v1beta1.metrics.k8s.io"));
    }
    let samples = metrics.samples.as_ref()?;
    let wanted = format!("at most {MAX_SAMPLE_AGE_SECONDS} s");
    let age = samples.newest.map(|newest| (facts.now.as_secs() - newest.as_secs()).max(0));
    if let Some(age) = age.filter(|age| *age > MAX_SAMPLE_AGE_SECONDS) {
        let message = format!("The newest sample of the metrics API is {age} s old.");
        return Ok(Finding::problem(id, message).measured(format!("{age} s"), wanted).next(next));
    }
    let without = samples.pods_without.as_ref()?;
    if without.is_empty() {
        let pods = count(samples.pods, "pod");
        let age = age.map_or_else(String::new, |age| format!(", the newest {age} s old"));
        return Ok(Finding::ok(id, format!("The metrics API has samples of {pods}{age}.")));
    }
    let pods = count(without.len(), "running pod");
    let message = format!("The metrics API has no sample of {pods}.");
    let level = if samples.pods == 0 { Level::Problem } else { Level::Warning };
    Ok(Finding::new(id, level, message)
        .measured(format!("{} without", without.len()), "all running pods")
        .objects(without.iter().map(String::as_str))
        .next(next))
}

/// The check that says why there are no series of a Prometheus: the first of the report.
const EXPLAINS_NO_SERIES: CheckId = CheckId::NodesCgroup2;

/// The facts of a Prometheus, or why they are unknown. The reason is given once.
fn series(facts: &ClusterFacts, id: CheckId) -> Result<&SeriesFacts, String> {
    facts.series.as_ref().map_err(|why| match id {
        EXPLAINS_NO_SERIES => why.clone(),
        _ => format!("no series of a Prometheus: see {EXPLAINS_NO_SERIES}"),
    })
}

pub(super) fn ksm_families(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let series = series(facts, id)?;
    let next = "plimsoll doctor --prometheus-address URL";
    let Some(missing) = series.missing_families.as_ref()? else {
        let message = format!("{} has no series of kube-state-metrics.", series.server);
        let finding = Finding::warning(id, message).measured("none", "kube-state-metrics");
        return Ok(finding.next(next));
    };
    if missing.is_empty() {
        let message = format!("{} has all series of kube-state-metrics.", series.server);
        return Ok(Finding::ok(id, message));
    }
    let families = count(missing.len(), "metric");
    let message = format!("{} lacks {families} of kube-state-metrics.", series.server);
    Ok(Finding::warning(id, message)
        .measured(format!("{} missing", missing.len()), "none missing")
        .objects(missing.iter().map(String::as_str))
        .next(next))
}

/// By the series `kubelet_cgroup_version`, or else by pressure stall information, which only version 2 has.
pub(super) fn nodes_cgroup2(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let series = series(facts, id)?;
    let cgroup = *series.cgroup.as_ref()?;
    let next = "kubectl get --raw /api/v1/nodes/NODE/proxy/metrics | grep kubelet_cgroup_version";
    if cgroup.v1 > 0 {
        let message = format!("{} cgroup v1: memory is limited less precisely.", uses(cgroup.v1));
        return Ok(Finding::warning(id, message)
            .measured(format!("{} with v1", cgroup.v1), "v2")
            .next(next));
    }
    let known = cgroup.v2.max(series.psi_nodes.clone().unwrap_or(0));
    match facts.nodes.as_ref()?.iter().filter(|node| node.is_linux).count() as u64 {
        0 => Err("No node has the label kubernetes.io/os=linux.".to_owned()),
        nodes if known >= nodes => Ok(Finding::ok(id, format!("{} cgroup v2.", uses(known)))),
        nodes => Err(format!(
            "{known} of {nodes} nodes report cgroup v2; of the others {} has neither \
             kubelet_cgroup_version nor pressure stall information",
            series.server
        )),
    }
}

/// By the series of pressure stall information.
pub(super) fn nodes_psi(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let series = series(facts, id)?;
    let (nodes, with) = (*series.nodes.as_ref()?, *series.psi_nodes.as_ref()?);
    if nodes == 0 {
        return Err(format!("{} has no series of containers", series.server));
    }
    if with >= nodes {
        return Ok(Finding::ok(
            id,
            format!("All {nodes} nodes report pressure stall information."),
        ));
    }
    let message = format!(
        "{} of {nodes} nodes report no pressure stall information: stalls cannot be distinguished from a \
         high usage.",
        nodes - with
    );
    Ok(Finding::warning(id, message)
        .measured(format!("{with} of {nodes} nodes"), "all nodes")
        .next("kubectl get nodes -o wide"))
}

fn uses(nodes: u64) -> String {
    subject(nodes as usize, "node", ["uses", "use"])
}
