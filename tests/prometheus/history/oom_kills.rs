//! Each OOM kill counts once, at its time; other terminations do not count.

use jiff::{SignedDuration, Timestamp};
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::history::HistorySettings;
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};

use super::collecting_sink::{CollectingSink, MINUTE, hours, last, owners_of, read, storage};
use crate::prometheus::label_flavors::{AGENT, LabelFlavor, OPERATOR};
use crate::prometheus::releases::by_turns;
use crate::prometheus::series_collector::short_limits;
use crate::support::prometheus_server::{History, PrometheusServer};

const POD: &str = "web-7d5f9c4b6d-x2x4z";
const RESTARTS: &str = "kube_pod_container_status_restarts_total";
const REASON: &str = "kube_pod_container_status_last_terminated_reason";

#[tokio::test]
async fn each_oom_kill_counts_once_with_the_request_at_that_time() {
    for (flavor, release) in by_turns([OPERATOR, AGENT]) {
        let (mut history, end) = hours(7);
        let ago = move |minutes: i64| end - SignedDuration::from_mins(minutes);
        // OOM-killed, OOM-killed again, terminated, OOM-killed: none coincides with a step of the memory series.
        let (first, second, other, third) = (ago(303), ago(242), ago(181), ago(62));
        let restarts = move |now: Timestamp| {
            Some([first, second, other, third].iter().filter(|end| now >= **end).count() as f64)
        };
        let killed = move |now: Timestamp| {
            let is_killed = (now >= first && now < other) || now >= third;
            is_killed.then_some(1.0)
        };
        let ended = move |now: Timestamp| (now >= other && now < third).then_some(1.0);
        let request = move |now: Timestamp| Some(if now >= ago(100) { 2e8 } else { 1e8 });
        let pod = [("namespace", "shop"), ("pod", POD), ("container", "app")];
        let with = |label| [&pod[..], &[label]].concat();
        let names = ["shop", POD, "app"];
        history = flavor.usage(history, CPU_METRIC, names, |_| Some(1.0));
        history = flavor.usage(history, MEMORY_METRIC, names, |_| Some(9e7));
        history = flavor.state(history, RESTARTS, &pod, restarts);
        history = flavor.state(history, REASON, &with(("reason", "OOMKilled")), killed);
        history = flavor.state(history, REASON, &with(("reason", "Error")), ended);
        let memory = with(("resource", "memory"));
        history = flavor.state(history, "kube_pod_container_resource_requests", &memory, request);
        let limit = |_| Some(3e8);
        history = flavor.state(history, "kube_pod_container_resource_limits", &memory, limit);
        let cpu = with(("resource", "cpu"));
        history =
            flavor.state(history, "kube_pod_container_resource_requests", &cpu, |_| Some(9e9));

        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let vpas = [("web", "apps/Deployment/web")];
        let kill = |minutes: i64, request| (Time::from(ago(minutes)), request, Some(300_000_000));
        let expected = [kill(303, 100_000_000), kill(242, 100_000_000), kill(62, 200_000_000)];
        for settings in [last(6), HistorySettings { point_budget: 100, ..last(6) }] {
            let (sink, report) = read(&server.url(), settings, end, &vpas).await;
            let web = sink.samples_of("web", "app", POD).expect("exists");
            assert_eq!(web.kills, expected, "{} on {release:?}", flavor.name);
            assert_eq!(report.oom_kills, 3);
        }
        // Kills before the start of the range do not count.
        let (sink, _) = read(&server.url(), last(3), end, &vpas).await;
        let web = sink.samples_of("web", "app", POD).expect("exists");
        assert_eq!(web.kills, expected[2..], "{} on {release:?}", flavor.name);
    }
}

/// The series of a pod that lives between two times and is OOM-killed at these times.
fn pod_with_oom_kills(
    flavor: &LabelFlavor,
    mut history: History,
    (pod, uid): (&str, &str),
    (from, to): (Timestamp, Timestamp),
    ends: &'static [i64],
    ago: impl Fn(i64) -> Timestamp + Send + Copy + 'static,
) -> History {
    let is_alive = move |now: Timestamp| now >= from && now <= to;
    let before = move |now: Timestamp| ends.iter().filter(|end| now >= ago(**end)).count();
    let labels = [("namespace", "shop"), ("pod", pod), ("uid", uid), ("container", "app")];
    let restarts = move |now: Timestamp| is_alive(now).then(|| before(now) as f64);
    history = flavor.state(history, RESTARTS, &labels, restarts);
    let labels = [&labels[..], &[("reason", "OOMKilled")]].concat();
    let killed = move |now: Timestamp| (is_alive(now) && before(now) > 0).then_some(1.0);
    flavor.state(history, REASON, &labels, killed)
}

