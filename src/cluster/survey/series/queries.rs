//! The queries of a survey. The server aggregates by owner, so a response has a few series for each workload; only the
//! list of pods has one for each pod.

use std::{fmt::Write as _, time::Duration};

use plimsoll_storage::prometheus::schema::KubeStateMetrics;

/// Owners that stand for none: of a pod without a controller, in older versions too, and of a static pod.
const NO_OWNER: &str = "|<none>|Node";

/// How long ago a run of a CronJob may have ended for its containers to be known.
const RUN_WINDOW: &str = "1d";

/// The names of pods of CronJobs, of indexed Jobs too. It keeps the query about past runs small.
const CRON_POD: &str = ".+-[0-9]{8,10}(-[0-9]+)?-.{5}";

/// Builds queries with the label names of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queries<'a> {
    namespace: &'a str,
    pod: &'a str,
    container: &'a str,
}

impl<'a> Queries<'a> {
    pub fn new(states: &'a KubeStateMetrics) -> Self {
        let [namespace, pod, container] = states.container_labels();
        Self { namespace, pod, container }
    }

    pub fn pods_by_namespace(&self) -> String {
        let Self { namespace, pod, .. } = self;
        format!("count by ({namespace}) (group by ({namespace},{pod}) (kube_pod_owner))")
    }

    /// Each pod that has not finished, with its owner and its node.
    pub fn pods(&self) -> String {
        let (Self { namespace, pod, .. }, owners) = (self, self.owners());
        let node = "node,exported_node";
        // A pod without information about its node counts too.
        format!(
            "((({owners}) * on ({namespace},{pod}) group_left ({node}) \
             topk by ({namespace},{pod}) (1, group by ({namespace},{pod},{node}) (kube_pod_info))) \
             or on ({namespace},{pod}) ({owners})) \
             unless on ({namespace},{pod}) (kube_pod_status_phase{{phase=~\"Succeeded|Failed\"}} == 1)"
        )
    }

    /// The containers of the pods of each owner, by a family with a series for each container.
    pub fn containers(&self, family: &str) -> String {
        let Self { namespace, container, .. } = self;
        let joined = self.joined(family);
        format!(
            "group by ({namespace},owner_kind,owner_name,{container},restart_policy) ({joined})"
        )
    }

    /// The requests or limits of the containers of each owner. If its pods differ, the largest counts.
    pub fn amounts(&self, family: &str) -> String {
        let Self { namespace, container, .. } = self;
        let joined = self.joined(&format!("{family}{{resource=~\"cpu|memory\"}}"));
        format!("max by ({namespace},owner_kind,owner_name,{container},resource) ({joined})")
    }

    pub fn newest_pods(&self) -> String {
        let joined = self.joined("kube_pod_created");
        format!("max by ({},owner_kind,owner_name) ({joined})", self.namespace)
    }

    /// The owners of the ReplicaSets, Jobs or ReplicationControllers that have pods.
    pub fn owners_of(&self, kind: &str, family: &str, label: &str) -> String {
        let namespace = self.namespace;
        let with_pods = format!(
            "label_replace(group by ({namespace},owner_name) (kube_pod_owner{{owner_kind=\"{kind}\"}}), \
             \"{label}\", \"$1\", \"owner_name\", \"(.+)\")"
        );
        format!(
            "topk by ({namespace},{label}) (1, group by ({namespace},{label},owner_kind,owner_name) \
             ({family}{{owner_is_controller!=\"false\",owner_kind!~\"{NO_OWNER}\"}})) \
             and on ({namespace},{label}) ({with_pods})"
        )
    }

    /// The requests or limits of the runs of each CronJob, of those whose pods are gone too.
    pub fn amounts_of_runs(&self, family: &str) -> String {
        let Self { namespace, pod, container } = self;
        let jobs = format!(
            "topk by ({namespace},job_name) (1, group by ({namespace},job_name,owner_kind,owner_name) \
             (last_over_time(kube_job_owner{{owner_kind=\"CronJob\"}}[{RUN_WINDOW}])))"
        );
        let pods = format!(
            "topk by ({namespace},{pod}) (1, group by ({namespace},{pod},job_name) (label_replace(\
             last_over_time(kube_pod_owner{{owner_kind=\"Job\",{pod}=~\"{CRON_POD}\"}}[{RUN_WINDOW}]), \
             \"job_name\", \"$1\", \"owner_name\", \"(.+)\")))"
        );
        let amounts = format!(
            "max by ({namespace},{pod},{container},resource) (last_over_time(\
             {family}{{resource=~\"cpu|memory\",{pod}=~\"{CRON_POD}\"}}[{RUN_WINDOW}]))"
        );
        format!(
            "max by ({namespace},owner_kind,owner_name,{container},resource) ({amounts} \
             * on ({namespace},{pod}) group_left (owner_kind,owner_name) ({pods} \
             * on ({namespace},job_name) group_left (owner_kind,owner_name) {jobs}))"
        )
    }

