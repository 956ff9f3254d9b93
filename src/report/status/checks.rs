//! Checks Leases and pods, and reports problems.

use plimsoll_core::{api::role_health::RoleHealth, types::Time};

use super::{
    Facts, Finding, KIND, LeaseFacts, Level, PodFacts, RoleReport, SCHEMA_VERSION, StatusReport,
};

/// Default Lease name prefixes, to identify roles that do not report their health, in the order of the report.
const DEFAULT_LEASE_NAMES: [(&str, &str); 5] = [
    ("vpa-recommender", "recommender"),
    ("vpa-updater", "updater"),
    ("vpa-admission-controller", "admission-controller"),
    ("watermarkpodautoscaler-lock", "watermark"),
    ("plimsoll-horizontal", "horizontal"),
];
/// The number of missed intervals after which a late loop is a problem.
const MAX_MISSED_INTERVALS: f64 = 3.0;
const CLOCK_TOLERANCE_SECONDS: f64 = 5.0;
/// The share of objects with stale data above which it is more than a few newly started pods.
const STALE_SHARE: f64 = 0.1;

pub fn build_report(facts: &Facts, version: &str, now: Time) -> StatusReport {
    let mut findings = Vec::new();
    let mut roles: Vec<RoleReport> =
        facts.leases.iter().filter_map(|lease| role(lease, facts, now, &mut findings)).collect();
    roles.sort_by_key(|role| {
        (DEFAULT_LEASE_NAMES.iter().position(|(_, known)| *known == role.role), role.lease.clone())
    });
    for pod in facts.pods.iter().filter(|pod| !pod.is_ready) {
        let restarts = match pod.restarts {
            0 => String::new(),
            1 => ", and restarted once".to_owned(),
            more => format!(", and restarted {more} times"),
        };
        let (namespace, name) = (&pod.namespace, &pod.name);
        let message = format!(
            "pod {namespace}/{name} is not ready{restarts}: kubectl -n {namespace} logs {name}"
        );
        findings.push(Finding::new(Level::Warning, "pod_not_ready", message));
    }
    check_version_skew(facts, &roles, version, &mut findings);
    for unread in &facts.unread {
        findings.push(Finding::new(Level::Warning, "unreadable", unread));
    }
    if roles.is_empty() {
        let message = "no roles found: there is neither a Lease of a role nor a pod with the label \
                       app.kubernetes.io/name=plimsoll; use -n if they are in another namespace";
        findings.push(Finding::new(Level::Problem, "nothing_runs", message));
    }
    findings.sort_by(|left, right| (left.level, left.code).cmp(&(right.level, right.code)));
    StatusReport {
        schema_version: SCHEMA_VERSION,
        kind: KIND,
        version: version.to_owned(),
        cluster: facts.cluster.clone(),
        time: now,
        roles,
        findings,
    }
}

fn lease_role(lease: &LeaseFacts) -> Option<String> {
    if let Some(vitals) = &lease.vitals {
        return Some(vitals.role.clone());
    }
    let by_name = DEFAULT_LEASE_NAMES.iter().find(|(name, _)| lease.name.starts_with(name));
    by_name.map(|(_, role)| (*role).to_owned())
}

/// What a role is called in a sentence.
fn title(role: &str) -> &str {
    match role {
        "watermark" => "watermark controller",
        "horizontal" => "horizontal controller",
        _ => role,
    }
}

fn seconds(from: Time, to: Time) -> f64 {
    to.nanos_since(from).max(0) as f64 / 1e9
}

