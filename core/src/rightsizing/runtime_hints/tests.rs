//! Forms of settings that are in use, and what they mean.

use proptest::prelude::*;

use super::*;

const MI: i64 = 1 << 20;
const GI: i64 = 1 << 30;

fn literal(name: &str, value: &str) -> (Box<str>, EnvValue) {
    (name.into(), EnvValue::Literal(value.into()))
}

fn hint(command: &[&str], env: &[(Box<str>, EnvValue)]) -> Option<RuntimeHint> {
    let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    // The border between command and arguments makes no difference.
    let (command, args) = command.split_at(command.len() / 2);
    runtime_hint(command, args, env)
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with a hint, which may be absent")]
fn fixed(bytes: i64) -> Option<(Option<i64>, Option<u8>)> {
    Some((Some(bytes), None))
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with a hint, which may be absent")]
fn percent(percent: u8) -> Option<(Option<i64>, Option<u8>)> {
    Some((None, Some(percent)))
}

fn heap(hint: Option<RuntimeHint>) -> Option<(Option<i64>, Option<u8>)> {
    match hint? {
        RuntimeHint::Jvm { max_heap, max_heap_percent, .. } => {
            Some((max_heap.map(|heap| heap.0), max_heap_percent))
        }
        RuntimeHint::Go { .. } => None,
    }
}

#[test]
fn the_heap_on_a_command_line_is_the_one_that_the_jvm_uses() {
    for (line, expected) in [
        (&["java", "-Xmx2g", "-jar", "app.jar"][..], fixed(2 * GI)),
        (&["java", "-Xmx2G", "Main"], fixed(2 * GI)),
        (&["java", "-Xmx512m", "Main"], fixed(512 * MI)),
        (&["java", "-Xmx512M", "Main"], fixed(512 * MI)),
        (&["java", "-Xmx524288k", "Main"], fixed(512 * MI)),
        (&["java", "-Xmx1t", "Main"], fixed(1024 * GI)),
        (&["java", "-Xmx1073741824", "Main"], fixed(GI)),
        (&["java", "-Xmx0x40000000", "Main"], fixed(GI)),
        (&["java", "-mx256m", "Main"], fixed(256 * MI)),
        (&["java", "-XX:MaxHeapSize=3g", "Main"], fixed(3 * GI)),
        (&["java", "-XX:MaxHeapSize=1073741824", "Main"], fixed(GI)),
        (&["java", "-XX:MaxRAMPercentage=75", "Main"], percent(75)),
        (&["java", "-XX:MaxRAMPercentage=75.0", "Main"], percent(75)),
        (&["java", "-XX:MaxRAMPercentage=62.5", "Main"], percent(63)),
        (&["java", "-XX:MaxRAMPercentage=0.2", "Main"], percent(1)),
        (&["java", "-XX:MaxRAMPercentage=100", "Main"], percent(100)),
        (&["java", "-XX:MaxRAMFraction=2", "Main"], percent(50)),
        (&["java", "-XX:MaxRAMFraction=1", "-XX:MaxRAMPercentage=60", "Main"], percent(60)),
        // The last one counts, and a fixed heap before a percentage.
        (&["java", "-Xmx1g", "-Xmx2g", "Main"], fixed(2 * GI)),
        (&["java", "-Xmx1g", "-XX:MaxHeapSize=2g", "Main"], fixed(2 * GI)),
        (&["java", "-Xmx1g", "-XX:MaxRAMPercentage=75", "Main"], fixed(GI)),
        (&["java", "-XX:MaxRAMPercentage=50", "-XX:MaxRAMPercentage=70", "Main"], percent(70)),
        // Where options end.
        (&["java", "-jar", "app.jar", "-Xmx2g"], None),
        (&["java", "-cp", "a:b", "-Xmx1g", "Main", "-Xmx2g"], fixed(GI)),
        (&["java", "--add-opens", "a/b=ALL-UNNAMED", "-Xmx1g", "Main"], fixed(GI)),
        (&["/usr/lib/jvm/bin/java", "-Xmx1g", "-m", "mod/Main", "-Xmx2g"], fixed(GI)),
        (&["java", "Main", "-Xmx2g"], None),
        // Scripts.
        (&["sh", "-c", "exec java -Xmx1g -jar app.jar"], fixed(GI)),
        (&["bash", "-c", "java -Xms1g -Xmx\"2g\" -jar app.jar --x=-Xmx9g"], fixed(2 * GI)),
        (&["sh", "-c", "sleep 5; java '-Xmx1g' Main"], fixed(GI)),
        (&["/entrypoint.sh", "-Xmx1g"], fixed(GI)),
        (&["-Xmx1g", "-jar", "app.jar"], fixed(GI)),
        (&["gatling", "-J-Xmx1g"], fixed(GI)),
        // What the JVM rejects, or does not mean the maximum of the heap.
        (&["java", "-Xmx1.5g", "Main"], None),
        (&["java", "-Xmx", "Main"], None),
        (&["java", "-Xmx0", "Main"], None),
        (&["java", "-Xmx2gb", "Main"], None),
        (&["java", "-Xmx-2g", "Main"], None),
        (&["java", "-Xmx99999999999g", "Main"], None),
        (&["java", "-Xms2g", "-Xss1m", "Main"], None),
        (&["java", "-XX:MaxRAMPercentage=0", "Main"], None),
        (&["java", "-XX:MaxRAMPercentage=150", "Main"], None),
        (&["java", "-XX:MaxRAMPercentage=NaN", "Main"], None),
        (&["java", "-XX:InitialRAMPercentage=50", "Main"], None),
        (&["nginx", "-g", "daemon off;"], None),
        (&[], None),
    ] {
        assert_eq!(heap(hint(line, &[])), expected, "{line:?}");
    }
}

#[test]
fn variables_count_in_the_order_of_the_jvm() {
    let jvm = |known_by: &str, max_heap: Option<i64>, max_heap_percent| {
        let known_by = known_by.to_owned();
        Some(RuntimeHint::Jvm { known_by, max_heap: max_heap.map(Bytes), max_heap_percent })
    };
    let java = &["java", "-jar", "app.jar"][..];
    let from_secret = |name: &str| (Box::from(name), EnvValue::Other);
    for (line, env, expected) in [
        (
            java,
            vec![literal("JAVA_TOOL_OPTIONS", "-javaagent:/a.jar -XX:MaxRAMPercentage=75")],
            jvm("-XX:MaxRAMPercentage=75 in JAVA_TOOL_OPTIONS", None, Some(75)),
        ),
        (
            java,
            vec![literal("JDK_JAVA_OPTIONS", "-Xmx1g"), literal("JAVA_TOOL_OPTIONS", "-Xmx2g")],
            jvm("-Xmx1g in JDK_JAVA_OPTIONS", Some(GI), None),
        ),
        (
            &["java", "-Xmx3g", "Main"],
            vec![literal("JDK_JAVA_OPTIONS", "-Xmx1g")],
            jvm("-Xmx3g", Some(3 * GI), None),
        ),
        (
            &["java", "-Xmx3g", "Main"],
            vec![literal("_JAVA_OPTIONS", "-Xmx1g")],
            jvm("-Xmx1g in _JAVA_OPTIONS", Some(GI), None),
        ),
        (
            &["catalina.sh", "run"],
            vec![literal("JAVA_OPTS", "-Xmx1g")],
            jvm("-Xmx1g in JAVA_OPTS, if the start script passes it to java", Some(GI), None),
        ),
        (
            &["sh", "-c", "exec java $JAVA_OPTS -jar app.jar"],
            vec![literal("JAVA_OPTS", "-Xmx1g -Xmx2g")],
            jvm("-Xmx2g", Some(2 * GI), None),
        ),
        (
            &["java", "$(JAVA_OPTS)", "Main"],
            vec![literal("JAVA_TOOL_OPTIONS", "-Xmx1g"), literal("JAVA_OPTS", "-Xmx2g")],
            jvm("-Xmx2g", Some(2 * GI), None),
        ),
        (
            &["java", "-Xmx${HEAP}m", "Main"],
            vec![literal("HEAP", "512")],
            jvm("-Xmx512m", Some(512 * MI), None),
        ),
        (
            java,
            vec![literal("HEAP", "2g"), literal("JAVA_TOOL_OPTIONS", "-Xmx$(HEAP)")],
            jvm("-Xmx2g in JAVA_TOOL_OPTIONS", Some(2 * GI), None),
        ),
        // A variable that is listed later is not expanded.
        (java, vec![literal("JAVA_TOOL_OPTIONS", "-Xmx$(HEAP)"), literal("HEAP", "2g")], None),
        (java, vec![from_secret("JAVA_TOOL_OPTIONS")], None),
        (java, vec![literal("JAVA_TOOL_OPTIONS", "-Dx=y")], None),
        (
            &["server"],
            vec![literal("JAVA_TOOL_OPTIONS", "-Xmx1g"), literal("GOMEMLIMIT", "1GiB")],
            jvm("-Xmx1g in JAVA_TOOL_OPTIONS", Some(GI), None),
        ),
    ] {
        assert_eq!(hint(line, &env), expected, "{line:?} {env:?}");
    }
}

#[test]
fn the_memory_limit_of_go_is_fixed_or_follows_the_limit() {
    let go = |known_by: &str, memory_limit: Option<i64>, follows_limit| {
        let known_by = known_by.to_owned();
        Some(RuntimeHint::Go { known_by, memory_limit: memory_limit.map(Bytes), follows_limit })
    };
    let named = |value: EnvValue| vec![(Box::from("GOMEMLIMIT"), value)];
    let text = |text: &str| named(EnvValue::Literal(text.into()));
    let by_reference = |text: &str| {
        let limit = (Box::from("LIMIT"), EnvValue::MemoryLimit);
        vec![limit, literal("GOMEMLIMIT", text)]
    };
    for (env, expected) in [
        (text("1073741824"), go("GOMEMLIMIT=1073741824", Some(GI), false)),
        (text("1073741824B"), go("GOMEMLIMIT=1073741824B", Some(GI), false)),
        (text("1048576KiB"), go("GOMEMLIMIT=1048576KiB", Some(GI), false)),
        (text("512MiB"), go("GOMEMLIMIT=512MiB", Some(512 * MI), false)),
        (text("2GiB"), go("GOMEMLIMIT=2GiB", Some(2 * GI), false)),
        (text("1TiB"), go("GOMEMLIMIT=1TiB", Some(1024 * GI), false)),
        (text("off"), None),
        (text("2Gi"), None),
        (text("2GB"), None),
        (text("1.5GiB"), None),
        (text("2gib"), None),
        (text("-1GiB"), None),
        (text(""), None),
        (named(EnvValue::MemoryLimit), go("GOMEMLIMIT from limits.memory", None, true)),
        (named(EnvValue::Other), go("GOMEMLIMIT", None, false)),
        (by_reference("$(LIMIT)"), go("GOMEMLIMIT from limits.memory", None, true)),
        (by_reference("$(LIMIT)B"), go("GOMEMLIMIT from limits.memory", None, true)),
        (by_reference("$(OTHER)"), None),
        (vec![literal("GOGC", "50")], go("GOGC=50", None, false)),
        (vec![literal("GOGC", "off")], go("GOGC=off", None, false)),
        (vec![literal("GOGC", "-1")], go("GOGC=-1", None, false)),
        (vec![literal("GOGC", "yes please")], None),
        (vec![literal("GOGC", "")], None),
        (
            vec![literal("GOGC", "50"), literal("GOMEMLIMIT", "1GiB")],
            go("GOMEMLIMIT=1GiB", Some(GI), false),
        ),
        (vec![], None),
    ] {
        assert_eq!(hint(&["/server"], &env), expected, "{env:?}");
    }
    let script = ["sh", "-c", "GOMEMLIMIT=2GiB exec /server"];
    assert_eq!(hint(&script, &text("1GiB")), go("GOMEMLIMIT=2GiB", Some(2 * GI), false));
}

#[test]
fn references_to_references_do_not_grow_without_bound() {
    let mut env = vec![literal("V0", &"x".repeat(100))];
    for index in 1..60 {
        let previous = format!("$(V{})", index - 1);
        env.push(literal(&format!("V{index}"), &previous.repeat(10)));
    }
    let expanded = Environment::new(&env, &mut { MAX_ADDED });
    assert!(expanded.0.values().all(|(value, _)| {
        value.as_ref().is_some_and(|value| value.len() <= MAX_EXPANDED + 100)
    }));
}

#[test]
fn many_references_add_a_bounded_number_of_bytes() {
    let mut env = vec![literal("A", &"x".repeat(MAX_EXPANDED))];
    env.extend((0..1000).map(|index| literal(&format!("V{index}"), "$(A)")));
    let mut room = MAX_ADDED;
    let expanded = Environment::new(&env, &mut room);
    let added: usize =
        expanded.0.values().filter_map(|(value, _)| Some(value.as_ref()?.len())).sum();
    assert!(added <= MAX_ADDED + MAX_EXPANDED + 4 * env.len(), "{added}");
    assert_eq!(expanded.get("V0"), Some((Some(&*"x".repeat(MAX_EXPANDED)), false)));
    assert_eq!(expanded.get("V999"), Some((Some("$(A)"), false)));
}

#[test]
fn references_that_do_not_end_stay() {
    let open = "$(".repeat(350_000);
    let expanded = Environment::new(&[], &mut { MAX_ADDED }).expand(&open, &mut { MAX_ADDED });
    assert!(expanded == open);
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(
        line in proptest::collection::vec("(-Xmx|-XX:MaxRAMPercentage=|\\$\\(|\\$\\{|\\PC){0,8}", 0..5),
        value in "(\\$\\(A\\)|\\$|\\PC){0,8}",
    ) {
        let env = [literal("A", &value), literal("GOMEMLIMIT", &value), literal("JAVA_OPTS", &value)];
        if let Some(RuntimeHint::Jvm { max_heap: Some(heap), .. }) = runtime_hint(&line, &line, &env) {
            prop_assert!(heap.0 > 0);
        }
    }

    #[test]
    fn any_size_is_read_back(size in 1_i64..1 << 20, unit in 0_usize..4) {
        let (letter, shift) = [("k", 10), ("M", 20), ("g", 30), ("", 0)][unit];
        let line = ["java".to_owned(), format!("-Xmx{size}{letter}"), "Main".to_owned()];
        let expected = fixed(size << shift);
        prop_assert_eq!(heap(runtime_hint(&line, &[], &[])), expected);
    }
}
