//! Figures of single containers: how many have how much slack, and which need a look.

use super::{WorstContainer, build::days_of_account, sums::Sums};
use crate::backtest::{account::WorkloadAccount, policy::PolicyLabel};

/// Buckets of the histogram, each a tenth.
const TENTHS: usize = 10;
/// Containers that are named: of each policy, and of all.
const WORST_OF_POLICY: usize = 5;
const WORST: usize = 20;

/// Counts of containers by the share of requested CPU that is slack.
pub(super) fn slack_histogram(accounts: &[&WorkloadAccount], policy: usize) -> Vec<u32> {
    let mut counts = vec![0; TENTHS];
    for &account in accounts {
        for sums in by_container(account, policy) {
            if sums.cpu_requested > 0.0 {
                let tenth = (sums.cpu_slack / sums.cpu_requested * TENTHS as f64) as usize;
                counts[tenth.min(TENTHS - 1)] += 1;
            }
        }
    }
    counts
}

fn by_container(account: &WorkloadAccount, policy: usize) -> Vec<Sums> {
    let mut sums = vec![Sums::default(); account.containers.len()];
    for day in days_of_account(account, policy) {
        if let Some(sums) = sums.get_mut(usize::from(day.container)) {
            sums.add(day);
        }
    }
    sums
}

/// The containers that are killed or short most often, the worst first.
pub(super) fn worst(
    accounts: &[&WorkloadAccount],
    policies: &[PolicyLabel],
) -> Vec<WorstContainer> {
    let mut totals = vec![0; policies.len()];
    let mut found = Vec::new();
    for &account in accounts {
        let sums: Vec<Vec<Sums>> =
            (0..policies.len()).map(|policy| by_container(account, policy)).collect();
        for (policy, label) in policies.iter().enumerate().filter(|(_, label)| !label.is_yardstick)
        {
            for (container, own) in sums[policy].iter().enumerate() {
                totals[policy] += own.bad_cpu_days.lower;
                if own.known_oom_days + own.bad_cpu_days.lower > 0 {
                    let all: Vec<Sums> = sums.iter().map(|sums| sums[container]).collect();
                    found.push(Found { account, container, policy, label, all });
                }
            }
        }
    }
    found.sort_by_key(|found| std::cmp::Reverse(found.rank()));
    let mut of_policy = vec![0; policies.len()];
    found.retain(|found| {
        of_policy[found.policy] += 1;
        of_policy[found.policy] <= WORST_OF_POLICY
    });
    found.truncate(WORST);
    found.into_iter().map(|found| found.report(policies, totals[found.policy])).collect()
}

struct Found<'a> {
    account: &'a WorkloadAccount,
    container: usize,
    policy: usize,
    label: &'a PolicyLabel,
    /// The sums of the container under each policy.
    all: Vec<Sums>,
}

impl Found<'_> {
    fn own(&self) -> &Sums {
        &self.all[self.policy]
    }

    fn rank(&self) -> (u64, u64) {
        (self.own().known_oom_days, self.own().bad_cpu_days.lower)
    }

    fn report(&self, policies: &[PolicyLabel], bad_days_of_policy: u64) -> WorstContainer {
        let WorkloadAccount { cluster, namespace, kind, name, containers, .. } = self.account;
        let cluster = cluster.as_ref().map_or_else(String::new, |cluster| format!("{cluster}/"));
        WorstContainer {
            workload: format!("{cluster}{namespace}/{kind}/{name}"),
            container: containers[self.container].to_string(),
            policy: self.label.name.clone(),
            oom_days: self.own().known_oom_days,
            bad_cpu_days: self.own().bad_cpu_days.lower,
            remark: self.remark(policies, bad_days_of_policy),
        }
    }

    fn remark(&self, policies: &[PolicyLabel], bad_days_of_policy: u64) -> String {
        let Sums { known_oom_days, bad_cpu_days, days, .. } = *self.own();
        let others = || {
            let is_other = |index: usize| index != self.policy && !policies[index].is_yardstick;
            (0..policies.len()).filter(move |index| is_other(*index))
        };
        if known_oom_days > 0 {
            let current = policies.iter().position(|label| label.is_current);
            let is_killed = |index: usize| self.all[index].known_oom_days > 0;
            let text = format!("{known_oom_days} of {days} days with an OOM kill");
            return match current {
                Some(current) if current != self.policy && !is_killed(current) => {
                    let is_everywhere = others().filter(|index| *index != current).all(is_killed)
                        && others().count() > 1;
                    if is_everywhere {
                        format!("{text}, as under every policy but current")
                    } else {
                        format!("{text}, none under current")
                    }
                }
                _ if others().all(is_killed) => format!("{text}, as under every policy"),
                _ => text,
            };
        }
        let text = format!(
            "{} of the {bad_days_of_policy} bad CPU days of {}",
            bad_cpu_days.lower, self.label.name
        );
        let better = others()
            .filter(|index| !policies[*index].is_current)
            .filter(|index| self.all[*index].bad_cpu_days.lower * 2 <= bad_cpu_days.lower)
            .min_by(|one, other| {
                self.all[*one].cpu_requested.total_cmp(&self.all[*other].cpu_requested)
            });
        better.map_or(text.clone(), |better| {
            let (name, days) = (&policies[better].name, self.all[better].bad_cpu_days.lower);
            format!("{text}; {days} under {name}")
        })
    }
}
