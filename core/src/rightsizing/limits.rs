//! The new limit of a container: `--limit-policy`, `--cpu-limit` and `--memory-limit`.

use std::{fmt, str::FromStr};

use super::survey::Resource;
use crate::{
    api::{ResourceList, ResourceName},
    sizing::{
        LimitPolicy,
        limit_policy::{CurrentResources, limit_by_policy},
    },
};

/// How the limit of a resource is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LimitRule {
    /// As the roles set it, if the container has a limit.
    Policy(LimitPolicy),
    /// `equal`: the limit is the request, also if the container has no limit so far.
    Equal,
    /// `unset`: the limit is removed.
    Unset,
}

impl Default for LimitRule {
    fn default() -> Self {
        Self::Policy(LimitPolicy::Ratio)
    }
}

/// The rules of both resources.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LimitRules {
    pub cpu: LimitRule,
    pub memory: LimitRule,
}

impl LimitRules {
    /// The rules of the flags: those of one resource replace `--limit-policy`.
    pub fn new(policy: LimitPolicy, cpu: Option<LimitRule>, memory: Option<LimitRule>) -> Self {
        let policy = LimitRule::Policy(policy);
        Self { cpu: cpu.unwrap_or(policy), memory: memory.unwrap_or(policy) }
    }

    pub fn of(&self, resource: Resource) -> LimitRule {
        match resource {
            Resource::Cpu => self.cpu,
            Resource::Memory => self.memory,
        }
    }
}

/// A rule that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid limit `{0}`; use `ratio`, `requestsOnly`, `max`, `equal`, `unset`, or `fixed:FACTOR` with a factor from 1 to 1000"
)]
pub struct InvalidLimitRule(String);

impl FromStr for LimitRule {
    type Err = InvalidLimitRule;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "equal" => Ok(Self::Equal),
            "unset" => Ok(Self::Unset),
            policy => {
                policy.parse().map(Self::Policy).map_err(|_| InvalidLimitRule(text.to_owned()))
            }
        }
    }
}

impl fmt::Display for LimitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(policy) => policy.fmt(f),
            Self::Equal => f.pad("equal"),
            Self::Unset => f.pad("unset"),
        }
    }
}

/// The request and limit of a container, in millicores or bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestAndLimit {
    /// The request of its pods.
    pub request: Option<i64>,
    pub limit: Option<i64>,
}

impl LimitRule {
    /// The request and limit with a new request. The limit is never below the request. `max_allowed` is the
    /// maximum that the policy `max` sets the limit to.
    pub fn apply(
        self,
        resource: Resource,
        current: RequestAndLimit,
        request: i64,
        max_allowed: Option<i64>,
    ) -> RequestAndLimit {
        let limit = match self {
            Self::Equal => Some(request),
            Self::Unset => None,
            Self::Policy(LimitPolicy::RequestsOnly) => {
                let request = current.limit.map_or(request, |limit| request.min(limit));
                return RequestAndLimit { request: Some(request), limit: current.limit };
            }
            Self::Policy(policy) => by_policy(policy, resource, current, request, max_allowed),
        };
        RequestAndLimit { request: Some(request), limit: limit.map(|limit| limit.max(request)) }
    }
}

