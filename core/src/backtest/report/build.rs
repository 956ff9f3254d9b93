//! Builds a report from the accounts of all workloads.

use std::collections::BTreeMap;

use super::{
    BacktestReport, DayReport, Differences, FrontierStep, PolicyReport, ReplicasReport,
    ReportInputs, SCHEMA_VERSION, containers,
    sums::{Sums, share},
};
use crate::{
    backtest::{
        account::{ContainerDay, WorkloadAccount},
        bootstrap::Bootstrap,
        frontier::{self, Candidate},
        policy::PolicyLabel,
        replica_model::ReplicaSource,
    },
    rightsizing::prices::HOURS_PER_MONTH,
    types::Time,
};

/// Draws of the bootstrap over workloads.
const DRAWS: u32 = 1_000;
const DAY_SECONDS: i64 = 86_400;
const HOUR_SECONDS: f64 = 3_600.0;
/// The share of minutes without samples from which on the report says so.
const MUCH_MISSING: f64 = 0.2;

/// Builds the report. The accounts may be in any order and come from several processes: the result is the same.
pub fn build(accounts: &[WorkloadAccount], inputs: &ReportInputs) -> BacktestReport {
    // References: the accounts of a large cluster are most of the memory of the process.
    let mut sorted: Vec<&WorkloadAccount> = accounts.iter().collect();
    sorted.sort_by(|one, other| {
        let key = |of: &WorkloadAccount| {
            (of.cluster.clone(), of.namespace.clone(), of.kind.clone(), of.name.clone())
        };
        key(one).cmp(&key(other))
    });
    let builder = Builder { accounts: &sorted, inputs };
    builder.build()
}

struct Builder<'a> {
    accounts: &'a [&'a WorkloadAccount],
    inputs: &'a ReportInputs,
}

impl<'a> Builder<'a> {
    fn build(&self) -> BacktestReport {
        let sums: Vec<Sums> =
            (0..self.inputs.policies.len()).map(|policy| self.sums_of(policy)).collect();
        // All policies have the same days, but for containers whose requests of the past are unknown.
        let widest = sums.iter().max_by_key(|sums| sums.days).copied().unwrap_or_default();
        let mut policies: Vec<PolicyReport> = (self.inputs.policies.iter().zip(&sums))
            .enumerate()
            .map(|(index, (label, sums))| self.policy(index, label, sums))
            .collect();
        let verdicts = self.judge(&sums);
        for (policy, verdict) in policies.iter_mut().zip(&verdicts) {
            policy.is_on_frontier = *verdict;
        }
        let total = |count: fn(&WorkloadAccount) -> u64| {
            self.accounts.iter().map(|account| count(account)).sum()
        };
        let (sampled, missing): (u64, u64) =
            (total(|account| account.sampled_minutes), total(|account| account.missing_minutes));
        let missing_share = share(missing as f64, (sampled + missing) as f64).unwrap_or_default();
        let elastic = total(|account| u64::from(account.elastic_containers));
        let mut remarks = self.inputs.remarks.clone();
        self.remark(&mut remarks, &verdicts, missing_share);
        BacktestReport {
            schema_version: SCHEMA_VERSION,
            kind: "backtest".to_owned(),
            version: self.inputs.version.clone(),
            scope: self.inputs.scope.clone(),
            warm_up_from: self.inputs.warm_up_from,
            from: self.inputs.from,
            until: self.inputs.until,
            workloads: self.accounts.len() as u32,
            containers: total(|account| account.containers.len() as u64) as u32,
            container_days: widest.days,
            unknown_share: share(widest.unknown_minutes as f64, widest.all_minutes as f64)
                .unwrap_or_default(),
            missing_share,
            elastic_containers: elastic as u32,
            replicas: self.replicas(),
            currency: self.inputs.currency.clone(),
            frontier: self.frontier(&sums, &verdicts),
            worst: containers::worst(self.accounts, &self.inputs.policies),
            policies,
            remarks,
        }
    }

    fn replicas(&self) -> ReplicasReport {
        let count = |source: ReplicaSource| {
            self.accounts.iter().filter(|account| account.replicas == source).count() as u32
        };
        ReplicasReport {
            rule: self.inputs.replicas,
            modelled: count(ReplicaSource::Modelled),
            recorded_with_autoscaler: count(ReplicaSource::RecordedWithAutoscaler),
            recorded_unknown_autoscaler: count(ReplicaSource::RecordedUnknownAutoscaler),
        }
    }

