//! Settings of the JVM and of Go in the command, the arguments and the environment of a container.
//!
//! The JVM reads `JAVA_TOOL_OPTIONS`, `JDK_JAVA_OPTIONS`, its command line and `_JAVA_OPTIONS`, in this order, and the last
//! value of an option counts. A fixed heap takes precedence over a percentage, whatever their order. `JAVA_OPTS` is read
//! by start scripts only, so it counts where the command line refers to it, or else only if nothing else is known.

mod jvm;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::{rightsizing::survey::RuntimeHint, types::units::Bytes};

use self::jvm::jvm_hint;

/// The length up to which references to variables are expanded. References to references could multiply without it.
const MAX_EXPANDED: usize = 16 << 10;

/// The bytes that references may add to the texts of a container altogether.
const MAX_ADDED: usize = 1 << 20;

/// The value of an environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvValue {
    /// A text, which may refer to earlier variables: `$(NAME)`.
    Literal(Box<str>),
    /// The memory limit of the container, by `resourceFieldRef: limits.memory`.
    MemoryLimit,
    /// From a Secret, a ConfigMap or another field.
    Other,
}

/// The settings of a runtime that determine its memory. `env` has names and values in the order of the container.
pub fn runtime_hint(
    command: &[String],
    args: &[String],
    env: &[(Box<str>, EnvValue)],
) -> Option<RuntimeHint> {
    let mut room = MAX_ADDED;
    let env = Environment::new(env, &mut room);
    let elements = command.iter().chain(args);
    let line: Vec<String> =
        elements.flat_map(|element| words(&env.expand(element, &mut room))).collect();
    jvm_hint(&line, &env).or_else(|| go_hint(&line, &env))
}

/// The variables of a container by name, expanded: the value, if known, and whether it is the memory limit of
/// the container. The last variable of a name counts.
struct Environment<'a>(HashMap<&'a str, (Option<String>, bool)>);

impl<'a> Environment<'a> {
    fn new(variables: &'a [(Box<str>, EnvValue)], room: &mut usize) -> Self {
        let mut known = Self(HashMap::with_capacity(variables.len()));
        for (name, value) in variables {
            let entry = match value {
                // The kubelet expands references to variables that are listed before.
                EnvValue::Literal(text) => {
                    let follows_limit = known.is_memory_limit(text);
                    (Some(known.expand(text, room)), follows_limit)
                }
                EnvValue::MemoryLimit => (None, true),
                EnvValue::Other => (None, false),
            };
            known.0.insert(name, entry);
        }
        known
    }

    fn get(&self, name: &str) -> Option<(Option<&str>, bool)> {
        let (value, follows_limit) = self.0.get(name)?;
        Some((value.as_deref(), *follows_limit))
    }

    fn literal(&self, name: &str) -> Option<&str> {
        self.get(name)?.0
    }

    /// Whether a text is a reference to the memory limit, with or without the unit of bytes.
    fn is_memory_limit(&self, text: &str) -> bool {
        let reference = text.strip_suffix('B').unwrap_or(text);
        let name = reference.strip_prefix("$(").and_then(|rest| rest.strip_suffix(')'));
        name.and_then(|name| self.get(name)).is_some_and(|(_, follows_limit)| follows_limit)
    }

    /// Replaces `$(NAME)`, and `$NAME` and `${NAME}` as a shell does. References that are unknown, or for whose
    /// values there is no room, stay.
    fn expand(&self, text: &str, room: &mut usize) -> String {
        let (mut expanded, mut rest) = (String::new(), text);
        while let Some(at) = rest.find('$') {
            expanded.push_str(&rest[..at]);
            let reference = &rest[at..];
            let (name, length) = reference_name(reference);
            match self.literal(name) {
                Some(value)
                    if expanded.len() + value.len() <= MAX_EXPANDED && value.len() <= *room =>
                {
                    *room -= value.len();
                    expanded.push_str(value);
                }
                _ => expanded.push_str(&reference[..length]),
            }
            rest = &reference[length..];
        }
        expanded.push_str(rest);
        expanded
    }
}

/// Variables of a container may have dots and dashes, which a shell does not know.
fn is_bracketed(byte: u8) -> bool {
    is_name_byte(byte) || matches!(byte, b'-' | b'.')
}

/// The name in a reference at the start of a text, and the length of the reference. The name is empty if there is none.
fn reference_name(text: &str) -> (&str, usize) {
    for (open, close) in [("$(", ')'), ("${", '}')] {
        if let Some(rest) = text.strip_prefix(open) {
            // Not searched further than a name goes: a text may have many references that do not end.
            let name = rest.find(|c: char| !(c.is_ascii() && is_bracketed(c as u8)));
            return match name {
                Some(end) if rest[end..].starts_with(close) => (&rest[..end], end + 3),
                _ => ("", open.len()),
            };
        }
    }
    let name = &text[1..];
    let end = name.find(|c: char| !(c.is_ascii() && is_name_byte(c as u8))).unwrap_or(name.len());
    (&name[..end], end + 1)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The words of an element of the command line: it may be a script for a shell. Quotes are removed.
fn words(element: &str) -> Vec<String> {
    let unquoted = |word: &str| word.replace(['"', '\''], "");
    element.split_ascii_whitespace().map(unquoted).collect()
}

/// The settings of Go. A variable that the command line sets takes precedence.
fn go_hint(line: &[String], env: &Environment<'_>) -> Option<RuntimeHint> {
    let assigned = line.iter().rev().find_map(|word| word.strip_prefix("GOMEMLIMIT="));
    let (text, follows_limit) = match assigned {
        Some(text) => (Some(text), env.is_memory_limit(text)),
        None => match env.get("GOMEMLIMIT") {
            Some(found) => found,
            None => return go_by_collector(env),
        },
    };
    let memory_limit = text.filter(|_| !follows_limit).and_then(go_bytes);
    let known_by = match text {
        _ if follows_limit => "GOMEMLIMIT from limits.memory".to_owned(),
        Some(text) if memory_limit.is_some() => format!("GOMEMLIMIT={text}"),
        // `off`, or what Go rejects.
        Some(_) => return go_by_collector(env),
        None => "GOMEMLIMIT".to_owned(),
    };
    Some(RuntimeHint::Go { known_by, memory_limit, follows_limit })
}

fn go_by_collector(env: &Environment<'_>) -> Option<RuntimeHint> {
    // Go ignores anything else.
    let is_valid = |text: &&str| *text == "off" || text.parse::<i32>().is_ok();
    let text = env.literal("GOGC").filter(is_valid)?;
    let known_by = format!("GOGC={text}");
    Some(RuntimeHint::Go { known_by, memory_limit: None, follows_limit: false })
}

/// A number of bytes as Go reads it. Its suffixes are case-sensitive, and there are no decimal ones.
fn go_bytes(text: &str) -> Option<Bytes> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("B", 0)];
    let (digits, shift) = units
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))
        .unwrap_or((text, 0));
    scaled_bytes(digits, 10, shift)
}

/// Digits times a power of two; `None` if there are no digits only, or if the amount is zero or too large.
fn scaled_bytes(digits: &str, radix: u32, shift: u32) -> Option<Bytes> {
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = is_number.then(|| i64::from_str_radix(digits, radix).ok()).flatten()?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).map(Bytes)
}
