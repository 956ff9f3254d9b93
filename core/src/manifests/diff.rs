//! The difference of two texts in the unified format that `patch` and `git apply -p0` read.
//!
//! The texts differ in a few lines that stay at their place, so both are walked together: after a difference,
//! the closest pair of equal lines continues. A general algorithm would find the same, with work that grows
//! with the whole text.

use std::fmt::Write as _;

/// Lines of context around a change.
const CONTEXT: usize = 3;
/// How many lines after a difference are searched for equal lines.
const WINDOW: usize = 64;

/// Lines that one text has and the other does not: `before[a..a + removed]` and `after[b..b + added]`.
#[derive(Clone, Copy, Debug)]
struct Difference {
    a: usize,
    removed: usize,
    b: usize,
    added: usize,
}

/// The difference of two texts of one file; empty if they are equal.
pub fn unified_diff(path: &str, before: &str, after: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) =
        (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let differences = differences(&a, &b);
    if differences.is_empty() {
        return String::new();
    }
    let name = file_name(path);
    let mut text = format!("--- {name}\n+++ {name}\n");
    let mut rest = &differences[..];
    while let Some(first) = rest.first() {
        let mut count = 1;
        let mut last = first;
        while let Some(next) = rest.get(count) {
            if next.a - (last.a + last.removed) > 2 * CONTEXT {
                break;
            }
            last = next;
            count += 1;
        }
        write_hunk(&mut text, &a, &b, &rest[..count]);
        rest = &rest[count..];
    }
    text
}

fn differences(a: &[&str], b: &[&str]) -> Vec<Difference> {
    let (mut i, mut j) = (0, 0);
    let mut found: Vec<Difference> = Vec::new();
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            i += 1;
            j += 1;
            continue;
        }
        let (removed, added) = next_equal(&a[i..], &b[j..]);
        match found.last_mut() {
            Some(last) if last.a + last.removed == i && last.b + last.added == j => {
                last.removed += removed;
                last.added += added;
            }
            _ => found.push(Difference { a: i, removed, b: j, added }),
        }
        i += removed;
        j += added;
    }
    found
}

/// How many lines of each text precede the closest pair of equal lines.
fn next_equal(a: &[&str], b: &[&str]) -> (usize, usize) {
    for distance in 1..=WINDOW {
        for removed in 0..=distance {
            let added = distance - removed;
            let equal = match (a.get(removed), b.get(added)) {
                (Some(one), Some(other)) => one == other,
                (None, None) => removed == a.len() && added == b.len(),
                _ => false,
            };
            if equal {
                return (removed, added);
            }
        }
    }
    (a.len().min(1), b.len().min(1))
}

fn write_hunk(text: &mut String, a: &[&str], b: &[&str], differences: &[Difference]) {
    let (Some(first), Some(last)) = (differences.first(), differences.last()) else { return };
    let lead = first.a.min(CONTEXT).min(first.b);
    let (a_end, b_end) = (last.a + last.removed, last.b + last.added);
    let tail = (a.len() - a_end).min(CONTEXT);
    let (a_start, b_start) = (first.a - lead, first.b - lead);
    let (a_count, b_count) = (a_end + tail - a_start, b_end + tail - b_start);
    // An empty range is stated as the line before it.
    let start = |start: usize, count: usize| if count == 0 { start } else { start + 1 };
    let (a_line, b_line) = (start(a_start, a_count), start(b_start, b_count));
    // Writing to a String cannot fail.
    let _ = writeln!(text, "@@ -{a_line},{a_count} +{b_line},{b_count} @@");
    let mut at = a_start;
    for difference in differences {
        write_lines(text, ' ', &a[at..difference.a]);
        write_lines(text, '-', &a[difference.a..difference.a + difference.removed]);
        write_lines(text, '+', &b[difference.b..difference.b + difference.added]);
        at = difference.a + difference.removed;
    }
    write_lines(text, ' ', &a[at..a_end + tail]);
}

