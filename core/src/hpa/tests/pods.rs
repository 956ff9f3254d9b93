//! Vectors G1 to G15, Q1 to Q10 and M1 to M5: which pods count, their requests, and which samples are used.

use std::time::Duration;

use super::fixture::{NOW, ago, pod, pod_value, put, quantity, requests, test_config};
use crate::hpa::error::{Api, Cause};
use crate::hpa::options::UtilizationOf;
use crate::hpa::pod::{Container, Pod, ReadyCondition, ReadyStatus};
use crate::hpa::pod_groups::{NotCounted, PodGroups, ReadinessRules};
use crate::hpa::requests::{PodRequests, RequestRules};
use crate::hpa::samples::{PodMetrics, Sample, Samples, of_external, of_pods, of_resource};
use crate::hpa::{Answer, Fixes};
use crate::scaling::pod_readiness::Phase;
use crate::types::Time;

fn class(pod: &Pod, sample: Option<(Time, u64)>, is_cpu: bool, fixes: Fixes) -> Option<NotCounted> {
    let sample = sample.map(|(timestamp, window)| Sample {
        timestamp,
        window: Duration::from_secs(window),
        ..Sample::default()
    });
    let samples: Samples = sample.map(|sample| (pod.name.clone(), sample)).into_iter().collect();
    let rules = ReadinessRules::new(&test_config(), NOW);
    let groups = PodGroups::of(&[pod], &samples, is_cpu, rules, fixes);
    let sets = [&groups.unready, &groups.missing, &groups.ignored];
    assert_eq!(
        groups.ready + sets.into_iter().map(std::collections::BTreeSet::len).sum::<usize>(),
        1
    );
    groups.reasons.get(&pod.name).copied()
}

fn aged(start: i64, status: ReadyStatus, since: i64) -> Pod {
    let mut pod = pod(0, 1000);
    pod.start_time = Some(ago(start));
    pod.ready = Some(ReadyCondition { status, since: Some(ago(since)) });
    pod
}

#[test]
fn pods_are_grouped_as_in_the_vectors() {
    use NotCounted::{Failed, NeverReady, NoReadiness, NoSample, Pending, Starting, Terminating};
    let without = |change: fn(&mut Pod)| {
        let mut pod = pod(0, 1000);
        change(&mut pod);
        pod
    };
    let rows = [
        (
            "G2",
            without(|pod| (pod.ready, pod.start_time) = (None, None)),
            Some((NOW, 60)),
            false,
            None,
        ),
        ("G3", without(|pod| pod.ready = None), Some((NOW, 60)), true, Some(NoReadiness)),
        (
            "no start time",
            without(|pod| pod.start_time = None),
            Some((NOW, 60)),
            true,
            Some(NoReadiness),
        ),
        ("G4", aged(60, ReadyStatus::True, 30), Some((NOW, 30)), true, None),
        ("G5", aged(60, ReadyStatus::True, 30), Some((NOW, 60)), true, Some(Starting)),
        (
            "young and not ready",
            aged(60, ReadyStatus::False, 59),
            Some((NOW, 1)),
            true,
            Some(Starting),
        ),
        ("no longer young", aged(120, ReadyStatus::True, 0), Some((NOW, 60)), true, None),
        ("still young", aged(119, ReadyStatus::True, 0), Some((NOW, 60)), true, Some(Starting)),
        ("G6", aged(600, ReadyStatus::False, 594), Some((NOW, 60)), true, Some(NeverReady)),
        ("G7", aged(180, ReadyStatus::True, 180), Some((ago(120), 60)), true, None),
        ("G8", aged(600, ReadyStatus::False, 540), Some((NOW, 60)), true, None),
        ("G9", aged(600, ReadyStatus::False, 590), Some((NOW, 60)), true, None),
        ("unknown, and old", aged(600, ReadyStatus::Unknown, 600), Some((NOW, 60)), true, None),
        ("G10", aged(600, ReadyStatus::True, 600), None, true, Some(NoSample)),
        ("G12", without(|pod| put(pod, "pending")), Some((NOW, 60)), true, Some(Pending)),
        ("G13", without(|pod| put(pod, "deleted")), Some((NOW, 60)), true, Some(Terminating)),
        ("G14", without(|pod| put(pod, "failed")), Some((NOW, 60)), true, Some(Failed)),
        ("pending without sample", without(|pod| put(pod, "pending")), None, false, Some(Pending)),
        ("not ready, memory", aged(60, ReadyStatus::False, 59), Some((NOW, 60)), false, None),
        ("G15", without(|pod| pod.phase = Phase::Succeeded), Some((NOW, 60)), true, None),
    ];
    for (name, pod, sample, is_cpu, expected) in rows {
        assert_eq!(class(&pod, sample, is_cpu, Fixes::UPSTREAM), expected, "{name}");
    }
    let empty = PodGroups::of(
        &[],
        &Samples::new(),
        true,
        ReadinessRules::new(&test_config(), NOW),
        Fixes::UPSTREAM,
    );
    assert_eq!(empty, PodGroups::default(), "G1");
}

const RULES: RequestRules<'_> = RequestRules {
    resource: "cpu",
    container: None,
    pod_level_resources: true,
    of: UtilizationOf::Request,
    fixes: Fixes::UPSTREAM,
};

fn request(pod: &Pod, container: Option<&str>) -> Result<i64, Cause> {
    let found = PodRequests::of(&[pod], RequestRules { container, ..RULES });
    found.map(|found| found.requests[&pod.name]).map_err(|error| error.cause)
}

