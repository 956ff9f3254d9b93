//! Whole reports: what is said of which workload, and that nothing depends on chance.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    rightsizing::{
        ReportHead,
        evidence::{EvidenceGap, MemoryPeak, NodeGroupTarget, RunCounts},
        limits::{LimitRule, LimitRules},
        owner_groups::group_of,
        prices::Prices,
        report::{Level, Report, ResourceTotals, RiskReason, TemplateAmounts},
        runs::RunTargets,
        survey::{Amounts, GroupMember, Node, RunningAmounts, Unread, UtilizationTarget},
        testing::{MI, amounts, container, deployment, evidence},
    },
    types::{Bytes, MilliCpu},
};

const GI: i64 = 1024 * MI;

fn report_of(survey: &Survey, evidence: &ContainerEvidence, options: &ReportOptions) -> Report {
    report(survey, &|_, _| Some(evidence), options, Time::from_secs(7))
}

fn survey_of(workloads: Vec<Workload>) -> Survey {
    let workloads = workloads.into_iter().map(Arc::new).collect();
    Survey { workloads, ..Survey::default() }
}

fn priced() -> ReportOptions {
    // A core costs 73 a month, and a GiB 7.30.
    let prices =
        Prices::parse("currency: EUR\ncpuCoreHour: 0.1\nmemoryGiBHour: 0.01").expect("prices");
    ReportOptions { prices: Some(prices), ..ReportOptions::default() }
}

fn rows(report: &Report) -> &[ResourceReport] {
    &report.workloads[0].containers[0].resources
}

#[test]
fn a_report_by_hand() {
    let main = container(amounts(Some(2000), Some(GI)), amounts(None, Some(2 * GI)));
    let survey = survey_of(vec![deployment("web", 4, vec![main])]);
    let mut history = evidence([400, 500, 1000], [GI, 2 * GI, 3 * GI]);
    history.memory_peak = Some(MemoryPeak { bytes: Bytes(2 * GI), at: Time::from_secs(5) });
    let report = report_of(&survey, &history, &priced());
    let [cpu, memory] = rows(&report) else { panic!("two rows") };
    assert_eq!(
        (cpu.request, cpu.target, cpu.lower, cpu.upper),
        (Some(2000), Some(500), Some(400), Some(1000))
    );
    assert_eq!(cpu.change, Change { request: Some(500), ..Change::default() });
    assert_eq!((cpu.risk, cpu.waste), (Level::Ok, Level::High));
    // 4 x 2 x 73 and 4 x 0.5 x 73.
    assert_eq!((cpu.cost, cpu.new_cost), (Some(584.0), Some(146.0)));
    // The limit keeps its ratio of 2.
    assert_eq!(
        memory.change,
        Change { request: Some(2 * GI), limit: Some(4 * GI), ..Change::default() }
    );
    assert_eq!(
        memory.risk_reasons,
        [RiskReason::PeakNearLimit { share: 1.0 }, RiskReason::BelowNeed]
    );
    assert_eq!((memory.risk, memory.waste), (Level::High, Level::Ok));
    assert!(cpu.explanation.is_some() && memory.explanation.is_some());
    let totals = &report.totals;
    assert_eq!((totals.workloads, totals.containers), (1, 1));
    let expected = ResourceTotals {
        requested: 8000,
        needed: 2000,
        cost: Some(584.0),
        needed_cost: Some(146.0),
        without_price: 0,
    };
    assert_eq!(totals.cpu, expected);
    assert_eq!((totals.memory.requested, totals.memory.needed), (4 * GI, 8 * GI));
    assert_eq!(totals.risk, [(Level::High, 1)].into());
    assert_eq!(totals.waste, [(Level::High, 1)].into());
    // Wasted 438 of 584 + 29.20; one container at high risk of one.
    let score = totals.score.expect("a score");
    assert!((score.wasted - 438.0 / 613.2).abs() < 1e-9);
    assert_eq!((score.at_risk, score.value), (0.5, 14));
    assert_eq!(report.namespaces.keys().collect::<Vec<_>>(), ["shop"]);
    assert_eq!(report.namespaces["shop"], *totals);
    assert_eq!(report.currency.as_deref(), Some("EUR"));
    let (cost, new_cost) = report.workloads[0].monthly_costs().expect("costs");
    // 584 + 29.20 and 146 + 58.40.
    assert!((cost - 613.2).abs() < 1e-9 && (new_cost - 204.4).abs() < 1e-9, "{cost} {new_cost}");
    assert_eq!(report.at, Time::from_secs(7));
    assert_eq!(report.remarks.len(), 1, "{:?}", report.remarks);
}