    /// The Jobs without a CronJob that have one of these labels within a time, with the time when they were created, or 1 if
    /// that is unknown.
    pub fn jobs_by_labels(&self, labels: &[String], window: Duration) -> String {
        let (namespace, jobs) = (self.namespace, self.labelled_jobs(labels, window));
        let (labels, window) = (labels.join(","), seconds(window));
        format!(
            "(max by ({namespace},job_name) (last_over_time(kube_job_created[{window}])) \
             * on ({namespace},job_name) group_left ({labels}) ({jobs})) or on ({namespace},job_name) ({jobs})"
        )
    }

    /// The requests or limits of the containers of such Jobs, of those whose pods are gone too, by their labels.
    pub fn amounts_of_jobs(&self, family: &str, labels: &[String], window: Duration) -> String {
        let Self { namespace, pod, container } = self;
        let (jobs, labels) = (self.labelled_jobs(labels, window), labels.join(","));
        let pods = format!(
            "topk by ({namespace},{pod}) (1, group by ({namespace},{pod},job_name) (label_replace(\
             last_over_time(kube_pod_owner{{owner_kind=\"Job\"}}[{RUN_WINDOW}]), \
             \"job_name\", \"$1\", \"owner_name\", \"(.+)\")))"
        );
        let amounts = format!(
            "max by ({namespace},{pod},{container},resource) (last_over_time(\
             {family}{{resource=~\"cpu|memory\"}}[{RUN_WINDOW}]))"
        );
        format!(
            "max by ({namespace},{labels},{container},resource) ({amounts} \
             * on ({namespace},{pod}) group_left ({labels}) ({pods} \
             * on ({namespace},job_name) group_left ({labels}) ({jobs})))"
        )
    }

    fn labelled_jobs(&self, labels: &[String], window: Duration) -> String {
        let (namespace, window) = (self.namespace, seconds(window));
        let any: Vec<String> = labels
            .iter()
            .map(|label| format!("last_over_time(kube_job_labels{{{label}!=\"\"}}[{window}])"))
            .collect();
        let (any, labels) = (any.join(" or "), labels.join(","));
        format!(
            "topk by ({namespace},job_name) (1, group by ({namespace},job_name,{labels}) ({any})) \
             unless on ({namespace},job_name) \
             (last_over_time(kube_job_owner{{owner_kind=\"CronJob\"}}[{window}]))"
        )
    }

    pub fn by_object(&self, family: &str, label: &str) -> String {
        format!("max by ({},{label}) ({family})", self.namespace)
    }

    pub fn hpas(&self) -> String {
        format!(
            "group by ({},horizontalpodautoscaler,scaletargetref_kind,scaletargetref_name) \
             (kube_horizontalpodautoscaler_info)",
            self.namespace
        )
    }

    /// The targets of their metrics that are relative to requests.
    pub fn utilization_targets(&self) -> String {
        format!(
            "max by ({},horizontalpodautoscaler,metric_name) (kube_horizontalpodautoscaler_spec_target_metric\
             {{metric_target_type=\"utilization\",metric_name=~\"cpu|memory\"}})",
            self.namespace
        )
    }

    pub fn other_metrics(&self) -> String {
        const FAMILY: &str = "kube_horizontalpodautoscaler_spec_target_metric";
        format!(
            "group by ({},horizontalpodautoscaler) ({FAMILY}{{metric_target_type!=\"utilization\"}} \
             or {FAMILY}{{metric_name!~\"cpu|memory\"}})",
            self.namespace
        )
    }

    /// These labels of each pod.
    pub fn pod_labels<'b>(&self, labels: impl Iterator<Item = &'b str>) -> String {
        let mut by = format!("{},{}", self.namespace, self.pod);
        for label in labels {
            // A String is always writable.
            let _ = write!(by, ",{label}");
        }
        format!("group by ({by}) (kube_pod_labels)")
    }

    /// A family of containers with the owner of their pods.
    fn joined(&self, selector: &str) -> String {
        let (Self { namespace, pod, .. }, owners) = (self, self.owners());
        format!("{selector} * on ({namespace},{pod}) group_left (owner_kind,owner_name) ({owners})")
    }

    /// The controller of each pod: itself if it has none. Scrapes of two replicas may differ for a moment, and a join fails
    /// if a pod has two owners, so one of them counts.
    fn owners(&self) -> String {
        let Self { namespace, pod, .. } = self;
        format!(
            "topk by ({namespace},{pod}) (1, group by ({namespace},{pod},owner_kind,owner_name) \
             (kube_pod_owner{{owner_is_controller!=\"false\",owner_kind!~\"{NO_OWNER}\"}}) \
             or on ({namespace},{pod}) label_replace(label_replace(group by ({namespace},{pod}) \
             (kube_pod_owner), \
             \"owner_name\", \"$1\", \"{pod}\", \"(.+)\"), \"owner_kind\", \"Pod\", \"\", \"\"))"
        )
    }
}

fn seconds(window: Duration) -> String {
    format!("{}s", window.as_secs().max(1))
}

pub(super) const NODE_ALLOCATABLE: &str =
    "max by (node,exported_node,resource) (kube_node_status_allocatable{resource=~\"cpu|memory\"})";

pub(super) const NODE_LABELS: &str = "kube_node_labels";
