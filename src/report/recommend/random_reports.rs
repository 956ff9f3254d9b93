//! Made-up reports with hostile names and amounts.

use std::collections::BTreeMap;

use plimsoll_core::{
    recommender::ResourceExplanation,
    rightsizing::{
        evidence::{EvidenceGap, MemoryPeak, NodeGroupTarget, RunCounts},
        report::{
            Change, ContainerReport, Level, Report, ResourceReport, ResourceTotals, RiskReason,
            Score, SourceReport, TargetChange, Totals, WorkloadReport,
        },
        survey::{ContainerRole, Resource, RuntimeHint, Unread, UtilizationTarget},
    },
    types::{
        Time,
        units::{Bytes, MilliCpu},
    },
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use strum::IntoEnumIterator as _;

use super::{FormOptions, SortKey, selection::entries, test_reports::sample};
use crate::report::style::{Glyphs, Style};

static HOSTILE: [&str; 22] = [
    "web",
    "",
    " ",
    "-",
    "a/b",
    "=HYPERLINK(\"http://example.org\")",
    "a,b\"c\r\nd",
    "a|b`c`",
    "<script>alert(1)</script>",
    "<!channel> @everyone #1",
    "\x1b[31mred\x07",
    "\u{202e}reversed\u{2066}",
    "größe-名前-🦀",
    "yes",
    "0x1f",
    "- item",
    "key: value # no",
    "'quoted' \"twice\"",
    "{0} [x](y)",
    "\u{0}\u{85}\u{2028}",
    "https://example.org www.example.org",
    "averyveryveryveryveryveryveryveryveryveryveryveryveryverylongnamewithoutanyspace",
];

pub(super) fn text() -> BoxedStrategy<String> {
    prop_oneof![
        6 => select(&HOSTILE[..]).prop_map(ToOwned::to_owned),
        2 => "[a-z]{1,12}",
        1 => any::<String>(),
        1 => (0..2000_usize).prop_map(|length| "x".repeat(length)),
    ]
    .boxed()
}

fn amount() -> BoxedStrategy<i64> {
    prop_oneof![3 => 0..20_000_i64, 3 => 0..1_i64 << 40, 1 => any::<i64>(), 1 => Just(0)].boxed()
}

fn sum() -> BoxedStrategy<f64> {
    prop_oneof![4 => -1e6..1e6_f64, 1 => Just(0.0), 1 => -1e300..1e300_f64].boxed()
}

fn time() -> BoxedStrategy<Time> {
    prop_oneof![
        3 => (0..4_000_000_000_i64).prop_map(Time::from_secs),
        1 => any::<i64>().prop_map(Time::from_nanos),
    ]
    .boxed()
}

fn level() -> BoxedStrategy<Level> {
    select(Level::iter().collect::<Vec<_>>()).boxed()
}

fn gap() -> BoxedStrategy<EvidenceGap> {
    select(EvidenceGap::iter().collect::<Vec<_>>()).boxed()
}

fn resource_name() -> BoxedStrategy<Resource> {
    select(vec![Resource::Cpu, Resource::Memory]).boxed()
}

fn reason() -> BoxedStrategy<RiskReason> {
    let share = 0.0..3.0_f64;
    prop_oneof![
        (any::<u32>(), option::of(time()))
            .prop_map(|(kills, last)| RiskReason::OomKilled { kills, last }),
        share.clone().prop_map(|share| RiskReason::PeakNearLimit { share }),
        share.clone().prop_map(|share| RiskReason::Throttled { share }),
        share.prop_map(|share| RiskReason::UsageAboveRequest { share }),
        Just(RiskReason::BelowNeed),
        Just(RiskReason::NoRequest),
    ]
    .boxed()
}

fn explanation() -> BoxedStrategy<Option<Box<ResourceExplanation>>> {
    let known: Vec<Box<ResourceExplanation>> = entries(&sample())
        .flat_map(|entry| &entry.container.resources)
        .filter_map(|resource| resource.explanation.clone())
        .collect();
    option::of(select(known)).boxed()
}

fn change() -> BoxedStrategy<Change> {
    (option::of(amount()), option::of(amount()), any::<bool>(), option::of(text()))
        .prop_map(|(request, limit, remove_limit, held)| Change {
            request,
            limit,
            remove_limit,
            held,
        })
        .boxed()
}

fn resource(resource: Resource) -> BoxedStrategy<ResourceReport> {
    let amounts = proptest::array::uniform5(option::of(amount()));
    (
        (amounts, change(), level(), vec(reason(), 0..3), level()),
        (option::of(sum()), option::of(sum()), option::of(gap()), explanation()),
    )
        .prop_map(
            move |(
                ([request, limit, target, lower, upper], change, risk, risk_reasons, waste),
                (cost, new_cost, unsaid, explanation),
            )| ResourceReport {
                resource,
                request,
                limit,
                template: None,
                target,
                lower,
                upper,
                change,
                risk,
                risk_reasons,
                waste,
                cost,
                new_cost,
                unsaid,
                explanation,
            },
        )
        .boxed()
}

fn peak() -> BoxedStrategy<Option<MemoryPeak>> {
    option::of((amount(), time()).prop_map(|(bytes, at)| MemoryPeak { bytes: Bytes(bytes), at }))
        .boxed()
}

fn node_group() -> BoxedStrategy<NodeGroupTarget> {
    (text(), option::of(text()), any::<u32>(), option::of(amount()), option::of(amount()))
        .prop_map(|(label, value, pods, cpu, memory)| NodeGroupTarget {
            label: label.into(),
            value: value.map(Into::into),
            pods,
            cpu: cpu.map(MilliCpu),
            memory: memory.map(Bytes),
            from_pool: pods % 2 == 0,
        })
        .boxed()
}

fn runtime() -> BoxedStrategy<RuntimeHint> {
    (text(), option::of(amount()), option::of(any::<u8>()), any::<bool>())
        .prop_map(|(known_by, bytes, percent, go)| {
            let bytes = bytes.map(Bytes);
            if go {
                RuntimeHint::Go { known_by, memory_limit: bytes, follows_limit: percent.is_some() }
            } else {
                RuntimeHint::Jvm { known_by, max_heap: bytes, max_heap_percent: percent }
            }
        })
        .boxed()
}

fn container() -> BoxedStrategy<ContainerReport> {
    let resources = prop_oneof![
        4 => (resource(Resource::Cpu), resource(Resource::Memory))
            .prop_map(|(cpu, memory)| vec![cpu, memory]),
        1 => vec(resource(Resource::Memory), 0..2),
    ];
    let role = select(vec![ContainerRole::Main, ContainerRole::Init, ContainerRole::Sidecar]);
    (
        (text(), role, resources, any::<u32>(), option::of(time())),
        (option::of(0.0..1.0_f64), peak(), peak(), peak()),
        (vec(node_group(), 0..3), option::of(runtime()), vec(text(), 0..2)),
    )
        .prop_map(
            |(
                (name, role, resources, oom_kills, last_oom_kill),
                (throttled_share, memory_peak, rare_memory_peak, needed_memory_peak),
                (node_groups, runtime, remarks),
            )| ContainerReport {
                name,
                role,
                no_patch: None,
                resources,
                oom_kills,
                last_oom_kill,
                throttled_share,
                memory_peak,
                rare_memory_peak,
                needed_memory_peak,
                node_groups,
                runtime,
                remarks,
            },
        )
        .boxed()
}

fn target_change() -> BoxedStrategy<TargetChange> {
    (text(), option::of(text()), resource_name(), any::<u32>(), option::of(any::<u32>()))
        .prop_map(|(name, container, resource, percent, new_percent)| TargetChange {
            target: UtilizationTarget {
                kind: "HorizontalPodAutoscaler".into(),
                name: name.clone().into(),
                metric: 0,
                resource,
                container: container.map(Into::into),
                percent,
            },
            new_percent,
            held: new_percent.is_none().then_some(name),
        })
        .boxed()
}

fn workload() -> BoxedStrategy<WorkloadReport> {
    let runs =
        (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(total, seen, seconds)| RunCounts {
            total,
            seen,
            mean_seconds: Some(seconds.into()),
            pod_seconds: Some(seconds.into()),
        });
    (
        (option::of(text()), text(), option::of(text()), text(), text()),
        (option::of(any::<u32>()), option::of(text()), vec(target_change(), 0..2)),
        (option::of(text()), option::of(runs), vec(container(), 0..4)),
    )
        .prop_map(
            |(
                (cluster, namespace, api_version, kind, name),
                (replicas, vpa, target_changes),
                (shape, runs, containers),
            )| WorkloadReport {
                cluster,
                namespace,
                api_version,
                kind,
                name,
                labels: BTreeMap::new(),
                replicas,
                vpa,
                scaled_by: Vec::new(),
                target_changes,
                shape,
                runs,
                containers,
            },
        )
        .boxed()
}

fn totals() -> BoxedStrategy<Totals> {
    let resource = || {
        (amount(), amount(), option::of(sum()), option::of(sum())).prop_map(
            |(requested, needed, cost, needed_cost)| ResourceTotals {
                requested,
                needed,
                cost,
                needed_cost,
                without_price: 0,
            },
        )
    };
    let score = (0..101_u32, 0.0..1.0_f64, 0.0..1.0_f64)
        .prop_map(|(value, wasted, at_risk)| Score { value, wasted, at_risk });
    let levels = || proptest::collection::btree_map(level(), any::<usize>(), 0..3);
    let gaps = proptest::collection::btree_map(gap(), any::<usize>(), 0..3);
    (
        (any::<usize>(), any::<usize>(), resource(), resource()),
        (option::of(score), levels(), levels(), gaps),
    )
        .prop_map(|((workloads, containers, cpu, memory), (score, risk, waste, unsaid))| Totals {
            workloads,
            containers,
            cpu,
            memory,
            score,
            risk,
            waste,
            unsaid,
        })
        .boxed()
}

fn source() -> BoxedStrategy<SourceReport> {
    (
        (option::of(text()), text(), option::of(text()), any::<bool>()),
        (option::of(time()), option::of(time()), option::of(any::<u64>())),
        (any::<u64>(), any::<u64>(), any::<u64>(), sum()),
    )
        .prop_map(
            |(
                (cluster, server, product, proxied),
                (from, until, step_seconds),
                (queries, bytes, transferred_bytes, seconds),
            )| SourceReport {
                cluster,
                server,
                product,
                proxied,
                from,
                until,
                step_seconds,
                queries,
                bytes,
                transferred_bytes,
                seconds,
            },
        )
        .boxed()
}

prop_compose! {
    pub(super) fn report()(
        at in time(),
        sources in vec(source(), 0..3),
        settings in vec(text(), 0..3),
        strategy in option::of(text()),
        currency in option::of(text()),
        totals in totals(),
        workloads in vec(workload(), 0..8),
        unread in vec((text(), text()), 0..3),
        remarks in vec(text(), 0..3),
    ) -> Report {
        let unread = unread.into_iter().map(|(what, why)| Unread { what, why }).collect();
        Report {
            schema_version: 1,
            kind: "recommend".to_owned(),
            version: "0.1.0".to_owned(),
            at,
            sources,
            settings,
            strategy,
            currency,
            totals,
            namespaces: BTreeMap::new(),
            workloads,
            unread,
            remarks,
        }
    }
}

pub(super) fn style() -> BoxedStrategy<Style> {
    (0..160_usize, any::<bool>())
        .prop_map(|(width, unicode)| Style {
            width,
            colour: false,
            glyphs: if unicode { Glyphs::Unicode } else { Glyphs::Ascii },
            command: "plimsoll".to_owned(),
        })
        .boxed()
}

pub(super) fn options() -> BoxedStrategy<FormOptions> {
    let sort = option::of(select(SortKey::iter().collect::<Vec<_>>()));
    let columns = proptest::sample::subsequence(super::Column::iter().collect::<Vec<_>>(), 0..6);
    (option::of(0..10_usize), sort, columns)
        .prop_map(|(top, sort, columns)| FormOptions { top, sort, columns, placements: Vec::new() })
        .boxed()
}