#[test]
fn a_container_without_a_number_has_no_level_and_no_change() {
    let main = container(amounts(Some(2000), Some(GI)), amounts(Some(3000), Some(GI)));
    let survey = survey_of(vec![deployment("web", 4, vec![main])]);
    let unset = LimitRules { cpu: LimitRule::Unset, memory: LimitRule::Equal };
    let options = ReportOptions { limits: unset, ..priced() };
    let gap = ContainerEvidence {
        gap: Some(EvidenceGap::TooYoung),
        throttled_share: Some(0.9),
        ..ContainerEvidence::default()
    };
    for (history, expected) in
        [(Some(&gap), EvidenceGap::TooYoung), (None, EvidenceGap::WithoutSeries)]
    {
        let report = report(&survey, &|_, _| history, &options, Time::EPOCH);
        for row in rows(&report) {
            assert_eq!(row.unsaid, Some(expected));
            assert_eq!((row.target, row.lower, row.upper, row.new_cost), (None, None, None, None));
            assert_eq!((row.risk, row.waste), (Level::Unsaid, Level::Unsaid));
            assert_eq!(row.change, Change::default());
            assert!(row.cost.is_some(), "what it costs now is known");
        }
        assert_eq!(report.totals.unsaid, [(expected, 1)].into());
        assert_eq!(report.totals.cpu, ResourceTotals::default(), "it is in no sum");
        assert_eq!(report.totals.score, None);
        assert!(report.totals.risk.is_empty() && report.totals.waste.is_empty());
        let json = serde_json::to_string(&report).expect("JSON");
        assert!(!json.contains("\"ok\""), "{json}");
    }
}

#[test]
fn defaults_of_a_limit_range_are_marked() {
    let own = container(amounts(Some(2000), Some(GI)), Amounts::default());
    let mut main = own.clone();
    main.limit_range = Some("limits".into());
    let survey = survey_of(vec![deployment("web", 4, vec![main, own])]);
    let report = report_of(&survey, &evidence([400, 500, 600], [GI, 2 * GI, 3 * GI]), &priced());
    let remarks: Vec<_> =
        report.workloads[0].containers.iter().map(|one| one.remarks.concat()).collect();
    let expected = "requests or limits that it does not set are defaults of LimitRange limits";
    assert_eq!(remarks, [expected, ""]);
    assert_eq!(rows(&report)[0].request, Some(2000));
}

#[test]
fn unknown_requests_are_not_missing_ones() {
    let mut main = container(Amounts::default(), Amounts::default());
    main.resources_unknown = true;
    let survey = survey_of(vec![deployment("web", 4, vec![main])]);
    let report = report_of(&survey, &evidence([400, 500, 600], [GI, 2 * GI, 3 * GI]), &priced());
    for row in rows(&report) {
        assert!(row.target.is_some() && row.request.is_none());
        assert_eq!((row.risk, row.waste), (Level::Unsaid, Level::Unsaid));
        assert_eq!((&row.change, row.cost), (&Change::default(), None));
        assert!(row.new_cost.is_some());
    }
}

#[test]
fn jobs_cost_by_their_run_hours() {
    let main = container(amounts(Some(2000), Some(GI)), Amounts::default());
    let mut job = deployment("reindex", 1, vec![main]);
    job.kind = "CronJob".into();
    let mut history = evidence([1, 2, 3], [4, 5, 6]);
    history.runs = Some(RunCounts {
        total: 24,
        seen: 20,
        mean_seconds: Some(1800),
        pod_seconds: Some(24 * 1800),
    });
    history.run_targets = Some(RunTargets {
        cpu: Some(MilliCpu(1000)),
        memory: Some(Bytes(2 * GI)),
        predicted_seconds: Some(1800.0),
    });
    let options = ReportOptions { window: Some(Duration::from_hours(24)), ..priced() };
    let report = report_of(&survey_of(vec![job.clone()]), &history, &options);
    let [cpu, memory] = rows(&report) else { panic!("two rows") };
    // Half a pod runs at a time.
    assert_eq!((cpu.target, cpu.cost, cpu.new_cost), (Some(1000), Some(73.0), Some(36.5)));
    assert_eq!(
        (memory.target, memory.cost, memory.new_cost),
        (Some(2 * GI), Some(3.65), Some(7.3))
    );
    assert_eq!((report.totals.cpu.requested, report.totals.cpu.needed), (1000, 500));
    assert!(cpu.explanation.is_none(), "the chain of the recommender is not where it comes from");
    assert_eq!(report.workloads[0].shape.as_deref(), Some("cronjob by owner"));
    assert_eq!(report.workloads[0].runs, history.runs);
    let unknown = report_of(&survey_of(vec![job]), &history, &priced());
    assert_eq!((rows(&unknown)[0].cost, unknown.totals.cpu.requested), (None, 0));
}

