//! Tests must not depend on the wall clock. Bounds are asserted on virtual time, CPU or counts; waits have generous
//! timeouts.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::{assert_clean, sources};

/// The shortest lease that survives a stall of some seconds.
const SHORTEST_LEASE: f64 = 9.0;

const ELAPSED: &str = "elapsed time in an assertion";
const SLEEP: &str = "a sleep";
const LEASE: &str = "a short lease";
const MEMORY: &str = "resident memory";

/// Exceptions, with the reason why each does not bound a test.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "src/controllers/runtime/loop_watchdog.rs",
        SLEEP,
        "the test needs some time to pass, no matter how much",
    ),
    ("tests/cluster_writes/election.rs", SLEEP, "the poll interval of a thread that checks fences"),
    ("tests/command_line.rs", LEASE, "rejected flags"),
    ("tests/deploy/scenario.rs", SLEEP, "the pause between two background changes"),
    ("tests/deploy/datadog_controller.rs", SLEEP, "the poll interval of a wait"),
    ("tests/recommender_differential/live.rs", ELAPSED, "the timeout of a wait"),
    ("tests/architecture/wall_clock.rs", LEASE, "examples of findings"),
    ("tests/prometheus/recommender/fallback.rs", SLEEP, "the poll interval of a wait"),
    ("tests/prometheus/proxy.rs", SLEEP, "a slow server"),
    ("tests/recommender/faults/process_kill.rs", SLEEP, "a kill at a random time"),
    (
        "tests/recommender/faults/api_server_throttling.rs",
        ELAPSED,
        "a rate: the bound grows with the time that has passed",
    ),
    ("tests/recommender/faults/slow_writes.rs", SLEEP, "a slow server"),
    ("tests/all_in_one/deep.rs", SLEEP, "an API server that hangs for minutes"),
    ("tests/metric_sources/loopback_server.rs", SLEEP, "a slow server"),
    ("tests/storage/process_kill.rs", SLEEP, "a kill at a random time"),
    ("tests/support/testbed/prestart.rs", SLEEP, "the poll interval of a wait"),
    ("tests/support/control_plane.rs", ELAPSED, "the timeout of a wait"),
    ("tests/support/control_plane.rs", SLEEP, "the poll interval of a wait"),
    ("tests/support/bulk_objects.rs", SLEEP, "the pause before a retry of a write"),
    ("tests/support/hollow_nodes/agent.rs", SLEEP, "the pause before a watch restarts"),
    (
        "tests/support/hollow_nodes/pod_processes.rs",
        SLEEP,
        "the interval at which a node polls its processes",
    ),
    ("tests/support/wait.rs", ELAPSED, "the timeout of all waits"),
    ("tests/support/wait.rs", SLEEP, "the poll interval of all waits"),
    ("tests/updater/workload_kinds.rs", SLEEP, "the pause between two background writes"),
];

/// A finding: line and rule.
type Found = (usize, &'static str);

/// All identifiers of a token stream, recursively.
fn words(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => found.push(ident.to_string()),
            TokenTree::Group(group) => found.extend(words(group.stream())),
            _ => {}
        }
    }
    found
}

fn is_of_time(tokens: TokenStream, tainted: &BTreeSet<String>) -> bool {
    let text: String = tokens.to_string().split_whitespace().collect();
    let is_one = |word: &String| word == "elapsed" || tainted.contains(word);
    text.contains("Instant::now()-") || words(tokens).iter().any(is_one)
}

/// The bodies of functions that do not run on virtual time.
fn bodies(tokens: TokenStream, found: &mut Vec<TokenStream>) {
    let (mut is_virtual, mut is_function) = (false, false);
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                if let Some(TokenTree::Group(attribute)) = tokens.peek() {
                    is_virtual |=
                        words(attribute.stream()).iter().any(|word| word == "start_paused");
                }
            }
            TokenTree::Ident(word) if word == "fn" => is_function = true,
            TokenTree::Punct(mark) if mark.as_char() == ';' => {
                (is_virtual, is_function) = (false, false);
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                if is_function && !is_virtual {
                    found.push(group.stream());
                } else if !is_function {
                    bodies(group.stream(), found);
                }
                (is_virtual, is_function) = (false, false);
            }
            _ => {}
        }
    }
}

/// Walks a body statement by statement: variables with elapsed times, assertions about them, and sleeps.
fn walk(body: TokenStream, tainted: &mut BTreeSet<String>, found: &mut Vec<Found>) {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if word == "let" => {
                let end = tokens[at..].iter().position(|token| is_mark(token, ';'));
                let statement = &tokens[at + 1..end.map_or(tokens.len(), |end| at + end)];
                let Some(equals) = statement.iter().position(|token| is_mark(token, '=')) else {
                    continue;
                };
                let (pattern, value) = statement.split_at(equals);
                if is_of_time(value.iter().cloned().collect(), tainted) {
                    tainted.extend(words(pattern.iter().cloned().collect()));
                }
            }
            TokenTree::Ident(word) if word.to_string().starts_with("assert") => {
                if let (Some(mark), Some(TokenTree::Group(group))) =
                    (tokens.get(at + 1), tokens.get(at + 2))
                    && is_mark(mark, '!')
                    && is_of_time(group.stream(), tainted)
                {
                    found.push((word.span().start().line, ELAPSED));
                }
            }
            TokenTree::Ident(word) if word == "sleep" => {
                if let Some(TokenTree::Group(_)) = tokens.get(at + 1) {
                    found.push((word.span().start().line, SLEEP));
                }
            }
            TokenTree::Group(group) => walk(group.stream(), tainted, found),
            _ => {}
        }
    }
}

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

