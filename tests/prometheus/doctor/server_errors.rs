//! A server that does not respond, or not as Prometheus does, gives one line or one finding, quickly and without
//! secrets.

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
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("plimsoll: ") && output.stdout.is_empty(), "{stderr}");
    stderr
}

#[tokio::test]
async fn an_address_that_is_no_prometheus_is_a_one_line_error() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = format!("http://{}", silent.local_addr().expect("an address"));
    for (address, words) in [("http://127.0.0.1:1", "cannot be reached"), (&*silent, "within 5s")] {
        let flag = format!("--prometheus-address={address}");
        let stderr = refused(&[&flag, "-o", "json"], 1).await;
        assert!(stderr.contains(address) && stderr.contains(words), "{stderr}");
        assert!(!stderr.contains("will be retried"), "{stderr}");
    }
    let stderr = refused(&["--prometheus-address=prometheus:9090"], 1).await;
    assert!(stderr.contains("the Prometheus address"), "{stderr}");

    let server = LoopbackServer::start(|request| match request.header("authorization") {
        "Bearer sesame" => {
            ok_response(r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#)
        }
        _ => error_response(401),
    })
    .await;
    let address = format!("--prometheus-address={}", server.address);
    let folder = tempfile::tempdir().expect("temporary directory");
    let token = folder.path().join("token");
    std::fs::write(&token, "hunter2\n").expect("writes");
    let file = format!("--prometheus-bearer-token-file={}", token.display());
    let stderr = refused(&[&address, &file], 1).await;
    assert!(stderr.contains("rejected this bearer token (401)"), "{stderr}");
    std::fs::write(&token, "sesame\n").expect("writes");
    let (report, _) = examine(&server.address, &[&file]).await;
    assert_eq!(codes(&report), ["usage_missing"], "authenticated: {report:#}");
    assert!(flags(&report).contains(&file), "{report:#}");
}

#[tokio::test]
async fn a_hanging_server_does_not_block_and_skipped_checks_are_reported() {
    let history = shop(&OPERATOR, days(1, SignedDuration::from_mins(1)));
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let proxy = FaultyProxy::start(&server.url()).await;
    for (answers, known, unknown) in [
        // It accepts the credentials and fails everything after that.
        (1, &[][..], "what the server is and keeps; what its series are called"),
        // The names are found, then it hangs.
        (20, &["server_kind", "usage", "interval"], "what reading it costs"),
    ] {
        // Healthy requests need some of the timeout too, and more on a slow machine.
        let mut deadlines = [3, 15, 60].into_iter();
        let report = loop {
            let deadline = deadlines.next().expect("responds within a minute");
            let flags = [&*format!("--deadline={deadline}s"), "--history-length=20h"];
            let fine = std::iter::repeat_n(Fault::None, answers);
            proxy.fail_next(fine.chain(std::iter::repeat_n(Fault::Hang, 200)));
            let (report, exit) = examine(proxy.url(), &flags).await;
            let (level, words) = finding(&report, "deadline").expect("reported");
            let begins = format!("The deadline of {deadline} s passed");
            assert!(level == "problem" && words.starts_with(&begins), "{words}");
            assert_eq!(exit, Some(1));
            if words.contains(unknown) && known.iter().all(|code| finding(&report, code).is_some())
            {
                break report;
            }
        };
        let findings = ["history_length", "history_short", "history_none", "usage_missing"];
        let findings = findings.into_iter().filter(|code| finding(&report, code).is_some());
        assert_eq!(findings.collect::<Vec<_>>(), Vec::<&str>::new(), "unknown");
    }
}

#[tokio::test]
async fn a_login_page_in_front_of_the_server_is_reported_as_such() {
    let history = days(1, SignedDuration::from_mins(5)).series("up", &[], |_| Some(1.0));
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let proxy = FaultyProxy::start(&server.url()).await;
    let address = format!("--prometheus-address={}", proxy.url());
    for (fault, words) in [
        (Fault::Replaced(200, "text/html", LOGIN), "titled \"Sign in to Acme\""),
        (Fault::Redirect, "/login (302)"),
        (Fault::Replaced(503, "text/plain", "starting"), "the server is too busy"),
        (Fault::Replaced(500, "text/html", "oops"), "the server failed"),
    ] {
        proxy.fail_next([fault]);
        let stderr = refused(&[&address], 1).await;
        assert!(stderr.contains(words) && stderr.contains(proxy.url()), "{stderr}");
    }
    // Once it has responded, a failed query is a finding of its own.
    proxy.fail_next([Fault::None, Fault::Replaced(404, "text/plain", "404 page not found")]);
    let (report, exit) = examine(proxy.url(), &[]).await;
    assert_eq!(exit, Some(1));
    assert_eq!(report["server"]["kind"], "unknown", "{report:#}");
}

#[tokio::test]
async fn secrets_are_not_printed_and_contradictory_flags_are_usage_errors() {
    let empty = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
    let server = LoopbackServer::start(move |_| ok_response(empty)).await;
    let address = server.address.replace("http://", "http://amy:hunter2@");
    let address = format!("--prometheus-address={address}/?key=hunter2");
    let secrets = ["--prometheus-header=X-Key: hunter2", "--prometheus-tenant=team"];
    for form in ["text", "json"] {
        let output = doctor(&[&[&*address, "-o", form], &secrets[..]].concat()).await;
        let [stderr, warned] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8"));
        assert!(!stderr.contains("hunter2") && !warned.contains("hunter2"), "{stderr}{warned}");
        assert!(stderr.contains("--prometheus-tenant=team"), "{stderr}");
        assert!(stderr.contains("--prometheus-header"), "{stderr}");
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