#[test]
fn init_containers_are_in_no_sum() {
    let main = container(amounts(Some(1000), Some(GI)), Amounts::default());
    let init = Container { name: "init".into(), role: ContainerRole::Init, ..main.clone() };
    let survey = survey_of(vec![deployment("web", 1, vec![init, main])]);
    let report = report_of(&survey, &evidence([100, 200, 300], [GI, GI, GI]), &priced());
    let [init, main] = &report.workloads[0].containers[..] else { panic!("two containers") };
    assert_eq!((init.resources[0].cost, init.resources[0].new_cost), (None, None));
    assert_eq!(init.resources[0].change.request, Some(200), "it changes nevertheless");
    assert_eq!(main.resources[0].cost, Some(73.0));
    assert_eq!((report.totals.cpu.requested, report.totals.containers), (1000, 2));
    assert_eq!(report.totals.cpu.without_price, 0);
}

#[test]
fn an_unknown_price_is_counted_and_not_zero() {
    let main = container(amounts(Some(1000), Some(GI)), Amounts::default());
    let mut cheap = deployment("cheap", 1, vec![main.clone()]);
    cheap.nodes = vec!["spot".into()];
    let mut other = deployment("other", 1, vec![main]);
    other.nodes = vec!["plain".into()];
    let mut survey = survey_of(vec![cheap, other]);
    let labels = [("pool".into(), "spot".into())].into();
    survey.nodes.insert("spot".into(), Node { labels, ..Node::default() });
    survey.nodes.insert("plain".into(), Node::default());
    let prices =
        Prices::parse("nodes: [{match: {pool: 'sp*'}, cpuCoreHour: 0.01}]").expect("prices");
    let options = ReportOptions { prices: Some(prices), ..ReportOptions::default() };
    let report = report_of(&survey, &evidence([1000, 1000, 1000], [GI, GI, GI]), &options);
    let costs = report.workloads.iter().map(|workload| workload.containers[0].resources[0].cost);
    assert_eq!(costs.collect::<Vec<_>>(), [Some(7.3), None]);
    assert_eq!(report.workloads[0].monthly_costs(), None, "memory has no price");
    let cpu = report.totals.cpu;
    assert_eq!((cpu.requested, cpu.cost, cpu.without_price), (2000, Some(7.3), 1));
    assert_eq!((report.totals.memory.cost, report.totals.memory.without_price), (None, 0));
}

#[test]
fn pods_of_unknown_nodes_are_remarked_on() {
    let main = container(amounts(Some(1000), Some(GI)), Amounts::default());
    let survey = survey_of(vec![deployment("web", 1, vec![main])]);
    let text = "{cpuCoreHour: 0.1, nodes: [{match: {pool: a}, cpuCoreHour: 0.2}]}";
    let options = ReportOptions { prices: Prices::parse(text).ok(), ..ReportOptions::default() };
    let report = report_of(&survey, &evidence([1000, 1000, 1000], [GI, GI, GI]), &options);
    let expected = "1 workloads have the prices of no particular node, because the nodes of their pods are unknown";
    assert_eq!(report.remarks.last().map(String::as_str), Some(expected));
}

#[test]
fn requests_stay_while_autoscalers_are_unknown() {
    let main = container(amounts(Some(2000), Some(GI)), amounts(Some(4000), None));
    let mut web = deployment("web", 4, vec![main]);
    web.autoscalers_unknown = true;
    let survey = survey_of(vec![web]);
    let history = evidence([1, 400, 9000], [1, GI / 2, GI]);
    let held = report_of(&survey, &history, &ReportOptions::default());
    for row in rows(&held) {
        let reason = row.change.held.as_deref().expect("it stays");
        assert!(reason.contains("could not be read"), "{reason}");
        assert_eq!((row.change.request, row.change.limit), (None, None));
    }
    let options = ReportOptions { autoscalers: AutoscalerRule::Ignore, ..ReportOptions::default() };
    assert_eq!(rows(&report_of(&survey, &history, &options))[0].change.request, Some(400));
}