fn write_lines(text: &mut String, sign: char, lines: &[&str]) {
    for line in lines {
        text.push(sign);
        text.push_str(line);
        if !line.ends_with('\n') {
            text.push_str("\n\\ No newline at end of file\n");
        }
    }
}

/// A path as git writes it: in quotes if it has characters that end a name.
fn file_name(path: &str) -> String {
    if !path.contains(|c: char| c.is_control() || matches!(c, '"' | '\\')) {
        return path.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in path.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(quoted, "\\{byte:03o}");
                }
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Applies a difference as `patch` does, without tolerance.
    fn applied(before: &str, diff: &str) -> String {
        let before: Vec<&str> = before.split_inclusive('\n').collect();
        let (mut result, mut at) = (String::new(), 0);
        let mut lines = diff.lines().skip(2).peekable();
        while let Some(line) = lines.next() {
            if let Some(header) = line.strip_prefix("@@ -") {
                let (start, count) =
                    header.split(' ').next().and_then(|r| r.split_once(',')).expect("a range");
                let (start, count): (usize, usize) =
                    (start.parse().expect("a line"), count.parse().expect("a count"));
                let start = if count == 0 { start } else { start - 1 };
                result.extend(before[at..start].iter().copied());
                at = start;
                continue;
            }
            let (sign, content) = line.split_at(1);
            let no_newline = lines.next_if(|next| next.starts_with('\\')).is_some();
            let content = if no_newline { content.to_owned() } else { format!("{content}\n") };
            if sign != "+" {
                assert_eq!(before[at], content);
                at += 1;
            }
            if sign != "-" {
                result.push_str(&content);
            }
        }
        result.extend(before[at..].iter().copied());
        result
    }

    fn lines() -> impl Strategy<Value = String> {
        (prop::collection::vec(0_u8..4, 0..30), any::<bool>()).prop_map(|(lines, ends)| {
            let text: Vec<String> = lines.iter().map(|line| format!("line {line}")).collect();
            let text = text.join("\n");
            if ends && !text.is_empty() { text + "\n" } else { text }
        })
    }

    proptest! {
        #[test]
        fn a_difference_leads_from_one_text_to_the_other(before in lines(), after in lines()) {
            let diff = unified_diff("a", &before, &after);
            prop_assert_eq!(diff.is_empty(), before == after);
            prop_assert_eq!(applied(&before, &diff), after);
        }
    }

    #[test]
    fn distant_changes_are_hunks_of_their_own() {
        let before = (0..30).map(|line| format!("{line}\n")).collect::<Vec<_>>().concat();
        let after = before.replace("5\n6\n", "5\nsix\n").replace("20\n", "");
        assert_eq!(
            unified_diff("dir/a.yaml", &before, &after),
            "--- dir/a.yaml\n+++ dir/a.yaml\n\
             @@ -4,7 +4,7 @@\n 3\n 4\n 5\n-6\n+six\n 7\n 8\n 9\n\
             @@ -18,7 +18,6 @@\n 17\n 18\n 19\n-20\n 21\n 22\n 23\n"
        );
        assert_eq!(
            unified_diff("a", "x", "y\n"),
            "--- a\n+++ a\n@@ -1,1 +1,1 @@\n-x\n\\ No newline at end of file\n+y\n"
        );
    }

    #[test]
    fn texts_without_equal_lines_take_little_work() {
        let before = (0..20_000).map(|line| format!("a{line}\n")).collect::<Vec<_>>().concat();
        let after = before.replace('a', "b");
        assert_eq!(applied(&before, &unified_diff("a", &before, &after)), after);
    }

    #[test]
    fn unusual_names_are_quoted() {
        assert_eq!(file_name("a b/ü.yaml"), "a b/ü.yaml");
        assert_eq!(file_name("a\n\"\u{1b}"), "\"a\\n\\\"\\033\"");
    }
}
