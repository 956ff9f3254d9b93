//! What to do with the request and the limit of a container.

use super::{
    evidence::MemoryPeak,
    limits::{LimitRule, RequestAndLimit},
    need::{Need, amount_text},
    report::Change,
    runtime_bounds::bounded,
    severity::Configured,
    survey::{Resource, RuntimeHint},
};

/// A limit is lowered by at most this part of it at once.
const MAX_STEP: i64 = 4;

/// A resource of a container with what it needs.
#[derive(Clone, Copy, Debug)]
pub struct ChangeInput<'a> {
    pub resource: Resource,
    /// What pods have now.
    pub configured: Configured,
    /// Whether the request is written in the template. Otherwise it follows the limit.
    pub has_own_request: bool,
    /// What it needs.
    pub need: Need,
    /// How its limit is set.
    pub limit_rule: LimitRule,
    /// The maximum that the limit policy `max` uses.
    pub max_allowed: Option<i64>,
    /// A request between its bounds stays if it differs from the target by less than this share.
    pub share: f64,
    /// The runtime of the container.
    pub runtime: Option<&'a RuntimeHint>,
    /// The peak of memory within the window.
    pub memory_peak: Option<MemoryPeak>,
    /// The limit is not lowered below this, and not by more than a quarter at once; `None` if the policy decides alone.
    pub least_limit: Option<i64>,
}

/// A change, and what to know about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlannedChange {
    pub change: Change,
    pub remarks: Vec<String>,
}

/// Plans the change of a resource. Without knowing what pods have now, nothing changes.
pub fn plan(input: &ChangeInput<'_>) -> PlannedChange {
    let ChangeInput { resource, configured, need, .. } = *input;
    if configured.is_unknown {
        return PlannedChange::default();
    }
    let current = RequestAndLimit { request: configured.request, limit: configured.limit };
    let request = match current.request {
        Some(request) if stays(request, &need, input.share) => request,
        _ => need.target,
    };
    let wanted = input.limit_rule.apply(resource, current, request, input.max_allowed);
    let (wanted, slowed) = lowered_slowly(current, wanted, input.least_limit);
    let runtime = input.runtime.filter(|_| resource == Resource::Memory);
    let (new, remark) = match runtime {
        Some(hint) => bounded(hint, current, wanted, wanted.request == wanted.limit),
        None => (wanted, None),
    };
    let limit = new.limit.filter(|limit| current.limit != Some(*limit));
    let remove_limit = current.limit.is_some() && new.limit.is_none();
    // A request that follows the limit has to be written when the limit changes without it.
    let is_left_behind = !input.has_own_request && (limit.is_some() || remove_limit);
    let change = Change {
        request: new.request.filter(|request| current.request != Some(*request) || is_left_behind),
        limit,
        remove_limit,
        held: None,
    };
    let mut remarks: Vec<String> = slowed.into_iter().chain(remark).collect();
    remarks.extend(limit_below_peak(input, limit));
    PlannedChange { change, remarks }
}

/// Lowers a limit only in steps, and not below the least one, with a remark. A request that equals the limit stays equal.
fn lowered_slowly(
    current: RequestAndLimit,
    wanted: RequestAndLimit,
    least: Option<i64>,
) -> (RequestAndLimit, Option<String>) {
    let (Some(least), Some(of_pods), Some(limit)) = (least, current.limit, wanted.limit) else {
        return (wanted, None);
    };
    let bound = least.max(of_pods - of_pods / MAX_STEP).min(of_pods);
    if limit >= bound {
        return (wanted, None);
    }
    let is_equal = wanted.request == wanted.limit;
    let request = if is_equal { Some(bound) } else { wanted.request };
    let remark = format!(
        "the limit is lowered to {}: not below the peak without page cache and 30 %, and at most by a quarter at once",
        amount_text(Resource::Memory, bound)
    );
    (RequestAndLimit { request, limit: Some(bound) }, Some(remark))
}

/// Whether a request is close enough to the target.
fn stays(request: i64, need: &Need, share: f64) -> bool {
    let (request, target) = (request as f64, need.target as f64);
    let is_within = need.lower.is_none_or(|lower| request >= lower as f64)
        && need.upper.is_none_or(|upper| request <= upper as f64);
    // The same edges as those of risk and waste.
    let is_close = request >= (1.0 - share) * target && request - target < share * request;
    request == target || (is_within && is_close)
}