#[test]
fn injected_containers_count_for_targets_and_stay() {
    let main = container(amounts(Some(1000), Some(GI)), Amounts::default());
    let proxy = Container {
        name: "istio-proxy".into(),
        ..container(amounts(Some(100), None), Amounts::default())
    };
    let mut web = deployment("web", 4, vec![main]);
    web.injected = [proxy].into();
    web.utilization_targets = vec![UtilizationTarget {
        kind: "HorizontalPodAutoscaler".into(),
        name: "web".into(),
        metric: 0,
        resource: Resource::Cpu,
        container: None,
        percent: 70,
    }];
    let history = evidence([1, 200, 9000], [GI, GI, GI]);
    let report = report_of(&survey_of(vec![web]), &history, &ReportOptions::default());
    // 70 x 1100 / 300.
    assert_eq!(report.workloads[0].target_changes[0].new_percent, Some(257));
    let [main, proxy] = &report.workloads[0].containers[..] else { panic!("two containers") };
    assert_eq!((main.no_patch, proxy.no_patch), (None, Some(NoPatchReason::Injected)));
    let cpu = &proxy.resources[0];
    assert_eq!((cpu.request, cpu.target), (Some(100), Some(200)));
    assert_eq!((cpu.change.request, cpu.change.limit), (None, None));
    let expected =
        "it is injected and no manifest has it; request 200m where the injection is configured";
    assert_eq!(cpu.change.held.as_deref(), Some(expected));
    assert_eq!(cpu.risk, Level::Medium, "its risk is known all the same");
    assert_eq!(report.totals.cpu.requested, 4 * 1100, "its requests are part of the sums");
}

#[test]
fn pods_that_a_vpa_sized_are_the_basis_and_manifests_change_by_the_template() {
    let running = |cpu| RunningAmounts {
        requests: amounts(Some(cpu), Some(GI)),
        limits: amounts(None, None),
    };
    let main = |template, pods: Option<i64>| Container {
        running: pods.map(running).map(Box::new),
        ..container(amounts(Some(template), Some(GI)), Amounts::default())
    };
    for (name, template, pods, request, change, shown, waste, cost) in [
        // 4 x 0.32 x 73 and so on.
        ("template too large", 500, Some(320), 320, Some(320), None, Level::Ok, 93.44),
        ("template as needed, pods not", 320, Some(640), 640, None, None, Level::High, 186.88),
        ("both too large", 2000, Some(1280), 1280, Some(320), Some(320), Level::High, 373.76),
        ("equal", 500, Some(500), 500, Some(320), Some(320), Level::Medium, 146.0),
        ("no pods", 500, None, 500, Some(320), Some(320), Level::Medium, 146.0),
    ] {
        let mut web = deployment("web", 4, vec![main(template, pods)]);
        web.vpa = Some("web".into());
        let history = evidence([1, 320, 1 << 40], [GI, GI, GI]);
        let report = report_of(&survey_of(vec![web]), &history, &priced());
        let cpu = &rows(&report)[0];
        assert_eq!(cpu.request, Some(request), "{name}");
        assert_eq!((cpu.change.request, cpu.new_request()), (change, shown), "{name}");
        assert_eq!(cpu.waste, waste, "{name}");
        assert!((cpu.cost.expect("a cost") - cost).abs() < 1e-9, "{name}: {:?}", cpu.cost);
        assert_eq!(report.totals.cpu.requested, 4 * request, "{name}");
        let differs = pods.is_some_and(|pods| pods != template);
        let expected = differs.then_some(TemplateAmounts { request: Some(template), limit: None });
        assert_eq!(cpu.template, expected, "{name}");
        let remarks = &report.workloads[0].containers[0].remarks;
        assert_eq!(remarks.len(), usize::from(differs), "{name}: {remarks:?}");
    }
    let mut web = deployment("web", 4, vec![main(500, Some(320))]);
    web.vpa = Some("web".into());
    let history = evidence([1, 320, 1 << 40], [GI, GI, GI]);
    let report = report_of(&survey_of(vec![web]), &history, &priced());
    let expected = "CPU request: the template asks for 500m, pods run with 320m, sized by VerticalPodAutoscaler web";
    assert_eq!(report.workloads[0].containers[0].remarks, [expected]);
}

