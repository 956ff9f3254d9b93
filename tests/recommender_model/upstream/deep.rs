//! Upstream's code itself, on many cases and on the recorded ones.

use std::{
    fmt::Write as _,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use super::{
    CONTAINER_RETURNS, Life, RECORDED, Recorded, Recording, compare, random_cases, recorded,
};
use crate::support::{random, skipped::report_skipped, tier, upstream_recording};

/// Number of cases per process.
const AT_ONCE: u64 = 400;

/// Runs upstream's code on these cases and returns its output.
fn run_upstream(program: &Path, lives: &[Life]) -> Vec<String> {
    let mut text = String::new();
    for life in lives {
        for event in &life.events {
            match &life.checkpoint {
                Some(found) if event == CONTAINER_RETURNS => {
                    writeln!(text, r#"{{"do":"return","checkpoint":{found}}}"#)
                }
                _ => writeln!(text, "{event}"),
            }
            .expect("fits");
        }
    }
    let mut child = Command::new(program)
        .arg("replay")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("upstream's model starts");
    let mut input = child.stdin.take().expect("has an input");
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("upstream's model ends");
    writer.join().expect("writes").expect("everything is read");
    assert!(output.status.success(), "{}", output.status);
    let answers: Vec<_> =
        String::from_utf8(output.stdout).expect("is text").lines().map(str::to_owned).collect();
    assert_eq!(answers.len(), lives.len());
    answers
}

#[expect(clippy::print_stdout, reason = "the seed replays what failed")]
fn compare_lives(restarts: bool) {
    let program = match xtask::test_programs::autoscaler_model() {
        Ok(program) => program,
        Err(reason) => return report_skipped(format!("{reason:#}")),
    };
    let seed = random::seed(1);
    println!("{}={seed}", random::SEED);
    let first = seed % 1_000_000_000 * 1_000_000;
    for chunk in 0..tier::cases(1, 10) {
        let first = first + chunk * AT_ONCE;
        let lives = random_cases(first..first + AT_ONCE, restarts);
        for (life, answer) in lives.iter().zip(run_upstream(&program, &lives)) {
            assert_eq!(compare(life, &answer), Ok(()), "case {}", life.case);
        }
    }
}

#[test]
fn random_histories_give_the_same_numbers_as_upstream() {
    compare_lives(false);
}

#[test]
fn histories_continue_after_a_restart_as_upstreams_do() {
    compare_lives(true);
}

/// A result without its time, which upstream's code takes from the system clock.
fn timeless(answer: &str) -> serde_json::Value {
    let mut answer: serde_json::Value = serde_json::from_str(answer).expect("JSON");
    let checkpoint = answer["checkpoint"].as_object_mut().expect("a checkpoint");
    checkpoint.remove("lastUpdateTime").expect("upstream's code sets it");
    answer
}

#[test]
fn upstream_gives_the_recorded_numbers() {
    let program = match xtask::test_programs::autoscaler_model() {
        Ok(program) => program,
        Err(reason) => return report_skipped(format!("{reason:#}")),
    };
    let (both, recording) = recorded();
    let [without_restarts, with_restarts] = both.map(|lives| {
        let answers = run_upstream(&program, &lives);
        for (life, answer) in lives.iter().zip(&answers) {
            assert_eq!(compare(life, answer), Ok(()), "case {}", life.case);
        }
        let recorded = lives.into_iter().zip(answers);
        recorded.map(|(life, answer)| Recorded { checkpoint: life.checkpoint, answer }).collect()
    });
    let recorded_now = Recording { without_restarts, with_restarts };
    if upstream_recording::is_recording() {
        return recording.write(&recorded_now);
    }
    let recorded = recording.read::<Recording>();
    for (recorded, recorded_now) in [
        (recorded.without_restarts, recorded_now.without_restarts),
        (recorded.with_restarts, recorded_now.with_restarts),
    ] {
        assert_eq!(recorded.len(), recorded_now.len());
        for (case, (recorded, recorded_now)) in RECORDED.zip(recorded.iter().zip(&recorded_now)) {
            assert_eq!(recorded.checkpoint, recorded_now.checkpoint, "case {case}");
            assert_eq!(timeless(&recorded.answer), timeless(&recorded_now.answer), "case {case}");
        }
    }
}
