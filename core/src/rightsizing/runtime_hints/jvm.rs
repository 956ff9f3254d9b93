//! The maximum heap of a JVM by its options.

use super::{Environment, scaled_bytes, words};
use crate::{rightsizing::survey::RuntimeHint, types::units::Bytes};

/// Options of the launcher whose value is the next word.
const WITH_VALUE: [&str; 15] = [
    "-cp",
    "-classpath",
    "--class-path",
    "-p",
    "--module-path",
    "--upgrade-module-path",
    "--add-modules",
    "--add-exports",
    "--add-opens",
    "--add-reads",
    "--limit-modules",
    "--patch-module",
    "--enable-native-access",
    "-d",
    "--describe-module",
];

/// An option for the heap, and where it was found.
#[derive(Clone, Debug)]
struct HeapOption {
    size: HeapSize,
    known_by: String,
}

#[derive(Clone, Copy, Debug)]
enum HeapSize {
    Fixed(Bytes),
    Percent(u8),
    /// By the deprecated `MaxRAMFraction`: counts only without a percentage.
    Fraction(u8),
}

/// The last options of each kind.
#[derive(Debug, Default)]
struct HeapOptions {
    fixed: Option<HeapOption>,
    percent: Option<HeapOption>,
    fraction: Option<HeapOption>,
}

impl HeapOptions {
    fn add<'a>(&mut self, words: impl IntoIterator<Item = &'a str>, origin: &str) {
        for word in words {
            let Some(size) = heap_size(word) else { continue };
            let option = HeapOption { size, known_by: format!("{word}{origin}") };
            match size {
                HeapSize::Fixed(_) => self.fixed = Some(option),
                HeapSize::Percent(_) => self.percent = Some(option),
                HeapSize::Fraction(_) => self.fraction = Some(option),
            }
        }
    }

    fn add_variable(&mut self, env: &Environment<'_>, name: &str, remark: &str) {
        if let Some(text) = env.literal(name) {
            let words = words(text);
            self.add(words.iter().map(String::as_str), &format!(" in {name}{remark}"));
        }
    }

    fn hint(self) -> Option<RuntimeHint> {
        let HeapOption { size, known_by } = self.fixed.or(self.percent).or(self.fraction)?;
        Some(match size {
            HeapSize::Fixed(bytes) => {
                RuntimeHint::Jvm { known_by, max_heap: Some(bytes), max_heap_percent: None }
            }
            HeapSize::Percent(percent) | HeapSize::Fraction(percent) => {
                RuntimeHint::Jvm { known_by, max_heap: None, max_heap_percent: Some(percent) }
            }
        })
    }
}

pub(super) fn jvm_hint(line: &[String], env: &Environment<'_>) -> Option<RuntimeHint> {
    let mut options = HeapOptions::default();
    options.add_variable(env, "JAVA_TOOL_OPTIONS", "");
    options.add_variable(env, "JDK_JAVA_OPTIONS", "");
    options.add(jvm_words(line), "");
    options.add_variable(env, "_JAVA_OPTIONS", "");
    options.hint().or_else(|| {
        let mut by_script = HeapOptions::default();
        by_script.add_variable(env, "JAVA_OPTS", ", if the start script passes it to java");
        by_script.hint()
    })
}

/// The words of a command line that the JVM reads: not those after the JAR file or the main class.
fn jvm_words(line: &[String]) -> Vec<&str> {
    let (mut found, mut words) = (Vec::new(), line.iter().map(String::as_str));
    // Without the launcher on the command line, a script may pass its arguments to it.
    let (mut is_launched, mut is_application) = (false, false);
    while let Some(word) = words.next() {
        if is_launcher(word) {
            (is_launched, is_application) = (true, false);
            continue;
        }
        if is_application {
            continue;
        }
        match word {
            "-jar" | "-m" | "--module" => {
                words.next();
                is_application = true;
            }
            _ if WITH_VALUE.contains(&word) => {
                words.next();
            }
            _ if word.starts_with('-') => found.push(word.strip_prefix("-J").unwrap_or(word)),
            _ => is_application = is_launched,
        }
    }
    found
}

fn is_launcher(word: &str) -> bool {
    word.rsplit('/').next() == Some("java")
}

fn heap_size(word: &str) -> Option<HeapSize> {
    let prefixes = ["-Xmx", "-mx", "-XX:MaxHeapSize="];
    if let Some(size) = prefixes.iter().find_map(|prefix| word.strip_prefix(prefix)) {
        return jvm_bytes(size).map(HeapSize::Fixed);
    }
    if let Some(percent) = word.strip_prefix("-XX:MaxRAMPercentage=") {
        let is_number = percent.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let percent: f64 = percent.parse().ok().filter(|_| is_number)?;
        let is_valid = percent > 0.0 && percent <= 100.0;
        return is_valid.then(|| HeapSize::Percent(percent.round().max(1.0) as u8));
    }
    let fraction: f64 = word.strip_prefix("-XX:MaxRAMFraction=")?.parse::<u8>().ok()?.into();
    (fraction > 0.0).then(|| HeapSize::Fraction((100.0 / fraction).round().max(1.0) as u8))
}

/// A number of bytes as the JVM reads it: decimal or hexadecimal, with a unit in either case or without.
fn jvm_bytes(text: &str) -> Option<Bytes> {
    let units = [('k', 10), ('m', 20), ('g', 30), ('t', 40)];
    let last = text.chars().next_back()?.to_ascii_lowercase();
    let unit = units.iter().find(|(unit, _)| *unit == last);
    let (number, shift) = match unit {
        Some((_, shift)) => (&text[..text.len() - 1], *shift),
        None => (text, 0),
    };
    match number.strip_prefix("0x").or(number.strip_prefix("0X")) {
        Some(digits) => scaled_bytes(digits, 16, shift),
        None => scaled_bytes(number, 10, shift),
    }
}