#[test]
fn a_target_follows_the_requests_of_pods_and_not_of_the_template() {
    let main = Container {
        running: Some(Box::new(RunningAmounts {
            requests: amounts(Some(400), Some(GI)),
            limits: amounts(None, None),
        })),
        ..container(amounts(Some(1000), Some(GI)), Amounts::default())
    };
    let mut web = deployment("web", 4, vec![main]);
    web.utilization_targets = vec![UtilizationTarget {
        kind: "HorizontalPodAutoscaler".into(),
        name: "web".into(),
        metric: 0,
        resource: Resource::Cpu,
        container: None,
        percent: 70,
    }];
    let history = evidence([1, 200, 9000], [GI, GI, GI]);
    let report = report_of(&survey_of(vec![web]), &history, &ReportOptions::default());
    // 70 x 400 / 200.
    assert_eq!(report.workloads[0].target_changes[0].new_percent, Some(140));
    assert_eq!(rows(&report)[0].change.request, Some(200));
}

#[test]
fn a_group_has_numbers_and_no_patch() {
    let main = container(amounts(Some(1000), Some(GI)), Amounts::default());
    let mut load = deployment("app=load", 1, vec![main]);
    load.kind = "Job".into();
    load.replicas = None;
    let member =
        GroupMember { kind: "Job".into(), name: "load-1".into(), ..GroupMember::default() };
    load.group = Some(group_of("label app", vec![member]));
    let history = ContainerEvidence {
        runs: Some(RunCounts { total: 9, seen: 9, ..RunCounts::default() }),
        run_targets: Some(RunTargets { cpu: Some(MilliCpu(300)), ..RunTargets::default() }),
        ..ContainerEvidence::default()
    };
    let report = report_of(&survey_of(vec![load]), &history, &ReportOptions::default());
    let cpu = &rows(&report)[0];
    assert_eq!((cpu.target, cpu.change.request), (Some(300), None));
    let held = cpu.change.held.as_deref().expect("no manifest is patched");
    assert!(held.contains("request 300m where its members are created"), "{held}");
    let workload = &report.workloads[0];
    assert_eq!(workload.shape.as_deref(), Some("job by label app"));
    assert_eq!(workload.containers[0].no_patch, Some(NoPatchReason::Grouped));
}

#[test]
fn a_daemon_set_whose_pods_differ_by_node_stays() {
    let main = container(amounts(Some(500), Some(GI)), Amounts::default());
    let survey = survey_of(vec![deployment("agent", 64, vec![main])]);
    let mut history = evidence([1, 60, 9000], [GI, GI, GI]);
    let group = |value: &str, pods: u32, cpu: i64| NodeGroupTarget {
        label: "pool".into(),
        value: Some(value.into()),
        pods,
        cpu: Some(MilliCpu(cpu)),
        memory: Some(Bytes(GI)),
        from_pool: false,
    };
    history.node_groups = vec![group("small", 60, 60), group("large", 4, 400)];
    let report = report_of(&survey, &history, &ReportOptions::default());
    let [cpu, memory] = rows(&report) else { panic!("two rows") };
    assert!(cpu.change.held.is_some() && cpu.change.request.is_none(), "{:?}", cpu.change);
    assert_eq!(memory.change.held, None, "memory does not differ");
}

#[test]
fn nodes_of_other_clusters_do_not_count() {
    let main = container(amounts(Some(8000), Some(GI)), Amounts::default());
    let clusters = ["eu", "us"].map(|name| {
        let mut survey = survey_of(vec![deployment("web", 1, vec![main.clone()])]);
        let cpu = if name == "eu" { 4000 } else { 64_000 };
        let node = Node { allocatable: amounts(Some(cpu), Some(64 * GI)), ..Node::default() };
        survey.nodes.insert("a".into(), node);
        survey.in_cluster(name)
    });
    let [mut survey, us] = clusters;
    survey.merge(us);
    let report = report_of(&survey, &evidence([1, 8000, 9000], [GI, GI, GI]), &priced());
    let remarks: Vec<usize> = report
        .workloads
        .iter()
        .map(|workload| workload.containers[0].remarks.join("").matches("any node has").count())
        .collect();
    assert_eq!(remarks, [1, 0]);
}

