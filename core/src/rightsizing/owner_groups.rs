//! Owners of pods that are one workload: Jobs by their labels (`--group-jobs-by`), or by names that were generated.
//!
//! Each member is a run. So the rules for runs hold, as if a CronJob had created them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::survey::{Container, GroupMember, OwnerGroup, Workload};
use crate::types::Time;

/// Maximum number of members, the latest ones: as many runs as the rule for runs counts.
const MAX_MEMBERS: usize = 200;

/// The kind of the workloads that are grouped.
const JOB: &str = "Job";

/// As many Jobs have to have the same name before a generated part, so that they are grouped.
const MIN_NAMESAKES: usize = 3;

/// A group of these owners, the latest first.
pub fn group_of(by: &str, mut members: Vec<GroupMember>) -> OwnerGroup {
    members.sort_by(|one, other| (other.created, &other.name).cmp(&(one.created, &one.name)));
    let omitted = members.len().saturating_sub(MAX_MEMBERS);
    members.truncate(MAX_MEMBERS);
    OwnerGroup { by: by.into(), members, omitted }
}

/// A Job that is known from series, and may not exist any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownJob {
    pub namespace: Arc<str>,
    pub name: Box<str>,
    /// The labels that Jobs are grouped by, as far as it has them.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// When it was created, if known.
    pub created: Option<Time>,
}

/// A container of Jobs with the same labels, by their series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownContainer {
    pub namespace: Arc<str>,
    /// The labels that Jobs are grouped by.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    pub container: Container,
}

/// Jobs of a cluster that are known from series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownJobs {
    /// The Jobs that no CronJob owns.
    pub jobs: Vec<KnownJob>,
    /// The containers of their latest pods.
    pub containers: Vec<KnownContainer>,
}

/// Cluster, namespace and name.
type GroupKey = (Option<Box<str>>, Arc<str>, Box<str>);

/// Groups the Jobs of a cluster that have the same values of these labels, together with those that are known from series.
/// The latest Job shows the containers. Jobs without any of the labels are grouped by their names, if these end with a
/// generated part and at least three are the same before it.
pub fn group_jobs(workloads: &mut Vec<Arc<Workload>>, labels: &[String], known: &KnownJobs) {
    let of_series: HashMap<(&str, &str), &KnownJob> =
        known.jobs.iter().map(|job| ((&*job.namespace, &*job.name), job)).collect();
    let mut groups: BTreeMap<GroupKey, Vec<Arc<Workload>>> = BTreeMap::new();
    let cluster = workloads.first().and_then(|workload| workload.cluster.clone());
    let all = std::mem::take(workloads);
    for mut workload in all {
        let of_job = of_series.get(&(&*workload.namespace, &*workload.name)).copied();
        let own = group_name(labels, |label| workload.labels.get(label));
        let name = own.or_else(|| group_name(labels, label_of(&of_job?.labels)));
        let name = name.filter(|_| may_be_grouped(&workload));
        let Some(name) = name else {
            workloads.push(workload);
            continue;
        };
        if let Some(created) =
            of_job.and_then(|job| job.created).filter(|_| workload.created.is_none())
        {
            Arc::make_mut(&mut workload).created = Some(created);
        }
        let key = (workload.cluster.clone(), workload.namespace.clone(), name);
        groups.entry(key).or_default().push(workload);
    }
    for container in &known.containers {
        let Some(name) = group_name(labels, label_of(&container.labels)) else { continue };
        let key = (cluster.clone(), container.namespace.clone(), name);
        let jobs = groups.entry(key).or_default();
        // Only Jobs that are gone: this stands for them.
        let has_names = jobs.first().is_some_and(|job| !job.name.is_empty());
        if has_names {
            continue;
        }
        if jobs.is_empty() {
            let namespace = container.namespace.clone();
            jobs.push(Workload { namespace, kind: JOB.into(), ..Workload::default() }.into());
        }
        for job in jobs {
            let job = Arc::make_mut(job);
            job.containers = job.containers.iter().chain([&container.container]).cloned().collect();
        }
    }
    let by = format!("label {}", labels.join(","));
    for ((cluster, namespace, name), jobs) in groups {
        let of_group = known.jobs.iter().filter(|job| {
            job.namespace == namespace
                && group_name(labels, label_of(&job.labels)).is_some_and(|known| known == name)
        });
        let workload = group(&by, jobs, of_group);
        workloads.push(Workload { cluster, name, ..workload }.into());
    }
    group_namesakes(workloads);
    workloads.sort_by(|one, other| {
        let key = |of: &Workload| {
            (of.cluster.clone(), of.namespace.clone(), of.kind.clone(), of.name.clone())
        };
        key(one).cmp(&key(other))
    });
}