    fn days_of(&self, policy: usize) -> impl Iterator<Item = &'a ContainerDay> {
        let accounts = self.accounts;
        accounts.iter().flat_map(move |account| days_of_account(account, policy))
    }

    fn sums_of(&self, policy: usize) -> Sums {
        Sums::of(self.days_of(policy))
    }

    fn hours(&self) -> f64 {
        hours_between(self.inputs.from, self.inputs.until)
    }

    /// What requests cost in the time of the evaluation; `None` if a price that is needed is unknown.
    fn money(&self, sums: &Sums) -> Option<f64> {
        self.inputs.currency.as_ref()?;
        let cpu = sums.cpu_requested * self.inputs.cpu_core_hour?;
        let memory = match self.inputs.memory_gib_hour {
            Some(price) => sums.memory_requested * price,
            None if sums.memory_windows == 0 => 0.0,
            None => return None,
        };
        Some(cpu + memory)
    }

    /// What policies are compared by: money, or core-hours without prices.
    fn cost(&self, sums: &Sums) -> f64 {
        self.money(sums).unwrap_or(sums.cpu_requested)
    }

    fn policy(&self, index: usize, label: &PolicyLabel, sums: &Sums) -> PolicyReport {
        let hours = self.hours().max(f64::MIN_POSITIVE);
        let money = self.money(sums);
        let has_memory = sums.memory_windows > 0;
        PolicyReport {
            name: label.name.clone(),
            settings: label.settings.clone(),
            apply: label.apply.clone(),
            cpu_requested: sums.cpu_requested / hours,
            cpu_slack: share(sums.cpu_slack, sums.cpu_requested),
            cpu_short_time: share(sums.cpu_short_minutes as f64, sums.cpu_minutes as f64),
            cpu_short_volume: share(sums.cpu_short, sums.cpu_used),
            bad_cpu_days: sums.bad_cpu_days.lower,
            throttled: share(sums.throttled_minutes as f64, sums.cpu_minutes as f64),
            memory_requested: has_memory.then(|| sums.memory_requested / hours),
            memory_slack: share(sums.memory_slack, sums.memory_requested),
            memory_over_request: share(
                sums.memory_short_windows as f64,
                sums.memory_windows as f64,
            ),
            oom_kills: sums.oom_kills,
            oom_days: sums.known_oom_days,
            serious_days: sums.serious_days,
            changes_per_day: share(sums.changes() as f64, self.workload_days(index) as f64)
                .unwrap_or_default(),
            evicted: sums.evicted,
            resized: sums.resized,
            first_recommendation_hours: self.first_recommendation(index),
            monthly_cost: money.map(|money| money / hours * HOURS_PER_MONTH),
            is_on_frontier: None,
            against_current: self.against_current(index),
            days: self.days(index),
            slack_histogram: containers::slack_histogram(self.accounts, index),
        }
    }

    /// Days on which at least one container of a workload is judged.
    fn workload_days(&self, policy: usize) -> u64 {
        let of = |account| {
            let mut days: Vec<Time> = days_of_account(account, policy).map(|day| day.day).collect();
            days.sort_unstable();
            days.dedup();
            days.len() as u64
        };
        self.accounts.iter().copied().map(of).sum()
    }

    /// The median of the containers that got a recommendation.
    fn first_recommendation(&self, policy: usize) -> Option<f64> {
        let accounts = self.accounts.iter().filter_map(|account| account.policies.get(policy));
        let known = accounts.flat_map(|account| account.first_recommendation_seconds.iter());
        let mut seconds: Vec<u64> = known.copied().flatten().collect();
        seconds.sort_unstable();
        let upper = *seconds.get(seconds.len() / 2)?;
        let lower = seconds[(seconds.len() - 1) / 2];
        Some((lower as f64).midpoint(upper as f64) / HOUR_SECONDS)
    }

    fn against_current(&self, policy: usize) -> Option<Differences> {
        let current = self.inputs.policies.iter().position(|label| label.is_current)?;
        if current == policy {
            return None;
        }
        // A workload whose requests of the past are unknown cannot be compared.
        let compared = self.accounts.iter().filter(|account| account.unknown_requests == 0);
        let pairs: Vec<[Sums; 2]> = compared
            .map(|account| [policy, current].map(|index| Sums::of(days_of_account(account, index))))
            .collect();
        let costs: Vec<[f64; 2]> =
            pairs.iter().map(|pair| [self.cost(&pair[0]), self.cost(&pair[1])]).collect();
        if costs.iter().map(|[_, current]| current).sum::<f64>() <= 0.0 {
            return None;
        }
        let all: Vec<usize> = (0..pairs.len()).collect();
        let cost = |drawn: &[usize]| {
            let [own, current] = drawn.iter().fold([0.0, 0.0], |sum, index| {
                [sum[0] + costs[*index][0], sum[1] + costs[*index][1]]
            });
            // A draw of workloads that request nothing has no difference.
            share(own - current, current).unwrap_or_default()
        };
        let counted = |count: fn(&Sums) -> u64| {
            let differences: Vec<f64> =
                pairs.iter().map(|pair| count(&pair[0]) as f64 - count(&pair[1]) as f64).collect();
            move |drawn: &[usize]| drawn.iter().map(|index| differences[*index]).sum::<f64>()
        };
        let (oom_days, bad_cpu_days) =
            (counted(|sums| sums.known_oom_days), counted(|sums| sums.bad_cpu_days.lower));
        let bootstrap = Bootstrap::new(pairs.len(), DRAWS);
        Some(Differences {
            cost: bootstrap.interval(cost(&all), cost),
            oom_days: bootstrap.interval(oom_days(&all), oom_days),
            bad_cpu_days: bootstrap.interval(bad_cpu_days(&all), bad_cpu_days),
        })
    }

    fn days(&self, policy: usize) -> Vec<DayReport> {
        let mut days: BTreeMap<Time, Sums> = BTreeMap::new();
        for day in self.days_of(policy) {
            days.entry(day.day).or_default().add(day);
        }
        let report = |(day, sums): (Time, Sums)| {
            let end = Time::from_secs(day.as_secs() + DAY_SECONDS).min(self.inputs.until);
            let hours = hours_between(day.max(self.inputs.from), end).max(f64::MIN_POSITIVE);
            DayReport {
                day,
                cpu_requested: sums.cpu_requested / hours,
                cpu_used: sums.cpu_used / hours,
                memory_requested: sums.memory_requested / hours,
                oom_kills: sums.oom_kills,
            }
        };
        days.into_iter().map(report).collect()
    }

    /// Whether each policy is on the frontier; `None` for yardsticks, and if it is unknown.
    fn judge(&self, sums: &[Sums]) -> Vec<Option<bool>> {
        let judged: Vec<usize> = self.judged().collect();
        let candidate = |index: &usize| Candidate {
            cost: self.cost(&sums[*index]),
            oom_days: sums[*index].oom_days,
            bad_cpu_days: sums[*index].bad_cpu_days,
        };
        let candidates: Vec<Candidate> = judged.iter().map(candidate).collect();
        let mut verdicts = vec![None; sums.len()];
        for (index, verdict) in judged.iter().zip(frontier::judge(&candidates)) {
            verdicts[*index] = verdict;
        }
        verdicts
    }

    fn judged(&self) -> impl Iterator<Item = usize> {
        let policies = self.inputs.policies.iter().enumerate();
        policies.filter(|(_, label)| !label.is_yardstick).map(|(index, _)| index)
    }

    fn frontier(&self, sums: &[Sums], verdicts: &[Option<bool>]) -> Vec<FrontierStep> {
        let mut indices: Vec<usize> =
            (0..sums.len()).filter(|index| verdicts[*index] == Some(true)).collect();
        indices.sort_by(|one, other| self.cost(&sums[*one]).total_cmp(&self.cost(&sums[*other])));
        let bad_days = |index: usize| sums[index].known_oom_days + sums[index].bad_cpu_days.lower;
        let mut before = None;
        let step = |index: usize| {
            let previous = before.replace(index);
            let extra_cost = previous
                .map(|previous: usize| self.cost(&sums[index]) - self.cost(&sums[previous]));
            let avoided =
                previous.map(|previous| bad_days(previous).saturating_sub(bad_days(index)));
            let price = extra_cost.zip(avoided).filter(|(_, days)| *days > 0);
            FrontierStep {
                policy: self.inputs.policies[index].name.clone(),
                extra_cost,
                avoided_days: avoided,
                price_per_day: price.map(|(cost, days)| cost / days as f64),
            }
        };
        indices.into_iter().map(step).collect()
    }

    fn remark(&self, remarks: &mut Vec<String>, verdicts: &[Option<bool>], missing_share: f64) {
        let unknown: Vec<&str> = self
            .judged()
            .filter(|index| verdicts[*index].is_none())
            .map(|index| self.inputs.policies[index].name.as_str())
            .collect();
        if !unknown.is_empty() {
            remarks.push(format!(
                "Whether another policy beats {} is unknown: it depends on minutes that were throttled, or on kills, in the \
                 recording.",
                unknown.join(", ")
            ));
        }
        if missing_share > MUCH_MISSING {
            let percent = missing_share * 100.0;
            remarks.push(format!("{percent:.0} % of the minutes of pods have no samples."));
        }
        let without: u32 = self.accounts.iter().map(|account| account.unknown_requests).sum();
        if without > 0 && self.inputs.policies.iter().any(|label| label.is_current) {
            remarks.push(format!(
                "The past requests of {without} containers are unknown, so `current` leaves them out."
            ));
        }
    }
}

/// The days of a workload under a policy, in order.
pub(super) fn days_of_account(
    account: &WorkloadAccount,
    policy: usize,
) -> impl Iterator<Item = &ContainerDay> {
    account.policies.get(policy).into_iter().flat_map(|policy| policy.days.iter())
}

fn hours_between(from: Time, until: Time) -> f64 {
    until.nanos_since(from).max(0) as f64 / 3.6e12
}