#[tokio::test]
async fn an_oom_kill_between_two_histories_counts_once() {
    for (flavor, release) in by_turns([OPERATOR, AGENT]) {
        let (mut history, end) = hours(7);
        let ago = move |minutes: i64| end - SignedDuration::from_mins(minutes);
        let always = (ago(420), end);
        let kills: [(&str, &'static [i64]); 4] =
            [("db-0", &[121]), ("db-1", &[120]), ("db-2", &[119]), ("db-3", &[122, 118])];
        for (pod, ends) in kills {
            history = pod_with_oom_kills(&flavor, history, (pod, "1"), always, ends, ago);
        }
        // A StatefulSet reuses the name for the new pod, whose restart count starts at zero.
        history = pod_with_oom_kills(
            &flavor,
            history,
            ("db-4", "1"),
            (ago(420), ago(181)),
            &[200, 190],
            ago,
        );
        history = pod_with_oom_kills(&flavor, history, ("db-4", "2"), (ago(180), end), &[130], ago);
        // Each of these two was killed once.
        history =
            pod_with_oom_kills(&flavor, history, ("db-5", "1"), (ago(420), ago(181)), &[200], ago);
        history = pod_with_oom_kills(&flavor, history, ("db-5", "2"), (ago(180), end), &[150], ago);
        for pod in ["db-0", "db-1", "db-2", "db-3", "db-4", "db-5"] {
            history = flavor.usage(history, CPU_METRIC, ["shop", pod, "app"], |_| Some(1.0));
            history = flavor.usage(history, MEMORY_METRIC, ["shop", pod, "app"], |_| Some(9e7));
        }
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let storage = storage(&server.url(), short_limits(), last(6), end);
        let wanted = owners_of(&[("db", "apps/StatefulSet/db")]);

        // Only up to the last complete step.
        let seam = Time::from(ago(120));
        let until = Some(seam.later(4 * MINUTE + MINUTE / 2));
        let (mut first, _) = storage.start_load(&wanted, None, until).await.expect("load started");
        assert_eq!(first.until(), seam);
        let mut before = CollectingSink::default();
        first.advance(&mut before).await.expect("read");
        let (mut second, _) =
            storage.start_load(&wanted, Some(seam), None).await.expect("load started");
        assert_eq!(second.until(), Time::from(end));
        let mut after = CollectingSink::default();
        second.advance(&mut after).await.expect("read");
        assert_eq!((before.whole.len(), after.whole.len()), (1, 1));

        let name = format!("{} on {release:?}", flavor.name);
        for (pod, ends) in
            [&kills[..], &[("db-4", &[200, 190, 130]), ("db-5", &[200, 150])]].concat()
        {
            let halves =
                [&before, &after].map(|half| half.samples_of("db", "app", pod).expect("exists"));
            let times = halves.map(|half| half.kills.iter().map(|kill| kill.0));
            let times: Vec<_> = times.into_iter().flatten().collect();
            let expected: Vec<_> = ends.iter().map(|end| Time::from(ago(*end))).collect();
            assert_eq!(times, expected, "{pod}, {name}");
            let cpu: Vec<_> = halves.iter().flat_map(|half| &half.cpu).collect();
            assert!(cpu.is_sorted_by(|a, b| a.0 < b.0), "{pod}, {name}");
            assert_eq!(halves.map(|half| half.cpu.len()), [240, 120], "{pod}, {name}");
            assert_eq!(halves.map(|half| half.memory.len()), [48, 24], "{pod}, {name}");
        }
        // An empty range has no samples and is complete at once.
        let (mut none, _) =
            storage.start_load(&wanted, Some(seam), Some(seam)).await.expect("load started");
        let mut nothing = CollectingSink::default();
        none.advance(&mut nothing).await.expect("empty load succeeds");
        assert!(none.is_done() && nothing.replicas.is_empty() && nothing.whole.len() == 1);
    }
}