/// Groups Jobs whose names are the same but for a generated part.
fn group_namesakes(workloads: &mut Vec<Arc<Workload>>) {
    let key = |workload: &Workload| -> Option<GroupKey> {
        let name = generated_base(&workload.name).filter(|_| may_be_grouped(workload))?;
        Some((workload.cluster.clone(), workload.namespace.clone(), format!("{name}-*").into()))
    };
    let mut counts: BTreeMap<GroupKey, usize> = BTreeMap::new();
    for key in workloads.iter().map(Arc::as_ref).filter_map(key) {
        *counts.entry(key).or_default() += 1;
    }
    counts.retain(|_, count| *count >= MIN_NAMESAKES);
    let mut groups: BTreeMap<GroupKey, Vec<Arc<Workload>>> = BTreeMap::new();
    for workload in std::mem::take(workloads) {
        match key(&workload).filter(|key| counts.contains_key(key)) {
            Some(key) => groups.entry(key).or_default().push(workload),
            None => workloads.push(workload),
        }
    }
    for ((cluster, _, name), jobs) in groups {
        let workload = group("name", jobs, std::iter::empty());
        workloads.push(Workload { cluster, name, ..workload }.into());
    }
}

/// Whether a workload is a Job of Kubernetes that no CronJob owns.
fn may_be_grouped(workload: &Workload) -> bool {
    let version = workload.api_version.as_deref();
    &*workload.kind == JOB
        && version.is_none_or(|known| known == "batch/v1")
        && workload.group.is_none()
}

/// A name without the part that was generated: five random characters, as `generateName` appends them, or numbers, such as a
/// date or the number of a build.
fn generated_base(name: &str) -> Option<&str> {
    let (base, tail) = name.rsplit_once('-')?;
    let is_random =
        tail.len() == 5 && tail.bytes().all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte));
    if is_random {
        return Some(base);
    }
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut rest = name;
    while let Some((base, tail)) = rest.rsplit_once('-')
        && is_number(tail)
    {
        rest = base;
    }
    (rest.len() < name.len() && !rest.is_empty()).then_some(rest)
}

/// The name of the group of an object with these labels, such as `app=import,team=data`; `None` if it has none of them. No
/// object can have such a name.
fn group_name<'a>(labels: &[String], value: impl Fn(&str) -> Option<&'a str>) -> Option<Box<str>> {
    let parts: Vec<String> = labels
        .iter()
        .filter_map(|label| {
            let value = value(label).filter(|value| !value.is_empty())?;
            // Names of workloads have no slash.
            let name = label.rsplit('/').next().unwrap_or(label);
            Some(format!("{name}={value}"))
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join(",").into())
}

fn label_of<'a>(
    labels: &'a BTreeMap<Box<str>, Box<str>>,
) -> impl Fn(&str) -> Option<&'a str> + use<'a> {
    |label| labels.get(label).map(|value| &**value)
}

