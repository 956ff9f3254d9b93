//! The flags by which a recommender reads history from a server as it was found.

use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC, WithOrigin};

use super::ProbeResults;

/// The flags to use, each as a shell takes it.
pub(super) fn flags(facts: &ProbeResults) -> Vec<String> {
    let mut flags = vec!["--storage=prometheus".to_owned()];
    flags.extend(facts.given_flags.iter().cloned());
    let Ok(schema) = &facts.schema.answer else { return flags };
    let usage = &schema.usage;
    // Where it has two paths, one of them is chosen whoever says the job.
    let job = usage.job.value.as_deref().unwrap_or_default();
    flags.push(shell_flag("prometheus-cadvisor-job-name", job));
    let mut name = |flag_name: &str, WithOrigin { value, .. }: &WithOrigin<String>, usual: &str| {
        if value != usual {
            flags.push(shell_flag(flag_name, value));
        }
    };
    name("history-cpu-metric", &usage.cpu, CPU_METRIC);
    name("history-memory-metric", &usage.memory, MEMORY_METRIC);
    // Even where they are upstream's defaults: then they need not be looked for.
    name("container-namespace-label", &usage.namespace, "");
    name("container-pod-name-label", &usage.pod, "");
    name("container-name-label", &usage.container, "");
    flags
}

/// A flag as a shell takes it.
pub fn shell_flag(name: &str, value: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._/:=@,+%".contains(letter);
    if value.chars().all(plain) {
        format!("--{name}={value}")
    } else {
        format!("--{name}='{}'", value.replace('\'', r"'\''"))
    }
}