#[test]
fn requests_are_computed_as_in_the_vectors() {
    assert_eq!(PodRequests::of(&[], RULES), Ok(PodRequests::default()), "Q1");
    let mut two = pod(0, 100);
    two.containers[1].requests = requests(50);
    assert_eq!(request(&two, None), Ok(150), "Q2, Q3");
    assert_eq!(request(&two, Some("app")), Ok(100), "Q7");
    assert_eq!(request(&two, Some("nobody")), Err(Cause::ContainerNotFound), "Q10");
    let mut whole = two.clone();
    whole.requests = requests(800);
    assert_eq!(request(&whole, None), Ok(800), "Q4");
    assert_eq!(request(&whole, Some("app")), Ok(100), "Q8");
    let mut lacking = two.clone();
    lacking.containers[1].requests.clear();
    assert_eq!(request(&lacking, None), Err(Cause::MissingRequest), "Q5");
    assert_eq!(request(&lacking, Some("side")), Err(Cause::MissingRequest));
    lacking.requests = requests(800);
    assert_eq!(request(&lacking, None), Ok(800), "Q6");
    let sidecar = |name: &str, milli, is_restartable| Container {
        name: name.to_owned(),
        requests: requests(milli),
        is_restartable,
        ..Container::default()
    };
    let mut with_init = pod(0, 50);
    with_init.init_containers = vec![sidecar("proxy", 50, true), sidecar("setup", 900, false)];
    assert_eq!(request(&with_init, None), Ok(150), "Q9: ordinary init containers do not count");
    assert_eq!(request(&with_init, Some("proxy")), Ok(50));
}

#[test]
fn a_request_of_the_pod_itself_is_the_effective_one() {
    let mut whole = pod(0, 100);
    whole.requests = [("memory".to_owned(), quantity("1Gi"))].into();
    assert_eq!(request(&whole, None), Ok(200), "the sum of the containers is used instead");
    whole.overhead = requests(250);
    assert_eq!(request(&whole, None), Ok(450), "and overhead is added");
    let init =
        Container { name: "setup".to_owned(), requests: requests(900), ..Container::default() };
    whole.init_containers = vec![init];
    assert_eq!(request(&whole, None), Ok(1150), "an init container can need more than all others");
    whole.requests.insert("cpu".to_owned(), quantity("1"));
    assert_eq!(request(&whole, None), Ok(1250), "the pod's own request counts before all others");
    whole.requests = [("memory".to_owned(), quantity("1Gi"))].into();
    whole.overhead.clear();
    whole.init_containers.clear();
    for container in &mut whole.containers {
        container.requests.clear();
    }
    assert_eq!(request(&whole, None), Err(Cause::MissingRequest));
    let gate_off = PodRequests::of(&[&whole], RequestRules { pod_level_resources: false, ..RULES });
    assert_eq!(
        gate_off.expect_err("no request").message,
        "missing request for cpu in container app of Pod p0"
    );
}

#[test]
fn metric_responses_are_read_as_in_the_vectors() {
    let answer = |containers: &[(&str, i64)]| {
        containers.iter().map(|(name, milli)| ((*name).to_owned(), requests(*milli))).collect()
    };
    let pods = [answer(&[("c1", 100)]), answer(&[("c1", 300), ("c2", 400)]), Vec::new()];
    let pods = pods.into_iter().enumerate().map(|(index, containers)| PodMetrics {
        pod: format!("pod{index}"),
        containers,
        ..PodMetrics::default()
    });
    let fetched = Ok(Answer::Resource(pods.collect()));
    let read = |container: Option<&str>| {
        let samples =
            of_resource(&fetched, "cpu", container, NOW, Fixes::UPSTREAM).expect("samples");
        samples.into_iter().map(|(pod, sample)| (pod, sample.value)).collect::<Vec<_>>()
    };
    let pair = |pod: &str, milli| (pod.to_owned(), milli);
    assert_eq!(read(None), [pair("pod0", 100), pair("pod1", 700)], "M1");
    assert_eq!(read(Some("c1")), [pair("pod0", 100), pair("pod1", 300)], "M2");
    assert_eq!(read(Some("c2")), [pair("pod1", 400)], "M3");
    assert_eq!(read(Some("c9")), [], "an empty list is no client error");
    let cause = |found: Result<Samples, crate::hpa::error::MetricError>| {
        found.expect_err("no values").cause
    };
    assert_eq!(
        cause(of_resource(&Ok(Answer::Resource(vec![])), "cpu", None, NOW, Fixes::UPSTREAM)),
        Cause::NoValues,
        "M4"
    );
    assert_eq!(cause(of_pods(&Ok(Answer::Pods(vec![])), Fixes::UPSTREAM)), Cause::NoValues, "M4");
    let none = of_external(&Ok(Answer::External(vec![])), Api::External, false, Fixes::UPSTREAM);
    assert_eq!(none.expect_err("no values").cause, Cause::NoValues, "M4");
    let zeros = of_pods(&Ok(Answer::Pods(vec![pod_value("p0", 0)])), Fixes::UPSTREAM).expect("M5");
    assert_eq!((zeros["p0"].value, zeros["p0"].window), (0, Duration::from_mins(1)), "M5");
    let zero = of_external(
        &Ok(Answer::External(vec![quantity("0")])),
        Api::External,
        false,
        Fixes::UPSTREAM,
    );
    assert_eq!(zero, Ok(0), "M5");
    assert_eq!(
        cause(of_resource(&Ok(Answer::Object(quantity("1"))), "cpu", None, NOW, Fixes::UPSTREAM)),
        Cause::FetchFailed,
        "an answer to another question"
    );
}