#[test]
fn a_request_that_an_autoscaler_holds_stays_with_its_limit() {
    let main = container(amounts(Some(2000), Some(GI)), amounts(Some(4000), None));
    let mut web = deployment("web", 4, vec![main]);
    web.utilization_targets = vec![UtilizationTarget {
        kind: "HorizontalPodAutoscaler".into(),
        name: "web".into(),
        metric: 1,
        resource: Resource::Cpu,
        container: None,
        percent: 90,
    }];
    let survey = survey_of(vec![web]);
    let jointly = |target: i64| {
        report_of(&survey, &evidence([1, target, 9000], [GI, GI, GI]), &ReportOptions::default())
    };
    let moved = jointly(1000);
    let cpu = &rows(&moved)[0];
    assert_eq!((cpu.change.request, cpu.change.limit), (Some(1000), Some(2000)));
    assert_eq!(moved.workloads[0].target_changes[0].new_percent, Some(180));
    // 90 x 2000 / 400 = 450.
    let held = jointly(400);
    let cpu = &rows(&held)[0];
    assert_eq!((cpu.change.request, cpu.change.limit, cpu.target), (None, None, Some(400)));
    assert!(cpu.change.held.as_ref().is_some_and(|reason| reason.contains("450 %")), "{cpu:?}");
    assert_eq!(cpu.waste, Level::High, "it is wasted nevertheless");
    let target = &held.workloads[0].target_changes[0];
    assert!(target.new_percent.is_none() && target.held.is_some());
}

#[test]
fn peaks_and_groups_are_shown_where_they_matter() {
    let main = container(amounts(Some(100), Some(GI)), Amounts::default());
    let survey = survey_of(vec![deployment("logs", 64, vec![main])]);
    let at = Time::from_secs(5);
    let peak = |bytes: i64| Some(MemoryPeak { bytes: Bytes(bytes), at });
    let group = |pods: u32, cpu: i64| NodeGroupTarget {
        label: "agentpool".into(),
        value: Some(format!("pool-{cpu}").into()),
        pods,
        cpu: Some(MilliCpu(cpu)),
        memory: Some(Bytes(GI)),
        from_pool: false,
    };
    let found = |rare: i64, needed: i64, groups: Vec<NodeGroupTarget>| {
        let history = ContainerEvidence {
            memory_peak: peak(900),
            rare_memory_peak: peak(rare),
            needed_memory_peak: peak(needed),
            node_groups: groups,
            ..evidence([1, 100, 200], [1, 1000, 2 * GI])
        };
        let report = report_of(&survey, &history, &ReportOptions::default());
        let workload = report.workloads[0].clone();
        let ContainerReport { rare_memory_peak, needed_memory_peak, node_groups, .. } =
            &workload.containers[0];
        (
            rare_memory_peak.is_some(),
            needed_memory_peak.is_some(),
            node_groups.len(),
            workload.shape,
        )
    };
    let shape = Some("node groups by agentpool".to_owned());
    // A third of 900 is cache if 600 are needed.
    assert_eq!(found(1001, 600, vec![group(60, 60), group(4, 400)]), (true, true, 2, shape));
    assert_eq!(found(1000, 601, vec![group(60, 390), group(4, 400)]), (false, false, 0, None));
}

#[test]
fn a_request_above_every_node_is_remarked_on() {
    let main = container(amounts(Some(64_000), Some(GI)), Amounts::default());
    let mut survey = survey_of(vec![deployment("web", 1, vec![main])]);
    let node = Node { allocatable: amounts(Some(16_000), Some(64 * GI)), ..Node::default() };
    survey.nodes.insert("a".into(), node);
    let report = report_of(&survey, &evidence([1, 2, 3], [GI, GI, GI]), &ReportOptions::default());
    let expected = "the CPU request 64 is more than any node has (16)";
    assert_eq!(report.workloads[0].containers[0].remarks, [expected]);
}

#[test]
fn what_could_not_be_read_and_the_head_are_in_the_report() {
    let unread = |what: &str| Unread { what: what.to_owned(), why: "forbidden".to_owned() };
    let survey = Survey { unread: vec![unread("a")], ..Survey::default() };
    let head = ReportHead {
        version: "1.2.3".to_owned(),
        settings: vec!["--profile=cost".to_owned()],
        unread: vec![unread("b")],
        remarks: vec!["remark".to_owned()],
        ..ReportHead::default()
    };
    let options = ReportOptions { head, ..ReportOptions::default() };
    let report = report(&survey, &|_, _| None, &options, Time::EPOCH);
    assert_eq!(report.unread, [unread("a"), unread("b")]);
    assert_eq!((&*report.version, &report.remarks[..]), ("1.2.3", &["remark".to_owned()][..]));
    assert_eq!((report.kind.as_str(), report.schema_version), ("recommend", 1));
}

