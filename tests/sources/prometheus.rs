//! Queries of autoscalers: asked once a period by however many, added up, and unknown for a reason.

use std::{sync::Arc, time::Duration};

use plimsoll::observe::source::promql::{Queries, TenantScope};
use plimsoll_core::scaling::{Answer, Unknown};
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    client::{Client, Limits},
    door::{Door, DoorConfig, Wall},
};

use super::stage::{Reply, Server};
use crate::support::clock::wall_now;

const PERIOD: Duration = Duration::from_secs(15);
const NOW: Time = Time::from_secs(1_800_000_000);

fn limits() -> Limits {
    Limits { in_flight: 2, timeout: Duration::from_secs(20), ..Limits::default() }
}

fn queries(server: &Server, limits: Limits) -> Queries {
    let config = DoorConfig { address: server.at(""), ..DoorConfig::default() };
    let door = Door::new(config, Wall::new(|| wall_now().into())).expect("an address");
    Queries::new(Client::new(Arc::new(door), limits), PERIOD)
}

fn result(kind: &str, result: &str) -> Reply {
    let data = format!(r#"{{"resultType":"{kind}","result":{result}}}"#);
    Reply::json(format!(r#"{{"status":"success","data":{data}}}"#))
}

/// Series with these values now.
fn vector(values: &[&str]) -> Reply {
    let series = |(place, value): (usize, &&str)| {
        format!(r#"{{"metric":{{"a":"{place}"}},"value":[1800000000,"{value}"]}}"#)
    };
    let series: Vec<_> = values.iter().enumerate().map(series).collect();
    result("vector", &format!("[{}]", series.join(",")))
}

async fn ask(reply: Reply) -> Result<Answer, Unknown> {
    let server = Server::plain(move |_| reply.clone()).await;
    queries(&server, limits()).ask("shop", "sum(up)", NOW, None).await
}

#[tokio::test]
async fn the_samples_of_an_answer_are_added_up() {
    for (reply, sum) in [
        (vector(&["42"]), 42_000),
        (vector(&["0.1", "0.2", "-0.0001"]), 300),
        (vector(&["0"]), 0),
        (vector(&["1e300", "1"]), i64::MAX),
        (result("scalar", r#"[1800000000,"1.5"]"#), 1500),
    ] {
        assert_eq!(ask(reply).await, Ok(Answer::Sum { sum, at: Some(NOW) }));
    }
}

#[tokio::test]
async fn an_answer_that_is_no_number_is_no_zero() {
    assert_eq!(ask(vector(&[])).await, Err(Unknown::Empty("Prometheus")));
    for value in ["NaN", "+Inf", "-Inf"] {
        assert_eq!(ask(vector(&["1", value])).await, Err(Unknown::NotANumber), "{value}");
    }
    let scalar = result("scalar", r#"[1800000000,"NaN"]"#);
    assert_eq!(ask(scalar).await, Err(Unknown::NotANumber));
    let histogram = r#"[{"metric":{},"value":[1800000000,"1"]},
        {"metric":{"a":"b"},"histogram":[1800000000,{"count":"1","sum":"1","buckets":[]}]}]"#;
    assert_eq!(ask(result("vector", histogram)).await, Err(Unknown::NotANumber));
    let matrix = r#"[{"metric":{},"values":[[1799999990,"1"],[1800000000,"2"]]}]"#;
    let partial = Reply::json(
        r#"{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}"#,
    );
    let bad = r#"{"status":"error","errorType":"bad_data","error":"1:1: parse\nerror"}"#;
    for (reply, words) in [
        (result("matrix", matrix), "the query answers a range and no number"),
        (result("string", r#"[1800000000,"x"]"#), "the query answers a text and no number"),
        (partial, "the server's answer is partial"),
        (Reply::new(400, bad), "does not take the query: bad_data: 1:1: parse error"),
        (Reply::new(500, "oops"), "the server failed"),
        (Reply::new(401, ""), "401"),
        (Reply::json("<html>"), "no Prometheus"),
    ] {
        let why = ask(reply).await.expect_err(words);
        assert_eq!(why.word(), "error", "{why}");
        let told = why.to_string();
        assert!(told.starts_with("unable to ask the Prometheus: "), "{told}");
        assert!(told.contains(words) && !told.contains('\n'), "{words}: {told}");
    }
}

#[tokio::test]
async fn a_query_that_cannot_be_right_is_not_even_asked() {
    let server = Server::plain(|_| vector(&["1"])).await;
    let told = queries(&server, limits())
        .ask("shop", "sum(up", NOW, None)
        .await
        .expect_err("no query")
        .to_string();
    assert!(told.contains("a bracket is not closed"), "{told}");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn many_who_ask_the_same_at_once_are_one_question_and_its_answer_lasts_for_a_period() {
    let server = Server::plain(|_| vector(&["1"]).after(Duration::from_millis(100))).await;
    let queries = queries(&server, limits());
    let at = |seconds: u64| NOW.later(Duration::from_secs(seconds));
    let many = (0..50).map(|second| queries.ask("shop", "up", at(second % 3), None));
    let answers = futures::future::join_all(many).await;
    assert!(answers.iter().all(|answer| answer == &answers[0]));
    assert_eq!(server.asked().len(), 1);
    queries.ask("shop", "up", at(14), None).await.expect("kept");
    assert_eq!(server.asked().len(), 1, "it is of this period");
    queries.ask("shop", "up", at(15), None).await.expect("asked anew");
    assert_eq!(server.asked().len(), 2);
    assert!(server.asked()[1].body.contains("time=1800000015"), "{:?}", server.asked());
    queries.ask("shop", "down", at(15), None).await.expect("another one");
    assert_eq!(server.asked().len(), 3);
    queries.ask("shop", "up", at(200), None).await.expect("asked anew");
    queries.ask("shop", "down", at(200), None).await.expect("asked anew, though it was forgotten");
    assert_eq!(server.asked().len(), 5);
}

#[tokio::test]
async fn whoever_had_an_answer_is_told_something_new_in_the_next_period_however_late_the_last_turn_was()
 {
    let server = Server::plain(|_| vector(&["1"])).await;
    let queries = queries(&server, limits());
    let mut had = None;
    for (turn, late) in [0, 300, 100, 7500, 0, 10_000, 50].into_iter().enumerate() {
        let at = NOW.later(PERIOD * turn as u32).later(Duration::from_millis(late));
        queries.ask("shop", "up", at, had).await.expect("it answers");
        assert_eq!(server.asked().len(), turn + 1, "{late}");
        had = Some(at.later(Duration::from_millis(20)));
        // Who tries again after a failure asks nobody for more.
        queries.ask("shop", "up", at.later(Duration::from_secs(1)), had).await.expect("kept");
        assert_eq!(server.asked().len(), turn + 1, "{late}");
    }
}

#[tokio::test]
async fn a_query_of_many_who_are_spread_over_the_period_is_asked_once_in_each() {
    let server = Server::plain(|_| vector(&["1"])).await;
    let queries = queries(&server, limits());
    let mut had = [None; 30];
    for period in 0..4_u32 {
        for (place, had) in had.iter_mut().enumerate() {
            // A little late, now and then.
            let late = Duration::from_millis((place as u64 * 7 + u64::from(period) * 29) % 40);
            let at = NOW.later(PERIOD * period).later(PERIOD * place as u32 / 30).later(late);
            queries.ask("shop", "up", at, *had).await.expect("it answers");
            *had = Some(at.later(Duration::from_millis(5)));
        }
        assert_eq!(server.asked().len(), period as usize + 1);
    }
}

#[tokio::test]
async fn a_failure_is_an_answer_until_the_period_is_over() {
    let server = Server::plain(|asked| {
        if asked.body.contains("time=1800000000") { Reply::new(500, "") } else { vector(&["1"]) }
    })
    .await;
    let queries = queries(&server, limits());
    let later = NOW.later(Duration::from_secs(1));
    let first = queries.ask("shop", "up", NOW, None).await.expect_err("it failed");
    assert_eq!(queries.ask("shop", "up", later, None).await, Err(first));
    assert_eq!(server.asked().len(), 1, "nobody tries again at once");
    queries.ask("shop", "up", NOW.later(PERIOD), None).await.expect("it is well again");
}

#[tokio::test]
async fn a_deaf_server_is_waited_for_no_longer_than_one_query_takes() {
    let server = Server::plain(|_| vector(&["1"]).after(Duration::from_mins(1))).await;
    let limits = Limits { timeout: Duration::from_millis(300), ..limits() };
    let queries = queries(&server, limits);
    let texts: Vec<_> = (0..20).map(|number| format!("up + {number}")).collect();
    let answers =
        futures::future::join_all(texts.iter().map(|text| queries.ask("shop", text, NOW, None)))
            .await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(Unknown::Failed(_)))), "{answers:?}");
    assert!(server.asked().len() <= 4, "two at once, and no more once those were not answered");
}

fn scope(unrestricted: &[&str]) -> TenantScope {
    let unrestricted = unrestricted.iter().map(|name| (*name).to_owned()).collect();
    TenantScope { label: "namespace".to_owned(), unrestricted }
}

/// What a server was asked, each query once decoded.
fn texts(server: &Server) -> Vec<String> {
    let query = |body: String| {
        form_urlencoded::parse(body.as_bytes())
            .find_map(|(key, value)| (key == "query").then(|| value.into_owned()))
    };
    server.asked().into_iter().filter_map(|asked| query(asked.body)).collect()
}

#[tokio::test]
async fn queries_of_a_namespace_read_its_own_series_unless_it_is_listed() {
    let server = Server::plain(|_| vector(&["1"])).await;
    let queries = queries(&server, limits()).within(scope(&["platform"]));
    for namespace in ["shop", "platform", "bank"] {
        queries.ask(namespace, "sum(load)", NOW, None).await.expect("it answers");
    }
    let own = r#"sum(load{namespace="shop"})"#;
    assert_eq!(texts(&server), [own, "sum(load)", r#"sum(load{namespace="bank"})"#]);
    queries.ask("shop", "sum(load)", NOW, None).await.expect("kept");
    assert_eq!(server.asked().len(), 3, "the answer is shared within a namespace only");
    let told = queries.ask("shop", r#"load{namespace="bank"}"#, NOW, None).await;
    let told = told.expect_err("another namespace").to_string();
    assert!(told.contains(r#"only series with namespace="shop" may be read"#), "{told}");
    assert_eq!(server.asked().len(), 3, "it was not sent");
    queries.ask("platform", r#"load{namespace="bank"}"#, NOW, None).await.expect("it may");
    let all = Queries::within(queries, scope(&["*"]));
    all.ask("shop", r#"load{namespace="other"}"#, NOW, None).await.expect("all may");
    assert_eq!(server.asked().len(), 5);
}

#[tokio::test]
async fn slow_queries_of_one_namespace_leave_room_for_those_of_others() {
    let server = Server::plain(|asked| {
        let is_slow = asked.body.contains("slow");
        vector(&["1"]).after(if is_slow { Duration::from_mins(1) } else { Duration::ZERO })
    })
    .await;
    let limits = Limits { in_flight: 4, timeout: Duration::from_mins(10), ..limits() };
    let queries = Arc::new(queries(&server, limits));
    let slow = (0..8).map(|number| {
        let queries = Arc::clone(&queries);
        let query = format!("slow + {number}");
        tokio::spawn(async move { queries.ask("shop", &query, NOW, None).await })
    });
    let slow: Vec<_> = slow.collect();
    while server.asked().is_empty() {
        tokio::task::yield_now().await;
    }
    queries.ask("bank", "up", NOW, None).await.expect("there is room for it");
    assert_eq!(texts(&server).iter().filter(|text| text.contains("slow")).count(), 1);
    slow.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn the_age_of_a_selector_is_that_of_its_oldest_sample() {
    let server = Server::plain(|asked| {
        if asked.body.contains("timestamp") {
            vector(&["1799999990", "1799999970.5"])
        } else {
            vector(&["1", "2"])
        }
    })
    .await;
    let aged = queries(&server, limits()).telling_age();
    let oldest = Time::from_nanos(1_799_999_970_500_000_000);
    let sum = |at| Ok(Answer::Sum { sum: 3000, at: Some(at) });
    assert_eq!(aged.ask("shop", "up # all", NOW, None).await, sum(oldest));
    assert_eq!(aged.ask("shop", "sum(up)", NOW, None).await, sum(NOW), "it is worked out now");
    assert_eq!(
        queries(&server, limits()).ask("shop", "up", NOW, None).await,
        sum(NOW),
        "nobody wants to know"
    );
}