fn role(
    lease: &LeaseFacts,
    facts: &Facts,
    now: Time,
    findings: &mut Vec<Finding>,
) -> Option<RoleReport> {
    let role = lease_role(lease)?;
    let title = title(&role);
    let place = format!("{}/{}", lease.namespace, lease.name);
    let pods: Vec<&PodFacts> =
        facts.pods.iter().filter(|pod| pod.component == role || is_held_by(lease, pod)).collect();
    let vitals = lease.vitals.as_ref();
    let renewed = lease.renewed.map(|at| seconds(at, now));
    let mut problem =
        |code, message: String| findings.push(Finding::new(Level::Problem, code, message));
    // The admission controller renews once per interval and may miss several, but its Lease has the duration of one.
    let patience = if role == "admission-controller" { 6.0 } else { 1.0 };
    let is_old = renewed
        .is_some_and(|renewed| renewed > lease.seconds as f64 * patience + CLOCK_TOLERANCE_SECONDS);
    if lease.holder.is_empty() {
        problem("no_leader", format!("the {title} has no leader: Lease {place} has no holder"));
    } else if is_old {
        let ago = renewed.unwrap_or_default();
        let holder = &lease.holder;
        let message =
            format!("Lease {place} of the {title} was last renewed {ago:.0} s ago, by {holder}");
        problem("lease_is_old", message);
    }
    if let Some(why) = &lease.unreadable {
        let message = format!("cannot read the health of the {title} in Lease {place}: {why}");
        problem("unreadable", message);
    }
    let loop_age = vitals.and_then(|health| health.last_pass).map(|at| seconds(at, now));
    if let Some(vitals) = vitals {
        check_role_health(&role, vitals, loop_age, now, findings);
    }
    Some(RoleReport {
        role,
        mode: vitals.and_then(|health| health.mode.clone()),
        lease: place,
        leader: Some(lease.holder.clone()).filter(|holder| !holder.is_empty()),
        version: vitals.map(|health| health.version.clone()),
        renewed_seconds: renewed,
        loop_age_seconds: loop_age,
        objects: vitals.map(|health| health.objects),
        stale: vitals.map(|health| health.stale),
        history: vitals.and_then(|health| health.history.clone()),
        breaker_until: vitals.and_then(|health| health.breaker_until).filter(|until| *until > now),
        held_workloads: vitals.map(|health| health.held_workloads),
        ready: pods.iter().filter(|pod| pod.is_ready).count(),
        pods: pods.len(),
    })
}

/// Whether this pod holds a Lease: identities start with the host name, which is the pod name.
fn is_held_by(lease: &LeaseFacts, pod: &PodFacts) -> bool {
    pod.namespace == lease.namespace
        && lease
            .holder
            .strip_prefix(&*pod.name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

fn check_role_health(
    role: &str,
    vitals: &RoleHealth,
    loop_age: Option<f64>,
    now: Time,
    findings: &mut Vec<Finding>,
) {
    let title = title(role);
    let mut find = |level, code, message: String| findings.push(Finding::new(level, code, message));
    let interval = vitals.interval_seconds;
    let max_age = interval * MAX_MISSED_INTERVALS + CLOCK_TOLERANCE_SECONDS;
    if let Some(age) = loop_age.filter(|age| *age > max_age) {
        let message = format!(
            "the last pass of the {title} ended {age:.0} s ago, but its interval is {interval:.0} s: check its log"
        );
        find(Level::Problem, "loop_is_late", message);
    }
    if let Some(state @ ("loading" | "failed")) = vitals.history.as_deref() {
        let message = format!(
            "the history of the {title} is {state}: pods are not evicted based on its recommendations until it is loaded"
        );
        find(Level::Problem, "history_not_loaded", message);
    }
    if let Some(until) = vitals.breaker_until.filter(|until| *until > now) {
        let message = format!(
            "pods of several workloads got worse after changes, and all changes are blocked until {until}: \
             kubectl get vpa -A shows UpdatesHeldBack"
        );
        find(Level::Problem, "breaker_open", message);
    }
    if vitals.held_workloads > 0 {
        let message = format!(
            "updates of {} workloads are paused because their pods got worse: see plimsoll explain pod",
            vitals.held_workloads
        );
        find(Level::Warning, "workloads_held", message);
    }
    let RoleHealth { stale, objects, .. } = vitals;
    if *stale as f64 > *objects as f64 * STALE_SHARE {
        let problem = if matches!(role, "watermark" | "horizontal") {
            "have an unavailable metric"
        } else {
            "have had no sample for 15 minutes"
        };
        let message = format!("{stale} of {objects} objects of the {title} {problem}");
        find(Level::Warning, "stale_data", message);
    }
}

/// Reports different versions, which an incomplete rollout or an outdated manifest causes.
fn check_version_skew(facts: &Facts, roles: &[RoleReport], own: &str, findings: &mut Vec<Finding>) {
    let mut versions: Vec<&str> = roles.iter().filter_map(|role| role.version.as_deref()).collect();
    versions.sort_unstable();
    versions.dedup();
    let mut find =
        |code, message: String| findings.push(Finding::new(Level::Warning, code, message));
    if versions.len() > 1 {
        find("version_skew", format!("roles run different versions: {}", versions.join(", ")));
    } else if let Some(other) = versions.first().filter(|version| **version != own) {
        find("version_skew", format!("roles run {other}, but this program is {own}"));
    }
    let mut images: Vec<&str> = facts.pods.iter().map(|pod| &*pod.image).collect();
    images.sort_unstable();
    images.dedup();
    if images.len() > 1 {
        find("image_skew", format!("pods run different images: {}", images.join(", ")));
    }
}
