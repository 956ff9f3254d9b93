//! Checks of the roles of Plimsoll: Leases, versions, permissions, and updaters that act beside each other.

use super::{
    facts::{ClusterFacts, Reading},
    finding::{CheckId, Finding, HAVE, count, subject},
};

/// The tolerance for the clocks of holders, in seconds.
const CLOCK_TOLERANCE_SECONDS: i64 = 5;
/// The admission controller may miss several renewals, but its Lease has the duration of one.
const STATUS_LEASE_PATIENCE: i64 = 6;

pub(super) fn leases(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let leases = facts.leases.as_ref()?;
    let mut bad = Vec::new();
    for lease in leases {
        let patience = if lease.role == "admission-controller" { STATUS_LEASE_PATIENCE } else { 1 };
        let limit = lease.seconds * patience + CLOCK_TOLERANCE_SECONDS;
        let age = lease.renewed.map(|renewed| facts.now.as_secs() - renewed.as_secs());
        if lease.holder.is_empty() {
            bad.push(format!("{} of the {} has no holder", lease.lease, lease.role));
        } else if let Some(age) = age.filter(|age| *age > limit) {
            bad.push(format!("{} of the {} was renewed {age} s ago", lease.lease, lease.role));
        }
    }
    if bad.is_empty() {
        let message = match leases.len() {
            0 => "No role is installed.".to_owned(),
            1 => "The Lease of 1 role is renewed.".to_owned(),
            roles => format!("The Leases of {roles} roles are renewed."),
        };
        return Ok(Finding::ok(id, message));
    }
    let message = format!("{} no leader: nothing is done.", subject(bad.len(), "role", HAVE));
    Ok(Finding::problem(id, message)
        .measured(format!("{} without", bad.len()), "renewed Leases")
        .objects(bad)
        .next("plimsoll status"))
}

pub(super) fn two_updaters(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let updaters = facts.updaters.as_ref()?;
    let has = |is_plimsoll| updaters.iter().any(|updater| updater.is_plimsoll == is_plimsoll);
    if !(has(true) && has(false)) {
        return Ok(Finding::ok(id, "Updaters of one project at most are running."));
    }
    let message = "Updaters of Plimsoll and of another project are running: both evict pods.";
    Ok(Finding::problem(id, message)
        .measured("2 projects", "1 project")
        .objects(updaters.iter().map(|updater| updater.pod.as_str()))
        .next("kubectl scale deployment vpa-updater -n NAMESPACE --replicas=0"))
}

pub(super) fn version_skew(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let leases = facts.leases.as_ref()?;
    let roles = leases.iter().filter_map(|lease| Some((lease, lease.version.as_deref()?)));
    let mut roles: Vec<_> = roles.collect();
    roles.sort_by_key(|(lease, version)| (*version, lease.role.as_str()));
    let mut versions: Vec<&str> = roles.iter().map(|(_, version)| *version).collect();
    versions.push(&facts.version);
    versions.sort_unstable();
    versions.dedup();
    if versions.len() == 1 {
        let roles = count(roles.len(), "role");
        return Ok(Finding::ok(id, format!("{roles} and this program have the same version.")));
    }
    Ok(Finding::warning(
        id,
        format!("Roles and this program have versions {}.", versions.join(", ")),
    )
    .measured(count(versions.len(), "version"), facts.version.as_str())
    .objects(roles.iter().map(|(lease, version)| format!("{} {version}", lease.role)))
    .next("plimsoll status"))
}

pub(super) fn rights(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let rights = facts.rights.as_ref()?;
    let (mut missing, mut excess, mut unknown) = (Vec::new(), Vec::new(), None);
    for right in rights {
        let described = || format!("{}: {}", right.account, right.permission);
        match (&right.is_granted, right.is_needed) {
            (Ok(false), true) => missing.push(described()),
            (Ok(true), false) => excess.push(described()),
            (Ok(_), _) => {}
            (Err(why), _) => unknown = Some(why),
        }
    }
    let next = "kubectl auth can-i --list --as=ACCOUNT";
    if !missing.is_empty() {
        let permissions = count(missing.len(), "permission");
        return Ok(Finding::problem(id, format!("Roles lack {permissions}."))
            .measured(format!("{} missing", missing.len()), "none missing")
            .objects(missing)
            .next(next));
    }
    if !excess.is_empty() {
        let permissions = count(excess.len(), "permission");
        return Ok(Finding::warning(
            id,
            format!("Roles have {permissions} that none of them needs."),
        )
        .measured(format!("{} too many", excess.len()), "none")
        .objects(excess)
        .next(next));
    }
    if let Some(why) = unknown {
        return Err(why.clone());
    }
    let message = if rights.is_empty() {
        "No pod of a role is running."
    } else {
        "Roles have the permissions that they need, and no dangerous ones."
    };
    Ok(Finding::ok(id, message))
}