prop_compose! {
    fn any_workload()(
        namespace in 0..3_u8,
        name in 0..1000_u32,
        replicas in prop::option::of(0..20_u32),
        cpu in prop::option::of(1..8000_i64),
        memory in prop::option::of(1..8000_i64),
        limit in prop::option::of(8000..16_000_i64),
        percent in prop::option::of(20..=400_u32),
    ) -> Workload {
        let requests = amounts(cpu, memory.map(|memory| memory * MI));
        let main = container(requests, amounts(limit, limit.map(|limit| limit * MI)));
        let mut workload = deployment(&format!("w{name}"), 1, vec![main]);
        workload.namespace = format!("n{namespace}").into();
        workload.replicas = replicas;
        workload.utilization_targets = percent.map(|percent| UtilizationTarget {
            kind: "HorizontalPodAutoscaler".into(),
            name: "hpa".into(),
            metric: 0,
            resource: Resource::Cpu,
            container: None,
            percent,
        }).into_iter().collect();
        workload
    }
}

proptest! {
    /// The same input in any order gives the same bytes, totals are the sums of namespaces, and JSON is read
    /// back.
    #[test]
    fn reports_depend_on_nothing_else(workloads in prop::collection::vec(any_workload(), 0..12), cpu in 1..8000_i64, memory in 1..8000_i64) {
        let mut workloads = workloads;
        workloads.sort_by(|left, right| (&left.namespace, &left.name).cmp(&(&right.namespace, &right.name)));
        workloads.dedup_by(|left, right| (&left.namespace, &left.name) == (&right.namespace, &right.name));
        let history = evidence([cpu / 2, cpu, cpu * 2], [memory * MI / 2, memory * MI, memory * MI * 2]);
        let survey = survey_of(workloads.clone());
        workloads.reverse();
        let json = |survey: &Survey| serde_json::to_string(&report_of(survey, &history, &priced())).expect("JSON");
        let text = json(&survey);
        prop_assert_eq!(&text, &json(&survey_of(workloads)));
        let report: Report = serde_json::from_str(&text).expect("a report");
        prop_assert_eq!(serde_json::to_string(&report).expect("JSON"), text);
        let sum = |of: fn(&super::super::report::Totals) -> i64| report.namespaces.values().map(of).sum::<i64>();
        prop_assert_eq!(report.totals.cpu.requested, sum(|totals| totals.cpu.requested));
        prop_assert_eq!(report.totals.memory.needed, sum(|totals| totals.memory.needed));
        prop_assert_eq!(report.totals.containers as i64, sum(|totals| totals.containers as i64));
    }

    /// What a report advises is applied, and the next report changes nothing.
    #[test]
    fn a_second_report_changes_nothing(workload in any_workload(), cpu in 1..8000_i64, memory in 1..8000_i64) {
        let history = evidence([cpu / 2, cpu, cpu * 2], [memory * MI / 2, memory * MI, memory * MI * 2]);
        let options = ReportOptions::default();
        let first = report_of(&survey_of(vec![workload.clone()]), &history, &options);
        let mut applied = workload;
        let [of_cpu, of_memory] = rows(&first) else { panic!("two rows") };
        let main = &mut Arc::make_mut(&mut applied.containers)[0];
        main.requests.cpu = of_cpu.change.request.map(MilliCpu).or(main.requests.cpu);
        main.limits.cpu = of_cpu.change.limit.map(MilliCpu).or(main.limits.cpu);
        main.requests.memory = of_memory.change.request.map(Bytes).or(main.requests.memory);
        main.limits.memory = of_memory.change.limit.map(Bytes).or(main.limits.memory);
        for change in &first.workloads[0].target_changes {
            applied.utilization_targets[0].percent = change.new_percent.unwrap_or(change.target.percent);
        }
        let held: Vec<_> = rows(&first).iter().map(|row| row.change.held.clone()).collect();
        let second = report_of(&survey_of(vec![applied]), &history, &options);
        for (row, held) in rows(&second).iter().zip(held) {
            prop_assert_eq!(&row.change, &Change { held, ..Change::default() });
        }
    }
}
