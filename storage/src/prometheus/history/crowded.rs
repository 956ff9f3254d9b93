//! Proof that no more of a history is held than may be, however many pods a workload turns out to have; and that lists
//! of pods are read that are longer than anybody would hold.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{
    batch::Batch,
    load::Loading,
    owner::Owner,
    part::{Part, Way},
    plan::{Plan, Weighting, tests::schema},
    proof::Proof,
    report::Report,
};
use crate::{
    Key, Sample, Sink, Snapshot, Time, VpaKey,
    prometheus::{
        client::{Client, Limits},
        door::{DoorError, Response, Transport},
        schema::{Schema, States},
    },
};

const CONTAINERS: [&str; 3] = ["main", "proxy", "log"];

/// A server that has so many pods before a time, and so many from then on.
#[derive(Debug)]
struct Crowd {
    before: usize,
    since: usize,
    turn: i64,
    /// Jobs that it knows of.
    jobs: usize,
}

#[async_trait]
impl Transport for Crowd {
    async fn send(
        &self,
        path: &str,
        form: &[(&str, String)],
        _: Duration,
    ) -> Result<Response, DoorError> {
        let body = if path == "/api/v1/series" { self.owners() } else { self.usage(form) };
        Ok(http::Response::new(body).into())
    }
}

impl Crowd {
    fn usage(&self, form: &[(&str, String)]) -> String {
        let number = |name| {
            let of = form.iter().find(|(known, _)| *known == name).expect("it is asked for");
            of.1.parse::<i64>().expect("whole seconds")
        };
        let (start, end, step) = (number("start"), number("end"), number("step"));
        let mut body = String::new();
        for pod in 0..self.since.max(self.before) {
            let start = if pod < self.before { start } else { start.max(self.turn) };
            let end = if pod < self.since { end } else { end.min(self.turn - 60) };
            let points = (start..=end).step_by(step as usize);
            let points: Vec<_> = points.map(|at| format!("[{at},\"1\"]")).collect();
            for container in CONTAINERS.iter().filter(|_| !points.is_empty()) {
                let comma = if body.is_empty() { "" } else { "," };
                let values = points.join(",");
                let _ = write!(
                    body,
                    r#"{comma}{{"metric":{{"namespace":"shop","pod":"web-{pod}","container":"{container}"}},"values":[{values}]}}"#
                );
            }
        }
        format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{body}]}}}}"#)
    }

    fn owners(&self) -> String {
        let more = "what nobody asked for ".repeat(20);
        let mut body = String::new();
        for job in 0..self.jobs {
            let comma = if job == 0 { "" } else { "," };
            let _ = write!(
                body,
                r#"{comma}{{"pod":"tick-{job}-x2x4z","owner_kind":"Job","owner_name":"tick-{job}","uid":"{more}"}}"#
            );
        }
        format!(r#"{{"status":"success","data":[{body}]}}"#)
    }
}

fn client(crowd: Crowd) -> Client {
    Client::new(Arc::new(crowd), Limits { attempts: 1, ..Limits::default() })
}

/// Counts samples, and how many there were when a VPA was whole.
#[derive(Default)]
struct Count(u64, Vec<u64>);

impl Sink for Count {
    fn snapshot(&mut self, _: Key, _: Snapshot) {}

    fn sample(&mut self, _: &Key, _: Sample) {
        self.0 += 1;
    }

    fn whole(&mut self, _: &VpaKey) {
        self.1.push(self.0);
    }

    fn discard(&mut self, _: &VpaKey) {}
}