/// Parses a duration flag into seconds.
fn seconds(text: &str) -> Option<f64> {
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let number: f64 = text[..digits].parse().ok()?;
    let unit: String = text[digits..].chars().take_while(char::is_ascii_alphabetic).collect();
    let of_one = match &*unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Some(number * of_one)
}

fn in_lines(path: &str, text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let durations = line.split("lease-duration=").skip(1).filter_map(seconds);
        if durations.into_iter().any(|lease| lease < SHORTEST_LEASE) {
            found.push((number + 1, LEASE));
        }
        let is_deep = path.split(['/', '.']).any(|part| part == "deep");
        if line.contains(concat!("Vm", "RSS")) && !is_deep {
            found.push((number + 1, MEMORY));
        }
    }
    found
}

/// The findings in a file, without exceptions.
fn all(path: &str, text: &str) -> Vec<Found> {
    // In other folders only a file's test module is checked.
    let begins =
        if path.starts_with("tests/") { Some(0) } else { text.find("\n#[cfg(test)]\nmod tests {") };
    let Some(begins) = begins else { return Vec::new() };
    let (before, text) = (text[..begins].matches('\n').count(), &text[begins..]);
    let tokens: TokenStream = text.parse().expect("source that compiles");
    let mut functions = Vec::new();
    let mut found = if before == 0 { in_lines(path, text) } else { Vec::new() };
    // If all tests of a file use virtual time, so do its helpers.
    let paused = text.matches("start_paused = true").count();
    let tests = text.matches("#[test]").count() + text.matches("#[tokio::test").count();
    if paused == 0 || paused < tests {
        bodies(tokens, &mut functions);
    }
    for body in functions {
        walk(body, &mut BTreeSet::new(), &mut found);
    }
    found.into_iter().map(|(line, rule)| (before + line, rule)).collect()
}

fn findings(path: &str, text: &str) -> Vec<String> {
    let excepted = |rule: &str| EXCEPTIONS.iter().any(|(file, is, _)| *file == path && *is == rule);
    let found = all(path, text).into_iter().filter(|(_, rule)| !excepted(rule));
    found
        .map(|(line, rule)| {
            format!("{path}:{line}: {rule}: assert virtual time, CPU or counts, and wait with wait::until")
        })
        .collect()
}

#[test]
fn no_test_depends_on_the_wall_clock() {
    let files = sources(&["charts", "core", "src", "storage", "tests"]);
    assert_clean(&files, findings);
    for (path, rule, why) in EXCEPTIONS {
        let text = files.iter().find(|(file, _)| file == path).map(|(_, text)| text);
        let is_needed = text.is_some_and(|text| all(path, text).iter().any(|(_, is)| is == rule));
        assert!(is_needed, "{path} no longer has {rule} ({why}): remove the exception");
    }
}

#[test]
fn each_dependency_on_the_wall_clock_is_found() {
    let test = |body: &str| format!("#[tokio::test]\nasync fn a() {{\n{body}\n}}");
    for (rule, body) in [
        (ELAPSED, "assert!(begun.elapsed() < LIMIT);"),
        (ELAPSED, "let took = begun.elapsed();\nassert!(took < LIMIT, \"{took:?}\");"),
        (ELAPSED, "let took = Instant::now() - begun; assert_eq!(took, LIMIT);"),
        (
            ELAPSED,
            "let (one, two) = (begun.elapsed(), 1);\nlet most = 15.0 * one;\nassert!(two < most);",
        ),
        (ELAPSED, "for a in b { if c { assert!(LIMIT > begun.elapsed()); } }"),
        (SLEEP, "tokio::time::sleep(Duration::from_secs(3)).await;"),
        (SLEEP, "std::thread::sleep(PAUSE);"),
        (SLEEP, "wait(|| async { sleep(PAUSE).await });"),
        (LEASE, "start(&[\"--leader-elect-lease-duration=3s\"]);"),
        (LEASE, "start(&[\"--leader-elect-lease-duration=500ms\"]);"),
        (MEMORY, concat!("let line = find(\"Vm", "RSS:\");")),
    ] {
        let found = all("tests/any.rs", &test(body));
        assert_eq!(found.iter().map(|(_, rule)| *rule).collect::<Vec<_>>(), [rule], "{body}");
        let within = format!("fn b() {{}}\n\n#[cfg(test)]\nmod tests {{\n{}\n}}", test(body));
        let is_in_any = [ELAPSED, SLEEP].contains(&rule);
        assert_eq!(all("src/any.rs", &within).len(), usize::from(is_in_any), "{body}");
    }
    for body in [
        "wait::until(\"it leads\", || async { begun.elapsed() });",
        "assert!(proxy.count() < 60, \"{}\", proxy.count());",
        "start(&[\"--leader-elect-lease-duration=9s\", \"--other-lease-duration=2m\"]);",
    ] {
        assert_eq!(all("tests/any.rs", &test(body)), [], "{body}");
    }
    let paused = test("sleep(SECOND).await;\nassert_eq!(begun.elapsed(), SECOND);");
    let paused = paused.replace("#[tokio::test]", "#[tokio::test(start_paused = true)]");
    assert_eq!(all("tests/any.rs", &paused), []);
    // A test without virtual time in the same file is still found.
    let both = format!("{paused}\n{}", test("sleep(SECOND).await;"));
    assert_eq!(all("tests/any.rs", &both).len(), 1);
    assert_eq!(all("src/any.rs", "fn a() { sleep(PAUSE); }"), [], "the program may");
    assert_eq!(all("tests/any/deep.rs", &test(concat!("let line = find(\"Vm", "RSS:\");"))), []);
}