fn limit_below_peak(input: &ChangeInput<'_>, limit: Option<i64>) -> Option<String> {
    let peak = input.memory_peak.filter(|_| input.resource == Resource::Memory)?;
    let limit = limit.filter(|limit| *limit < peak.bytes.0)?;
    let text = |amount| amount_text(Resource::Memory, amount);
    Some(format!(
        "the new limit of {} is below the peak of {} at {}",
        text(limit),
        text(peak.bytes.0),
        peak.at,
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        rightsizing::testing::MI,
        types::{Bytes, Time},
    };

    fn input(
        request: Option<i64>,
        limit: Option<i64>,
        need: Need,
        rule: &str,
    ) -> ChangeInput<'static> {
        ChangeInput {
            resource: Resource::Memory,
            configured: Configured { request: request.or(limit), limit, is_unknown: false },
            has_own_request: request.is_some(),
            need,
            limit_rule: rule.parse().expect("a rule"),
            max_allowed: None,
            share: 0.1,
            runtime: None,
            memory_peak: None,
            least_limit: None,
        }
    }

    #[test]
    fn a_limit_without_page_cache_is_lowered_in_steps() {
        for (request, limit, target, least, expected) in [
            // 2000 / 4 at most.
            (500, 2000, 100, 130, change(Some(100), Some(1500), false)),
            (500, 2000, 100, 1800, change(Some(100), Some(1800), false)),
            (500, 2000, 100, 3000, change(Some(100), None, false)),
            (500, 2000, 450, 500, change(Some(450), Some(1800), false)),
            (1000, 1000, 100, 130, change(Some(750), Some(750), false)),
            // What raises a limit is not bounded.
            (500, 2000, 1000, 9000, change(Some(1000), Some(4000), false)),
        ] {
            let wide = need(1, target, 1 << 50);
            let mut input = input(Some(request), Some(limit), wide, "ratio");
            input.least_limit = Some(least);
            let found = plan(&input);
            assert_eq!(found.change, expected, "{request} {limit} {target} {least}");
        }
    }

    fn need(lower: i64, target: i64, upper: i64) -> Need {
        Need { target, lower: Some(lower), upper: Some(upper) }
    }

    fn change(request: Option<i64>, limit: Option<i64>, remove_limit: bool) -> Change {
        Change { request, limit, remove_limit, held: None }
    }

    #[test]
    fn requests_change_with_their_limits_if_the_target_is_far() {
        let wide = |target| need(1, target, 1 << 50);
        for (name, request, limit, need, rule, expected) in [
            ("more", Some(512), Some(512), wide(844), "ratio", change(Some(844), Some(844), false)),
            (
                "less, twice as limit",
                Some(1000),
                Some(2000),
                wide(500),
                "ratio",
                change(Some(500), Some(1000), false),
            ),
            (
                "no request, no limit",
                None,
                None,
                wide(500),
                "ratio",
                change(Some(500), None, false),
            ),
            (
                "only a limit",
                None,
                Some(1000),
                wide(500),
                "ratio",
                change(Some(500), Some(500), false),
            ),
            ("exact", Some(500), Some(700), wide(500), "ratio", change(None, None, false)),
            (
                "9.9 % too much",
                Some(1000),
                Some(2000),
                wide(901),
                "ratio",
                change(None, None, false),
            ),
            (
                "10 % too much",
                Some(1000),
                Some(2000),
                wide(900),
                "ratio",
                change(Some(900), Some(1800), false),
            ),
            ("90 % of the target", Some(900), None, wide(1000), "ratio", change(None, None, false)),
            (
                "89.9 % of the target",
                Some(899),
                None,
                wide(1000),
                "ratio",
                change(Some(1000), None, false),
            ),
            (
                "below the lower bound",
                Some(950),
                None,
                need(960, 1000, 2000),
                "ratio",
                change(Some(1000), None, false),
            ),
            (
                "above the upper bound",
                Some(1050),
                None,
                need(960, 1000, 1040),
                "ratio",
                change(Some(1000), None, false),
            ),
        ] {
            let planned = plan(&input(request, limit, need, rule));
            assert_eq!(planned, PlannedChange { change: expected, remarks: vec![] }, "{name}");
        }
    }

    #[test]
    fn limits_change_by_their_rule() {
        let wide = |target| need(1, target, 1 << 50);
        for (name, request, limit, need, rule, expected) in [
            ("limit removed", Some(500), Some(700), wide(500), "unset", change(None, None, true)),
            (
                "only a limit, removed",
                None,
                Some(500),
                wide(500),
                "unset",
                change(Some(500), None, true),
            ),
            (
                "only a limit, doubled",
                None,
                Some(500),
                wide(500),
                "fixed:2",
                change(Some(500), Some(1000), false),
            ),
            ("equal", Some(500), Some(700), wide(500), "equal", change(None, Some(500), false)),
            (
                "equal without a limit",
                Some(500),
                None,
                wide(500),
                "equal",
                change(None, Some(500), false),
            ),
            (
                "capped by its limit",
                Some(500),
                Some(700),
                wide(900),
                "requestsOnly",
                change(Some(700), None, false),
            ),
        ] {
            let planned = plan(&input(request, limit, need, rule));
            assert_eq!(planned, PlannedChange { change: expected, remarks: vec![] }, "{name}");
        }
    }

    #[test]
    fn nothing_changes_while_requests_are_unknown() {
        let mut unknown = input(None, None, need(1, 500, 900), "equal");
        unknown.configured.is_unknown = true;
        assert_eq!(plan(&unknown), PlannedChange::default());
    }

    #[test]
    fn the_runtime_bounds_memory_and_not_cpu() {
        let hint = RuntimeHint::Jvm {
            known_by: "-XX:MaxRAMPercentage=75".to_owned(),
            max_heap: None,
            max_heap_percent: Some(75),
        };
        let mut input =
            input(Some(2048 * MI), Some(2048 * MI), need(1, 800 * MI, 900 * MI), "ratio");
        input.runtime = Some(&hint);
        let planned = plan(&input);
        assert_eq!(planned.change, change(Some(800 * MI), None, false));
        assert_eq!(planned.remarks.len(), 1);
        input.resource = Resource::Cpu;
        let planned = plan(&input);
        assert_eq!(planned.change, change(Some(800 * MI), Some(800 * MI), false));
        assert_eq!(planned.remarks, [""; 0]);
    }

    #[test]
    fn a_limit_below_the_peak_is_remarked_on() {
        let mut input = input(Some(900 * MI), Some(900 * MI), need(1, 500 * MI, 900 * MI), "ratio");
        input.memory_peak =
            Some(MemoryPeak { bytes: Bytes(501 * MI), at: Time::from_secs(1_767_225_600) });
        let expected = "the new limit of 500Mi is below the peak of 501Mi at 2026-01-01T00:00:00Z";
        assert_eq!(plan(&input).remarks, [expected]);
        input.memory_peak = Some(MemoryPeak { bytes: Bytes(500 * MI), at: Time::EPOCH });
        assert_eq!(plan(&input).remarks, [""; 0]);
    }

    proptest! {
        /// What was changed is not changed again.
        #[test]
        fn a_second_time_changes_nothing(
            request in prop::option::of(1..100_000_i64),
            room in prop::option::of(0..100_000_i64),
            target in 1..100_000_i64,
            lower in 1..100_000_i64,
            upper in 1..100_000_i64,
            rule in prop::sample::select(&["ratio", "requestsOnly", "max", "equal", "unset", "fixed:1.5"][..]),
            heap in prop::option::of(prop::bool::ANY),
        ) {
            let limit = room.map(|room| request.unwrap_or(1) + room);
            let need = need(lower, target, upper).with_target(target);
            let hint = heap.map(|is_go| if is_go {
                RuntimeHint::Go { known_by: "GOMEMLIMIT".to_owned(), memory_limit: Some(Bytes(5000)), follows_limit: false }
            } else {
                RuntimeHint::Jvm { known_by: "-XX".to_owned(), max_heap: None, max_heap_percent: Some(50) }
            });
            let mut first = input(request, limit, need, rule);
            first.runtime = hint.as_ref();
            let Change { request: new, limit: new_limit, remove_limit, .. } = plan(&first).change;
            let limit = if remove_limit { None } else { new_limit.or(limit) };
            let mut second = input(new.or(request), limit, need, rule);
            second.runtime = hint.as_ref();
            if let (Some(request), Some(limit)) = (second.configured.request, limit) {
                prop_assert!(request <= limit);
            }
            prop_assert_eq!(plan(&second).change, Change::default());
        }
    }
}