#[tokio::test]
async fn a_slice_holds_what_it_may_however_many_pods_there_are_or_come_to_be() {
    const DAY: i64 = 86_400;
    let budget = 6_000;
    let wanted = [(VpaKey::new("shop", "web"), Some("apps/StatefulSet/web".into()))].into();
    let schema = Arc::new(schema(60, 60));
    let plan = Plan::new(Weighting::default(), &schema);
    for (before, since) in [(40, 40), (1, 40), (40, 1), (4, 6)] {
        let client = client(Crowd { before, since, turn: DAY / 2 + 60, jobs: 0 });
        let way = Way { client, schema: Arc::clone(&schema), plan: plan.clone(), budget };
        let (mut batches, _) = Batch::all(&wanted);
        let span = (Time::from_secs(0), Time::from_secs(DAY));
        let mut part = Part::new(batches.remove(0), span);
        let (mut count, mut report) = (Count::default(), Report::default());
        while !part.is_done() {
            let slice = part.next(&way).await.expect("it is answered");
            assert!(slice.held() <= budget, "{} for {before} and {since}", slice.held());
            part.hand_on(slice, &way, &mut count, &mut report);
        }
        // CPU by the minute, memory each five.
        let samples = (before + since) * CONTAINERS.len() * (720 + 144);
        assert_eq!(count.0, samples as u64, "{before} and {since}: nothing twice, nothing lost");
        assert!(report.halvings < 10, "{report:?}");
    }
}

#[tokio::test]
async fn few_batches_are_begun_at_a_time_and_the_last_ones_end_together() {
    let vpa = |index: u64| VpaKey::new(format!("shop-{index}"), "web");
    let wanted = (0..20).map(|index| (vpa(index), Some("apps/StatefulSet/web".into())));
    let schema = Arc::new(schema(60, 60));
    let plan = Plan::new(Weighting::default(), &schema);
    let client = client(Crowd { before: 2, since: 2, turn: 0, jobs: 0 });
    let (batches, _) = Batch::all(&wanted.collect());
    let span = (Time::from_secs(0), Time::from_secs(86_400));
    let mut loading = Loading::new(client, schema, plan, 1_000, batches, span);
    let mut count = Count::default();
    loading.advance(&mut count).await.expect("it is answered");
    let Count(all, whole) = count;
    let share = |samples: u64| samples as f64 * 20.0 / all as f64;
    assert!(share(whole[0]) < 5.0, "{:.1} batches until the first is whole", share(whole[0]));
    // Of the last six one may have been nearly whole when there were six.
    let last = share(all - whole[15]);
    assert!(last < 1.0, "{last:.1} batches were left when four were not whole");
    assert_eq!(whole.len(), 20);
}

#[tokio::test]
async fn what_comes_in_one_step_is_read_whatever_it_is() {
    let wanted = [(VpaKey::new("shop", "web"), Some("apps/StatefulSet/web".into()))].into();
    let schema = Arc::new(schema(60, 60));
    let plan = Plan::new(Weighting::default(), &schema);
    let client = client(Crowd { before: 10, since: 10, turn: 0, jobs: 0 });
    let way = Way { client, schema, plan, budget: 1 };
    let (mut batches, _) = Batch::all(&wanted);
    let mut part = Part::new(batches.remove(0), (Time::from_secs(0), Time::from_secs(600)));
    let slice = part.next(&way).await.expect("it is answered");
    assert!(slice.held() > 10 * 3 * 6, "{}", slice.held());
}

#[tokio::test]
async fn owners_of_more_pods_than_anybody_would_hold_are_known() {
    // 40 MB of labels.
    const JOBS: usize = 80_000;
    let states = States {
        job: None,
        namespace: "namespace".to_owned(),
        pod: "pod".to_owned(),
        container: "container".to_owned(),
        families: ["kube_pod_owner".to_owned()].into(),
    };
    let schema = Schema { states: Some(states), ..schema(60, 60) };
    let client = client(Crowd { before: 0, since: 0, turn: 0, jobs: JOBS });
    let tick = Owner::parse("batch/CronJob/tick").expect("an owner");
    let span = (Time::from_secs(0), Time::from_secs(600));
    let proof = Proof::ask(&client, &schema, "shop", &[&tick], span).await.expect("it is answered");
    assert_eq!(proof.pods(), JOBS);
    assert_eq!(proof.says("tick-28000000-x2x4z", &tick), None, "nothing was said of it");
}
