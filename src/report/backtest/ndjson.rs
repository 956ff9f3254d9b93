//! The accounts as data: a line for each container, policy and day.

use std::io;

use plimsoll_core::backtest::{
    ReplicaSource,
    account::{ContainerDay, PolicyAccount, WorkloadAccount},
};
use serde::Serialize;
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    cluster: Option<&'a str>,
    namespace: &'a str,
    kind: &'a str,
    name: &'a str,
    container_name: &'a str,
    policy: &'a str,
    replicas: ReplicaSource,
    #[serde(flatten)]
    day: &'a ContainerDay,
}

pub(super) fn write(accounts: &[WorkloadAccount], mut out: impl io::Write) -> io::Result<()> {
    for account in accounts {
        for policy in &account.policies {
            for day in &policy.days {
                serde_json::to_writer(&mut out, &line(account, policy, day))?;
                out.write_all(b"\n")?;
            }
        }
    }
    Ok(())
}

fn line<'a>(
    account: &'a WorkloadAccount,
    policy: &'a PolicyAccount,
    day: &'a ContainerDay,
) -> Line<'a> {
    let container = account.containers.get(usize::from(day.container));
    Line {
        cluster: account.cluster.as_deref(),
        namespace: &account.namespace,
        kind: &account.kind,
        name: &account.name,
        container_name: container.map_or("", |name| name),
        policy: &policy.policy,
        replicas: account.replicas,
        day,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::report::backtest::test_reports::accounts;

    #[test]
    fn each_container_policy_and_day_has_a_line_with_all_figures() {
        let accounts = accounts();
        let mut out = Vec::new();
        write(&accounts, &mut out).expect("writes");
        let text = String::from_utf8(out).expect("UTF-8");
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let days: usize =
            accounts.iter().flat_map(|of| &of.policies).map(|policy| policy.days.len()).sum();
        assert_eq!(lines.len(), days);
        let first = &lines[0];
        assert_eq!((&first["name"], &first["containerName"]), (&"web".into(), &"main".into()));
        assert_eq!(first["replicas"], "recordedWithAutoscaler");
        let day: ContainerDay = serde_json::from_value(first.clone()).expect("the figures");
        assert_eq!(day, accounts[0].policies[0].days[0]);
    }
}
