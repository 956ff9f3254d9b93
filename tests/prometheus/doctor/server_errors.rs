//! What does not answer, or not as a Prometheus does, is one line or one finding, soon and without secrets.

use std::net::TcpListener;

use jiff::SignedDuration;

use super::{codes, days, doctor, examine, finding, flags, shop};
use crate::prometheus::auth::loopback_server::{LoopbackServer, error_response, ok_response};
use crate::prometheus::label_flavors::OPERATOR;
use crate::prometheus::proxy::{Fault, FaultyProxy};
use crate::support::prometheus_server::{PrometheusRelease, PrometheusServer};

const LOGIN: &str = "<!doctype html><html><head><title>Sign in to Acme</title></head></html>";

async fn refused(arguments: &[&str], code: i32) -> String {
    let output = doctor(arguments).await;
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("plimsoll: ") && output.stdout.is_empty(), "{said}");
    said
}

#[tokio::test]
async fn whatever_answers_no_queries_is_one_line() {
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mute = format!("http://{}", mute.local_addr().expect("an address"));
    for (address, words) in [("http://127.0.0.1:1", "cannot be reached"), (&*mute, "within 5s")] {
        let flag = format!("--prometheus-address={address}");
        let said = refused(&[&flag, "-o", "json"], 1).await;
        assert!(said.contains(address) && said.contains(words), "{said}");
        assert!(!said.contains("asked again later"), "{said}");
    }
    let said = refused(&["--prometheus-address=prometheus:9090"], 1).await;
    assert!(said.contains("the address of the Prometheus"), "{said}");

    let server = LoopbackServer::start(|asked| match asked.header("authorization") {
        "Bearer sesame" => {
            ok_response(r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#)
        }
        _ => error_response(401),
    })
    .await;
    let address = format!("--prometheus-address={}", server.address);
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "hunter2\n").expect("writes");
    let file = format!("--prometheus-bearer-token-file={}", token.display());
    let said = refused(&[&address, &file], 1).await;
    assert!(said.contains("does not accept this bearer token (401)"), "{said}");
    std::fs::write(&token, "sesame\n").expect("writes");
    let (report, _) = examine(&server.address, &[&file]).await;
    assert_eq!(codes(&report), ["usage_missing"], "it lets us in: {report:#}");
    assert!(flags(&report).contains(&file), "{report:#}");
}

#[tokio::test]
async fn a_server_that_hangs_holds_nobody_and_what_was_not_asked_is_said() {
    let history = shop(&OPERATOR, days(1, SignedDuration::from_mins(1)));
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let way = FaultyProxy::start(&server.url()).await;
    for (answers, known, unknown) in [
        // It lets us in, and no more.
        (1, &[][..], "what the server is and keeps; what its series are called"),
        // Names are found, and then it hangs.
        (20, &["server_kind", "usage", "interval"], "what reading it costs"),
    ] {
        // What is fine needs some of that time, too: more of it where the machine stood still.
        let mut deadlines = [3, 15, 60].into_iter();
        let report = loop {
            let deadline = deadlines.next().expect("it answers within a minute what it answers");
            let flags = [&*format!("--deadline={deadline}s"), "--history-length=20h"];
            let fine = std::iter::repeat_n(Fault::None, answers);
            way.fail_next(fine.chain(std::iter::repeat_n(Fault::Hang, 200)));
            let (report, exit) = examine(way.url(), &flags).await;
            let (level, words) = finding(&report, "deadline").expect("it is reported");
            let begins = format!("After {deadline} s");
            assert!(level == "problem" && words.starts_with(&begins), "{words}");
            assert_eq!(exit, Some(1));
            if words.contains(unknown) && known.iter().all(|code| finding(&report, code).is_some())
            {
                break report;
            }
        };
        let judged = ["history_length", "history_short", "history_none", "usage_missing"];
        let judged = judged.into_iter().filter(|code| finding(&report, code).is_some());
        assert_eq!(judged.collect::<Vec<_>>(), Vec::<&str>::new(), "nothing is known of it");
    }
}

#[tokio::test]
async fn a_login_page_before_a_server_is_called_what_it_is() {
    let history = days(1, SignedDuration::from_mins(5)).series("up", &[], |_| Some(1.0));
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let way = FaultyProxy::start(&server.url()).await;
    let address = format!("--prometheus-address={}", way.url());
    for (fault, words) in [
        (Fault::Replaced(200, "text/html", LOGIN), "titled \"Sign in to Acme\""),
        (Fault::Redirect, "/login (302)"),
        (Fault::Replaced(503, "text/plain", "starting"), "the server is too busy"),
        (Fault::Replaced(500, "text/html", "oops"), "the server failed"),
    ] {
        way.fail_next([fault]);
        let said = refused(&[&address], 1).await;
        assert!(said.contains(words) && said.contains(way.url()), "{said}");
    }
    // Once it has answered, a question that fails is a finding of its own.
    way.fail_next([Fault::None, Fault::Replaced(404, "text/plain", "404 page not found")]);
    let (report, exit) = examine(way.url(), &[]).await;
    assert_eq!(exit, Some(1));
    assert_eq!(report["server"]["kind"], "unknown", "{report:#}");
}

#[tokio::test]
async fn secrets_are_not_repeated_and_what_contradicts_itself_is_usage() {
    let empty = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
    let server = LoopbackServer::start(move |_| ok_response(empty)).await;
    let address = server.address.replace("http://", "http://amy:hunter2@");
    let address = format!("--prometheus-address={address}/?key=hunter2");
    let secrets = ["--prometheus-header=X-Key: hunter2", "--prometheus-tenant=team"];
    for form in ["text", "json"] {
        let output = doctor(&[&[&*address, "-o", form], &secrets[..]].concat()).await;
        let [said, warned] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8"));
        assert!(!said.contains("hunter2") && !warned.contains("hunter2"), "{said}{warned}");
        assert!(said.contains("--prometheus-tenant=team"), "{said}");
        assert!(said.contains("--prometheus-header"), "{said}");
        assert!(warned.contains("--prometheus-header on the command line"), "{warned}");
    }
    for contradiction in [
        ["--prometheus-auth=google", "--username=amy"],
        ["--prometheus-insecure", "--prometheus-ca-file=/ca"],
        ["--prometheus-matcher=cluster=qa", "--no-color"],
        ["--history-length=8", "--no-color"],
        ["--prometheus-adress=x", "--no-color"],
    ] {
        refused(&contradiction, 2).await;
    }
}
