//! Proportional limits: golden vectors 1 to 16, and the other limit policies.

use plimsoll_core::{
    api::{ResourceList, ResourceName},
    sizing::{
        LimitPolicy,
        limit_policy::{CurrentResources, limit_by_policy, proportional_limit},
    },
};

use super::quantity;

fn single_resource(name: &ResourceName, amount: &str) -> ResourceList {
    if amount == "-" {
        ResourceList::EMPTY
    } else {
        [(name.clone(), quantity(amount))].into_iter().collect()
    }
}

/// Limit, request, recommendation, default limit; the resulting limit, and whether it is annotated.
type Row<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str, bool);

fn check(resource: &ResourceName, rows: &[Row<'_>]) {
    for &(limit, request, target, default, expected, has_reason) in rows {
        let [limits, requests, targets, defaults] =
            [limit, request, target, default].map(|amount| single_resource(resource, amount));
        let original =
            CurrentResources { requests: &requests, limits: &limits, defaults: &defaults };
        let (found, reason) = proportional_limit(resource, &original, targets.get(resource));
        let found = found.map_or_else(|| "-".to_owned(), |found| found.to_string());
        let name = format!("{resource} L {limit} R {request} T {target} D {default}");
        assert_eq!(found, expected, "{name}");
        assert_eq!(reason.is_some(), has_reason, "{name}: {reason:?}");
    }
}

#[test]
fn limits_are_exactly_proportional_to_requests() {
    let both: [Row<'_>; 6] = [
        ("2", "1", "10", "-", "20", false),
        ("-", "1", "10", "2", "20", false),
        ("-", "1", "10", "-", "-", true),
        ("2", "-", "10", "-", "10", false),
        ("-", "1", "0", "2", "-", true),
        ("1", "1", "10", "-", "10", false),
    ];
    check(&ResourceName::Cpu, &both);
    check(&ResourceName::Memory, &both);
    check(
        &ResourceName::Cpu,
        &[
            ("2", "1.50", "1", "-", "1333m", false),
            ("10G", "1m", "10G", "-", "9223372036854775807m", true),
            ("1", "300m", "100m", "-", "333m", false),
            ("1", "3m", "7m", "-", "2333m", false),
        ],
    );
    check(
        &ResourceName::Memory,
        &[
            ("200", "150", "100", "-", "133", false),
            ("10G", "1m", "10G", "-", "9223372036854775807", true),
            ("2Gi", "1536Mi", "1Gi", "-", "1431655765", false),
            ("300Mi", "100Mi", "104857601", "-", "314572803", false),
            ("1500m", "1", "100", "-", "200", false),
        ],
    );
}

#[test]
fn each_limit_policy_computes_its_own_limit() {
    let name = ResourceName::Cpu;
    for (policy, most, expected) in [
        ("ratio", "-", "2"),
        ("ratio", "8", "2"),
        ("requestsOnly", "8", "-"),
        ("fixed:1", "8", "1"),
        ("fixed:1.5", "-", "1500m"),
        ("max", "8", "8"),
        ("max", "500m", "1"),
        ("max", "-", "2"),
    ] {
        let (requests, limits) = (single_resource(&name, "100m"), single_resource(&name, "200m"));
        let defaults = ResourceList::EMPTY;
        let original =
            CurrentResources { requests: &requests, limits: &limits, defaults: &defaults };
        let parsed: LimitPolicy = policy.parse().expect("a limit policy");
        assert_eq!(parsed.to_string(), policy);
        let most = single_resource(&name, most).get(&name);
        let found = limit_by_policy(parsed, &name, &original, Some(quantity("1")), most).0;
        let found = found.map_or_else(|| "-".to_owned(), |found| found.to_string());
        assert_eq!(found, expected, "{policy}, {most:?}");

        let none = CurrentResources { limits: &defaults, ..original };
        assert_eq!(
            limit_by_policy(parsed, &name, &none, Some(quantity("1")), most).0,
            None,
            "{policy}"
        );
    }
    for bad in ["", "fixed", "fixed:0.5", "fixed:x", "Ratio"] {
        assert!(bad.parse::<LimitPolicy>().is_err(), "{bad}");
    }
}
