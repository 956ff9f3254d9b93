//! Findings about which pods of the cluster have series in the Prometheus.

use super::{
    diagnose::finding,
    probe_results::ClusterCoverage,
    report::{CoverageReport, Finding, Level, PartlyCoveredVpa, Topic},
};

/// The maximum number of VPAs named in a message. The report lists all of them.
const MAX_NAMED: usize = 5;

pub(super) fn coverage_finding(coverage: &ClusterCoverage) -> (Option<CoverageReport>, Finding) {
    let new_finding = |code, level, message: String, evidence: &[_]| {
        finding(Topic::Cluster, code, level, message, evidence)
    };
    match coverage {
        ClusterCoverage::NoCluster(why) => {
            let message = format!("No cluster to compare with: {why}.");
            (None, new_finding("cluster_none", Level::Ok, message, &[]))
        }
        ClusterCoverage::Unreadable(why) => {
            let message = format!("Cannot read the cluster: {why}.");
            (None, new_finding("cluster_unreadable", Level::Warning, message, &[]))
        }
        ClusterCoverage::Empty => {
            let message = "The cluster has no VPAs: there is nothing to compare.".to_owned();
            (None, new_finding("cluster_empty", Level::Ok, message, &[]))
        }
        ClusterCoverage::Unmatched(why, evidence) => {
            let message = format!("Cannot look up the cluster's pods in the Prometheus: {why}");
            (None, new_finding("cluster_unmatched", Level::Problem, message, evidence))
        }
        ClusterCoverage::Compared(comparison, evidence) => {
            let (code, level, message) = assess_coverage(comparison);
            (Some(comparison.clone()), new_finding(code, level, message, evidence))
        }
    }
}

fn assess_coverage(comparison: &CoverageReport) -> (&'static str, Level, String) {
    let CoverageReport { vpas, passed_over, pods, with_series, without, .. } = comparison;
    let rest = match passed_over {
        0 => String::new(),
        more => format!(" {more} more VPAs were not compared."),
    };
    let scope = format!("{vpas} {}", if *vpas == 1 { "VPA" } else { "VPAs" });
    if *pods == 0 {
        let message = format!("{scope}, and no pods: there is nothing to compare.{rest}");
        return ("cluster_series", Level::Ok, message);
    }
    if without.is_empty() {
        let message = format!("{scope}: all {pods} pods have series.{rest}");
        return ("cluster_series", Level::Ok, message);
    }
    if *with_series == 0 {
        let message = format!(
            "{scope} with {pods} pods, and none of them has series: check that this Prometheus scrapes that cluster, and \
             that the matchers select it.{rest}"
        );
        return ("cluster_foreign", Level::Problem, message);
    }
    let name = |vpa: &PartlyCoveredVpa| {
        format!(
            "{}/{} ({} of {} pods)",
            vpa.namespace,
            vpa.name,
            vpa.pods - vpa.with_series,
            vpa.pods
        )
    };
    let mut names: Vec<String> = without.iter().take(MAX_NAMED).map(name).collect();
    if without.len() > MAX_NAMED {
        names.push(format!("and {} more", without.len() - MAX_NAMED));
    }
    let message = format!(
        "{scope}, {with_series} of {pods} pods have series. Without: {}. Pods that began a minute ago have none yet; \
         others are not scraped, or are dropped by relabelling.{rest}",
        names.join(", ")
    );
    // Single pods may have just started; a VPA without any series is a problem.
    let has_vpa_without_series = without.iter().any(|vpa| vpa.with_series == 0);
    (
        "cluster_without",
        if has_vpa_without_series { Level::Problem } else { Level::Warning },
        message,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_without_series_are_a_problem_if_their_vpa_has_no_others() {
        let without = |with_series| PartlyCoveredVpa {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            pods: 3,
            with_series,
        };
        for (with_series, without, code, level) in [
            (5, vec![], "cluster_series", Level::Ok),
            (4, vec![without(2)], "cluster_without", Level::Warning),
            (2, vec![without(0)], "cluster_without", Level::Problem),
            (0, vec![without(0)], "cluster_foreign", Level::Problem),
        ] {
            let vpas = CoverageReport {
                vpas: 2,
                pods: 5,
                with_series,
                without,
                ..CoverageReport::default()
            };
            let (actual_code, actual_level, message) = assess_coverage(&vpas);
            assert_eq!((actual_code, actual_level), (code, level), "{message}");
        }
    }
}
