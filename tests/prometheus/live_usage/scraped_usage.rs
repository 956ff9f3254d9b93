//! Usage scraped by Prometheus equals the metrics API's for the same pods.

use std::f64::consts::TAU;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll::cluster::container_usage::pod_metrics::fetch_usage;
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::detect::SchemaOverrides;

use super::{fetch, schema, short};
use crate::support::clock::wall_now;
use crate::support::metrics_server::{UsageCurve, UsageValue};
use crate::support::prometheus_server::{PrometheusRelease, PrometheusServer, ScrapeTarget};
use crate::support::wait::{self, PATIENCE};
use crate::support::{MetricsServer, Testbed};

const MEBIBYTE: u64 = 1 << 20;
const STEP: SignedDuration = SignedDuration::from_secs(15);
const STEPS: i64 = 6;

/// A server that scrapes the usage every second.
async fn scraping(
    release: PrometheusRelease,
    usage: &MetricsServer,
    path: &str,
) -> Option<PrometheusServer> {
    let target = ScrapeTarget {
        job: "kubelet".to_owned(),
        scheme: "https",
        address: usage.address(),
        path: path.to_owned(),
        labels: Vec::new(),
        honor_labels: true,
    };
    PrometheusServer::start(release, None, &[target]).await
}

/// Waits until the server marks its target as down.
async fn wait_until_down(server: &PrometheusServer) {
    wait::until("a scrape has failed", || async {
        (server.value("up", wall_now()).await? == 0.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn scraped_usage_equals_the_metrics_api() {
    let Some(bed) = Testbed::api_server_only().await else { return };
    let usage = MetricsServer::serve(&bed).await;
    let Some(three) = scraping(PrometheusRelease::V3, &usage, "/metrics/cadvisor/stamped").await
    else {
        return;
    };
    let Some(two) = scraping(PrometheusRelease::V2, &usage, "/metrics/cadvisor/stamped").await
    else {
        return;
    };
    // The steps have timestamps slightly in the past: a server rejects samples from the future.
    let start =
        Timestamp::from_second(wall_now().as_second() / 60 * 60 - 300).expect("valid timestamp");
    usage.at(start);
    let waves = UsageCurve::new(move |now| {
        let part = (now.as_second() - start.as_second()) as f64 / 60.0;
        let wave = (TAU * part).sin();
        UsageValue { cpu: 1.0 + wave / 1.7, memory: (200.0 + 77.0 * wave) as u64 * MEBIBYTE }
    });
    let grows = UsageCurve::new(move |now| {
        let seconds = now.as_second().abs_diff(start.as_second());
        UsageValue { cpu: seconds as f64 * 0.012_345_678_9, memory: (1 + seconds) * MEBIBYTE }
    });
    let still = UsageValue { cpu: 0.250_123_456, memory: 100 * MEBIBYTE };
    usage.set("shop", "web-7d5f9c4b6d-x2x4z", "main", still);
    usage.set("shop", "web-7d5f9c4b6d-x2x4z", "side", UsageValue { cpu: 0.0, memory: 1 });
    usage.set("shop", "web-7d5f9c4b6d-bbbbb", "main", waves);
    usage.set("bank", "ledger-0", "main", grows);
    usage.set("elsewhere", "other-0", "main", still);

    let wanted: &[&str] = &["shop", "bank"];
    let known = SchemaOverrides {
        scrape_interval: Some(STEP.unsigned_abs()),
        ..SchemaOverrides::default()
    };
    for step in 0..STEPS {
        let now = start + STEP * i32::try_from(step).expect("fits");
        usage.at(now);
        for server in [&three, &two] {
            let last = r#"timestamp(container_memory_working_set_bytes{pod="ledger-0"})"#;
            wait::until("the step is scraped", || async {
                let at = server.value(last, now).await?;
                (at == now.as_second() as f64).then_some(())
            })
            .await;
        }
        if step == 0 {
            continue;
        }
        let mut received = Vec::new();
        let mut keep = |pod| received.push(pod);
        let client = bed.client();
        let read = fetch_usage(&client, Some(wanted), &mut keep, PATIENCE).await.expect("read");
        received
            .sort_by(|one, other| (&one.namespace, &one.pod).cmp(&(&other.namespace, &other.pod)));
        assert_eq!((read.pods, read.containers), (3, 4));
        for server in [&three, &two] {
            let url = server.url();
            // After a few samples the interval is detected.
            let known = if step < 5 { &known } else { &SchemaOverrides::default() };
            let schema = schema(&url, known, wanted, now).await;
            assert_eq!(schema.scrape_interval.value.longest_gap, STEP.unsigned_abs());
            let (report, pods) = fetch(&url, &schema, wanted, now).await;
            assert_eq!(pods, received, "step {step}");
            let report = report.expect("query succeeded");
            assert_eq!((report.pods, report.containers, report.malformed), (3, 4, 0));
            assert!(report.is_complete());
        }
    }

    // The target goes away: its last samples count for a while, then nothing does.
    drop(usage);
    let last = start + STEP * i32::try_from(STEPS - 1).expect("fits");
    for server in [&three, &two] {
        wait_until_down(server).await;
        let url = server.url();
        let schema = schema(&url, &known, wanted, last).await;
        for (seconds, pods, is_incomplete) in
            [(20, 3, false), (30, 3, true), (39, 3, true), (41, 0, false)]
        {
            let now = last + SignedDuration::from_secs(seconds);
            let (report, found) = fetch(&url, &schema, wanted, now).await;
            let report = report.expect("an empty response is valid");
            assert_eq!((report.pods, report.failed), (pods, 0), "{seconds} s later");
            for pod in &found {
                assert_eq!((pod.at, pod.is_incomplete), (Time::from(last), is_incomplete));
                let has_cpu = pod.containers.iter().any(|used| used.cpu.is_some());
                assert_eq!(has_cpu, !is_incomplete, "one sample gives no rate");
            }
        }
    }
}

#[tokio::test]
async fn usage_scraped_every_second_is_read_up_to_date() {
    let Some(bed) = Testbed::api_server_only().await else { return };
    let usage = MetricsServer::serve(&bed).await;
    usage.set("shop", "web-0", "main", UsageValue { cpu: 0.5, memory: 100 * MEBIBYTE });
    let Some(server) = scraping(PrometheusRelease::V3, &usage, "/metrics/cadvisor").await else {
        return;
    };
    let url = server.url();
    let samples = "count_over_time(container_memory_working_set_bytes[1m])";
    wait::until("some samples are stored", || async {
        (server.value(samples, wall_now()).await? >= 5.0).then_some(())
    })
    .await;
    // A server that stalled has scraped less often for a while, and then recovers.
    let (schema, now) = wait::until_ok("usage is up to date", || async {
        let now = wall_now();
        let schema = schema(&url, &SchemaOverrides::default(), &["shop"], now).await;
        let (report, pods) = fetch(&url, &schema, &["shop"], now).await;
        if report.map_err(|why| why.to_string())?.pods != 1 {
            return Err(format!("{pods:?}"));
        }
        let pods = short(&pods, now);
        let [("web-0", age, containers, false)] = &pods[..] else {
            return Err(format!("{pods:?}"));
        };
        let [("main", Some(cpu), Some(memory))] = &containers[..] else { panic!("{pods:?}") };
        assert_eq!(*memory, 100 << 20);
        // The sample's timestamp is the start of the scrape, and its value is read slightly later.
        let is_right = (250..=1000).contains(cpu) && *age <= 10;
        let is_paced = schema.scrape_interval.value.longest_gap < Duration::from_secs(2);
        if is_right && is_paced { Ok((schema, now)) } else { Err(format!("{pods:?}, {schema}")) }
    })
    .await;

    // The server writes staleness markers. The last samples count until they are too old.
    drop(usage);
    wait_until_down(&server).await;
    let (report, _) = fetch(&url, &schema, &["shop"], now + SignedDuration::from_mins(5)).await;
    let report = report.expect("an empty response is valid");
    assert_eq!((report.pods, report.failed), (0, 0));
}
