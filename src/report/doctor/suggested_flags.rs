//! The flags with which a recommender reads history from the server.

use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC, WithOrigin};

use super::ProbeResults;

/// Returns the suggested flags, quoted for a shell.
pub(super) fn flags(facts: &ProbeResults) -> Vec<String> {
    let mut flags = vec!["--storage=prometheus".to_owned()];
    flags.extend(facts.given_flags.iter().cloned());
    let Ok(schema) = &facts.schema.answer else { return flags };
    let usage = &schema.usage;
    // If the job has two metrics paths, the recommender selects one itself when the job is given.
    let job = usage.job.value.as_deref().unwrap_or_default();
    flags.push(shell_flag("prometheus-cadvisor-job-name", job));
    let mut name = |flag_name: &str, WithOrigin { value, .. }: &WithOrigin<String>, usual: &str| {
        if value != usual {
            flags.push(shell_flag(flag_name, value));
        }
    };
    name("history-cpu-metric", &usage.cpu, CPU_METRIC);
    name("history-memory-metric", &usage.memory, MEMORY_METRIC);
    // Given even if they equal upstream's defaults, so that the recommender need not detect them.
    name("container-namespace-label", &usage.namespace, "");
    name("container-pod-name-label", &usage.pod, "");
    name("container-name-label", &usage.container, "");
    flags
}

/// Formats a flag, quoted for a shell if necessary.
pub fn shell_flag(name: &str, value: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._/:=@,+%".contains(letter);
    if value.chars().all(plain) {
        format!("--{name}={value}")
    } else {
        format!("--{name}='{}'", value.replace('\'', r"'\''"))
    }
}
