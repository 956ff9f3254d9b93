//! Checks of the API server: its version, definitions, resize and clock.

use super::{
    facts::{ClusterFacts, Reading},
    finding::{CheckId, Finding, HAVE, count, subject},
};

/// The oldest minor version of Kubernetes 1 that is supported.
const MIN_MINOR: u32 = 30;
/// The minor version from which on kubelets resize pods by default.
const MIN_RESIZE_MINOR: u32 = 33;
/// How far clocks may differ, in seconds. The API server's time has whole seconds.
const MAX_SKEW_SECONDS: i64 = 5;

/// The minor version of `v1.36.3`.
fn minor_version(version: &str) -> Option<u32> {
    let mut parts = version.trim_start_matches('v').split('.');
    let is_first = parts.next()? == "1";
    let digits = parts.next()?;
    let end = digits.find(|one: char| !one.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok().filter(|_| is_first)
}

pub(super) fn api_version(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let version = facts.api_version.as_ref()?;
    let wanted = format!("v1.{MIN_MINOR} or newer");
    let finding = match minor_version(version) {
        Some(minor) if minor >= MIN_MINOR => {
            Finding::ok(id, format!("The API server is Kubernetes {version}."))
        }
        Some(_) => Finding::problem(
            id,
            format!("Kubernetes {version} is older than what Plimsoll supports."),
        )
        .next("kubectl version"),
        None => Finding::unknown(id, format!("the version {version:?} is not one of Kubernetes 1")),
    };
    Ok(finding.measured(version.as_str(), wanted))
}

pub(super) fn crds_served(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let (mut missing, mut old, mut unread, mut served) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for crd in &facts.crds {
        match &crd.served {
            Err(why) => unread.push(format!("{}: {why}", crd.name)),
            Ok(None) if crd.is_optional => {}
            Ok(None) => missing.push(format!("{} is not installed", crd.name)),
            Ok(Some(found)) if !found.has_version => {
                missing.push(format!("{} does not serve the version in use", crd.name));
            }
            Ok(Some(found)) => {
                served += 1;
                let fields = found.missing_fields.iter();
                old.extend(fields.map(|field| format!("{}: {field}", crd.name)));
            }
        }
    }
    let install = "plimsoll crds | kubectl apply --server-side -f -";
    if !missing.is_empty() {
        let message = "CustomResourceDefinitions are missing: objects cannot be read.";
        return Ok(Finding::problem(id, message).objects(missing).next(install));
    }
    if !old.is_empty() {
        let fields = count(old.len(), "field");
        let message =
            format!("CustomResourceDefinitions lack {fields}: the API server drops their values.");
        return Ok(Finding::warning(id, message)
            .measured(format!("{fields} missing"), "all fields")
            .objects(old)
            .next(install));
    }
    if !unread.is_empty() {
        return Err(unread.join("; "));
    }
    let served = count(served, "CustomResourceDefinition");
    Ok(Finding::ok(id, format!("{served} served, with all fields.")))
}

pub(super) fn resize_supported(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    if !*facts.resize_served.as_ref()? {
        let message =
            "The API server does not serve pods/resize: pods are evicted to change their requests.";
        return Ok(Finding::warning(id, message)
            .measured("not served", format!("v1.{MIN_RESIZE_MINOR} or newer")));
    }
    let nodes = facts.nodes.as_ref()?;
    let is_old =
        |version: &str| minor_version(version).is_none_or(|minor| minor < MIN_RESIZE_MINOR);
    let linux = nodes.iter().filter(|node| node.is_linux);
    let old: Vec<_> = linux.filter(|node| is_old(&node.kubelet)).collect();
    if old.is_empty() {
        return Ok(Finding::ok(id, "Pods are resized in place."));
    }
    let message = format!(
        "{} a kubelet that does not resize pods by default: their pods are evicted instead.",
        subject(old.len(), "node", HAVE)
    );
    let measured = old.iter().map(|node| &*node.kubelet).min().unwrap_or_default();
    Ok(Finding::warning(id, message)
        .measured(measured, format!("v1.{MIN_RESIZE_MINOR} or newer"))
        .objects(old.iter().map(|node| &*node.name))
        .next("kubectl get nodes"))
}

pub(super) fn clock_skew(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let skew = facts.api_time.as_ref()?.as_secs() - facts.now.as_secs();
    let leases = facts.leases.as_ref()?;
    // A Lease is renewed by the clock of its holder. In the past it may just not have been renewed.
    let ahead = leases.iter().filter_map(|lease| {
        let ahead = lease.renewed?.as_secs() - (facts.now.as_secs() + skew);
        (ahead > MAX_SKEW_SECONDS).then(|| format!("{} by {ahead} s", lease.holder))
    });
    let ahead: Vec<_> = ahead.collect();
    let wanted = format!("at most {MAX_SKEW_SECONDS} s");
    if !ahead.is_empty() {
        let message = "Clocks of holders of Leases are ahead of the API server.";
        return Ok(Finding::warning(id, message)
            .measured(count(ahead.len(), "clock"), wanted)
            .objects(ahead)
            .next("plimsoll status"));
    }
    if skew.abs() > MAX_SKEW_SECONDS {
        let direction = if skew > 0 { "behind" } else { "ahead of" };
        let message =
            format!("The clock of this machine is {} s {direction} the API server.", skew.abs());
        return Ok(Finding::warning(id, message).measured(format!("{} s", skew.abs()), wanted));
    }
    Ok(Finding::ok(id, "The clocks of this machine and of the API server agree."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minor_versions_of_all_providers_are_read() {
        for (version, minor) in [
            ("v1.36.3", Some(36)),
            ("v1.29.4-gke.1043002", Some(29)),
            ("v1.31+", Some(31)),
            ("v1.33-eks-1234", Some(33)),
            ("v2.1.0", None),
            ("", None),
            ("dev", None),
        ] {
            assert_eq!(minor_version(version), minor, "{version}");
        }
    }
}