fn by_policy(
    policy: LimitPolicy,
    resource: Resource,
    current: RequestAndLimit,
    request: i64,
    max_allowed: Option<i64>,
) -> Option<i64> {
    let (name, quantity) = (ResourceName::from(resource), |amount| resource.to_quantity(amount));
    let list = |amount: Option<i64>| {
        amount.map(|amount| (name.clone(), quantity(amount))).into_iter().collect::<ResourceList>()
    };
    let (requests, limits) = (list(current.request), list(current.limit));
    let resources =
        CurrentResources { requests: &requests, limits: &limits, defaults: &ResourceList::EMPTY };
    let max_allowed = max_allowed.map(quantity);
    let (limit, _) =
        limit_by_policy(policy, &name, &resources, Some(quantity(request)), max_allowed);
    limit.map(|limit| resource.of_quantity(limit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rules_are_parsed_and_printed() {
        for text in ["ratio", "requestsOnly", "max", "equal", "unset", "fixed:1.5"] {
            let rule: LimitRule = text.parse().expect("a rule");
            assert_eq!(rule.to_string(), text);
        }
        for text in ["", "Ratio", "fixed", "fixed:0.5", "fixed:x", "none", "equal "] {
            let error = text.parse::<LimitRule>().expect_err(text).to_string();
            let expected = format!(
                "invalid limit `{text}`; use `ratio`, `requestsOnly`, `max`, `equal`, `unset`, or `fixed:FACTOR` with a factor \
                 from 1 to 1000"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn flags_of_one_resource_replace_the_policy() {
        let rules = LimitRules::new(LimitPolicy::Max, Some(LimitRule::Unset), None);
        assert_eq!(rules.of(Resource::Cpu), LimitRule::Unset);
        assert_eq!(rules.of(Resource::Memory), LimitRule::Policy(LimitPolicy::Max));
    }

    #[test]
    fn limits_by_rule() {
        for (rule, request, limit, new, expected) in [
            ("ratio", Some(500), Some(1000), 250, (250, Some(500))),
            ("ratio", Some(500), Some(500), 844, (844, Some(844))),
            ("ratio", None, Some(500), 844, (844, Some(844))),
            ("ratio", Some(500), None, 250, (250, None)),
            // 250 x 1000 / 300, rounded down.
            ("ratio", Some(300), Some(1000), 250, (250, Some(833))),
            ("requestsOnly", Some(500), Some(1000), 250, (250, Some(1000))),
            ("requestsOnly", Some(500), Some(1000), 1250, (1000, Some(1000))),
            ("requestsOnly", Some(500), None, 1250, (1250, None)),
            ("fixed:2", Some(500), Some(600), 250, (250, Some(500))),
            ("fixed:2", Some(500), None, 250, (250, None)),
            ("max", Some(500), Some(600), 250, (250, Some(4000))),
            ("max", Some(500), Some(600), 5000, (5000, Some(5000))),
            ("equal", Some(500), Some(1000), 250, (250, Some(250))),
            ("equal", Some(500), None, 250, (250, Some(250))),
            ("unset", Some(500), Some(1000), 250, (250, None)),
        ] {
            let rule_text = rule;
            let rule: LimitRule = rule.parse().expect("a rule");
            for resource in [Resource::Cpu, Resource::Memory] {
                let current = RequestAndLimit { request, limit };
                let found = rule.apply(resource, current, new, Some(4000));
                let expected = RequestAndLimit { request: Some(expected.0), limit: expected.1 };
                assert_eq!(found, expected, "{rule_text} {request:?} {limit:?} to {new}");
            }
        }
        let current = RequestAndLimit { request: Some(500), limit: Some(1000) };
        let max: LimitRule = "max".parse().expect("a rule");
        let found = max.apply(Resource::Cpu, current, 250, None);
        assert_eq!(found.limit, Some(500), "the ratio without a maximum");
    }

    fn any_rule() -> impl Strategy<Value = LimitRule> {
        const TEXTS: [&str; 7] =
            ["ratio", "requestsOnly", "max", "equal", "unset", "fixed:1", "fixed:2.5"];
        prop::sample::select(&TEXTS[..]).prop_map(|text| text.parse().expect("a rule"))
    }

    proptest! {
        #[test]
        fn a_limit_is_never_below_the_request_and_a_second_time_changes_nothing(
            rule in any_rule(),
            request in prop::option::of(1..1_000_000_i64),
            room in prop::option::of(0..1_000_000_i64),
            new in 1..1_000_000_i64,
            max in prop::option::of(1..1_000_000_i64),
        ) {
            let limit = room.map(|room| request.unwrap_or(1).saturating_add(room));
            let current = RequestAndLimit { request: request.or(limit), limit };
            let once = rule.apply(Resource::Memory, current, new, max);
            prop_assert!(once.limit.is_none_or(|limit| once.request.is_some_and(|request| request <= limit)));
            let request = once.request.expect("there is a request");
            prop_assert_eq!(rule.apply(Resource::Memory, once, request, max), once);
            if !matches!(rule, LimitRule::Equal) {
                prop_assert!(limit.is_some() || once.limit.is_none(), "no limit comes from nowhere");
            }
        }
    }
}