/// The workload of these Jobs.
fn group<'a>(
    by: &str,
    jobs: Vec<Arc<Workload>>,
    known: impl Iterator<Item = &'a KnownJob>,
) -> Workload {
    let mut members: BTreeMap<Box<str>, GroupMember> = BTreeMap::new();
    let member = |name: &str, created: Option<Time>, pods: &[Box<str>]| GroupMember {
        kind: JOB.into(),
        name: name.into(),
        created,
        pods: pods.to_vec(),
    };
    for job in jobs.iter().filter(|job| !job.name.is_empty()) {
        members.insert(job.name.clone(), member(&job.name, job.created, &job.pods));
    }
    for job in known {
        members.entry(job.name.clone()).or_insert_with(|| member(&job.name, job.created, &[]));
    }
    let (pods, nodes) = (
        jobs.iter().flat_map(|job| job.pods.iter().cloned()).collect(),
        jobs.iter().flat_map(|job| job.nodes.iter().cloned()).collect(),
    );
    // Costs are those of the time since the first one was created, if that is known.
    let created: Option<Vec<Time>> = members.values().map(|member| member.created).collect();
    let created = created.and_then(|created| created.into_iter().min());
    let group = group_of(by, members.into_values().collect());
    let latest = jobs
        .into_iter()
        .max_by(|one, other| (one.created, &one.name).cmp(&(other.created, &other.name)));
    Workload {
        created,
        pods,
        nodes,
        replicas: None,
        group: Some(group),
        ..latest.map(Arc::unwrap_or_clone).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rightsizing::testing::{MI, amounts, container};

    fn labels(of: &[(&str, &str)]) -> BTreeMap<Box<str>, Box<str>> {
        of.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    fn job(name: &str, created: i64, of: &[(&str, &str)]) -> Workload {
        Workload {
            namespace: "etl".into(),
            api_version: Some("batch/v1".into()),
            kind: JOB.into(),
            name: name.into(),
            labels: of.iter().copied().collect(),
            created: Some(Time::from_secs(created)),
            pods: vec![format!("{name}-x2x4z").into()],
            containers: [container(amounts(Some(created), Some(MI)), amounts(None, None))].into(),
            ..Workload::default()
        }
    }

    fn known(name: &str, of: &[(&str, &str)]) -> KnownJob {
        let created = Some(Time::from_secs(1));
        KnownJob { namespace: "etl".into(), name: name.into(), labels: labels(of), created }
    }

    /// Each workload in one line, with the names of its members.
    fn grouped(workloads: Vec<Workload>, labels: &[String], known: &KnownJobs) -> Vec<Workload> {
        let mut workloads = workloads.into_iter().map(Arc::new).collect();
        group_jobs(&mut workloads, labels, known);
        workloads.into_iter().map(Arc::unwrap_or_clone).collect()
    }

    fn lines(workloads: &[Workload]) -> Vec<String> {
        let line = |one: &Workload| {
            let members = one.group.iter().flat_map(|group| &group.members);
            let members: Vec<&str> = members.map(|member| &*member.name).collect();
            let cpu = one.containers[0].requests.cpu.map_or(0, |cpu| cpu.0);
            format!("{}/{} {cpu} [{}] {}", one.kind, one.name, members.join(" "), one.pods.len())
        };
        workloads.iter().map(line).collect()
    }

    #[test]
    fn jobs_with_the_same_values_are_one_workload_with_the_containers_of_the_latest() {
        let app = "example.com/app";
        let by = ["example.com/app".to_owned(), "team".to_owned()];
        let cron = Workload { kind: "CronJob".into(), ..job("night", 5, &[(app, "load")]) };
        let workloads = vec![
            job("load-1", 100, &[(app, "load"), ("team", "data")]),
            job("load-3", 300, &[(app, "load"), ("team", "data")]),
            job("load-2", 200, &[(app, "load"), ("team", "data")]),
            job("mail", 400, &[(app, "load")]),
            job("other", 500, &[("x", "load")]),
            cron,
        ];
        let series = KnownJobs {
            jobs: vec![
                known("load-0", &[(app, "load"), ("team", "data")]),
                known("load-1", &[(app, "load"), ("team", "data")]),
                known("lost", &[(app, "lost")]),
            ],
            containers: Vec::new(),
        };
        let workloads = grouped(workloads, &by, &series);
        assert_eq!(
            lines(&workloads),
            [
                "CronJob/night 5 [] 1",
                "Job/app=load 400 [mail] 1",
                "Job/app=load,team=data 300 [load-3 load-2 load-1 load-0] 3",
                "Job/other 500 [] 1",
            ]
        );
        let group = workloads[2].group.as_ref().expect("a group");
        assert_eq!((&*group.by, group.omitted), ("label example.com/app,team", 0));
        assert_eq!(workloads[2].created, Some(Time::from_secs(1)), "the first one of series");
    }

    #[test]
    fn jobs_that_are_gone_have_the_labels_and_containers_of_series() {
        let by = ["app".to_owned()];
        let main = container(amounts(Some(700), None), amounts(None, None));
        let proxy = Container { name: "proxy".into(), ..main.clone() };
        let of = |app: &str, container: &Container| KnownContainer {
            namespace: "etl".into(),
            labels: labels(&[("app", app)]),
            container: container.clone(),
        };
        let series = KnownJobs {
            jobs: vec![
                known("load-1", &[("app", "load")]),
                known("load-2", &[("app", "load")]),
                known("here", &[("app", "here")]),
            ],
            containers: vec![of("load", &main), of("load", &proxy), of("here", &main)],
        };
        // Without the API server the labels are those of series.
        let workloads = vec![job("here", 100, &[])];
        let workloads = grouped(workloads, &by, &series);
        assert_eq!(
            lines(&workloads),
            ["Job/app=here 100 [here] 1", "Job/app=load 700 [load-2 load-1] 0"]
        );
        assert_eq!((workloads[0].containers.len(), workloads[1].containers.len()), (1, 2));
    }

    #[test]
    fn of_too_many_jobs_the_latest_are_members() {
        let jobs =
            (0..MAX_MEMBERS as i64 + 5).map(|at| job(&format!("load-{at}"), at, &[("a", "b")]));
        let workloads: Vec<Workload> = jobs.collect();
        let workloads = grouped(workloads, &["a".to_owned()], &KnownJobs::default());
        let group = workloads[0].group.as_ref().expect("a group");
        assert_eq!((workloads.len(), group.members.len(), group.omitted), (1, MAX_MEMBERS, 5));
        assert_eq!(&*group.members[0].name, "load-204");
    }

    #[test]
    fn three_jobs_with_generated_names_are_one_workload() {
        let mut volcano = job("load-x2x4z", 1, &[]);
        volcano.api_version = Some("batch.volcano.sh/v1alpha1".into());
        let mut elsewhere = job("load-c5c6d", 1, &[]);
        elsewhere.namespace = "other".into();
        let workloads = vec![
            job("load-x2x4z", 100, &[]),
            job("load-b4b5c", 300, &[]),
            job("load-w9w8v", 200, &[]),
            job("report-2026-11-28", 400, &[]),
            job("report-2026-11-29", 500, &[]),
            job("report-2026-12-01", 600, &[]),
            job("build-7", 700, &[]),
            job("build-8", 800, &[]),
            job("load-again", 900, &[]),
            volcano,
            elsewhere,
        ];
        let workloads = grouped(workloads, &[], &KnownJobs::default());
        let groups: Vec<&Workload> = workloads.iter().filter(|one| one.group.is_some()).collect();
        let names: Vec<_> = groups.iter().map(|one| (&*one.name, one.pods.len())).collect();
        assert_eq!(names, [("load-*", 3), ("report-*", 3)]);
        assert_eq!(groups[0].group.as_ref().map(|group| &*group.by), Some("name"));
        assert_eq!(workloads.len(), 2 + 5);
    }

    #[test]
    fn only_generated_parts_are_left_out_of_names() {
        for (name, expected) in [
            ("load-x2x4z", Some("load")),
            ("report-2026-11-28", Some("report")),
            ("web-migrate-42", Some("web-migrate")),
            ("load-again", None),
            ("load-3e", None),
            ("once", None),
            ("-1", None),
            ("42", None),
        ] {
            assert_eq!(generated_base(name), expected, "{name}");
        }
    }

    #[test]
    fn without_labels_nothing_is_grouped() {
        let workloads = vec![job("a", 1, &[("app", "")]), job("b", 2, &[])];
        let before = workloads.clone();
        let workloads = grouped(workloads, &["app".to_owned()], &KnownJobs::default());
        assert_eq!(workloads, before);
    }
}
