//! The flags by which a recommender reads history from a server as it was found.

use plimsoll_storage::prometheus::schema::{CPU, Fact, MEMORY};

use super::Facts;

/// The flags to use, each as a shell takes it.
pub(super) fn flags(facts: &Facts) -> Vec<String> {
    let mut flags = vec!["--storage=prometheus".to_owned()];
    flags.extend(facts.given.iter().cloned());
    let Ok(schema) = &facts.schema.answer else { return flags };
    let usage = &schema.usage;
    // Where it has two paths, one of them is chosen whoever says the job.
    let job = usage.job.value.as_deref().unwrap_or_default();
    flags.push(flag("prometheus-cadvisor-job-name", job));
    let mut name = |flag_name: &str, Fact { value, .. }: &Fact<String>, usual: &str| {
        if value != usual {
            flags.push(flag(flag_name, value));
        }
    };
    name("history-cpu-metric", &usage.cpu, CPU);
    name("history-memory-metric", &usage.memory, MEMORY);
    // Even where they are upstream's defaults: then they need not be looked for.
    name("container-namespace-label", &usage.namespace, "");
    name("container-pod-name-label", &usage.pod, "");
    name("container-name-label", &usage.container, "");
    flags
}

/// A flag as a shell takes it.
pub fn flag(name: &str, value: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._/:=@,+%".contains(letter);
    if value.chars().all(plain) {
        format!("--{name}={value}")
    } else {
        format!("--{name}='{}'", value.replace('\'', r"'\''"))
    }
}
